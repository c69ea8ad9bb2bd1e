//! Named weights of a model's files, as they lie there.
//!
//! [`gguf`] and [`safetensors`] read the two formats; [`open_target`] and [`open_draft`] open a
//! network's files, and [`TargetFiles::tensor`] finds a tensor by its [`Role`] whatever the format
//! calls it. Files are not trusted: every count, offset and length is checked against the file's
//! size before anything is allocated or read.

mod bytes;
mod files;
pub mod gguf;
mod role;
mod rows;
pub mod safetensors;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use files::{DraftFiles, Source, TargetFiles, open_draft, open_embedded_draft, open_target};
pub use role::{Part, Role};

use anyhow::{Context, Result, bail};
use candle_core::Device;
use candle_core::quantized::GgmlDType;
use half::{bf16, f16};
use serde_json::Value;
use std::borrow::Cow;
use std::path::Path;

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
    /// The numbers, little-endian; the length fits `shape` and `dtype`. Not aligned to anything
    /// in safetensors files.
    pub bytes: Cow<'a, [u8]>,
}

impl RawTensor<'_> {
    /// The numbers as f32, dequantised.
    ///
    /// # Errors
    /// When the length does not fit shape and type.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        if self.bytes.len() != byte_len(&self.name, &self.shape, self.dtype)? {
            bail!("tensor {}: {} bytes do not fit its shape", self.name, self.bytes.len());
        }
        match self.dtype {
            GgmlDType::F32 => Ok(self.each(|b: [u8; 4]| f32::from_le_bytes(b))),
            GgmlDType::F16 => Ok(self.each(|b: [u8; 2]| f16::from_le_bytes(b).to_f32())),
            GgmlDType::BF16 => Ok(self.each(|b: [u8; 2]| bf16::from_le_bytes(b).to_f32())),
            _ => {
                let tensor = self.to_qtensor(&Device::Cpu)?.dequantize(&Device::Cpu)?;
                Ok(tensor.flatten_all()?.to_vec1()?)
            }
        }
    }

    fn each<const N: usize>(&self, read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        self.bytes.as_chunks().0.iter().map(|chunk| read(*chunk)).collect()
    }
}

/// Bytes of a tensor of `shape` and `dtype`.
///
/// # Errors
/// When a dimension is 0, the size overflows, or a row is not a whole number of the type's blocks.
fn byte_len(name: &str, shape: &[usize], dtype: GgmlDType) -> Result<usize> {
    let row = shape.last().copied().unwrap_or(1);
    let block = dtype.block_size();
    if shape.contains(&0) {
        bail!("tensor {name} is empty: shape {shape:?}");
    }
    if !row.is_multiple_of(block) {
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

/// A type's name as llama.cpp writes it: `Q4_K`.
fn dtype_name(dtype: GgmlDType) -> &'static str {
    match dtype {
        GgmlDType::F32 => "F32",
        GgmlDType::F16 => "F16",
        GgmlDType::BF16 => "BF16",
        GgmlDType::Q4_0 => "Q4_0",
        GgmlDType::Q4_1 => "Q4_1",
        GgmlDType::Q5_0 => "Q5_0",
        GgmlDType::Q5_1 => "Q5_1",
        GgmlDType::Q8_0 => "Q8_0",
        GgmlDType::Q8_1 => "Q8_1",
        GgmlDType::Q2K => "Q2_K",
        GgmlDType::Q3K => "Q3_K",
        GgmlDType::Q4K => "Q4_K",
        GgmlDType::Q5K => "Q5_K",
        GgmlDType::Q6K => "Q6_K",
        GgmlDType::Q8K => "Q8_K",
    }
}

/// Largest JSON file: the index of a model of a thousand files stays below this.
const MAX_JSON: u64 = 32 << 20;

/// Read a JSON file.
///
/// # Errors
/// When it cannot be read, is empty, too large or no JSON.
pub fn read_json(path: &Path) -> Result<Value> {
    let file = path.display();
    let size = std::fs::metadata(path).with_context(|| format!("cannot open {file}"))?.len();
    if size == 0 {
        bail!("{file} is empty; download it again");
    }
    if size > MAX_JSON {
        bail!("{file} has {size} bytes, far more than such a file has");
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {file}"))?;
    serde_json::from_slice(&bytes)
        .with_context(|| format!("{file} is not whole JSON; download it again"))
}
