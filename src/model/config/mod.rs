//! What a model is: `config.json` or GGUF metadata → [`DecoderConfig`], [`DraftConfig`].

use super::ops::{Activation, AttentionSpec, RopeTable};

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
}

/// The shape of a DFlash draft.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftConfig {
    /// As the file says; `DFlashDraftModel`.
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
}
