//! Head norms, rope, and attention over the cache.
//!
//! The context is cut into chunks of fixed positions. For each query the softmax of a chunk is
//! taken on its own, with its largest score and its sum, and the chunks are put together in
//! order. That order depends on the query's position alone, so its result has the same bits
//! whatever rows stand beside it and however chunks are spread over threads. Positions that
//! a query does not see are left out, not multiplied by zero.

mod chunk;
mod heading;

pub use heading::{Heading, Rope};

use super::cache::{Cache, Element, Reader, Shape, Store, Writer};
use super::input::{Panel, Panels};
use super::memory::Slab;
use super::pool::Pool;
use super::shared::Shared;
use super::simd::Isa;
use super::spare::Buffer;
use anyhow::Result;
use chunk::{ChunkOfPanel, Combine, Lookup, record};
use heading::{PrepareRow, Queries};

/// Query panels up to which the work is split by chunk, so that each key and value is read from
/// memory once for all of them; beyond, it is split by panel.
const FEW_PANELS: usize = 8;

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
