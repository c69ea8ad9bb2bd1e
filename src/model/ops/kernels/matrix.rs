//! Matrices in the layouts that the products read.
//!
//! Rows stand in tiles of sixteen, one a lane; the last tile is filled up with zeros. Within a
//! tile come blocks of 32 columns one after the other, and within a block groups of four columns:
//! the four bytes of each of the sixteen rows. So one vector of weights meets the same four
//! activations in every lane.

use super::ggml::{self, BLOCK, Bytes, Nibbles};
use super::pool::Pool;
use super::shared::Shared;
use super::simd::LANES;
use crate::model::ops::Quantise;
use crate::model::weights::RawTensor;
use anyhow::{Result, bail, ensure};
use candle_core::quantized::GgmlDType;
use half::{bf16, f16};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// 16 rows × 32 columns of four bits: byte `4·row + i` of vector `j` holds columns `4j + i`
/// (low nibble) and `4(j + 4) + i`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub struct Q4Block {
    /// See above.
    pub quants: [[u8; 4 * LANES]; 4],
    /// binary16 by row.
    pub scale: [u16; LANES],
    /// binary16 by row: the value of quant 0.
    pub min: [u16; LANES],
}

/// 16 rows × 32 columns of eight bits: byte `4·row + i` of vector `j` holds column `4j + i`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(32))]
pub struct Q8Block {
    /// See above.
    pub quants: [[i8; 4 * LANES]; 8],
    /// binary16 by row.
    pub scale: [u16; LANES],
}

/// The tiles of consecutive rows, all in one layout. A quantised tile is `width / 32` blocks, a
/// dense one `width` columns.
#[derive(Debug, Clone, PartialEq)]
pub enum Tiles {
    /// Four bits.
    Q4(Vec<Q4Block>),
    /// Eight bits.
    Q8(Vec<Q8Block>),
    /// IEEE single.
    F32(Vec<[f32; LANES]>),
    /// IEEE binary16.
    F16(Vec<[u16; LANES]>),
    /// bfloat16.
    BF16(Vec<[u16; LANES]>),
}

/// Rows of a matrix that share a layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Which rows of the matrix.
    pub rows: Range<usize>,
    /// Their weights.
    pub tiles: Tiles,
}

/// A matrix.
#[derive(Debug, PartialEq)]
pub struct Matrix {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub rows: usize,
    /// All rows, in order.
    pub segments: Vec<Segment>,
    /// Added to the product, one a row.
    pub bias: Option<Vec<f32>>,
}

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

/// The bytes of one part, checked.
struct Part<'a> {
    dtype: GgmlDType,
    bytes: &'a [u8],
    row_bytes: usize,
}

