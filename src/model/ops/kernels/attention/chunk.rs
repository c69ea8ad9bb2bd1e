//! What queries make of one chunk of the context, and of all chunks together.

use super::super::cache::{CHUNK, Element, Reader, padded};
use super::super::input::Panel;
use super::super::math::{exp, soft_cap};
use super::super::simd::{Kernel, LANES, Simd};
use super::heading::Queries;
use crate::model::ops::{AttentionSpec, Visibility};
use std::ops::Range;

/// What queries see: the range of keys by query of a panel.
type Sight<const N: usize> = [Range<usize>; N];

/// The keys that a query at `position` sees of `len` cached ones.
fn sight(spec: &AttentionSpec, position: usize, len: usize) -> Range<usize> {
    let window = spec.window.unwrap_or(usize::MAX);
    let first = (position + 1).saturating_sub(window);
    match spec.visibility {
        Visibility::Causal => first..position + 1,
        Visibility::Bidirectional => first..len.min(position.saturating_add(window)),
    }
}

/// Numbers that a query keeps of a chunk: its largest score, the sum of the weights, and the
/// weighted sum of the values.
pub(super) fn record(head_dim: usize) -> usize {
    LANES + padded(head_dim)
}

/// One attention's arithmetic on one key head.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a, T> {
    pub spec: &'a AttentionSpec,
    pub cache: Reader<'a, T>,
    /// Which key head.
    pub head: usize,
    pub queries: &'a Queries,
    /// Position of the first row.
    pub position: usize,
    /// Positions in the cache.
    pub len: usize,
}

impl<T: Element> Lookup<'_, T> {
    /// The keys that query `i` of the panels sees; none for a row that fills up.
    fn sight(&self, i: usize) -> Range<usize> {
        if i >= self.queries.rows {
            return 0..0;
        }
        let group = self.spec.heads / self.spec.kv_heads;
        sight(self.spec, self.position + i / group, self.len)
    }

    /// The chunks that any query of a panel sees.
    pub(super) fn chunks(&self, panel: &Panel<'_, f32>) -> Range<usize> {
        let last = (panel.first + panel.height).min(self.queries.rows) - 1;
        let (first, last) = (self.sight(panel.first), self.sight(last));
        first.start / CHUNK..last.end.max(first.end).div_ceil(CHUNK)
    }
}

/// The records of a panel's queries for one chunk.
pub(super) struct ChunkOfPanel<'a, 'b, T> {
    pub lookup: Lookup<'a, T>,
    pub panel: &'b Panel<'a, f32>,
    pub chunk: usize,
    /// A record a query.
    pub to: &'b mut [f32],
}

impl<T: Element> Kernel for ChunkOfPanel<'_, '_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.panel.height {
            1 => self.queries::<S, 1>(s),
            2 => self.queries::<S, 2>(s),
            3 => self.queries::<S, 3>(s),
            4 => self.queries::<S, 4>(s),
            5 => self.queries::<S, 5>(s),
            6 => self.queries::<S, 6>(s),
            8 if S::QUERIES == 8 => self.queries::<S, 8>(s),
            _ => {}
        }
    }
}

impl<T: Element> ChunkOfPanel<'_, '_, T> {
    #[inline(always)]
    fn queries<S: Simd, const N: usize>(self, s: S) {
        let Lookup { spec, cache, head, .. } = self.lookup;
        let (keys, values) = cache.block(head, self.chunk);
        let start = self.chunk * CHUNK;
        // What each query sees of the chunk, counted from its start.
        let mut sight: Sight<N> = [const { 0..0 }; N];
        // From the first to the last position that any query sees.
        let (mut seen_first, mut seen_end) = (CHUNK, 0);
        for (i, sight) in sight.iter_mut().enumerate() {
            let all = self.lookup.sight(self.panel.first + i);
            let [first, end] = [all.start, all.end].map(|x| x.saturating_sub(start).min(CHUNK));
            if first < end {
                *sight = first..end;
                (seen_first, seen_end) = (seen_first.min(first), seen_end.max(end));
            }
        }
        let seen = seen_first..seen_end;
        let width = padded(spec.head_dim);
        let mut weights = [[0.0; CHUNK]; N];
        if !seen.is_empty() {
            if S::PAIRS {
                self.score::<S, N, 2>(s, (keys, values), &seen, &mut weights);
            } else {
                self.score::<S, N, 1>(s, (keys, values), &seen, &mut weights);
            }
        }
        let stride = record(spec.head_dim);
        let summed = soft_max(s, &mut weights, &sight);
        for (i, (largest, sum)) in summed.into_iter().enumerate() {
            self.to[i * stride] = largest;
            self.to[i * stride + 1] = sum;
        }
        if !seen.is_empty() {
            // The next head's of the chunk: mostly this thread's next part.
            let next_keys = keys.as_ptr().wrapping_add(keys.len() + values.len());
            let values = Values { values, width, next_keys };
            weighted_values::<S, T, N>(s, values, &weights, &sight, seen, self.to);
        }
    }

