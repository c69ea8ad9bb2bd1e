//! The networks: what they are ([`config`]), their numbers ([`weights`]), the arithmetic
//! ([`ops`]), and the two of them: [`decoder`] (the target) and [`draft`], with what DFlash 2 adds to
//! it ([`convolution`], [`selector`]). [`pair`] holds both
//! with their caches and offers them to decoding as [`networks::Networks`]. [`tokenizer`] turns
//! text into ids and back.

pub mod config;
mod convolution;
pub mod decoder;
pub mod draft;
pub mod networks;
pub mod ops;
pub mod pair;
mod selector;
pub mod tokenizer;
pub mod weights;
