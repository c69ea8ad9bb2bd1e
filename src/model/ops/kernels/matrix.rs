//! Matrices in the layouts that the products read.
//!
//! Rows stand in tiles of sixteen, one a lane; the last tile is filled up with zeros. Within a
//! tile come blocks of 32 columns one after the other, and within a block groups of four columns:
//! the four bytes of each of the sixteen rows. So one vector of weights meets the same four
//! activations in every lane.

use super::ggml::{BLOCK, Bytes, Nibbles};
use super::memory::{Memory, Plain, Slab};
use super::pool::Pool;
use super::shared::Shared;
use super::simd::LANES;
use anyhow::{Context, Result, bail};
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
#[derive(Debug)]
pub enum Tiles {
    /// Four bits.
    Q4(Slab<Q4Block>),
    /// Eight bits.
    Q8(Slab<Q8Block>),
    /// IEEE single.
    F32(Slab<[f32; LANES]>),
    /// IEEE binary16.
    F16(Slab<[u16; LANES]>),
    /// bfloat16.
    BF16(Slab<[u16; LANES]>),
}

/// Rows of a matrix that share a layout.
#[derive(Debug)]
pub struct Segment {
    /// Which rows of the matrix.
    pub rows: Range<usize>,
    /// Their weights.
    pub tiles: Tiles,
}

/// A matrix.
#[derive(Debug)]
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

// SAFETY: arrays of numbers.
unsafe impl Plain for Q4Block {}
// SAFETY: arrays of numbers.
unsafe impl Plain for Q8Block {}

/// What a tile is made of: a block of columns, or one column, of sixteen rows.
pub trait Columns: Plain {
    /// A row's part of it.
    type Part;
    /// Set the row in `lane`, which has been zero.
    fn set(&mut self, lane: usize, part: Self::Part);
    /// The row in `lane`.
    fn get(&self, lane: usize) -> Self::Part;
}

impl<T: Plain> Columns for [T; LANES] {
    type Part = T;
    fn set(&mut self, lane: usize, part: T) {
        self[lane] = part;
    }
    fn get(&self, lane: usize) -> T {
        self[lane]
    }
}

impl Columns for Q4Block {
    type Part = Nibbles;
    fn set(&mut self, lane: usize, block: Nibbles) {
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

impl Columns for Q8Block {
    type Part = Bytes;
    fn set(&mut self, lane: usize, block: Bytes) {
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

/// Tiles of `rows` rows and `tile_len` elements each, of what `read` gives for a row. None if that
/// is none for a row.
pub fn tiles<C: Columns>(
    (pool, memory): (&Pool, &Memory),
    rows: usize,
    tile_len: usize,
    read: impl Fn(usize) -> Option<Vec<C::Part>> + Sync,
) -> Result<Option<Slab<C>>> {
    let count = rows.div_ceil(LANES);
    let mut all = memory.slab(count.checked_mul(tile_len).context("a matrix too large")?)?;
    let failed = AtomicBool::new(false);
    let shared = Shared::new(&mut all);
    pool.ranges(count, 1, &|range| {
        for tile in range {
            // SAFETY: each tile is one part of the work.
            let to: &mut [C] = unsafe { shared.part(tile * tile_len..(tile + 1) * tile_len) };
            for row in tile * LANES..rows.min((tile + 1) * LANES) {
                match read(row) {
                    Some(parts) => {
                        to.iter_mut().zip(parts).for_each(|(to, part)| to.set(row % LANES, part));
                    }
                    None => failed.store(true, Ordering::Relaxed),
                }
            }
        }
    });
    Ok((!failed.into_inner()).then_some(all))
}

impl Tiles {
    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Tiles::Q4(tiles) => tiles.bytes(),
            Tiles::Q8(tiles) => tiles.bytes(),
            Tiles::F32(tiles) => tiles.bytes(),
            Tiles::F16(tiles) | Tiles::BF16(tiles) => tiles.bytes(),
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
    fn select(&self, compute: (&Pool, &Memory), ids: &[usize], width: usize) -> Result<Tiles> {
        fn of<C: Columns>(
            compute: (&Pool, &Memory),
            from: &[C],
            ids: &[usize],
            tile_len: usize,
        ) -> Result<Slab<C>> {
            let read = |row: usize| {
                let tile = &from[ids[row] / LANES * tile_len..][..tile_len];
                Some(tile.iter().map(|columns| columns.get(ids[row] % LANES)).collect())
            };
            tiles(compute, ids.len(), tile_len, read)?.context("a row that is not there")
        }
        Ok(match self {
            Tiles::Q4(from) => Tiles::Q4(of(compute, from, ids, width / BLOCK)?),
            Tiles::Q8(from) => Tiles::Q8(of(compute, from, ids, width / BLOCK)?),
            Tiles::F32(from) => Tiles::F32(of(compute, from, ids, width)?),
            Tiles::F16(from) => Tiles::F16(of(compute, from, ids, width)?),
            Tiles::BF16(from) => Tiles::BF16(of(compute, from, ids, width)?),
        })
    }
}

impl Matrix {
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
    pub fn select(&self, compute: (&Pool, &Memory), ids: &[u32]) -> Result<Matrix> {
        let mut segments: Vec<Segment> = vec![];
        let home = |id: u32| self.segments.iter().position(|s| s.rows.contains(&(id as usize)));
        let mut rows = 0;
        for run in ids.chunk_by(|a, b| home(*a) == home(*b)) {
            let Some(segment) = home(run[0]).map(|i| &self.segments[i]) else {
                bail!("row {} of a matrix of {} rows", run[0], self.rows);
            };
            let ids: Vec<usize> = run.iter().map(|&id| id as usize - segment.rows.start).collect();
            let tiles = segment.tiles.select(compute, &ids, self.width)?;
            segments.push(Segment { rows: rows..rows + ids.len(), tiles });
            rows += ids.len();
        }
        let bias = self.bias.as_ref().map(|bias| ids.iter().map(|&i| bias[i as usize]).collect());
        Ok(Matrix { width: self.width, rows, segments, bias })
    }
}
