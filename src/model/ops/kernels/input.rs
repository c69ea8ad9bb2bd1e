//! Activations in the form that products read: panels of a few rows, interleaved so that one
//! pointer walks through all of them.

use super::ggml::BLOCK;
use super::math::{Norm, rms_factor};
use super::pool::Pool;
use super::shared::Shared;
use super::simd::{Isa, Kernel, LANES, Simd};

/// 32 activations of a row, rounded to `scale · quants`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(16))]
pub struct InputBlock {
    /// -127 to 127, in groups of four.
    pub quants: [[i8; 4]; 8],
    /// The largest magnitude / 127; not a number if one of the activations is none.
    pub scale: f32,
    /// `scale · sum`
    pub scaled_sum: f32,
    /// Sum of the quants.
    pub sum: i32,
}

impl InputBlock {
    const ZERO: InputBlock =
        InputBlock { quants: [[0; 4]; 8], scale: 0.0, scaled_sum: 0.0, sum: 0 };
}

/// Elements by panel, then column (or block of columns), then row within the panel. A panel has
/// as many rows as the instruction set's registers take, the last one perhaps fewer.
#[derive(Debug)]
pub struct Panels<T> {
    elements: Vec<T>,
    /// Rows that count; the last panel may be filled up with rows of zeros.
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
    full: usize,
}

/// A few rows of a [`Panels`].
pub struct Panel<'a, T> {
    /// `width × height` elements.
    pub elements: &'a [T],
    /// Rows, those that fill up included: 1 to 6, or 8.
    pub height: usize,
    /// Index of its first row.
    pub first: usize,
}

/// The panel height that holds `rows`: kernels exist for these heights.
fn height(rows: usize) -> usize {
    match rows {
        0..=6 => rows,
        _ => 8,
    }
}

impl<T: Copy + Send> Panels<T> {
    /// Room for `rows` rows of `width` in panels of `full`, filled with `zero`.
    pub fn new((rows, width, full): (usize, usize, usize), zero: T) -> Self {
        let elements = vec![zero; (rows / full * full + height(rows % full)) * width];
        Panels { elements, rows, width, full }
    }

    /// The memory, to be filled row by row through [`Slots`].
    pub fn shared(&mut self) -> Shared<'_, T> {
        Shared::new(&mut self.elements)
    }

    /// All panels in order.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = Panel<'_, T>> {
        self.rows(0, self.rows)
    }

    /// The panels of `count` rows from `first` on, both multiples of whole panels or the end.
    #[inline(always)]
    pub fn rows(&self, first: usize, count: usize) -> impl Iterator<Item = Panel<'_, T>> {
        let first = first / self.full;
        let panels = self.elements.chunks((self.full * self.width).max(1)).enumerate();
        panels.skip(first).take(count.div_ceil(self.full)).map(move |(i, elements)| Panel {
            elements,
            height: elements.len() / self.width,
            first: i * self.full,
        })
    }
}

/// Where one row's elements go: every `step`-th of the panel.
pub struct Slots<'a, T> {
    panels: Shared<'a, T>,
    start: usize,
    step: usize,
}

impl<'a, T> Slots<'a, T> {
    /// The slots of `row`, one of `rows`, in the memory of [`Panels::new`] with the same numbers.
    ///
    /// # Safety
    /// No other slots of the same row may be in use.
    pub unsafe fn new(
        panels: Shared<'a, T>,
        row: usize,
        (rows, width, full): (usize, usize, usize),
    ) -> Self {
        let first = row / full * full;
        let step = height((rows - first).min(full));
        Slots { panels, start: first * width + row % full, step }
    }

    /// Element `i` of the row ← `value`.
    #[inline(always)]
    pub fn set(&self, i: usize, value: T) {
        let at = self.start + i * self.step;
        // SAFETY: only this row's `Slots` touches the element.
        unsafe { self.panels.part(at..at + 1)[0] = value };
    }
}

/// The factors of a row's norm: one for the row and one by column.
#[inline(always)]
fn norm_factors<'a, S: Simd>(s: S, x: &[f32], norm: Option<&'a Norm>) -> (f32, Option<&'a [f32]>) {
    match norm {
        Some(norm) => (rms_factor(s, x, norm.eps), Some(&norm.weight)),
        None => (1.0, None),
    }
}

