//! The target: one decoder that its config shapes, with taps.
//!
//! A pass runs rows through all layers, appends their keys and values, and returns the residual
//! stream of the last layer (before the final norm) together with the outputs of the tapped
//! layers. Taps are outputs of layers, 0-based, before the final norm: tap `i` is what
//! transformers calls `hidden_states[i + 1]` (for the last layer: its value before the norm).

use super::config::{ConvolutionConfig, DecoderConfig, LayerConfig};
use super::convolution::Convolution;
use super::ops::{HeadNorms, Ops, RopeTable};
use super::weights::{Part, RawTensor, Role, TargetFiles};
use anyhow::{Context, Result, ensure};
use std::cell::{Cell, RefCell};

/// Told how many of a network's matrices are read, and of how many. Its error ends the reading.
pub type Progress<'a> = dyn FnMut(usize, usize) -> Result<()> + 'a;

/// The target and its cache.
pub struct Decoder<O: Ops> {
    config: DecoderConfig,
    embedding: O::Linear,
    /// `None` where the head is the embedding.
    head: Option<O::Linear>,
    final_norm: O::Norm,
    layers: Vec<Layer<O>>,
    ropes: Vec<O::Rope>,
    sequence: Sequence<O>,
    max_positions: usize,
}

/// Keys and values of one text, layer by layer.
pub struct Sequence<O: Ops> {
    caches: Vec<O::Cache>,
}

impl<O: Ops> Sequence<O> {
    /// Of the caches of a network's layers.
    pub(super) fn new(caches: Vec<O::Cache>) -> Self {
        Sequence { caches }
    }

    /// The caches, layer by layer.
    pub(super) fn caches(&mut self) -> impl Iterator<Item = &mut O::Cache> {
        self.caches.iter_mut()
    }

    /// Positions that it holds: those of every layer, also after a pass that failed between two.
    pub fn len(&self, ops: &O) -> usize {
        self.caches.iter().map(|cache| ops.cache_len(cache)).min().unwrap_or(0)
    }

    /// Whether it holds none.
    pub fn is_empty(&self, ops: &O) -> bool {
        self.len(ops) == 0
    }

    /// The least length, besides 0, that it can be cut to (see [`Ops::shortest`]).
    pub fn shortest(&self, ops: &O) -> usize {
        self.caches.iter().map(|cache| ops.shortest(cache)).max().unwrap_or(0)
    }

    /// Keep the first `len` positions; none if that is less than [`Sequence::shortest`].
    pub fn truncate(&mut self, ops: &O, len: usize) {
        let len = if len < self.shortest(ops) { 0 } else { len };
        for cache in &mut self.caches {
            ops.truncate(cache, len);
        }
    }
}

/// One layer's weights; drafts have the same.
pub(super) struct Layer<O: Ops> {
    pub(super) config: LayerConfig,
    pub(super) attention_norm: O::Norm,
    pub(super) qkv: O::Linear,
    pub(super) heads: HeadNorms<O>,
    pub(super) output: O::Linear,
    pub(super) post_attention_norm: Option<O::Norm>,
    pub(super) ffn_norm: O::Norm,
    pub(super) gate_up: O::Linear,
    pub(super) down: O::Linear,
    pub(super) post_ffn_norm: Option<O::Norm>,
    pub(super) scalar: Option<f32>,
    /// Around attention and around the feed-forward.
    pub(super) convolutions: Option<[Convolution<O>; 2]>,
    /// Index into the network's rotary embeddings.
    pub(super) rope: usize,
}

/// Reads a network's weights into the form that its operations take.
pub(super) struct Reader<'a, O: Ops> {
    pub(super) ops: &'a O,
    pub(super) tensor: &'a dyn Fn(Role) -> Result<RawTensor<'a>>,
    /// A tensor's bytes in the file are not needed for now.
    pub(super) release: &'a dyn Fn(Role),
    pub(super) steps: Steps<'a>,
    pub(super) eps: f32,
    /// Norms are stored as `w - 1`.
    pub(super) adds_one: bool,
}

