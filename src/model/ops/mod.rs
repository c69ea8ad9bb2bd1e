//! The arithmetic of a decoder, as a handful of coarse operations.
//!
//! [`Ops`] has two implementations: [`cpu`], whose kernels are made for few rows and give a row
//! the same bits whatever rows stand beside it, and [`device`], the same operations in candle
//! for Metal and CUDA (and for comparison on the CPU); [`parity`] compares them. The networks in
//! [`super::decoder`] and [`super::draft`] are written once, against this trait.
//!
//! All activations are rows of `f32` (on a GPU possibly narrower): `Rows` has a number of rows
//! and a width. Row `i` of a pass at position `p` stands at absolute position `p + i`.

pub mod cpu;
pub mod device;
pub mod kernels;
pub mod parity;

use super::weights::RawTensor;
use anyhow::Result;
use std::ops::Range;

/// How weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quantise {
    /// As the file has them: quantised ones in the layout that holds their type, others dense.
    #[default]
    AsStored,
    /// All dense: quantised ones are dequantised to f32.
    None,
    /// All matrices in 8 bits; what the file has in 4 stays so.
    Q8,
    /// All matrices in 4 bits.
    Q4,
}

/// The gate of a feed-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x · sigmoid(x)
    Silu,
    /// GELU in its tanh form (Gemma).
    GeluTanh,
}

/// Which positions a query may attend to, besides being limited to what is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Positions up to its own.
    Causal,
    /// Every cached position, those after its own in the same block too (a draft's full layer).
    Bidirectional,
}

/// Positions before a window that its cache keeps, so that the last answer can be taken back, or
/// said anew, without reading the text from its beginning.
pub const TAKE_BACK: usize = 1024;

/// Positions by which a window's cache grows before it forgets what is at its front.
const SPARE: usize = 512;

/// Most positions that a cache keeps while a pass of `rows` is appended: all, unless queries see
/// the last `window` only.
pub fn kept_positions(window: Option<usize>, rows: usize) -> usize {
    window.map_or(usize::MAX, |window| window.saturating_add(TAKE_BACK + rows.max(SPARE)))
}

/// The shape and rules of one attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Factor on the scores.
    pub scale: f32,
    /// A key is visible only if `query position - key position < window`; with
    /// [`Visibility::Bidirectional`] the limit holds for distances in both directions.
    pub window: Option<usize>,
    /// Which positions a query sees.
    pub visibility: Visibility,
    /// `cap · tanh(score / cap)` on the scores before the softmax.
    pub softcap: Option<f32>,
    /// Values are the keys before norm and rope (Gemma 4's global layers); the projection then
    /// has no value part.
    pub values_are_keys: bool,
    /// RMS norm without weight on the values, with this epsilon (Gemma 4).
    pub value_norm: Option<f32>,
}

impl AttentionSpec {
    /// Width of a `q ‖ k ‖ v` row (of `q ‖ k` where values are keys).
    pub fn qkv_width(&self) -> usize {
        let kv = if self.values_are_keys { 1 } else { 2 };
        (self.heads + kv * self.kv_heads) * self.head_dim
    }
    /// Width of a `k ‖ v` row.
    pub fn kv_width(&self) -> usize {
        (if self.values_are_keys { 1 } else { 2 }) * self.kv_heads * self.head_dim
    }
    /// Width of the result.
    pub fn output_width(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// Rotation angles of a rotary embedding, half-split (NeoX) form: pair `(i, i + head_dim/2)`
/// turns by `position · inv_freq[i]`. Fewer than `head_dim/2` entries leave the rest of the
/// pairs unturned (partial rope). Built in f64, applied in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    /// Radians a position, by pair.
    pub inv_freq: Vec<f64>,
    /// Factor on cosine and sine (YaRN's attention factor); 1 for the others.
    pub magnitude: f64,
}

/// The weights of one attention besides its products.
#[derive(Debug)]
pub struct HeadNorms<O: Ops> {
    /// RMS norm of each query head.
    pub q: Option<O::Norm>,
    /// RMS norm of each key head.
    pub k: Option<O::Norm>,
}

/// A row's greedy choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Index of the largest logit; the first one of equals.
    pub id: u32,
    /// Distance to the second largest logit (NaN where the device does not tell).
    pub margin: f32,
    /// Softmax probability of `id`, where asked for (else NaN).
    pub prob: f32,
}