struct QuantiseRow<'a> {
    x: &'a [f32],
    norm: Option<&'a Norm>,
    to: Slots<'a, InputBlock>,
}

impl Kernel for QuantiseRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (factor, weight) = norm_factors(s, self.x, self.norm);
        let factor = s.splat(factor);
        for (i, x) in self.x.as_chunks::<BLOCK>().0.iter().enumerate() {
            let ([low, high], _) = x.as_chunks::<LANES>() else { return };
            let (mut low, mut high) = (s.load(low), s.load(high));
            if let Some(weight) = weight {
                let weight = &weight[i * BLOCK..];
                low = s.mul(s.mul(low, factor), s.load_part(&weight[..LANES]));
                high = s.mul(s.mul(high, factor), s.load_part(&weight[LANES..BLOCK]));
            }
            self.to.set(i, quantise(s, low, high));
        }
    }
}

#[inline(always)]
fn quantise<S: Simd>(s: S, low: S::F, high: S::F) -> InputBlock {
    let magnitudes = s.max_int(s.magnitude_bits(low), s.magnitude_bits(high));
    let scale = f32::from_bits(s.largest_int(magnitudes) as u32) / 127.0;
    let inverse = s.splat(if scale > 0.0 { 1.0 / scale } else { 0.0 });
    let limit = s.splat(127.0);
    let lowest = s.splat(-127.0);
    // `max` and `min` also turn what is not a number into one.
    let low = s.round(s.min(s.max(s.mul(low, inverse), lowest), limit));
    let high = s.round(s.min(s.max(s.mul(high, inverse), lowest), limit));
    let mut quants = [[0; LANES]; 2];
    s.store_i8(&mut quants[0], low);
    s.store_i8(&mut quants[1], high);
    let sum = s.sum_int(s.add_int(low, high));
    let [a, b] = quants;
    let mut block = InputBlock { scale, scaled_sum: scale * sum as f32, sum, ..InputBlock::ZERO };
    for i in 0..4 {
        block.quants[i] = [a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]];
        block.quants[i + 4] = [b[4 * i], b[4 * i + 1], b[4 * i + 2], b[4 * i + 3]];
    }
    block
}

struct CopyRow<'a> {
    x: &'a [f32],
    norm: Option<&'a Norm>,
    to: Slots<'a, f32>,
}

impl Kernel for CopyRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (factor, weight) = norm_factors(s, self.x, self.norm);
        for (i, &x) in self.x.iter().enumerate() {
            self.to.set(i, weight.map_or(x, |weight| x * factor * weight[i]));
        }
    }
}

/// The rows of a product's input, in the forms that its matrix asks for.
#[derive(Debug)]
pub struct Input {
    /// For quantised layouts.
    pub quantised: Option<Panels<InputBlock>>,
    /// For dense ones.
    pub dense: Option<Panels<f32>>,
}

/// Elements below which one thread prepares all rows faster than several.
const SMALL: usize = 2048;

impl Input {
    /// Prepare `norm(x)`, or `x`, of rows `width` wide.
    pub fn prepare(
        (pool, isa): (&Pool, Isa),
        x: &[f32],
        width: usize,
        norm: Option<&Norm>,
        (quantised, dense): (bool, bool),
    ) -> Input {
        let rows = x.len() / width;
        let block_size = (rows, width / BLOCK, isa.rows());
        let float_size = (rows, width, isa.dense_rows());
        let mut blocks = quantised.then(|| Panels::new(block_size, InputBlock::ZERO));
        let mut floats = dense.then(|| Panels::new(float_size, 0.0));
        let to_blocks = blocks.as_mut().map(Panels::shared);
        let to_floats = floats.as_mut().map(Panels::shared);
        let one = |row: usize| {
            let x = &x[row * width..][..width];
            if let Some(panels) = to_blocks {
                // SAFETY: each row is one part of the work.
                let to = unsafe { Slots::new(panels, row, block_size) };
                isa.run(QuantiseRow { x, norm, to });
            }
            if let Some(panels) = to_floats {
                // SAFETY: each row is one part of the work.
                let to = unsafe { Slots::new(panels, row, float_size) };
                isa.run(CopyRow { x, norm, to });
            }
        };
        if x.len() <= SMALL {
            (0..rows).for_each(one);
        } else {
            pool.ranges(rows, 1, &|range| range.for_each(one));
        }
        Input { quantised: blocks, dense: floats }
    }
}
