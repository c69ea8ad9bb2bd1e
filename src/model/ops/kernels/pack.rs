//! Tensors of files → matrices in the layouts that the products read.

use super::ggml::{self, BLOCK, Bytes, Nibbles};
use super::matrix::{Matrix, Segment, Tiles, tiles};
use super::memory::Memory;
use super::pool::Pool;
use super::simd::LANES;
use crate::model::ops::Quantise;
use crate::model::weights::RawTensor;
use anyhow::{Result, bail, ensure};
use candle_core::quantized::GgmlDType;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Q4,
    Q8,
    F32,
    F16,
    BF16,
}

impl Layout {
    /// The layout as asked for, and whether it had to give way because of the width.
    fn choose(dtype: GgmlDType, quantise: Quantise, width: usize) -> (Layout, bool) {
        let dense = match dtype {
            GgmlDType::F16 => Layout::F16,
            GgmlDType::BF16 => Layout::BF16,
            _ => Layout::F32,
        };
        let is_dense = matches!(dtype, GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16);
        let asked = match quantise {
            Quantise::None => dense,
            Quantise::Q4 => Layout::Q4,
            Quantise::AsStored if is_dense => dense,
            _ if Nibbles::holds(dtype) => Layout::Q4,
            _ => Layout::Q8,
        };
        if width.is_multiple_of(BLOCK) { (asked, false) } else { (dense, asked != dense) }
    }
}

/// One tensor of a matrix, checked.
struct Part<'a> {
    name: &'a str,
    rows: usize,
    dtype: GgmlDType,
    bytes: &'a [u8],
    row_bytes: usize,
}

impl<'a> Part<'a> {
    fn check(tensor: &'a RawTensor<'_>, width: usize) -> Result<Part<'a>> {
        let RawTensor { name, shape, dtype, bytes } = tensor;
        let &[rows, columns] = shape.as_slice() else {
            bail!("tensor {name} should be a matrix, but its shape is {shape:?}");
        };
        ensure!(columns == width, "tensor {name} is {columns} wide, its neighbours {width}");
        ensure!(
            width.is_multiple_of(dtype.block_size()),
            "tensor {name}: a width of {width} is not a multiple of {dtype:?}'s block of {}",
            dtype.block_size()
        );
        let row_bytes = width / dtype.block_size() * dtype.type_size();
        ensure!(
            rows.checked_mul(row_bytes) == Some(bytes.len()) && row_bytes > 0,
            "tensor {name} has {} bytes, which do not fit {rows} rows of {row_bytes}",
            bytes.len()
        );
        Ok(Part { name, rows, dtype: *dtype, bytes, row_bytes })
    }

    fn row(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.row_bytes..][..self.row_bytes]
    }

    fn floats(&self, row: usize) -> Option<Vec<f32>> {
        ggml::to_floats(self.dtype, self.row(row)).ok()
    }

    fn nibbles(&self, row: usize) -> Option<Vec<Nibbles>> {
        if Nibbles::holds(self.dtype) {
            return Nibbles::decode(self.dtype, self.row(row));
        }
        self.floats(row)?.as_chunks().0.iter().map(Nibbles::round).collect()
    }

    fn byte_blocks(&self, row: usize) -> Option<Vec<Bytes>> {
        if Bytes::holds(self.dtype) {
            return Bytes::decode(self.dtype, self.row(row));
        }
        self.floats(row)?.as_chunks().0.iter().map(Bytes::round).collect()
    }

    fn halves(&self, row: usize) -> Option<Vec<u16>> {
        Some(self.row(row).as_chunks().0.iter().map(|x| u16::from_le_bytes(*x)).collect())
    }
}

/// Consecutive parts that become one segment.
struct Group<'a> {
    layout: Layout,
    parts: Vec<Part<'a>>,
}

impl<'a> Group<'a> {
    fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// What `read` gives for a row of the part that has the group's row `row`.
    fn of<T>(&self, mut row: usize, read: impl Fn(&Part<'a>, usize) -> Option<T>) -> Option<T> {
        for part in &self.parts {
            if row < part.rows {
                return read(part, row);
            }
            row -= part.rows;
        }
        None
    }

    fn pack(
        &self,
        compute: (&Pool, &Memory),
        width: usize,
        layout: Layout,
    ) -> Result<Option<Tiles>> {
        let (rows, blocks) = (self.rows(), width / BLOCK);
        let halves = || tiles(compute, rows, width, |row| self.of(row, Part::halves));
        Ok(match layout {
            Layout::Q4 => {
                tiles(compute, rows, blocks, |row| self.of(row, Part::nibbles))?.map(Tiles::Q4)
            }
            Layout::Q8 => {
                tiles(compute, rows, blocks, |row| self.of(row, Part::byte_blocks))?.map(Tiles::Q8)
            }
            Layout::F32 => {
                tiles(compute, rows, width, |row| self.of(row, Part::floats))?.map(Tiles::F32)
            }
            Layout::F16 => halves()?.map(Tiles::F16),
            Layout::BF16 => halves()?.map(Tiles::BF16),
        })
    }
}

/// Pack the row-wise concatenation of `parts`. Whatever cannot be kept as asked is kept dense, and
/// said in a line of `notes`.
pub fn pack(
    compute: (&Pool, &Memory),
    parts: &[RawTensor<'_>],
    bias: Option<Vec<f32>>,
    quantise: Quantise,
    notes: &mut Vec<String>,
) -> Result<Matrix> {
    let width = parts.first().and_then(|part| part.shape.get(1)).copied().unwrap_or(0);
    ensure!(width > 0, "a matrix without columns or parts");
    let mut groups: Vec<Group<'_>> = vec![];
    for tensor in parts {
        let part = Part::check(tensor, width)?;
        let (layout, gave_way) = Layout::choose(part.dtype, quantise, width);
        if gave_way {
            notes.push(format!("{}: {width} columns are no blocks of 32: kept dense", part.name));
        }
        match groups.last_mut() {
            // A tile must not hold rows of two layouts, nor a gap.
            Some(last) if last.layout == layout && last.rows().is_multiple_of(LANES) => {
                last.parts.push(part);
            }
            _ => groups.push(Group { layout, parts: vec![part] }),
        }
    }
    let mut segments = vec![];
    let mut rows = 0;
    for group in groups {
        let tiles = match group.pack(compute, width, group.layout)? {
            Some(tiles) => tiles,
            None => {
                let names: Vec<&str> = group.parts.iter().map(|part| part.name).collect();
                let names = names.join(", ");
                let Some(tiles) = group.pack(compute, width, Layout::F32)? else {
                    bail!("{names}: {:?} cannot be decoded", group.parts[0].dtype);
                };
                notes.push(format!("{names}: beyond the scale of a block: kept dense"));
                tiles
            }
        };
        segments.push(Segment { rows: rows..rows + group.rows(), tiles });
        rows += group.rows();
    }
    if let Some(bias) = &bias {
        ensure!(bias.len() == rows, "a bias of {} for {rows} rows", bias.len());
    }
    Ok(Matrix { width, rows, segments, bias })
}
