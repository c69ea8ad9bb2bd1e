//! The DFlash draft: a few layers that fill a block of masked slots in one pass.
//!
//! After arXiv 2602.06036 and the published `DFlashDraftModel`:
//! - The block is `[anchor, mask, …]`, embedded by the target's embedding; the logits come from
//!   the target's head. The row of slot `i` predicts the token *at* that slot (not the next).
//! - Context: the target's tapped features of every committed position pass `fc` and
//!   `hidden_norm` once; each layer then makes keys and values of them with its own weights
//!   (*without* its input norm) and keeps them. This context persists over rounds.
//! - A layer's queries come from the block only; they attend to the context and to the block's
//!   own keys, by the layer's causality rule. The block's keys and values are never kept.
//! - DFlash 2 drafts mix neighbouring rows ([`super::convolution`]) and choose among a slot's
//!   candidates by the token before it ([`super::selector`]).

use super::config::{DraftConfig, LayerConfig};
use super::decoder::{
    CONVOLUTION_STEPS, Decoder, LAYER_STEPS, Layer, Progress, Reader, Ropes, Sequence, Steps,
};
use super::networks::Proposal;
use super::ops::Ops;
use super::selector::{SELECTOR_STEPS, Selector};
use super::weights::{DraftFiles, Part, Role};
use anyhow::{Context, Result, ensure};

/// The draft and its context.
pub struct Draft<O: Ops> {
    config: DraftConfig,
    features: O::Linear,
    hidden_norm: O::Norm,
    final_norm: O::Norm,
    layers: Vec<DraftLayer<O>>,
    ropes: Vec<O::Rope>,
    context: Sequence<O>,
    /// The file's own embedding, where it has one.
    embedding: Option<O::Linear>,
    /// A head that is not the target's whole one: the file's own, or the rows of the
    /// vocabulary that the config ranks.
    head: Option<O::Linear>,
    selector: Option<Selector<O>>,
}

struct DraftLayer<O: Ops> {
    layer: Layer<O>,
    /// Keys and values alone, for context rows.
    kv: O::Linear,
}

impl<O: Ops> Draft<O> {
    /// Read all weights and, where the config ranks a vocabulary, take those rows of the head.
    /// `compress` keeps dense matrices in 8 bits: no answer changes, since what a draft proposes
    /// is verified.
    pub fn load(
        ops: &O,
        files: &DraftFiles,
        target: &Decoder<O>,
        max_positions: usize,
        compress: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        let config = files.config.clone();
        let tensor = |role| match compress {
            true => files.tensor(role)?.compressed(),
            false => files.tensor(role),
        };
        let own = |role| files.has(role).then_some(role);
        let optional = own(Role::Embedding).iter().chain(&own(Role::Head)).count();
        let of_layer = |layer: &LayerConfig| {
            // One more: keys and values alone.
            LAYER_STEPS + 1 + layer.convolution.map_or(0, |_| CONVOLUTION_STEPS)
        };
        let layers: usize = config.layers.iter().map(of_layer).sum();
        let steps = 1 + optional + layers + config.selector.map_or(0, |_| SELECTOR_STEPS);
        let read = Reader {
            ops,
            tensor: &tensor,
            release: &|role| files.release(role),
            steps: Steps::new(steps, progress),
            eps: config.norm_eps,
            adds_one: false,
        };
        let mut ropes = Ropes::new(max_positions);
        let mut layers = Vec::with_capacity(config.layers.len());
        let mut caches = Vec::with_capacity(config.layers.len());
        for (i, layer) in config.layers.iter().enumerate() {
            let biases: &[Part] = if layer.qkv_bias { &[Part::KBias, Part::VBias] } else { &[] };
            layers.push(DraftLayer {
                kv: read.product(i, &[Part::K, Part::V], biases)?,
                layer: Layer::load(&read, i, layer, &mut ropes)?,
            });
            caches.push(ops.cache(&layer.attention, max_positions)?);
        }
        let linear = |role| read.matrix(&[role], |tensors| ops.linear(&tensors, None));
        let embedding = own(Role::Embedding).map(|role| read.table(role)).transpose()?;
        let own_head = own(Role::Head).map(linear).transpose()?;
        let head = match &config.vocabulary {
            Some(ids) => {
                let all = own_head.as_ref().unwrap_or(target.head());
                Some(ops.select_rows(all, ids)?)
            }
            None => own_head,
        };
        let selector = config.selector.map(|config| Selector::load(&read, config)).transpose()?;
        Ok(Draft {
            features: linear(Role::Fc)?,
            hidden_norm: read.norm(Role::HiddenNorm)?,
            final_norm: read.norm(Role::FinalNorm)?,
            layers,
            ropes: ropes.finish(),
            context: Sequence::new(caches),
            embedding,
            head,
            selector,
            config,
        })
    }