/// Counts the matrices that are read.
pub(super) struct Steps<'a> {
    done: Cell<usize>,
    total: usize,
    progress: RefCell<&'a mut Progress<'a>>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(total: usize, progress: &'a mut Progress<'a>) -> Self {
        Steps { done: Cell::new(0), total, progress: RefCell::new(progress) }
    }

    fn step(&self) -> Result<()> {
        self.done.set(self.done.get() + 1);
        (self.progress.borrow_mut())(self.done.get(), self.total)
    }
}

/// Matrices of a layer.
pub(super) const LAYER_STEPS: usize = 4;
/// Matrices of a layer's convolutions.
pub(super) const CONVOLUTION_STEPS: usize = 2;

impl<O: Ops> Reader<'_, O> {
    pub(super) fn norm(&self, role: Role) -> Result<O::Norm> {
        let mut weight = (self.tensor)(role)?.to_f32()?;
        if self.adds_one {
            weight.iter_mut().for_each(|w| *w += 1.0);
        }
        self.ops.norm(weight, self.eps)
    }

    /// The rows of several matrices one after the other, with their biases where they have any.
    pub(super) fn product(&self, i: usize, parts: &[Part], biases: &[Part]) -> Result<O::Linear> {
        let mut bias = Vec::new();
        for part in biases {
            bias.extend((self.tensor)(Role::Layer(i, *part))?.to_f32()?);
        }
        let roles: Vec<Role> = parts.iter().map(|part| Role::Layer(i, *part)).collect();
        self.matrix(&roles, |tensors| {
            self.ops.linear(&tensors, (!biases.is_empty()).then_some(bias))
        })
    }

    /// What `make` makes of the tensors, whose bytes in the file are released after it: so no more
    /// than one matrix is in memory twice.
    pub(super) fn matrix(
        &self,
        roles: &[Role],
        make: impl FnOnce(Vec<RawTensor<'_>>) -> Result<O::Linear>,
    ) -> Result<O::Linear> {
        let read = |role: &Role| (self.tensor)(*role);
        let linear = make(roles.iter().map(read).collect::<Result<_>>()?)?;
        roles.iter().for_each(|role| (self.release)(*role));
        self.steps.step()?;
        Ok(linear)
    }

    /// A matrix whose rows are also looked up one by one.
    pub(super) fn table(&self, role: Role) -> Result<O::Linear> {
        self.matrix(&[role], |tensors| {
            let tensor = tensors.into_iter().next().context("no tensor to look rows up in")?;
            self.ops.table(tensor)
        })
    }
}

/// What a pass leaves.
pub struct Pass<O: Ops> {
    /// Output of the last layer, before the final norm.
    pub hidden: O::Rows,
    /// Outputs of the tapped layers, in the order asked for.
    pub taps: Vec<O::Rows>,
}

impl<O: Ops> Layer<O> {
    /// Read layer `i`.
    pub(super) fn load(
        read: &Reader<'_, O>,
        i: usize,
        layer: &LayerConfig,
        ropes: &mut Ropes<O>,
    ) -> Result<Self> {
        let norm = |part| read.norm(Role::Layer(i, part));
        let optional = |wanted: bool, part| wanted.then(|| norm(part)).transpose();
        let values = if layer.attention.values_are_keys { 2 } else { 3 };
        let biases = if layer.qkv_bias { values } else { 0 };
        Ok(Layer {
            config: layer.clone(),
            attention_norm: norm(Part::AttnNorm)?,
            qkv: read.product(
                i,
                &[Part::Q, Part::K, Part::V][..values],
                &[Part::QBias, Part::KBias, Part::VBias][..biases],
            )?,
            heads: HeadNorms {
                q: optional(layer.qk_norm, Part::QNorm)?,
                k: optional(layer.qk_norm, Part::KNorm)?,
            },
            output: read.product(i, &[Part::O], &[])?,
            post_attention_norm: optional(layer.post_norms, Part::PostAttnNorm)?,
            ffn_norm: norm(Part::FfnNorm)?,
            gate_up: read.product(i, &[Part::Gate, Part::Up], &[])?,
            down: read.product(i, &[Part::Down], &[])?,
            post_ffn_norm: optional(layer.post_norms, Part::PostFfnNorm)?,
            scalar: match layer.layer_scalar {
                true => (read.tensor)(Role::Layer(i, Part::Scalar))?.to_f32()?.first().copied(),
                false => None,
            },
            convolutions: layer
                .convolution
                .map(|config| convolutions(read, i, config))
                .transpose()?,
            rope: ropes.index(read.ops, layer)?,
        })
    }