    /// `to` ← the capped scores of the tiles of keys that hold positions of `seen`, `C` tiles at
    /// a time.
    #[inline(always)]
    fn score<S: Simd, const N: usize, const C: usize>(
        &self,
        s: S,
        (keys, values): (&[T], &[T]),
        seen: &Range<usize>,
        to: &mut [[f32; CHUNK]; N],
    ) {
        let AttentionSpec { head_dim, softcap, .. } = *self.lookup.spec;
        let queries = self.panel.elements.as_chunks().0;
        let count = C * LANES;
        for tiles in seen.start / count..seen.end.div_ceil(count) {
            let first = tiles * count;
            let keys = std::array::from_fn(|c| {
                keys[(first + c * LANES) * head_dim..][..LANES * head_dim].as_chunks().0
            });
            let values = values[first * padded(head_dim)..].as_ptr();
            let values = (values, count * padded(head_dim));
            let scores = scores::<S, T, N, C>(s, keys, queries, values);
            for (i, scores) in scores.into_iter().enumerate() {
                for (c, score) in scores.into_iter().enumerate() {
                    let capped = match softcap {
                        Some(cap) => soft_cap(s, score, cap),
                        None => score,
                    };
                    let at = first + c * LANES;
                    s.store_part(&mut to[i][at..at + LANES], capped);
                }
            }
        }
    }
}

/// `q · k` of `C` tiles of keys, by query. Meanwhile the values, so many from a place on, are
/// fetched.
#[inline(always)]
fn scores<S: Simd, T: Element, const N: usize, const C: usize>(
    s: S,
    keys: [&[[T; LANES]]; C],
    queries: &[[f32; N]],
    (values, count): (*const T, usize),
) -> [[S::F; C]; N] {
    let mut sums = [[s.splat(0.0); C]; N];
    let dims = queries.len();
    let step = count.div_ceil(dims);
    let keys = keys.map(|keys| &keys[..dims]);
    for (i, q) in queries.iter().enumerate() {
        s.prefetch(values.wrapping_add(i * step));
        let mut vectors = [s.splat(0.0); C];
        for c in 0..C {
            vectors[c] = T::load(s, &keys[c][i]);
        }
        for query in 0..N {
            let q = s.splat(q[query]);
            for c in 0..C {
                sums[query][c] = s.fma(vectors[c], q, sums[query][c]);
            }
        }
    }
    sums
}

/// Scores → weights `e^(score - largest)` where a query sees, zero beside it within the
/// vectors. Returns each query's largest score (-∞ if it sees nothing) and the sum of its
/// weights.
#[inline(always)]
fn soft_max<S: Simd, const N: usize>(
    s: S,
    scores: &mut [[f32; CHUNK]; N],
    sight: &Sight<N>,
) -> [(f32, f32); N] {
    let mut summed = [(f32::NEG_INFINITY, 0.0); N];
    // Queries side by side, for the steps of one wait for each other.
    for i in 0..N {
        let seen = &sight[i];
        let (first, last) = (seen.start / LANES, seen.end.div_ceil(LANES));
        scores[i][first * LANES..seen.start].fill(f32::NEG_INFINITY);
        scores[i][seen.end..last * LANES].fill(f32::NEG_INFINITY);
        let mut largest = s.splat(f32::NEG_INFINITY);
        for tile in &scores[i].as_chunks().0[first..last] {
            largest = s.max(s.load(tile), largest);
        }
        summed[i].0 = s.largest(largest);
    }
    for i in 0..N {
        let (first, last) = (sight[i].start / LANES, sight[i].end.div_ceil(LANES));
        let largest = s.splat(summed[i].0);
        let mut sum = s.splat(0.0);
        for tile in &mut scores[i].as_chunks_mut().0[first..last] {
            let weight = exp(s, s.sub(s.load(tile), largest));
            s.store(tile, weight);
            sum = s.add(sum, weight);
        }
        summed[i].1 = s.sum(sum);
    }
    summed
}

/// The values of a chunk.
#[derive(Clone, Copy)]
struct Values<'a, T> {
    values: &'a [T],
    width: usize,
    /// The keys of the next head, to be fetched meanwhile.
    next_keys: *const T,
}

