//! [`Ops`] on the CPU, by the kernels of [`super::kernels`].
//!
//! A row's result has the same bits whatever rows stand beside it, on any number of threads and
//! with any instruction set.

use super::kernels::attention::{self, Heading, Rope};
use super::kernels::bandwidth::bandwidth;
use super::kernels::cache::{self, Cache, KvType, Shape};
use super::kernels::choose::Choose;
use super::kernels::input::Input;
use super::kernels::math::{GateRow, Norm, NormRow, SoftCap};
use super::kernels::matrix::{Matrix, Tiles};
use super::kernels::memory::Memory;
use super::kernels::pack::pack;
use super::kernels::pool::Pool;
use super::kernels::product::{BLOCK_ROWS, Then, product};
use super::kernels::simd::Isa;
use super::kernels::spare::Buffer;
use super::{Activation, AttentionSpec, Choice, HeadNorms, Ops, Quantise, RopeTable};
use crate::model::weights::RawTensor;
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The CPU: its threads and instructions, and how weights and caches are kept.
pub struct Cpu {
    pool: Pool,
    isa: Isa,
    quantise: Quantise,
    kv: KvType,
    memory: Memory,
    /// Apart from the weights', for caches come and go.
    caches: Arc<Memory>,
    notes: Mutex<Vec<String>>,
}

/// Activations: rows of `width` numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    data: Buffer,
    width: usize,
}

impl Rows {
    /// Rows that are to be filled.
    fn any(rows: usize, width: usize) -> Rows {
        Rows { data: Buffer::any(rows * width), width }
    }

    fn count(&self) -> usize {
        self.data.len() / self.width
    }

    fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.width..][..self.width]
    }
}

/// Rows of a feed-forward that go together.
const GATED_BLOCK: usize = 64;

/// Numbers below which one thread does a row operation faster than several.
const SMALL: usize = 4096;

impl Cpu {
    /// Compute with `threads` threads (at least 1, the caller's included) and the best
    /// instructions of this machine.
    pub fn new(threads: usize, quantise: Quantise, kv: KvType) -> Cpu {
        Cpu::with_isa(Isa::best(), threads, quantise, kv)
    }

    /// Compute with the instructions `isa`.
    pub fn with_isa(isa: Isa, threads: usize, quantise: Quantise, kv: KvType) -> Cpu {
        let (pool, memory) = (Pool::new(threads), Memory::default());
        Cpu { pool, isa, quantise, kv, memory, caches: Arc::default(), notes: Mutex::default() }
    }

    /// Bytes a second at which memory of `bytes` is read, pass by pass.
    ///
    /// # Errors
    /// When there is not so much memory.
    pub fn bandwidth(&self, bytes: usize, passes: usize) -> Result<Vec<f64>> {
        bandwidth((&self.pool, self.isa), bytes, passes)
    }

    fn product(&self, x: &Rows, norm: Option<&Norm>, matrix: &Matrix, to: &mut Rows, then: Then) {
        let quantised = |s: &Tiles| matches!(s, Tiles::Q4(_) | Tiles::Q8(_));
        let layouts = || matrix.segments.iter().map(|segment| quantised(&segment.tiles));
        let forms = (layouts().any(|q| q), layouts().any(|q| !q));
        let input = Input::prepare((&self.pool, self.isa), &x.data, x.width, norm, forms);
        product(&self.pool, self.isa, matrix, &input, &mut to.data, then);
    }

    /// `to[i] ← f(i)` by row of `width`, on several threads if a row's `work` makes it pay.
    fn each_row(
        &self,
        to: &mut [f32],
        width: usize,
        work: usize,
        f: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        if to.len() / width * work <= SMALL {
            return to.chunks_mut(width).enumerate().for_each(|(i, to)| f(i, to));
        }
        self.pool.rows(to, width, f);
    }
}

fn check_norm(norm: &Norm, width: usize) -> Result<()> {
    ensure!(norm.weight.len() == width, "a norm of {} on rows of {width}", norm.weight.len());
    Ok(())
}

