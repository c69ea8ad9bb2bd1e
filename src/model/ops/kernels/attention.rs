//! Head norms, rope, and attention over the cache.
//!
//! The context is cut into chunks of fixed positions. For each query the softmax of a chunk is
//! taken on its own, with its largest score and its sum, and the chunks are put together in
//! order. That order depends on the query's position alone, so its result has the same bits
//! whatever rows stand beside it and however chunks are spread over threads. Positions that
//! a query does not see are left out, not multiplied by zero.

use super::cache::{CHUNK, Cache, Element, MAX_HEAD, Reader, Shape, Store, Writer, padded};
use super::input::{Panel, Panels, Slots};
use super::math::{Norm, exp, rms_factor, scale_row, soft_cap};
use super::memory::Slab;
use super::pool::Pool;
use super::shared::Shared;
use super::simd::{Isa, Kernel, LANES, Simd};
use super::spare::Buffer;
use crate::model::ops::{AttentionSpec, RopeTable, Visibility};
use anyhow::Result;
use std::ops::Range;
use std::sync::{PoisonError, RwLock};

/// Query panels up to which the work is split by chunk, so that each key and value is read from
/// memory once for all of them; beyond, it is split by panel.
const FEW_PANELS: usize = 8;

/// A rotary embedding with the angles of the positions that were needed so far.
#[derive(Debug)]
pub struct Rope {
    table: RopeTable,
    /// By position: cosines, then sines.
    turns: RwLock<Vec<f32>>,
}

impl Rope {
    /// Prepare `table`.
    pub fn new(table: &RopeTable) -> Rope {
        Rope { table: table.clone(), turns: RwLock::default() }
    }

    /// Pairs of a head that turn.
    pub fn pairs(&self) -> usize {
        self.table.inv_freq.len()
    }

    /// Run `use_it` on the angles of at least `positions` positions.
    fn with<R>(&self, positions: usize, use_it: impl FnOnce(&[f32]) -> R) -> R {
        let stride = 2 * self.pairs();
        let turns = self.turns.read().unwrap_or_else(PoisonError::into_inner);
        if turns.len() >= positions * stride {
            return use_it(&turns);
        }
        drop(turns);
        let mut turns = self.turns.write().unwrap_or_else(PoisonError::into_inner);
        for position in turns.len() / stride..positions.next_multiple_of(256) {
            let angles = self.table.inv_freq.iter().map(|f| position as f64 * f);
            turns.extend(angles.clone().map(|a| (a.cos() * self.table.magnitude) as f32));
            turns.extend(angles.map(|a| (a.sin() * self.table.magnitude) as f32));
        }
        use_it(&turns)
    }
}

/// What head norms, rope and cache need to know of an attention.
#[derive(Clone, Copy)]
pub struct Heading<'a> {
    /// Its shape.
    pub spec: &'a AttentionSpec,
    /// Norm of query heads.
    pub q_norm: Option<&'a Norm>,
    /// Norm of key heads.
    pub k_norm: Option<&'a Norm>,
    /// Its rotary embedding.
    pub rope: &'a Rope,
}

/// Where the queries of one key head go: a row for each query row and head of its group.
type Queries = Panels<f32>;

/// The heads of one row: queries to their panels, keys and values to the cache.
struct PrepareRow<'a, T> {
    heading: Heading<'a>,
    /// `q ‖ k ‖ v`, or without q where there are no `queries`.
    x: &'a [f32],
    row: usize,
    rows: usize,
    position: usize,
    /// Cosines and sines of the position.
    turns: (&'a [f32], &'a [f32]),
    /// By key head.
    queries: &'a [Shared<'a, f32>],
    cache: &'a Writer<'a, T>,
    full: usize,
}

/// `to ← scale · rope(norm(x))`, followed by zeros.
#[inline(always)]
fn prepare_head<S: Simd>(
    s: S,
    x: &[f32],
    norm: Option<&Norm>,
    (cos, sin): (&[f32], &[f32]),
    scale: f32,
    to: &mut [f32; MAX_HEAD],
) {
    let to = &mut to[..x.len()];
    match norm {
        Some(norm) => scale_row(s, x, rms_factor(s, x, norm.eps), &norm.weight, to),
        None => to.copy_from_slice(x),
    }
    let (first, second) = to.split_at_mut(x.len() / 2);
    let pairs = first.chunks_mut(LANES).zip(second.chunks_mut(LANES));
    for ((a, b), (cos, sin)) in pairs.zip(cos.chunks(LANES).zip(sin.chunks(LANES))) {
        let (a, b) = (&mut a[..cos.len()], &mut b[..cos.len()]);
        let (x, y) = (s.load_part(a), s.load_part(b));
        let (cos, sin) = (s.load_part(cos), s.load_part(sin));
        s.store_part(a, s.sub(s.mul(x, cos), s.mul(y, sin)));
        s.store_part(b, s.add(s.mul(y, cos), s.mul(x, sin)));
    }
    if scale != 1.0 {
        for to in to.chunks_mut(LANES) {
            let scaled = s.mul(s.load_part(to), s.splat(scale));
            s.store_part(to, scaled);
        }
    }
}