/// The operations. See the module documentation. Shapes: `Rows` is `[rows, width]`; a linear of
/// `out × in` maps width `in` to width `out`.
pub trait Ops: Send + Sync + Sized + 'static {
    /// Activations.
    type Rows: Send;
    /// A matrix, with an optional bias.
    type Linear: Send;
    /// An RMS norm's weight and epsilon.
    type Norm: Send;
    /// Keys and values of one layer.
    type Cache: Send;
    /// A prepared rotary embedding.
    type Rope: Send;

    /// "cpu" (this program's kernels, to the bit the same for any number of rows), "metal",
    /// "cuda", "candle-cpu".
    fn device(&self) -> &'static str;
    /// Instruction set, or the device's name.
    fn device_detail(&self) -> String;
    /// Threads that compute.
    fn threads(&self) -> usize;

    /// Rows of a prompt that are worth a pass: of more each does not get cheaper.
    fn prefill_rows(&self) -> usize {
        256
    }

    /// Bytes a second at which the memory that has the weights can be read, measured a few times on
    /// at most so many bytes; none where that is not known.
    fn memory_rates(&self, _bytes: u64) -> Vec<f64> {
        Vec::new()
    }

    /// What could not be kept as asked, one line a tensor; such tensors work, more slowly.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Prepare a matrix from the row-wise concatenation of `parts` (all of the same width).
    fn linear(&self, parts: &[RawTensor<'_>], bias: Option<Vec<f32>>) -> Result<Self::Linear>;
    /// Prepare a matrix whose rows are also looked up one by one ([`Ops::embed`]).
    fn table(&self, part: RawTensor<'_>) -> Result<Self::Linear> {
        self.linear(&[part], None)
    }
    /// `(out, in)` of a matrix.
    fn linear_shape(&self, linear: &Self::Linear) -> (usize, usize);
    /// Bytes that a matrix takes in memory.
    fn linear_bytes(&self, linear: &Self::Linear) -> u64;
    /// The rows `ids` of a matrix as a matrix of its own (a draft's smaller vocabulary).
    fn select_rows(&self, linear: &Self::Linear, ids: &[u32]) -> Result<Self::Linear>;
    /// Prepare an RMS norm.
    fn norm(&self, weight: Vec<f32>, eps: f32) -> Result<Self::Norm>;
    /// Prepare a rotary embedding for positions up to `max_positions`.
    fn rope(&self, table: &RopeTable, max_positions: usize) -> Result<Self::Rope>;
    /// An empty cache that may grow to `capacity` positions.
    fn cache(&self, spec: &AttentionSpec, capacity: usize) -> Result<Self::Cache>;

    /// Rows `ids` of `table`, times `scale`.
    fn embed(&self, table: &Self::Linear, ids: &[u32], scale: f32) -> Result<Self::Rows>;
    /// Rows from host memory: `values.len() == rows · width`.
    fn upload(&self, values: &[f32], width: usize) -> Result<Self::Rows>;
    /// Rows to host memory.
    fn download(&self, rows: &Self::Rows) -> Result<Vec<f32>>;
    /// Number of rows.
    fn count(&self, rows: &Self::Rows) -> usize;
    /// A range of rows.
    fn slice(&self, rows: &Self::Rows, range: Range<usize>) -> Result<Self::Rows>;
    /// The same rows of several, side by side: widths add up.
    fn beside(&self, parts: &[&Self::Rows]) -> Result<Self::Rows>;
    /// One after the other: row counts add up.
    fn stack(&self, parts: &[&Self::Rows]) -> Result<Self::Rows>;
    /// A copy.
    fn copy(&self, rows: &Self::Rows) -> Result<Self::Rows>;

    /// `norm(x)`
    fn normed(&self, x: &Self::Rows, norm: &Self::Norm) -> Result<Self::Rows>;
    /// `norm(x) · Wᵀ + b`; without a norm `x · Wᵀ + b`.
    fn project(
        &self,
        x: &Self::Rows,
        norm: Option<&Self::Norm>,
        linear: &Self::Linear,
    ) -> Result<Self::Rows>;
    /// `into += post(x · Wᵀ + b)`, where `post` is a norm or nothing.
    fn project_add(
        &self,
        into: &mut Self::Rows,
        x: &Self::Rows,
        linear: &Self::Linear,
        post: Option<&Self::Norm>,
    ) -> Result<()>;
    /// `act(g) ⊙ u` where `g ‖ u = norm(x) · Wᵀ`; without a norm `x · Wᵀ`.
    fn gated(
        &self,
        x: &Self::Rows,
        norm: Option<&Self::Norm>,
        gate_up: &Self::Linear,
        activation: Activation,
    ) -> Result<Self::Rows>;
    /// `into += more`
    fn add(&self, into: &mut Self::Rows, more: &Self::Rows) -> Result<()>;
    /// Each row mixed with those before it, channel by channel, with weights that are partly its
    /// own: `y[i, c] = Σ_t (base[t, c] + change[i, t, c / group]) · x[i - t, c]` over the taps
    /// `t ≤ i`. `base` is `[taps, width]`; a row of `change` is `[sides, taps, width / group]`,
    /// and `side` says which of them is meant.
    fn convolve(
        &self,
        x: &Self::Rows,
        base: &Self::Rows,
        change: &Self::Rows,
        group: usize,
        side: usize,
    ) -> Result<Self::Rows>;
    /// `into *= factor`
    fn scale(&self, into: &mut Self::Rows, factor: f32) -> Result<()>;

    /// Head norms and rope on `k`, then append keys and values of `kv` rows (`k ‖ v`) at
    /// `position`, which must be the cache's length.
    fn append(
        &self,
        kv: &Self::Rows,
        spec: &AttentionSpec,
        norms: &HeadNorms<Self>,
        rope: &Self::Rope,
        cache: &mut Self::Cache,
        position: usize,
    ) -> Result<()>;
    /// Head norms and rope on `q` and `k` of `qkv` rows, append keys and values at `position`
    /// (the cache's length), and attend. The result is `[rows, heads · head_dim]`.
    fn attend(
        &self,
        qkv: &Self::Rows,
        spec: &AttentionSpec,
        norms: &HeadNorms<Self>,
        rope: &Self::Rope,
        cache: &mut Self::Cache,
        position: usize,
    ) -> Result<Self::Rows>;
    /// Positions in a cache, those included that a window has forgotten.
    fn cache_len(&self, cache: &Self::Cache) -> usize;
    /// The least length, besides 0, that a cache can be cut to: a window's cache forgets what is
    /// more than [`TAKE_BACK`] positions before what it sees.
    fn shortest(&self, cache: &Self::Cache) -> usize;
    /// Keep the first `len` positions, in O(1); none if that is less than [`Ops::shortest`].
    fn truncate(&self, cache: &mut Self::Cache, len: usize);
    /// Bytes that a cache of `positions` takes.
    fn cache_bytes(&self, spec: &AttentionSpec, positions: usize) -> u64;

    /// `cap · tanh(x / cap)`
    fn softcap(&self, rows: &mut Self::Rows, cap: f32) -> Result<()>;
    /// The greedy choice of each row; `prob` is filled where `with_prob`.
    fn choose(&self, logits: &Self::Rows, with_prob: bool) -> Result<Vec<Choice>>;
}