    /// The shape it was loaded with.
    pub fn config(&self) -> &DraftConfig {
        &self.config
    }

    /// Bytes of weights in memory, a head of its own included.
    pub fn bytes(&self, ops: &O) -> u64 {
        let layers: u64 = self
            .layers
            .iter()
            .map(|layer| layer.layer.bytes(ops) + ops.linear_bytes(&layer.kv))
            .sum();
        let optional = |linear: Option<&O::Linear>| linear.map_or(0, |l| ops.linear_bytes(l));
        layers
            + ops.linear_bytes(&self.features)
            + optional(self.embedding.as_ref())
            + optional(self.head.as_ref())
            + self.selector.as_ref().map_or(0, |selector| selector.bytes(ops))
    }

    /// Positions in the context.
    pub fn len(&self, ops: &O) -> usize {
        self.context.len(ops)
    }

    /// The least length, besides 0, that the context can be cut to (see [`Ops::shortest`]).
    pub fn shortest(&self, ops: &O) -> usize {
        self.context.shortest(ops)
    }

    /// Keep the first `len` positions of the context; none if that is less than
    /// [`Draft::shortest`].
    pub fn truncate(&mut self, ops: &O, len: usize) {
        self.context.truncate(ops, len);
    }

    /// Append positions to the context. `features` are the target's tapped outputs of those
    /// positions side by side, `[rows, taps · hidden]`.
    pub fn absorb(&mut self, ops: &O, features: &O::Rows) -> Result<()> {
        let position = self.len(ops);
        let mixed = ops.project(features, None, &self.features)?;
        let context = ops.normed(&mixed, &self.hidden_norm)?;
        for (DraftLayer { layer, kv }, cache) in self.layers.iter().zip(self.context.caches()) {
            let kv = ops.project(&context, None, kv)?;
            let (spec, rope) = (&layer.config.attention, &self.ropes[layer.rope]);
            ops.append(&kv, spec, &layer.heads, rope, cache, position)?;
        }
        Ok(())
    }

    /// Fill the `drafts` slots after `anchor`, whose position is the context's length.
    pub fn propose(
        &mut self,
        ops: &O,
        target: &Decoder<O>,
        anchor: u32,
        drafts: usize,
    ) -> Result<Vec<Proposal>> {
        ensure!(drafts > 0, "a block without slots was asked of the draft");
        let position = self.len(ops);
        let mut ids = vec![self.config.mask_token_id; drafts + 1];
        ids[0] = anchor;
        let scale = self.config.embedding_scale.unwrap_or(target.config().embedding_scale);
        let embedding = self.embedding.as_ref().unwrap_or(target.embedding());
        let mut x = ops.embed(embedding, &ids, scale)?;
        for (DraftLayer { layer, .. }, cache) in self.layers.iter().zip(self.context.caches()) {
            layer.forward(ops, &mut x, &self.ropes[layer.rope], cache, position)?;
        }
        self.truncate(ops, position);
        let slots = ops.slice(&x, 1..drafts + 1)?;
        let head = self.head.as_ref().unwrap_or(target.head());
        let mut logits = ops.project(&slots, Some(&self.final_norm), head)?;
        if let Some(cap) = self.config.final_softcap {
            ops.softcap(&mut logits, cap)?;
        }
        let ids = self.config.vocabulary.as_deref();
        let chosen = match &self.selector {
            Some(selector) => {
                let anchor = match ids {
                    Some(ids) => ids.iter().position(|id| *id == anchor).map(|i| i as u32),
                    None => Some(anchor),
                };
                selector.walk(ops, &slots, &self.final_norm, &logits, anchor)?
            }
            None => ops.choose(&logits, true)?.into_iter().map(|c| (c.id, c.prob)).collect(),
        };
        let proposal = |(place, prob): (u32, f32)| {
            let id = match ids {
                Some(ids) => ids.get(place as usize).copied(),
                None => Some(place),
            };
            Ok(Proposal { id: id.context("the draft chose an unknown token")?, prob })
        };
        chosen.into_iter().map(proposal).collect()
    }
}