impl<'a> Part<'a> {
    fn check(tensor: &'a RawTensor<'_>, width: usize) -> Result<(Part<'a>, usize)> {
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
        Ok((Part { dtype: *dtype, bytes, row_bytes }, rows))
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

impl Q4Block {
    const ZERO: Q4Block = Q4Block { quants: [[0; 64]; 4], scale: [0; LANES], min: [0; LANES] };

    fn set(&mut self, lane: usize, block: &Nibbles) {
        for (i, &quant) in block.quants.iter().enumerate() {
            let (group, byte) = (i / 4, 4 * lane + i % 4);
            self.quants[group % 4][byte] |= quant << (group / 4 * 4);
        }
        self.scale[lane] = block.scale.to_bits();
        self.min[lane] = block.min.to_bits();
    }

    fn get(&self, lane: usize) -> Nibbles {
        Nibbles {
            scale: f16::from_bits(self.scale[lane]),
            min: f16::from_bits(self.min[lane]),
            quants: std::array::from_fn(|i| {
                let (group, byte) = (i / 4, 4 * lane + i % 4);
                self.quants[group % 4][byte] >> (group / 4 * 4) & 15
            }),
        }
    }
}

impl Q8Block {
    const ZERO: Q8Block = Q8Block { quants: [[0; 64]; 8], scale: [0; LANES] };

    fn set(&mut self, lane: usize, block: &Bytes) {
        for (i, &quant) in block.quants.iter().enumerate() {
            self.quants[i / 4][4 * lane + i % 4] = quant;
        }
        self.scale[lane] = block.scale.to_bits();
    }

    fn get(&self, lane: usize) -> Bytes {
        Bytes {
            scale: f16::from_bits(self.scale[lane]),
            quants: std::array::from_fn(|i| self.quants[i / 4][4 * lane + i % 4]),
        }
    }
}

/// Tiles of `rows` rows, `tile_len` elements each, that `fill` sets lane by lane: tile, row, lane.
/// None if `fill` fails for a row.
fn tiles<T: Clone + Send, R>(
    pool: &Pool,
    rows: usize,
    tile_len: usize,
    zero: T,
    read: impl Fn(usize) -> Option<R> + Sync,
    fill: impl Fn(&mut [T], usize, R) + Sync,
) -> Option<Vec<T>> {
    let count = rows.div_ceil(LANES);
    let mut all = vec![zero; count * tile_len];
    let failed = AtomicBool::new(false);
    let shared = Shared::new(&mut all);
    pool.ranges(count, 1, &|range| {
        for tile in range {
            // SAFETY: each tile is one part of the work.
            let to = unsafe { shared.part(tile * tile_len..(tile + 1) * tile_len) };
            for row in tile * LANES..rows.min((tile + 1) * LANES) {
                match read(row) {
                    Some(values) => fill(to, row % LANES, values),
                    None => failed.store(true, Ordering::Relaxed),
                }
            }
        }
    });
    (!failed.into_inner()).then_some(all)
}

/// The element of each tile column that belongs to `lane` ← the row's.
fn fill_dense<T: Copy>(tile: &mut [[T; LANES]], lane: usize, row: Vec<T>) {
    for (to, x) in tile.iter_mut().zip(row) {
        to[lane] = x;
    }
}

impl Tiles {
    fn pack(pool: &Pool, part: &Part, rows: usize, width: usize, layout: Layout) -> Option<Tiles> {
        let blocks = width / BLOCK;
        Some(match layout {
            Layout::Q4 => Tiles::Q4(tiles(
                pool,
                rows,
                blocks,
                Q4Block::ZERO,
                |row| part.nibbles(row),
                |tile, lane, row| tile.iter_mut().zip(&row).for_each(|(to, x)| to.set(lane, x)),
            )?),
            Layout::Q8 => Tiles::Q8(tiles(
                pool,
                rows,
                blocks,
                Q8Block::ZERO,
                |row| part.byte_blocks(row),
                |tile, lane, row| tile.iter_mut().zip(&row).for_each(|(to, x)| to.set(lane, x)),
            )?),
            Layout::F32 => {
                let zero = [0.0; LANES];
                Tiles::F32(tiles(pool, rows, width, zero, |row| part.floats(row), fill_dense)?)
            }
            Layout::F16 => {
                let zero = [0; LANES];
                Tiles::F16(tiles(pool, rows, width, zero, |row| part.halves(row), fill_dense)?)
            }
            Layout::BF16 => {
                let zero = [0; LANES];
                Tiles::BF16(tiles(pool, rows, width, zero, |row| part.halves(row), fill_dense)?)
            }
        })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Tiles::Q4(tiles) => size_of_val(tiles.as_slice()),
            Tiles::Q8(tiles) => size_of_val(tiles.as_slice()),
            Tiles::F32(tiles) => size_of_val(tiles.as_slice()),
            Tiles::F16(tiles) | Tiles::BF16(tiles) => size_of_val(tiles.as_slice()),
        }
    }

    /// The floats that row `row` stands for.
    fn row(&self, row: usize, to: &mut [f32]) {
        let (tile, lane, width) = (row / LANES, row % LANES, to.len());
        let blocks = width / BLOCK;
        match self {
            Tiles::Q4(tiles) => {
                for (to, block) in to.chunks_mut(BLOCK).zip(&tiles[tile * blocks..]) {
                    let block = block.get(lane);
                    let (scale, min) = (block.scale.to_f32(), block.min.to_f32());
                    to.iter_mut().zip(block.quants).for_each(|(to, q)| {
                        *to = f32::from(q) * scale + min;
                    });
                }
            }
            Tiles::Q8(tiles) => {
                for (to, block) in to.chunks_mut(BLOCK).zip(&tiles[tile * blocks..]) {
                    let block = block.get(lane);
                    let scale = block.scale.to_f32();
                    to.iter_mut().zip(block.quants).for_each(|(to, q)| *to = f32::from(q) * scale);
                }
            }
            Tiles::F32(tiles) => {
                to.iter_mut().zip(&tiles[tile * width..]).for_each(|(to, x)| *to = x[lane]);
            }
            Tiles::F16(tiles) => {
                for (to, x) in to.iter_mut().zip(&tiles[tile * width..]) {
                    *to = f16::from_bits(x[lane]).to_f32();
                }
            }
            Tiles::BF16(tiles) => {
                for (to, x) in to.iter_mut().zip(&tiles[tile * width..]) {
                    *to = bf16::from_bits(x[lane]).to_f32();
                }
            }
        }
    }

    /// The rows `ids` as tiles of their own.
    fn select(&self, pool: &Pool, ids: &[usize], width: usize) -> Tiles {
        fn dense<T: Copy + Default + Send + Sync>(
            pool: &Pool,
            from: &[[T; LANES]],
            ids: &[usize],
            width: usize,
        ) -> Vec<[T; LANES]> {
            let read = |row: usize| {
                let tile = &from[ids[row] / LANES * width..][..width];
                Some(tile.iter().map(|x| x[ids[row] % LANES]).collect())
            };
            tiles(pool, ids.len(), width, [T::default(); LANES], read, fill_dense)
                .unwrap_or_default()
        }
        let blocks = width / BLOCK;
        match self {
            Tiles::Q4(from) => {
                let read = |row: usize| Some(ids[row]);
                let fill = |tile: &mut [Q4Block], lane: usize, id: usize| {
                    let from = &from[id / LANES * blocks..];
                    tile.iter_mut().zip(from).for_each(|(to, x)| to.set(lane, &x.get(id % LANES)));
                };
                let zero = Q4Block::ZERO;
                Tiles::Q4(tiles(pool, ids.len(), blocks, zero, read, fill).unwrap_or_default())
            }
            Tiles::Q8(from) => {
                let read = |row: usize| Some(ids[row]);
                let fill = |tile: &mut [Q8Block], lane: usize, id: usize| {
                    let from = &from[id / LANES * blocks..];
                    tile.iter_mut().zip(from).for_each(|(to, x)| to.set(lane, &x.get(id % LANES)));
                };
                let zero = Q8Block::ZERO;
                Tiles::Q8(tiles(pool, ids.len(), blocks, zero, read, fill).unwrap_or_default())
            }
            Tiles::F32(from) => Tiles::F32(dense(pool, from, ids, width)),
            Tiles::F16(from) => Tiles::F16(dense(pool, from, ids, width)),
            Tiles::BF16(from) => Tiles::BF16(dense(pool, from, ids, width)),
        }
    }
}

impl Matrix {
    /// Pack the row-wise concatenation of `parts`. Whatever cannot be kept as asked is kept
    /// dense, and said in a line of `notes`.
    pub fn pack(
        pool: &Pool,
        parts: &[RawTensor<'_>],
        bias: Option<Vec<f32>>,
        quantise: Quantise,
        notes: &mut Vec<String>,
    ) -> Result<Matrix> {
        let width = parts.first().and_then(|part| part.shape.get(1)).copied().unwrap_or(0);
        ensure!(width > 0, "a matrix without columns or parts");
        let mut segments: Vec<Segment> = vec![];
        let mut rows = 0;
        for tensor in parts {
            let (part, part_rows) = Part::check(tensor, width)?;
            let (layout, gave_way) = Layout::choose(part.dtype, quantise, width);
            if gave_way {
                let name = &tensor.name;
                notes.push(format!("{name}: {width} columns are no blocks of 32: kept dense"));
            }
            let pack = |layout| Tiles::pack(pool, &part, part_rows, width, layout);
            let tiles = match pack(layout) {
                Some(tiles) => tiles,
                None => {
                    let Some(tiles) = pack(Layout::F32) else {
                        bail!("tensor {}: {:?} cannot be decoded", tensor.name, part.dtype);
                    };
                    let name = &tensor.name;
                    notes.push(format!("{name}: beyond the scale of a block, so it is kept dense"));
                    tiles
                }
            };
            let range = rows..rows + part_rows;
            rows = range.end;
            if let Some(last) = segments.last_mut()
                && last.rows.len().is_multiple_of(LANES)
                && last.tiles.extend(&tiles)
            {
                last.rows.end = range.end;
            } else {
                segments.push(Segment { rows: range, tiles });
            }
        }
        if let Some(bias) = &bias {
            ensure!(bias.len() == rows, "a bias of {} for {rows} rows", bias.len());
        }
        Ok(Matrix { width, rows, segments, bias })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let bias = self.bias.as_ref().map_or(0, |bias| size_of_val(bias.as_slice()));
        self.segments.iter().map(|segment| segment.tiles.bytes()).sum::<usize>() + bias
    }

    /// The floats that row `row` stands for; `to` is as long as the matrix is wide.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        if let Some(segment) = self.segments.iter().find(|segment| segment.rows.contains(&row)) {
            segment.tiles.row(row - segment.rows.start, to);
        }
    }