/// The weighted sums of the values that each query sees, position by position.
#[inline(always)]
fn weighted_values<S: Simd, T: Element, const N: usize>(
    s: S,
    values: Values<'_, T>,
    weights: &[[f32; CHUNK]; N],
    sight: &Sight<N>,
    seen: Range<usize>,
    to: &mut [f32],
) {
    // What all queries that see anything see: there no query is asked about.
    let mut common = seen.clone();
    for sight in sight.iter().filter(|sight| !sight.is_empty()) {
        common = common.start.max(sight.start)..common.end.min(sight.end);
    }
    if common.is_empty() {
        common = seen.end..seen.end;
    }
    let (width, mut column) = (values.width, 0);
    while S::PAIRS && column + 2 * LANES <= width {
        let sums = columns::<S, T, N, 2>(s, values, column, weights, sight, &seen, &common);
        store_columns(s, sums, width, column, to);
        column += 2 * LANES;
    }
    while column < width {
        let sums = columns::<S, T, N, 1>(s, values, column, weights, sight, &seen, &common);
        store_columns(s, sums, width, column, to);
        column += LANES;
    }
}

#[inline(always)]
fn store_columns<S: Simd, const N: usize, const C: usize>(
    s: S,
    sums: [[S::F; N]; C],
    width: usize,
    column: usize,
    to: &mut [f32],
) {
    for (c, sums) in sums.into_iter().enumerate() {
        for (i, sum) in sums.into_iter().enumerate() {
            let at = i * (LANES + width) + LANES + column + c * LANES;
            s.store_part(&mut to[at..at + LANES], sum);
        }
    }
}

/// `C` vectors of the values' width, from `column` on.
#[inline(always)]
fn columns<S: Simd, T: Element, const N: usize, const C: usize>(
    s: S,
    values: Values<'_, T>,
    column: usize,
    weights: &[[f32; CHUNK]; N],
    sight: &Sight<N>,
    seen: &Range<usize>,
    common: &Range<usize>,
) -> [[S::F; N]; C] {
    let mut sums = [[s.splat(0.0); N]; C];
    let (before, after) = (seen.start..common.start, common.end..seen.end);
    add_values::<S, T, N, C, true>(s, values, column, weights, sight, before, &mut sums);
    add_values::<S, T, N, C, false>(s, values, column, weights, sight, common.clone(), &mut sums);
    add_values::<S, T, N, C, true>(s, values, column, weights, sight, after, &mut sums);
    sums
}

/// Add the weighted values of `positions`; with `ASK` only to the queries that see them.
#[inline(always)]
fn add_values<S: Simd, T: Element, const N: usize, const C: usize, const ASK: bool>(
    s: S,
    Values { values, width, next_keys }: Values<'_, T>,
    column: usize,
    weights: &[[f32; CHUNK]; N],
    sight: &Sight<N>,
    positions: Range<usize>,
    sums: &mut [[S::F; N]; C],
) {
    for position in positions {
        s.prefetch(next_keys.wrapping_add(position * width + column));
        let mut value = [s.splat(0.0); C];
        for (c, value) in value.iter_mut().enumerate() {
            *value = load_at(s, values, position * width + column + c * LANES);
        }
        for i in 0..N {
            if !ASK || sight[i].contains(&position) {
                let weight = s.splat(weights[i][position]);
                for c in 0..C {
                    sums[c][i] = s.fma(weight, value[c], sums[c][i]);
                }
            }
        }
    }
}

/// The sixteen values at `at`.
#[inline(always)]
fn load_at<S: Simd, T: Element>(s: S, values: &[T], at: usize) -> S::F {
    match values[at..].first_chunk() {
        Some(value) => T::load(s, value),
        None => s.splat(0.0),
    }
}

/// One query's result from its records, one a chunk, `step` apart.
pub(super) struct Combine<'a> {
    pub records: &'a [f32],
    pub step: usize,
    pub to: &'a mut [f32],
}

impl Kernel for Combine<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut largest = f32::NEG_INFINITY;
        for record in self.records.chunks(self.step) {
            largest = if record[0] > largest { record[0] } else { largest };
        }
        let mut sum = s.splat(0.0);
        self.to.fill(0.0);
        for record in self.records.chunks(self.step) {
            // A chunk of which the query sees nothing.
            if record[1] == 0.0 {
                continue;
            }
            let factor = exp(s, s.splat(record[0] - largest));
            sum = s.fma(factor, s.splat(record[1]), sum);
            for (to, x) in self.to.chunks_mut(LANES).zip(record[LANES..].chunks(LANES)) {
                let total = s.fma(factor, s.load_part(x), s.load_part(to));
                s.store_part(to, total);
            }
        }
        for to in self.to.chunks_mut(LANES) {
            let mean = s.div(s.load_part(to), sum);
            s.store_part(to, mean);
        }
    }
}