    /// The layer's forward for rows at `position`; `x` becomes the layer's output.
    pub(super) fn forward(
        &self,
        ops: &O,
        x: &mut O::Rows,
        rope: &O::Rope,
        cache: &mut O::Cache,
        position: usize,
    ) -> Result<()> {
        self.around(ops, x, |qkv| self.attend(ops, qkv, rope, cache, position))
    }

    fn attend(
        &self,
        ops: &O,
        qkv: &O::Rows,
        rope: &O::Rope,
        cache: &mut O::Cache,
        position: usize,
    ) -> Result<O::Rows> {
        ops.attend(qkv, &self.config.attention, &self.heads, rope, cache, position)
    }

    /// The layer around an attention that maps `q ‖ k ‖ v` rows to its result.
    fn around(
        &self,
        ops: &O,
        x: &mut O::Rows,
        attend: impl FnOnce(&O::Rows) -> Result<O::Rows>,
    ) -> Result<()> {
        let activation = self.config.activation;
        if let Some([around_attention, around_ffn]) = &self.convolutions {
            let (input, change) = around_attention.before(ops, x, &self.attention_norm)?;
            let mixed = attend(&ops.project(&input, None, &self.qkv)?)?;
            let result = ops.project(&mixed, None, &self.output)?;
            around_attention.after(ops, x, &result, &change)?;
            let (input, change) = around_ffn.before(ops, x, &self.ffn_norm)?;
            let gated = ops.gated(&input, None, &self.gate_up, activation)?;
            let result = ops.project(&gated, None, &self.down)?;
            around_ffn.after(ops, x, &result, &change)?;
        } else {
            let qkv = ops.project(x, Some(&self.attention_norm), &self.qkv)?;
            let mixed = attend(&qkv)?;
            ops.project_add(x, &mixed, &self.output, self.post_attention_norm.as_ref())?;
            let gated = ops.gated(x, Some(&self.ffn_norm), &self.gate_up, activation)?;
            ops.project_add(x, &gated, &self.down, self.post_ffn_norm.as_ref())?;
        }
        match self.scalar {
            Some(factor) => ops.scale(x, factor),
            None => Ok(()),
        }
    }
}

/// Those around layer `i`'s attention and feed-forward.
fn convolutions<O: Ops>(
    read: &Reader<'_, O>,
    i: usize,
    config: ConvolutionConfig,
) -> Result<[Convolution<O>; 2]> {
    let load = |parts| Convolution::load(read, i, config, parts);
    Ok([
        load([Part::AttnConvBase, Part::AttnConvChange])?,
        load([Part::FfnConvBase, Part::FfnConvChange])?,
    ])
}

/// Collects the distinct rotary embeddings of a network's layers.
pub(super) struct Ropes<O: Ops> {
    tables: Vec<(RopeTable, usize)>,
    prepared: Vec<O::Rope>,
    max_positions: usize,
}

impl<O: Ops> Ropes<O> {
    pub(super) fn new(max_positions: usize) -> Self {
        Ropes { tables: Vec::new(), prepared: Vec::new(), max_positions }
    }