    /// The rows `ids` as a matrix of its own.
    pub fn select(&self, pool: &Pool, ids: &[u32]) -> Result<Matrix> {
        let mut segments: Vec<Segment> = vec![];
        let home = |id: u32| self.segments.iter().position(|s| s.rows.contains(&(id as usize)));
        let mut rows = 0;
        for run in ids.chunk_by(|a, b| home(*a) == home(*b)) {
            let Some(segment) = home(run[0]).map(|i| &self.segments[i]) else {
                bail!("row {} of a matrix of {} rows", run[0], self.rows);
            };
            let ids: Vec<usize> = run.iter().map(|&id| id as usize - segment.rows.start).collect();
            let tiles = segment.tiles.select(pool, &ids, self.width);
            segments.push(Segment { rows: rows..rows + ids.len(), tiles });
            rows += ids.len();
        }
        let bias = self.bias.as_ref().map(|bias| ids.iter().map(|&i| bias[i as usize]).collect());
        Ok(Matrix { width: self.width, rows, segments, bias })
    }
}

impl Tiles {
    /// Append `more`, if it has the same layout.
    fn extend(&mut self, more: &Tiles) -> bool {
        match (self, more) {
            (Tiles::Q4(to), Tiles::Q4(more)) => to.extend_from_slice(more),
            (Tiles::Q8(to), Tiles::Q8(more)) => to.extend_from_slice(more),
            (Tiles::F32(to), Tiles::F32(more)) => to.extend_from_slice(more),
            (Tiles::F16(to), Tiles::F16(more)) => to.extend_from_slice(more),
            (Tiles::BF16(to), Tiles::BF16(more)) => to.extend_from_slice(more),
            _ => return false,
        }
        true
    }
}
