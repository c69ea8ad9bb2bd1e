//! What a model is: `config.json` or GGUF metadata → [`DecoderConfig`], [`DraftConfig`].
//!
//! Every number is checked against limits before anything of its size is allocated,
//! and what a model asks for and this program lacks is refused by name.

mod draft;
mod draft_gguf;
mod fields;
mod gguf;
mod hf;
mod hf_gemma;
mod rope;
#[cfg(test)]
mod tests;

use super::ops::{Activation, AttentionSpec, RopeTable};
use anyhow::{Result, bail};

/// Most layers of a network.
const MAX_LAYERS: usize = 512;
/// Widest residual stream.
const MAX_HIDDEN: usize = 1 << 16;
/// Most entries of a vocabulary.
const MAX_VOCAB: usize = 1 << 20;
/// Widest feed-forward.
const MAX_FFN: usize = 1 << 18;
/// Most heads.
const MAX_HEADS: usize = 1024;
/// Widest head.
const MAX_HEAD_DIM: usize = 512;
/// Most positions.
const MAX_POSITIONS: usize = 1 << 24;
/// Largest block of a draft.
const MAX_BLOCK: usize = 256;
/// Most rows that a draft's convolution reads.
const MAX_CONVOLUTION: usize = 16;
/// Most candidates of a slot.
const MAX_CANDIDATES: usize = 256;

/// The shape of a target. Everything that differs between families is data here, so that
/// [`super::decoder`] has no family names in it.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// As the file says: `llama`, `qwen3`, `gemma3`.
    pub architecture: String,
    /// Entries of the embedding (rows).
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// One entry a layer.
    pub layers: Vec<LayerConfig>,
    /// Epsilon of all RMS norms.
    pub norm_eps: f32,
    /// Norm weights are stored as `w - 1` (Gemma's safetensors; GGUF files have `w`).
    pub norm_adds_one: bool,
    /// Factor on the embedding's rows (Gemma: √hidden rounded to the weights' type).
    pub embedding_scale: f32,
    /// The head is the embedding.
    pub tied: bool,
    /// `cap · tanh(logit / cap)`
    pub final_softcap: Option<f32>,
    /// Most positions that the model was made for.
    pub max_positions: usize,
}

/// The shape of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerConfig {
    /// Its attention.
    pub attention: AttentionSpec,
    /// Its rotary embedding.
    pub rope: RopeTable,
    /// Query and key heads are normed.
    pub qk_norm: bool,
    /// q, k, v products have a bias (Qwen2).
    pub qkv_bias: bool,
    /// Width of the feed-forward.
    pub ffn: usize,
    /// Gate of the feed-forward.
    pub activation: Activation,
    /// Norms after attention and after the feed-forward too (Gemma).
    pub post_norms: bool,
    /// A learned factor on the layer's output is stored (Gemma 4).
    pub layer_scalar: bool,
    /// Convolutions before and after attention and feed-forward (DFlash 2 drafts).
    pub convolution: Option<ConvolutionConfig>,
}

/// The shape of a DFlash 2 draft's convolutions over the rows of a block
/// (see [`super::convolution`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvolutionConfig {
    /// Rows that each result reads: its own and those before it.
    pub taps: usize,
    /// Neighbouring channels that share a change of their weights; divides the width.
    pub group: usize,
}

/// The shape of a DFlash 2 draft's candidate selector (see [`super::selector`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectorConfig {
    /// Width of the codebooks.
    pub rank: usize,
    /// Candidates of a slot that are weighed against the token before it.
    pub candidates: usize,
}

/// The shape of a DFlash draft.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftConfig {
    /// As the file says; `DFlashDraftModel` or `DFlash2DraftModel`.
    pub architecture: String,
    /// Width; the target's.
    pub hidden: usize,
    /// Entries of the target's embedding that the draft was trained with.
    pub vocab: usize,
    /// One entry a layer; `attention.visibility` holds the causality rule's result.
    pub layers: Vec<LayerConfig>,
    /// Epsilon of all RMS norms.
    pub norm_eps: f32,
    /// Anchor and drafts; at least 2.
    pub block_size: usize,
    /// Row of the embedding that stands for "to be filled".
    pub mask_token_id: u32,
    /// Target layers (0-based outputs) whose states are read, in the order of the `fc` columns.
    pub taps: Vec<usize>,
    /// Layers of the target it was trained for, where the file says.
    pub num_target_layers: Option<usize>,
    /// Factor on the embedding's rows, where the file says; else the target's.
    pub embedding_scale: Option<f32>,
    /// Softcap on the draft's logits, where the file says.
    pub final_softcap: Option<f32>,
    /// Positions that the draft was made for.
    pub max_positions: usize,
    /// The ids that it proposes from, where that is not the whole vocabulary
    /// (`dflash_config.draft_vocabulary`): the ones that the target uses most.
    pub vocabulary: Option<Vec<u32>>,
    /// Chooses among a slot's candidates by the token before it (DFlash 2).
    pub selector: Option<SelectorConfig>,
}

