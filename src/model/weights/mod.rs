//! Named weights of a model's files, as they lie there.
//!
//! [`gguf`] and [`safetensors`] read the two formats; both give [`RawTensor`]s through
//! [`WeightSource`]. Files are not trusted: every count, offset and length is checked against
//! the file's size before anything is allocated or read.

mod bytes;
pub mod gguf;

pub use bytes::Bytes;

use anyhow::{Result, bail};
use candle_core::quantized::GgmlDType;
use std::borrow::Cow;

/// A tensor as its file has it: row-major, `shape` outermost first (`[out, in]` for a matrix),
/// of any type that GGUF files use (f32, f16 and bf16 among them).
#[derive(Debug, Clone)]
pub struct RawTensor<'a> {
    /// Its name in the file, for messages.
    pub name: String,
    /// Outermost first.
    pub shape: Vec<usize>,
    /// How `bytes` are to be read.
    pub dtype: GgmlDType,
    /// The numbers; the length fits `shape` and `dtype`.
    pub bytes: Cow<'a, [u8]>,
}

/// Bytes of a tensor of `shape` and `dtype`.
///
/// # Errors
/// When the size overflows, or a row is not a whole number of the type's blocks.
fn byte_len(name: &str, shape: &[usize], dtype: GgmlDType) -> Result<usize> {
    let row = shape.last().copied().unwrap_or(1);
    let block = dtype.block_size();
    if row % block != 0 {
        bail!(
            "tensor {name}: rows of {row} numbers are not whole {dtype:?} blocks of {block}; \
             the file is damaged"
        );
    }
    shape
        .iter()
        .try_fold(1usize, |n, &d| n.checked_mul(d))
        .and_then(|n| (n / block).checked_mul(dtype.type_size()))
        .ok_or_else(|| anyhow::anyhow!("tensor {name}: shape {shape:?} is too large"))
}
