//! `x · Wᵀ` for few rows and for many.
//!
//! A tile of weights is read from memory once for all rows: it meets one panel of activations
//! after the other while it is in the nearest cache. A row's sums are formed block by block
//! of columns: exactly in integers within a block, then one rounding for the scale and one for
//! the minimum, whatever the panel it stands in.

use super::input::{Input, InputBlock, Panel, Panels};
use super::matrix::{Matrix, Q4Block, Q8Block, Tiles};
use super::pool::Pool;
use super::shared::Shared;
use super::simd::{Isa, Kernel, LANES, Simd};
use std::ops::Range;

/// How far ahead of its use a weight is fetched, in bytes.
const AHEAD: usize = 8192;

/// Rows that meet all of a thread's tiles before the next rows come: whole panels of 4, 6 or 8.
pub const BLOCK_ROWS: usize = 48;

/// What a tile of weights is made of.
trait Column: Copy {
    /// What it meets.
    type Input: Copy;
    /// Rows of a full panel.
    fn rows<S: Simd>() -> usize;
    /// The product of a tile and the rows of a panel, by row.
    fn dot<S: Simd, const ROWS: usize>(
        s: S,
        tile: &[Self],
        panel: &[[Self::Input; ROWS]],
    ) -> [S::F; ROWS];
}

/// Fetch the cache lines of the weight `AHEAD` of this one.
#[inline(always)]
fn fetch_ahead<S: Simd, T>(s: S, at: &T) {
    let at: *const u8 = std::ptr::from_ref(at).cast();
    for line in 0..size_of::<T>().div_ceil(64) {
        s.prefetch(at.wrapping_add(AHEAD + 64 * line));
    }
}

impl Column for Q4Block {
    type Input = InputBlock;
    #[inline(always)]
    fn rows<S: Simd>() -> usize {
        S::ROWS
    }
    #[inline(always)]
    fn dot<S: Simd, const ROWS: usize>(
        s: S,
        tile: &[Self],
        panel: &[[InputBlock; ROWS]],
    ) -> [S::F; ROWS] {
        let mut total = [s.splat(0.0); ROWS];
        for (w, x) in tile.iter().zip(panel) {
            fetch_ahead(s, w);
            let mut sum = [s.no_nibbles(); ROWS];
            for j in 0..4 {
                let both = s.load_bytes(&w.quants[j]);
                let (low, high) = (s.low_nibbles(both), s.high_nibbles(both));
                for row in 0..ROWS {
                    sum[row] = s.dot_nibbles(sum[row], low, &x[row].quants[j]);
                }
                for row in 0..ROWS {
                    sum[row] = s.dot_nibbles(sum[row], high, &x[row].quants[j + 4]);
                }
            }
            let (scale, min) = (s.load_f16(&w.scale), s.load_f16(&w.min));
            for row in 0..ROWS {
                let sum = s.to_float(s.nibble_sum(sum[row]));
                let scale = s.mul(scale, s.splat(x[row].scale));
                total[row] = s.fma(scale, sum, total[row]);
                total[row] = s.fma(min, s.splat(x[row].scaled_sum), total[row]);
            }
        }
        total
    }
}

impl Column for Q8Block {
    type Input = InputBlock;
    #[inline(always)]
    fn rows<S: Simd>() -> usize {
        S::ROWS
    }
    #[inline(always)]
    fn dot<S: Simd, const ROWS: usize>(
        s: S,
        tile: &[Self],
        panel: &[[InputBlock; ROWS]],
    ) -> [S::F; ROWS] {
        let mut total = [s.splat(0.0); ROWS];
        for (w, x) in tile.iter().zip(panel) {
            fetch_ahead(s, w);
            let mut sum = [s.start_bytes(0); ROWS];
            for row in 0..ROWS {
                sum[row] = s.start_bytes(x[row].sum);
            }
            for j in 0..8 {
                let weights = s.load_weights(&w.quants[j]);
                for row in 0..ROWS {
                    sum[row] = s.dot_bytes(sum[row], weights, &x[row].quants[j]);
                }
            }
            let scale = s.load_f16(&w.scale);
            for row in 0..ROWS {
                let scale = s.mul(scale, s.splat(x[row].scale));
                total[row] = s.fma(scale, s.to_float(sum[row]), total[row]);
            }
        }
        total
    }
}