impl<T: Element> Kernel for PrepareRow<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Heading { spec, q_norm, k_norm, .. } = self.heading;
        let (width, group) = (spec.head_dim, spec.heads / spec.kv_heads);
        let (q, kv) = self.x.split_at(self.queries.len() * group * width);
        let mut head = [0.0; MAX_HEAD];
        for (queries, x) in self.queries.iter().zip(q.chunks_exact(group * width)) {
            for (member, x) in x.chunks_exact(width).enumerate() {
                prepare_head(s, x, q_norm, self.turns, spec.scale, &mut head);
                let row = self.row * group + member;
                let size = (self.rows * group, width, self.full);
                // SAFETY: each row is one part of the work.
                let to = unsafe { Slots::new(*queries, row, size) };
                head[..width].iter().enumerate().for_each(|(i, &x)| to.set(i, x));
            }
        }
        let (keys, values) = kv.split_at(spec.kv_heads * width);
        let values = if spec.values_are_keys { keys } else { values };
        let mut value = [0.0; MAX_HEAD];
        for i in 0..spec.kv_heads {
            let x = &values[i * width..][..width];
            value[..width].copy_from_slice(x);
            if let Some(eps) = spec.value_norm {
                let factor = s.splat(rms_factor(s, x, eps));
                for to in value[..width].chunks_mut(LANES) {
                    let normed = s.mul(s.load_part(to), factor);
                    s.store_part(to, normed);
                }
            }
            prepare_head(s, &keys[i * width..][..width], k_norm, self.turns, 1.0, &mut head);
            // SAFETY: each row, and so each position, is one part of the work; nobody reads.
            unsafe { self.cache.set(s, (i, self.position), &head, &value) };
        }
    }
}

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
fn record(head_dim: usize) -> usize {
    LANES + padded(head_dim)
}

/// One attention's arithmetic on one key head.
#[derive(Clone, Copy)]
struct Lookup<'a, T> {
    spec: &'a AttentionSpec,
    cache: Reader<'a, T>,
    /// Which key head.
    head: usize,
    queries: &'a Queries,
    /// Position of the first row.
    position: usize,
    /// Positions in the cache.
    len: usize,
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
    fn chunks(&self, panel: &Panel<'_, f32>) -> Range<usize> {
        let last = (panel.first + panel.height).min(self.queries.rows) - 1;
        let (first, last) = (self.sight(panel.first), self.sight(last));
        first.start / CHUNK..last.end.max(first.end).div_ceil(CHUNK)
    }
}