    /// The index of the prepared form of a layer's table.
    pub(super) fn index(&mut self, ops: &O, layer: &LayerConfig) -> Result<usize> {
        let key = (layer.rope.clone(), layer.attention.head_dim);
        if let Some(i) = self.tables.iter().position(|table| *table == key) {
            return Ok(i);
        }
        let mut table = layer.rope.clone();
        // Pairs beyond a partial rope's do not turn.
        table.inv_freq.resize(layer.attention.head_dim / 2, 0.0);
        self.prepared.push(ops.rope(&table, self.max_positions)?);
        self.tables.push(key);
        Ok(self.prepared.len() - 1)
    }

    pub(super) fn finish(self) -> Vec<O::Rope> {
        self.prepared
    }
}

/// Empty caches of all layers.
fn sequence<O: Ops>(ops: &O, config: &DecoderConfig, max_positions: usize) -> Result<Sequence<O>> {
    let caches = config.layers.iter().map(|layer| ops.cache(&layer.attention, max_positions));
    Ok(Sequence { caches: caches.collect::<Result<_>>()? })
}

impl<O: Ops> Decoder<O> {
    /// Read all weights. `max_positions` bounds caches and rotary tables.
    ///
    /// Beside the weights in memory and what of the file the system keeps at its pleasure, this
    /// takes the memory of one matrix.
    pub fn load(
        ops: &O,
        files: &TargetFiles,
        max_positions: usize,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let config = files.config.clone();
        let heads = usize::from(!config.tied);
        let steps = 1 + heads + LAYER_STEPS * config.layers.len();
        let read = Reader {
            ops,
            tensor: &|role| files.tensor(role),
            release: &|role| files.release(role),
            steps: Steps::new(steps, progress),
            eps: config.norm_eps,
            adds_one: config.norm_adds_one,
        };
        let mut ropes = Ropes::new(max_positions);
        let mut layers = Vec::with_capacity(config.layers.len());
        let embedding = read.table(Role::Embedding).context("the embedding")?;
        let head = match config.tied {
            true => None,
            false => Some(read.matrix(&[Role::Head], |head| ops.linear(&head, None))?),
        };
        for (i, layer) in config.layers.iter().enumerate() {
            layers.push(Layer::load(&read, i, layer, &mut ropes)?);
        }
        let final_norm = read.norm(Role::FinalNorm)?;
        let ropes = ropes.finish();
        let sequence = sequence(ops, &config, max_positions)?;
        Ok(Decoder { config, embedding, head, final_norm, layers, ropes, sequence, max_positions })
    }

    /// The shape it was loaded with.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Bytes of weights in memory.
    pub fn bytes(&self, ops: &O) -> u64 {
        let layers: u64 = self.layers.iter().map(|layer| layer.bytes(ops)).sum();
        let head = self.head.as_ref().map_or(0, |head| ops.linear_bytes(head));
        ops.linear_bytes(&self.embedding) + head + layers
    }

    /// Bytes of weights that a pass of one row reads: of an embedding that is not the head it
    /// reads that row only.
    pub fn pass_bytes(&self, ops: &O) -> u64 {
        let unread = self.head.as_ref().map_or(0, |_| ops.linear_bytes(&self.embedding));
        self.bytes(ops) - unread
    }

    /// Positions in the cache.
    pub fn len(&self, ops: &O) -> usize {
        self.sequence.len(ops)
    }

    /// The least length, besides 0, that the cache can be cut to (see [`Ops::shortest`]).
    pub fn shortest(&self, ops: &O) -> usize {
        self.sequence.shortest(ops)
    }

    /// Keep the first `len` positions; none if that is less than [`Decoder::shortest`].
    pub fn truncate(&mut self, ops: &O, len: usize) {
        self.sequence.truncate(ops, len);
    }

    /// The matrix of the embedding, for a draft.
    pub fn embedding(&self) -> &O::Linear {
        &self.embedding
    }

