//! What comes before the scores: head norms, rope, queries in panels, keys and values in the cache.

use super::super::cache::{Element, MAX_HEAD, Writer};
use super::super::input::{Panels, Slots};
use super::super::math::{Norm, rms_factor, scale_row};
use super::super::shared::Shared;
use super::super::simd::{Kernel, LANES, Simd};
use crate::model::ops::{AttentionSpec, RopeTable};
use std::sync::{PoisonError, RwLock};

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
    pub(super) fn with<R>(&self, positions: usize, use_it: impl FnOnce(&[f32]) -> R) -> R {
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
pub(super) type Queries = Panels<f32>;

/// The heads of one row: queries to their panels, keys and values to the cache.
pub(super) struct PrepareRow<'a, T> {
    pub heading: Heading<'a>,
    /// `q ‖ k ‖ v`, or without q where there are no `queries`.
    pub x: &'a [f32],
    pub row: usize,
    pub rows: usize,
    pub position: usize,
    /// Cosines and sines of the position.
    pub turns: (&'a [f32], &'a [f32]),
    /// By key head.
    pub queries: &'a [Shared<'a, f32>],
    pub cache: &'a Writer<'a, T>,
    pub full: usize,
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