/// The records of a panel's queries for one chunk.
struct ChunkOfPanel<'a, 'b, T> {
    lookup: Lookup<'a, T>,
    panel: &'b Panel<'a, f32>,
    chunk: usize,
    /// A record a query.
    to: &'b mut [f32],
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
struct Combine<'a> {
    records: &'a [f32],
    step: usize,
    to: &'a mut [f32],
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

/// Head norms and rope on `kv` rows (`k ‖ v`), which are appended at `position`; with queries
/// (`q ‖ k ‖ v` rows) the result of the attention, in `to`.
pub fn append(
    compute: (&Pool, Isa),
    x: &[f32],
    heading: Heading<'_>,
    cache: &mut Cache,
    position: usize,
    to: Option<&mut [f32]>,
) -> Result<()> {
    let spec = heading.spec;
    let width = if to.is_some() { spec.qkv_width() } else { spec.kv_width() };
    let rows = x.len() / width;
    cache.extend(position, rows)?;
    let len = cache.positions();
    let row = |i: usize| &x[i * width..][..width];
    let place = (cache.shape, cache.first_chunk());
    match &mut cache.store {
        Store::F32(x) => append_to(compute, (rows, &row), heading, (x, place), position, to, len),
        Store::F16(x) => append_to(compute, (rows, &row), heading, (x, place), position, to, len),
    }
    Ok(())
}

fn append_to<'x, T: Element>(
    (pool, isa): (&Pool, Isa),
    (rows, row): (usize, &(dyn Fn(usize) -> &'x [f32] + Sync)),
    heading: Heading<'_>,
    (chunks, (shape, first)): (&mut [Slab<T>], (Shape, usize)),
    position: usize,
    to: Option<&mut [f32]>,
    len: usize,
) {
    let spec = heading.spec;
    let (group, full) = (spec.heads / spec.kv_heads, isa.queries());
    let mut queries: Vec<Queries> = vec![];
    if to.is_some() {
        queries.extend(
            (0..spec.kv_heads).map(|_| Panels::new((rows * group, spec.head_dim, full), 0.0)),
        );
    }
    {
        let queries: Vec<_> = queries.iter_mut().map(Panels::shared).collect();
        let cache = &Writer::new(chunks, shape, first, position);
        let pairs = heading.rope.pairs();
        heading.rope.with(len, |turns| {
            let one = |i: usize| {
                let position = position + i;
                let turns = turns[position * 2 * pairs..][..2 * pairs].split_at(pairs);
                isa.run(PrepareRow {
                    heading,
                    x: row(i),
                    row: i,
                    rows,
                    position,
                    turns,
                    queries: &queries,
                    cache,
                    full,
                });
            };
            if rows < 4 {
                (0..rows).for_each(one);
            } else {
                pool.ranges(rows, 1, &|range| range.for_each(one));
            }
        });
    }
    if let Some(to) = to {
        let cache = Reader { chunks, shape, first };
        let lookup = |(head, queries)| Lookup { spec, cache, head, queries, position, len };
        let lookups: Vec<_> = queries.iter().enumerate().map(lookup).collect();
        attend(pool, isa, &lookups, to);
    }
}

/// The attention of all heads; `lookups` has one a key head.
fn attend<T: Element>(pool: &Pool, isa: Isa, lookups: &[Lookup<'_, T>], to: &mut [f32]) {
    let Some(Lookup { spec, queries, .. }) = lookups.first() else { return };
    let record = record(spec.head_dim);
    let to = Shared::new(to);
    // Query `i` of key head `h`, whose records begin at `records`, `step` apart.
    let combine = |h: usize, i: usize, records: &[f32], step: usize| {
        let group = spec.heads / spec.kv_heads;
        let at = (i / group * spec.heads + h * group + i % group) * spec.head_dim;
        // SAFETY: each query of each key head is in one part of the work.
        let to = unsafe { to.part(at..at + spec.head_dim) };
        isa.run(Combine { records, step, to });
    };
    let panels: Vec<Panel<'_, f32>> = queries.iter().collect();
    let Some(last) = panels.last() else { return };
    let padded_rows = last.first + last.height;
    if panels.len() > FEW_PANELS {
        pool.run(lookups.len() * panels.len(), &|part| {
            let (h, index) = (part / panels.len(), part % panels.len());
            let Some(panel) = lookups[h].queries.iter().nth(index) else { return };
            let chunks = lookups[h].chunks(&panel);
            let step = panel.height * record;
            let mut records = Buffer::any(chunks.len() * step);
            for (chunk, to) in chunks.zip(records.chunks_mut(step)) {
                isa.run(ChunkOfPanel { lookup: lookups[h], panel: &panel, chunk, to });
            }
            for i in 0..panel.height.min(queries.rows - panel.first) {
                combine(h, panel.first + i, &records[i * record..], step);
            }
        });
        return;
    }
    let chunks = panels.iter().map(|panel| lookups[0].chunks(panel));
    let chunks = chunks.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
    let step = padded_rows * record;
    let mut records = Buffer::any(lookups.len() * chunks.len() * step);
    let shared = Shared::new(&mut records);
    pool.run(lookups.len() * chunks.len(), &|part| {
        // In the order of the memory.
        let (h, chunk) = (part % lookups.len(), part / lookups.len());
        for panel in lookups[h].queries.iter() {
            let at = (h * chunks.len() + chunk) * step + panel.first * record;
            // SAFETY: each part of the work has its own records.
            let to = unsafe { shared.part(at..at + panel.height * record) };
            let chunk = chunks.start + chunk;
            isa.run(ChunkOfPanel { lookup: lookups[h], panel: &panel, chunk, to });
        }
    });
    let one = |part: usize| {
        let (h, i) = (part / queries.rows, part % queries.rows);
        let records = &records[h * chunks.len() * step..][..chunks.len() * step];
        combine(h, i, &records[i * record..], step);
    };
    let parts = lookups.len() * queries.rows;
    if parts * chunks.len() < 128 {
        (0..parts).for_each(one);
    } else {
        pool.ranges(parts, 4, &|range| range.for_each(one));
    }
}