impl DraftConfig {
    /// Ids that it proposes from.
    pub fn proposed(&self) -> usize {
        self.vocabulary.as_ref().map_or(self.vocab, Vec::len)
    }
}

/// A configuration and what its reader should be told: things that look odd and do no harm.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked<T> {
    /// The configuration.
    pub config: T,
    /// One sentence each.
    pub warnings: Vec<String>,
}

/// Refuse a number outside `1..=most`.
fn bounded(what: &str, value: usize, most: usize) -> Result<usize> {
    if value == 0 || value > most {
        bail!("{what} is {value}; it must be from 1 to {most}");
    }
    Ok(value)
}

/// Check what all layers share; `layers` may still be empty when this is called.
fn check_widths(vocab: usize, hidden: usize, max_positions: usize, norm_eps: f64) -> Result<()> {
    bounded("the vocabulary's size", vocab, MAX_VOCAB)?;
    bounded("the hidden size", hidden, MAX_HIDDEN)?;
    bounded("the number of positions", max_positions, MAX_POSITIONS)?;
    if !(norm_eps.is_finite() && norm_eps > 0.0 && norm_eps < 1.0) {
        bail!("the norms' epsilon is {norm_eps}; it must lie between 0 and 1");
    }
    Ok(())
}

impl LayerConfig {
    /// Check a layer's numbers against each other and the limits.
    fn check(&self, index: usize) -> Result<()> {
        let a = &self.attention;
        let inner = || -> Result<()> {
            bounded("the number of heads", a.heads, MAX_HEADS)?;
            bounded("the number of key and value heads", a.kv_heads, MAX_HEADS)?;
            bounded("the head's width", a.head_dim, MAX_HEAD_DIM)?;
            bounded("the feed-forward's width", self.ffn, MAX_FFN)?;
            if !a.heads.is_multiple_of(a.kv_heads) {
                bail!("{} heads cannot share {} key and value heads", a.heads, a.kv_heads);
            }
            if !a.head_dim.is_multiple_of(2) {
                bail!("the head's width is {}; rope needs an even one", a.head_dim);
            }
            if self.rope.inv_freq.len() > a.head_dim / 2 {
                bail!(
                    "rope turns {} pairs, the head has {}",
                    self.rope.inv_freq.len(),
                    a.head_dim / 2
                );
            }
            let numbers = self.rope.inv_freq.iter().copied().chain([self.rope.magnitude]);
            if numbers.chain([f64::from(a.scale)]).any(|v| !v.is_finite()) {
                bail!("its rope or attention scale is not finite");
            }
            if let Some(window) = a.window {
                bounded("the sliding window", window, MAX_POSITIONS)?;
            }
            if let Some(cap) = a.softcap {
                positive("the attention softcap", f64::from(cap))?;
            }
            Ok(())
        };
        inner().map_err(|e| e.context(format!("layer {index}")))
    }
}

/// Refuse a number that is not finite and positive.
fn positive(what: &str, value: f64) -> Result<f64> {
    if !(value.is_finite() && value > 0.0) {
        bail!("{what} is {value}; it must be a positive number");
    }
    Ok(value)
}

impl DecoderConfig {
    fn checked(self, warnings: Vec<String>) -> Result<Checked<Self>> {
        check_widths(self.vocab, self.hidden, self.max_positions, f64::from(self.norm_eps))?;
        bounded("the number of layers", self.layers.len(), MAX_LAYERS)?;
        for (i, layer) in self.layers.iter().enumerate() {
            layer.check(i)?;
        }
        positive("the embedding's scale", f64::from(self.embedding_scale))?;
        if let Some(cap) = self.final_softcap {
            positive("the logits' softcap", f64::from(cap))?;
        }
        Ok(Checked { config: self, warnings })
    }
}
