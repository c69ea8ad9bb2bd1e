//! Rows of a matrix as its file has them.

use super::RawTensor;
use anyhow::{Result, ensure};
use candle_core::Device;
use candle_core::quantized::{QStorage, QTensor};
use std::borrow::Cow;

impl RawTensor<'_> {
    /// Bytes of one row (the innermost dimension), which holds whole blocks.
    pub fn row_bytes(&self) -> Result<usize> {
        let width = self.shape.last().copied().unwrap_or(0);
        let block = self.dtype.block_size();
        ensure!(
            width > 0 && width % block == 0,
            "{} has rows of {width} numbers, which are no whole blocks of {block}",
            self.name
        );
        Ok(width / block * self.dtype.type_size())
    }

    /// The rows `ids` of a matrix, as a matrix of its own.
    pub fn select_rows(&self, ids: &[u32]) -> Result<RawTensor<'static>> {
        let size = self.row_bytes()?;
        let mut bytes = Vec::with_capacity(ids.len() * size);
        for &id in ids {
            let start = id as usize * size;
            let Some(row) = self.bytes.get(start..start + size) else {
                anyhow::bail!("{} has no row {id}", self.name)
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

    /// As candle's quantised tensor.
    pub fn to_qtensor(&self, device: &Device) -> Result<QTensor> {
        let elements: usize = self.shape.iter().product();
        let wanted = elements / self.dtype.block_size() * self.dtype.type_size();
        ensure!(
            self.bytes.len() == wanted,
            "{} has {} bytes where its shape {:?} takes {wanted}",
            self.name,
            self.bytes.len(),
            self.shape
        );
        let storage = QStorage::from_data(Cow::Borrowed(&self.bytes), device, self.dtype)?;
        Ok(QTensor::new(storage, self.shape.as_slice())?)
    }
}