fn check_product(x: &Rows, matrix: &Matrix) -> Result<()> {
    ensure!(x.width == matrix.width, "rows of {} into a matrix {} wide", x.width, matrix.width);
    Ok(())
}

fn heading<'a>(
    spec: &'a AttentionSpec,
    norms: &'a HeadNorms<Cpu>,
    rope: &'a Rope,
) -> Result<Heading<'a>> {
    for norm in norms.q.iter().chain(&norms.k) {
        check_norm(norm, spec.head_dim)?;
    }
    ensure!(rope.pairs() <= spec.head_dim / 2, "a rope wider than the head");
    ensure!(
        spec.kv_heads > 0 && spec.heads.is_multiple_of(spec.kv_heads),
        "{} query heads do not share {} key heads",
        spec.heads,
        spec.kv_heads
    );
    Ok(Heading { spec, q_norm: norms.q.as_ref(), k_norm: norms.k.as_ref(), rope })
}

fn shape(spec: &AttentionSpec) -> Shape {
    Shape { heads: spec.kv_heads, head_dim: spec.head_dim }
}

impl Ops for Cpu {
    type Rows = Rows;
    type Linear = Matrix;
    type Norm = Norm;
    type Cache = Cache;
    type Rope = Rope;

    fn device(&self) -> &'static str {
        "cpu"
    }

    fn device_detail(&self) -> String {
        self.isa.name().to_owned()
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn prefill_rows(&self) -> usize {
        BLOCK_ROWS
    }

    fn memory_rates(&self, bytes: u64) -> Vec<f64> {
        // Of small weights as many bytes, so that caches help as they help a pass; of large ones
        // what most caches do not hold.
        self.bandwidth(bytes.min(128 << 20) as usize, 5).unwrap_or_default()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn linear(&self, parts: &[RawTensor<'_>], bias: Option<Vec<f32>>) -> Result<Matrix> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        pack((&self.pool, &self.memory), parts, bias, self.quantise, &mut notes)
    }

    fn linear_shape(&self, linear: &Matrix) -> (usize, usize) {
        (linear.rows, linear.width)
    }

    fn linear_bytes(&self, linear: &Matrix) -> u64 {
        linear.bytes() as u64
    }

    fn select_rows(&self, linear: &Matrix, ids: &[u32]) -> Result<Matrix> {
        linear.select((&self.pool, &self.memory), ids)
    }

    fn norm(&self, weight: Vec<f32>, eps: f32) -> Result<Norm> {
        Ok(Norm { weight, eps })
    }

    fn rope(&self, table: &RopeTable, _max_positions: usize) -> Result<Rope> {
        Ok(Rope::new(table))
    }

    fn cache(&self, spec: &AttentionSpec, capacity: usize) -> Result<Cache> {
        Cache::new(&self.caches, shape(spec), spec.window, capacity, self.kv)
    }

    fn embed(&self, table: &Matrix, ids: &[u32], scale: f32) -> Result<Rows> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= table.rows) {
            anyhow::bail!("token {id} of a vocabulary of {}", table.rows);
        }
        let mut rows = Rows::any(ids.len(), table.width);
        self.each_row(&mut rows.data, table.width, table.width, |i, to| {
            table.row(ids[i] as usize, to);
            if scale != 1.0 {
                to.iter_mut().for_each(|x| *x *= scale);
            }
        });
        Ok(rows)
    }

    fn upload(&self, values: &[f32], width: usize) -> Result<Rows> {
        ensure!(width > 0 && values.len().is_multiple_of(width), "rows of {width} do not fill");
        Ok(Rows { data: Buffer::of([values]), width })
    }

    fn download(&self, rows: &Rows) -> Result<Vec<f32>> {
        Ok(rows.data.to_vec())
    }

    fn count(&self, rows: &Rows) -> usize {
        rows.count()
    }

    fn slice(&self, rows: &Rows, range: Range<usize>) -> Result<Rows> {
        let width = rows.width;
        let part = rows.data.get(range.start * width..range.end * width);
        let Some(part) = part else {
            anyhow::bail!("rows {range:?} of {}", rows.count());
        };
        Ok(Rows { data: Buffer::of([part]), width })
    }

    fn beside(&self, parts: &[&Rows]) -> Result<Rows> {
        let count = parts.first().map_or(0, |part| part.count());
        ensure!(parts.iter().all(|part| part.count() == count), "rows of different number beside");
        ensure!(!parts.is_empty(), "no rows to set side by side");
        let width = parts.iter().map(|part| part.width).sum();
        let rows = (0..count).flat_map(|i| parts.iter().map(move |part| part.row(i)));
        Ok(Rows { data: Buffer::of(rows), width })
    }

    fn stack(&self, parts: &[&Rows]) -> Result<Rows> {
        let width = parts.first().map_or(1, |part| part.width);
        ensure!(parts.iter().all(|part| part.width == width), "rows of different width stacked");
        Ok(Rows { data: Buffer::of(parts.iter().map(|part| &part.data[..])), width })
    }

    fn copy(&self, rows: &Rows) -> Result<Rows> {
        Ok(rows.clone())
    }

    fn normed(&self, x: &Rows, norm: &Norm) -> Result<Rows> {
        check_norm(norm, x.width)?;
        let mut to = Rows::any(x.count(), x.width);
        self.each_row(&mut to.data, x.width, x.width, |i, to| {
            self.isa.run(NormRow { x: x.row(i), norm, to });
        });
        Ok(to)
    }

    fn project(&self, x: &Rows, norm: Option<&Norm>, linear: &Matrix) -> Result<Rows> {
        check_product(x, linear)?;
        norm.map_or(Ok(()), |norm| check_norm(norm, x.width))?;
        let mut to = Rows::any(x.count(), linear.rows);
        self.product(x, norm, linear, &mut to, Then::Store);
        Ok(to)
    }

    fn project_add(
        &self,
        into: &mut Rows,
        x: &Rows,
        linear: &Matrix,
        post: Option<&Norm>,
    ) -> Result<()> {
        check_product(x, linear)?;
        ensure!(
            into.width == linear.rows && into.count() == x.count(),
            "{} rows of {} added to {} of {}",
            x.count(),
            linear.rows,
            into.count(),
            into.width
        );
        let Some(post) = post else {
            self.product(x, None, linear, into, Then::Add);
            return Ok(());
        };
        self.add(into, &self.normed(&self.project(x, None, linear)?, post)?)
    }

    fn gated(
        &self,
        x: &Rows,
        norm: Option<&Norm>,
        gate_up: &Matrix,
        activation: Activation,
    ) -> Result<Rows> {
        ensure!(gate_up.rows.is_multiple_of(2), "a gate and up matrix of {} rows", gate_up.rows);
        let width = gate_up.rows / 2;
        let mut to = Rows::any(x.count(), width);
        // Many rows go in blocks whose gates and ups are still in the cache when they are used.
        for first in (0..x.count()).step_by(GATED_BLOCK) {
            let rows = first..x.count().min(first + GATED_BLOCK);
            let both = self.project(&self.slice(x, rows.clone())?, norm, gate_up)?;
            let gate = |i: usize, to: &mut [f32]| {
                self.isa.run(GateRow { gate_up: both.row(i), activation, to });
            };
            // An exponential costs about as much as ten other steps.
            let to = &mut to.data[rows.start * width..rows.end * width];
            self.each_row(to, width, 8 * width, gate);
        }
        Ok(to)
    }

    fn add(&self, into: &mut Rows, more: &Rows) -> Result<()> {
        ensure!(
            into.width == more.width && into.count() == more.count(),
            "{} rows of {} added to {} of {}",
            more.count(),
            more.width,
            into.count(),
            into.width
        );
        self.each_row(&mut into.data, more.width, more.width, |i, to| {
            to.iter_mut().zip(more.row(i)).for_each(|(to, x)| *to += x);
        });
        Ok(())
    }

    fn convolve(
        &self,
        x: &Rows,
        base: &Rows,
        change: &Rows,
        group: usize,
        side: usize,
    ) -> Result<Rows> {
        let (width, taps) = (x.width, base.count());
        ensure!(group > 0 && width.is_multiple_of(group), "groups of {group} in rows of {width}");
        let groups = width / group;
        ensure!(
            base.width == width
                && change.count() == x.count()
                && change.width >= (side + 1) * taps * groups,
            "{} rows of {width} convolved by {taps} of {} with {} changes of {}",
            x.count(),
            base.width,
            change.count(),
            change.width
        );
        let mut to = Rows::any(x.count(), width);
        self.each_row(&mut to.data, width, 2 * taps * width, |i, to| {
            to.fill(0.0);
            let changes = &change.row(i)[side * taps * groups..];
            for tap in 0..taps.min(i + 1) {
                let (x, base) = (x.row(i - tap), base.row(tap));
                for (g, to) in to.chunks_exact_mut(group).enumerate() {
                    let (more, at) = (changes[tap * groups + g], g * group);
                    let pairs = base[at..][..group].iter().zip(&x[at..][..group]);
                    to.iter_mut().zip(pairs).for_each(|(to, (base, x))| *to += (base + more) * x);
                }
            }
        });
        Ok(to)
    }

    fn scale(&self, into: &mut Rows, factor: f32) -> Result<()> {
        into.data.iter_mut().for_each(|x| *x *= factor);
        Ok(())
    }

    fn append(
        &self,
        kv: &Rows,
        spec: &AttentionSpec,
        norms: &HeadNorms<Cpu>,
        rope: &Rope,
        cache: &mut Cache,
        position: usize,
    ) -> Result<()> {
        ensure!(kv.width == spec.kv_width(), "k ‖ v rows of {}", kv.width);
        let heading = heading(spec, norms, rope)?;
        attention::append((&self.pool, self.isa), &kv.data, heading, cache, position, None)
    }

    fn attend(
        &self,
        qkv: &Rows,
        spec: &AttentionSpec,
        norms: &HeadNorms<Cpu>,
        rope: &Rope,
        cache: &mut Cache,
        position: usize,
    ) -> Result<Rows> {
        ensure!(qkv.width == spec.qkv_width(), "q ‖ k ‖ v rows of {}", qkv.width);
        let heading = heading(spec, norms, rope)?;
        let mut to = Rows::any(qkv.count(), spec.output_width());
        let compute = (&self.pool, self.isa);
        attention::append(compute, &qkv.data, heading, cache, position, Some(&mut to.data))?;
        Ok(to)
    }

    fn cache_len(&self, cache: &Cache) -> usize {
        cache.positions()
    }

    fn shortest(&self, cache: &Cache) -> usize {
        cache.shortest()
    }

    fn truncate(&self, cache: &mut Cache, len: usize) {
        cache.truncate(len);
    }

    fn cache_bytes(&self, spec: &AttentionSpec, positions: usize) -> u64 {
        cache::bytes(shape(spec), spec.window, positions, self.kv)
    }

    fn softcap(&self, rows: &mut Rows, cap: f32) -> Result<()> {
        let isa = self.isa;
        let width = rows.width;
        self.pool.rows(&mut rows.data, width, |_, x| isa.run(SoftCap { x, cap }));
        Ok(())
    }

    fn choose(&self, logits: &Rows, with_prob: bool) -> Result<Vec<Choice>> {
        let mut choices = vec![Choice { id: 0, margin: 0.0, prob: 0.0 }; logits.count()];
        self.pool.rows(&mut choices, 1, |i, choice| {
            choice[0] = self.isa.run(Choose { logits: logits.row(i), with_prob });
        });
        Ok(choices)
    }
}