    /// The matrix of the head, for a draft.
    pub fn head(&self) -> &O::Linear {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Pass `ids` through all layers at the cache's end.
    pub fn forward(&mut self, ops: &O, ids: &[u32], taps: &[usize]) -> Result<Pass<O>> {
        // The layers need the decoder while the sequence changes; it comes back below.
        let mut sequence = Sequence { caches: std::mem::take(&mut self.sequence.caches) };
        let pass = self.forward_in(ops, ids, &mut sequence, taps);
        self.sequence = sequence;
        pass
    }

    /// An empty sequence beside the decoder's own.
    pub fn sequence(&self, ops: &O) -> Result<Sequence<O>> {
        sequence(ops, &self.config, self.max_positions)
    }

    /// Pass `ids` through all layers at the end of `sequence`.
    pub fn forward_in(
        &self,
        ops: &O,
        ids: &[u32],
        sequence: &mut Sequence<O>,
        taps: &[usize],
    ) -> Result<Pass<O>> {
        let position = sequence.len(ops);
        self.pass(ops, ids, taps, |i, x| {
            let layer = &self.layers[i];
            let cache = &mut sequence.caches[i];
            layer.forward(ops, x, &self.ropes[layer.rope], cache, position)
        })
    }

    /// One step of many texts at once: row `i` is `ids[i]` at the end of `sequences[i]`. Each
    /// row has the numbers that a step of its text alone would have.
    pub fn step_each(
        &self,
        ops: &O,
        ids: &[u32],
        sequences: &mut [&mut Sequence<O>],
        taps: &[usize],
    ) -> Result<Pass<O>> {
        ensure!(ids.len() == sequences.len(), "{} ids for {} texts", ids.len(), sequences.len());
        let positions: Vec<usize> = sequences.iter().map(|sequence| sequence.len(ops)).collect();
        self.pass(ops, ids, taps, |i, x| {
            let layer = &self.layers[i];
            let rope = &self.ropes[layer.rope];
            layer.around(ops, x, |qkv| {
                let mut mixed = Vec::with_capacity(ids.len());
                for (row, sequence) in sequences.iter_mut().enumerate() {
                    let qkv = ops.slice(qkv, row..row + 1)?;
                    let cache = &mut sequence.caches[i];
                    mixed.push(layer.attend(ops, &qkv, rope, cache, positions[row])?);
                }
                ops.stack(&mixed.iter().collect::<Vec<_>>())
            })
        })
    }

    /// Embed `ids`, let `layer` run each layer on the rows, and keep the tapped outputs.
    fn pass(
        &self,
        ops: &O,
        ids: &[u32],
        taps: &[usize],
        mut layer: impl FnMut(usize, &mut O::Rows) -> Result<()>,
    ) -> Result<Pass<O>> {
        let mut x = ops.embed(&self.embedding, ids, self.config.embedding_scale)?;
        let mut tapped: Vec<Option<O::Rows>> = taps.iter().map(|_| None).collect();
        for i in 0..self.layers.len() {
            layer(i, &mut x)?;
            for (slot, _) in tapped.iter_mut().zip(taps).filter(|(_, tap)| **tap == i) {
                *slot = Some(ops.copy(&x)?);
            }
        }
        let taps = tapped.into_iter().flatten().collect();
        Ok(Pass { hidden: x, taps })
    }

    /// The logits of `hidden` rows (outputs of the last layer).
    pub fn logits(&self, ops: &O, hidden: &O::Rows) -> Result<O::Rows> {
        let mut logits = ops.project(hidden, Some(&self.final_norm), self.head())?;
        if let Some(cap) = self.config.final_softcap {
            ops.softcap(&mut logits, cap)?;
        }
        Ok(logits)
    }
}

impl<O: Ops> Layer<O> {
    /// Bytes of its matrices.
    pub(super) fn bytes(&self, ops: &O) -> u64 {
        let products = [&self.qkv, &self.output, &self.gate_up, &self.down];
        let convolutions = self.convolutions.iter().flatten();
        products.into_iter().map(|linear| ops.linear_bytes(linear)).sum::<u64>()
            + convolutions.map(|convolution| convolution.bytes(ops)).sum::<u64>()
    }
}