/// A dense weight format.
trait Dense: Copy {
    fn load<S: Simd>(s: S, x: &[Self; LANES]) -> S::F;
}

impl Dense for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[f32; LANES]) -> S::F {
        s.load(x)
    }
}

/// The bits of an IEEE binary16.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct F16(u16);

/// The bits of a bfloat16.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct BF16(u16);

impl Dense for F16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[F16; LANES]) -> S::F {
        // SAFETY: `F16` is a transparent `u16`.
        s.load_f16(unsafe { &*std::ptr::from_ref(x).cast() })
    }
}

impl Dense for BF16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[BF16; LANES]) -> S::F {
        // SAFETY: `BF16` is a transparent `u16`.
        s.load_bf16(unsafe { &*std::ptr::from_ref(x).cast() })
    }
}

impl<T: Dense> Column for [T; LANES] {
    type Input = f32;
    #[inline(always)]
    fn rows<S: Simd>() -> usize {
        S::DENSE_ROWS
    }
    /// Even and odd columns are summed apart: two chains of additions run side by side.
    #[inline(always)]
    fn dot<S: Simd, const ROWS: usize>(s: S, tile: &[Self], panel: &[[f32; ROWS]]) -> [S::F; ROWS] {
        let mut even = [s.splat(0.0); ROWS];
        let mut odd = [s.splat(0.0); ROWS];
        let (pairs, last) = tile.as_chunks::<2>();
        let (x_pairs, x_last) = panel.as_chunks::<2>();
        for (w, x) in pairs.iter().zip(x_pairs) {
            fetch_ahead(s, w);
            let weights = [T::load(s, &w[0]), T::load(s, &w[1])];
            for row in 0..ROWS {
                even[row] = s.fma(weights[0], s.splat(x[0][row]), even[row]);
                odd[row] = s.fma(weights[1], s.splat(x[1][row]), odd[row]);
            }
        }
        for (w, x) in last.iter().zip(x_last) {
            let weights = T::load(s, w);
            for row in 0..ROWS {
                even[row] = s.fma(weights, s.splat(x[row]), even[row]);
            }
        }
        for row in 0..ROWS {
            even[row] = s.add(even[row], odd[row]);
        }
        even
    }
}

/// What becomes of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is the result.
    Store,
    /// It is added to what is there.
    Add,
}

/// Where a product goes: rows of `stride`.
#[derive(Clone, Copy)]
struct Output<'a> {
    to: Shared<'a, f32>,
    stride: usize,
    then: Then,
}

/// The product of some tiles of one segment with all rows.
struct TileRange<'a> {
    tiles: &'a Tiles,
    /// Which of the tiles.
    range: Range<usize>,
    /// The segment's rows of the matrix: columns of the output.
    columns: Range<usize>,
    bias: Option<&'a [f32]>,
    input: &'a Input,
    output: Output<'a>,
}

impl Kernel for TileRange<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.tiles {
            Tiles::Q4(tiles) => self.all(s, tiles, &self.input.quantised),
            Tiles::Q8(tiles) => self.all(s, tiles, &self.input.quantised),
            Tiles::F32(tiles) => self.all(s, tiles, &self.input.dense),
            Tiles::F16(tiles) => self.all(s, as_f16(tiles), &self.input.dense),
            Tiles::BF16(tiles) => self.all(s, as_bf16(tiles), &self.input.dense),
        }
    }
}

fn as_f16(tiles: &[[u16; LANES]]) -> &[[F16; LANES]] {
    // SAFETY: `F16` is a transparent `u16`.
    unsafe { std::slice::from_raw_parts(tiles.as_ptr().cast(), tiles.len()) }
}

