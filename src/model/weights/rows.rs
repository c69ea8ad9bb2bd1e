//! Rows of a matrix as its file has them, and its hand-over to candle.

use super::{RawTensor, byte_len};
use anyhow::{Result, bail, ensure};
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};
use std::borrow::Cow;

impl RawTensor<'_> {
    /// Bytes of one row (the innermost dimension), which holds whole blocks.
    ///
    /// # Errors
    /// When it does not.
    pub fn row_bytes(&self) -> Result<usize> {
        let width = self.shape.last().copied().unwrap_or(0);
        let block = self.dtype.block_size();
        ensure!(
            width > 0 && width.is_multiple_of(block),
            "{} has rows of {width} numbers, which are no whole blocks of {block}",
            self.name
        );
        Ok(width / block * self.dtype.type_size())
    }

    /// The rows `ids` of a matrix, as a matrix of its own.
    ///
    /// # Errors
    /// When one of them is not there.
    pub fn select_rows(&self, ids: &[u32]) -> Result<RawTensor<'static>> {
        let size = self.row_bytes()?;
        let mut bytes = Vec::with_capacity(ids.len() * size);
        for &id in ids {
            let start = id as usize * size;
            let Some(row) = self.bytes.get(start..start + size) else {
                bail!("{} has no row {id}", self.name)
            };
            bytes.extend_from_slice(row);
        }
        let width = self.shape.last().copied().unwrap_or(0);
        let shape = vec![ids.len(), width];
        Ok(RawTensor { name: self.name.clone(), shape, dtype: self.dtype, bytes: bytes.into() })
    }

    /// The same with bytes of its own.
    pub fn into_owned(self) -> RawTensor<'static> {
        RawTensor { bytes: Cow::Owned(self.bytes.into_owned()), ..self }
    }

    /// A dense matrix in 8 bits (Q8_0); one that is quantised, or whose rows are no whole
    /// blocks, as it is.
    ///
    /// # Errors
    /// When the bytes do not fit the shape.
    pub fn compressed(self) -> Result<Self> {
        let dense = [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16].contains(&self.dtype);
        let wanted = GgmlDType::Q8_0;
        let whole = self.shape.last().is_some_and(|width| width % wanted.block_size() == 0);
        if !dense || !whole || self.shape.len() != 2 {
            return Ok(self);
        }
        let tensor = Tensor::from_vec(self.to_f32()?, self.shape.as_slice(), &Device::Cpu)?;
        let bytes = QTensor::quantize(&tensor, wanted)?.data()?.into_owned();
        Ok(RawTensor { dtype: wanted, bytes: bytes.into(), ..self })
    }

    /// As candle's quantised tensor.
    ///
    /// # Errors
    /// When the length does not fit shape and type, or candle fails.
    pub fn to_qtensor(&self, device: &Device) -> Result<QTensor> {
        let wanted = byte_len(&self.name, &self.shape, self.dtype)?;
        ensure!(
            self.bytes.len() == wanted,
            "{} has {} bytes where its shape {:?} takes {wanted}",
            self.name,
            self.bytes.len(),
            self.shape
        );
        let storage = QStorage::from_data(self.aligned()?, device, self.dtype)?;
        Ok(QTensor::new(storage, self.shape.as_slice())?)
    }

    /// The bytes where candle can read them: it takes blocks in place and panics where they are
    /// not aligned, as they may be in safetensors files.
    fn aligned(&self) -> Result<Cow<'_, [u8]>> {
        let aligned = |bytes: &[u8]| bytes.as_ptr().align_offset(align_of::<f32>()) == 0;
        if aligned(&self.bytes) {
            return Ok(Cow::Borrowed(&self.bytes));
        }
        let copy = self.bytes.to_vec();
        ensure!(aligned(&copy), "{}: no aligned memory to copy it to", self.name);
        Ok(Cow::Owned(copy))
    }

    /// The same tensor with its rows in the order `order` (each row once); a vector's rows are
    /// single numbers.
    ///
    /// # Errors
    /// When `order` has another length or names a row that is not there.
    pub fn permute_rows(self, order: impl ExactSizeIterator<Item = usize>) -> Result<Self> {
        let Some(&rows) = self.shape.first().filter(|&&rows| rows > 0 && order.len() == rows)
        else {
            bail!("tensor {}: {} rows expected", self.name, order.len());
        };
        let width = self.bytes.len() / rows;
        ensure!(
            width > 0 && width * rows == self.bytes.len(),
            "tensor {}: its rows are not whole bytes",
            self.name
        );
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for row in order {
            let Some(row) = self.bytes.chunks_exact(width).nth(row) else {
                bail!("tensor {}: it has no row {row}", self.name);
            };
            bytes.extend_from_slice(row);
        }
        Ok(Self { bytes: Cow::Owned(bytes), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::quantized::GgmlDType;

    /// Safetensors files may begin their numbers at any byte.
    #[test]
    fn bytes_at_odd_addresses_are_read() {
        let values: Vec<u8> = [1.5f32, -2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut buffer = [0; 16];
        for start in 0..4 {
            buffer[start..start + 12].copy_from_slice(&values);
            let tensor = RawTensor {
                name: "t".to_owned(),
                shape: vec![3],
                dtype: GgmlDType::F32,
                bytes: Cow::Borrowed(&buffer[start..start + 12]),
            };
            let read = tensor.to_qtensor(&Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
            assert_eq!(read.to_vec1::<f32>().unwrap(), [1.5, -2.0, 3.0]);
            assert_eq!(tensor.to_f32().unwrap(), [1.5, -2.0, 3.0]);
        }
    }
}
