//! The networks: what they are ([`config`]), their numbers ([`weights`]), the arithmetic
//! ([`ops`]), and the two of them: [`decoder`] (the target) and [`draft`]. [`tokenizer`] turns
//! text into ids and back.

pub mod config;
pub mod ops;
pub mod tokenizer;
pub mod weights;
