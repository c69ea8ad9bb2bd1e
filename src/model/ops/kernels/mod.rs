//! Kernels for few rows on the CPU.
//!
//! - [`simd`]: one vector abstraction for all instruction sets, and the choice of one;
//! - [`pool`], [`shared`], [`spare`]: threads, memory that they fill together, and buffers that
//!   are used again;
//! - [`memory`]: huge pages for weights and caches;
//! - [`ggml`], [`pack`], [`matrix`]: weights out of files, and the layouts that products read;
//! - [`input`], [`product`]: activations, rounded to bytes, and `x · Wᵀ`;
//! - [`cache`], [`attention`]: keys and values, and what looks them up;
//! - [`bandwidth`]: how fast memory is;
//! - [`math`], [`choose`]: what stands between the products, and the choice of a token.
//!
//! All of it gives a row the same bits whatever rows stand beside it, on any number of threads,
//! with any instruction set.

#![allow(unsafe_code)]

pub mod attention;
pub mod bandwidth;
pub mod cache;
pub mod choose;
pub mod ggml;
pub mod input;
pub mod math;
pub mod matrix;
pub mod memory;
pub mod pack;
pub mod pool;
pub mod product;
pub mod shared;
pub mod simd;
pub mod spare;