fn as_bf16(tiles: &[[u16; LANES]]) -> &[[BF16; LANES]] {
    // SAFETY: `BF16` is a transparent `u16`.
    unsafe { std::slice::from_raw_parts(tiles.as_ptr().cast(), tiles.len()) }
}

impl TileRange<'_> {
    #[inline(always)]
    fn all<S: Simd, C: Column>(&self, s: S, tiles: &[C], panels: &Option<Panels<C::Input>>)
    where
        C::Input: Send,
    {
        let Some(panels) = panels else { return };
        // Many rows go in blocks that stay in a near cache from one tile to the next.
        for block in 0..panels.rows.div_ceil(BLOCK_ROWS) {
            for i in self.range.clone() {
                let tile = &tiles[i * panels.width..][..panels.width];
                let first = self.columns.start + i * LANES;
                let columns = first..self.columns.end.min(first + LANES);
                for panel in panels.rows(block * BLOCK_ROWS, BLOCK_ROWS) {
                    // Only the heights that the instruction set uses are compiled.
                    match panel.height {
                        1 => self.one::<S, C, 1>(s, tile, &panel, panels.rows, columns.clone()),
                        2 => self.one::<S, C, 2>(s, tile, &panel, panels.rows, columns.clone()),
                        3 => self.one::<S, C, 3>(s, tile, &panel, panels.rows, columns.clone()),
                        4 => self.one::<S, C, 4>(s, tile, &panel, panels.rows, columns.clone()),
                        5 if C::rows::<S>() >= 5 => {
                            self.one::<S, C, 5>(s, tile, &panel, panels.rows, columns.clone());
                        }
                        6 if C::rows::<S>() >= 6 => {
                            self.one::<S, C, 6>(s, tile, &panel, panels.rows, columns.clone());
                        }
                        8 if C::rows::<S>() >= 8 => {
                            self.one::<S, C, 8>(s, tile, &panel, panels.rows, columns.clone());
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn one<S: Simd, C: Column, const ROWS: usize>(
        &self,
        s: S,
        tile: &[C],
        panel: &Panel<'_, C::Input>,
        rows: usize,
        columns: Range<usize>,
    ) {
        let product = C::dot::<S, ROWS>(s, tile, panel.elements.as_chunks().0);
        let bias = self.bias.map(|bias| s.load_part(&bias[columns.clone()]));
        for (i, &product) in product.iter().enumerate() {
            let row = panel.first + i;
            if row >= rows {
                break;
            }
            let at = row * self.output.stride;
            // SAFETY: each tile, and so each range of columns, is in one part of the work.
            let to = unsafe { self.output.to.part(at + columns.start..at + columns.end) };
            let product = bias.map_or(product, |bias| s.add(product, bias));
            let product = match self.output.then {
                Then::Store => product,
                Then::Add => s.add(s.load_part(to), product),
            };
            s.store_part(to, product);
        }
    }
}

/// Bytes of weights below which a chunk of work is not worth a thread's while.
const CHUNK: usize = 8 << 10;

/// `to ← x · Wᵀ + b`, or `to += …`. `x` has been prepared for the layouts of `matrix`, and `to`
/// holds `x`'s rows, each as wide as the matrix has rows.
pub fn product(pool: &Pool, isa: Isa, matrix: &Matrix, x: &Input, to: &mut [f32], then: Then) {
    let output = Output { to: Shared::new(to), stride: matrix.rows, then };
    for segment in &matrix.segments {
        let tiles = segment.rows.len().div_ceil(LANES);
        let least = CHUNK.div_ceil((segment.tiles.bytes() / tiles.max(1)).max(1));
        pool.ranges(tiles, least, &|range| {
            isa.run(TileRange {
                tiles: &segment.tiles,
                range,
                columns: segment.rows.clone(),
                bias: matrix.bias.as_deref(),
                input: x,
                output,
            });
        });
    }
}
