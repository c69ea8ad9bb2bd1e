//! What a tensor is for, and how the formats name it.

use crate::model::config::LayerConfig;

/// A tensor of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `[vocab, hidden]`
    Embedding,
    /// `[vocab, hidden]`; absent where the head is the embedding.
    Head,
    /// The norm before the head: `[hidden]`.
    FinalNorm,
    /// A draft's projection of the tapped states: `[hidden, taps · hidden]`.
    Fc,
    /// A draft's norm after [`Role::Fc`]: `[hidden]`.
    HiddenNorm,
    /// A DFlash 2 draft's view of a slot for its selector: `[rank, hidden]`.
    SelectorHidden,
    /// Its codebook of tokens before a slot: `[ids it proposes from, rank]`.
    Predecessors,
    /// Its codebook of a slot's candidates, of the same shape.
    Successors,
    /// A tensor of the layer with this index.
    Layer(usize, Part),
}

/// A tensor of a layer. Norms that stand before a block are `AttnNorm` and `FfnNorm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// `[heads · head_dim, hidden]`
    Q,
    /// `[kv_heads · head_dim, hidden]`
    K,
    /// `[kv_heads · head_dim, hidden]`; absent where values are keys.
    V,
    /// `[hidden, heads · head_dim]`
    O,
    /// `[ffn, hidden]`
    Gate,
    /// `[ffn, hidden]`
    Up,
    /// `[hidden, ffn]`
    Down,
    /// `[hidden]`
    AttnNorm,
    /// `[hidden]`
    FfnNorm,
    /// `[hidden]`, on attention's result (Gemma).
    PostAttnNorm,
    /// `[hidden]`, on the feed-forward's result (Gemma).
    PostFfnNorm,
    /// `[head_dim]`
    QNorm,
    /// `[head_dim]`
    KNorm,
    /// `[heads · head_dim]`
    QBias,
    /// `[kv_heads · head_dim]`
    KBias,
    /// `[kv_heads · head_dim]`
    VBias,
    /// `[1]`, a factor on the layer's output (Gemma 4).
    Scalar,
    /// `[2, taps, hidden]`: weights of the convolutions before and after attention (DFlash 2).
    AttnConvBase,
    /// `[2 · taps · groups, hidden]`: makes each row's change of those weights.
    AttnConvChange,
    /// The same of the feed-forward.
    FfnConvBase,
    /// The same of the feed-forward.
    FfnConvChange,
}

impl Part {
    /// All of them.
    const ALL: [Self; 21] = {
        use Part::*;
        [
            Q,
            K,
            V,
            O,
            Gate,
            Up,
            Down,
            AttnNorm,
            FfnNorm,
            PostAttnNorm,
            PostFfnNorm,
            QNorm,
            KNorm,
            QBias,
            KBias,
            VBias,
            Scalar,
            AttnConvBase,
            AttnConvChange,
            FfnConvBase,
            FfnConvChange,
        ]
    };

    /// The parts that a layer of this shape has.
    pub fn of(layer: &LayerConfig) -> impl Iterator<Item = Self> {
        use Part::*;
        Self::ALL.into_iter().filter(|part| match part {
            V => !layer.attention.values_are_keys,
            PostAttnNorm | PostFfnNorm => layer.post_norms,
            QNorm | KNorm => layer.qk_norm,
            QBias | KBias => layer.qkv_bias,
            VBias => layer.qkv_bias && !layer.attention.values_are_keys,
            Scalar => layer.layer_scalar,
            AttnConvBase | AttnConvChange | FfnConvBase | FfnConvChange => {
                layer.convolution.is_some()
            }
            _ => true,
        })
    }

    /// Its shape in a layer of a network `hidden` wide.
    pub fn shape(self, layer: &LayerConfig, hidden: usize) -> Vec<usize> {
        use Part::*;
        let a = &layer.attention;
        let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        match self {
            Q => vec![q, hidden],
            K | V => vec![kv, hidden],
            O => vec![hidden, q],
            Gate | Up => vec![layer.ffn, hidden],
            Down => vec![hidden, layer.ffn],
            AttnNorm | FfnNorm | PostAttnNorm | PostFfnNorm => vec![hidden],
            QNorm | KNorm => vec![a.head_dim],
            QBias => vec![q],
            KBias | VBias => vec![kv],
            Scalar => vec![1],
            AttnConvBase | FfnConvBase => {
                vec![2, layer.convolution.map_or(0, |c| c.taps), hidden]
            }
            AttnConvChange | FfnConvChange => {
                vec![layer.convolution.map_or(0, |c| 2 * c.taps * (hidden / c.group)), hidden]
            }
        }
    }

    /// Its name in a GGUF file, after `blk.N.`.
    fn gguf(self) -> &'static str {
        use Part::*;
        match self {
            Q => "attn_q.weight",
            K => "attn_k.weight",
            V => "attn_v.weight",
            O => "attn_output.weight",
            Gate => "ffn_gate.weight",
            Up => "ffn_up.weight",
            Down => "ffn_down.weight",
            AttnNorm => "attn_norm.weight",
            FfnNorm => "ffn_norm.weight",
            PostAttnNorm => "post_attention_norm.weight",
            PostFfnNorm => "post_ffw_norm.weight",
            QNorm => "attn_q_norm.weight",
            KNorm => "attn_k_norm.weight",
            QBias => "attn_q.bias",
            KBias => "attn_k.bias",
            VBias => "attn_v.bias",
            Scalar => "layer_output_scale.weight",
            AttnConvBase => "attn_conv_base",
            AttnConvChange => "attn_conv_proj.weight",
            FfnConvBase => "ffn_conv_base",
            FfnConvChange => "ffn_conv_proj.weight",
        }
    }

    /// Its name in a safetensors file, after `layers.N.`. What Llama calls
    /// `post_attention_layernorm` stands before the feed-forward; in Gemma it is a post-norm.
    fn hf(self, post_norms: bool) -> &'static str {
        use Part::*;
        match self {
            Q => "self_attn.q_proj.weight",
            K => "self_attn.k_proj.weight",
            V => "self_attn.v_proj.weight",
            O => "self_attn.o_proj.weight",
            Gate => "mlp.gate_proj.weight",
            Up => "mlp.up_proj.weight",
            Down => "mlp.down_proj.weight",
            AttnNorm => "input_layernorm.weight",
            FfnNorm if post_norms => "pre_feedforward_layernorm.weight",
            FfnNorm | PostAttnNorm => "post_attention_layernorm.weight",
            PostFfnNorm => "post_feedforward_layernorm.weight",
            QNorm => "self_attn.q_norm.weight",
            KNorm => "self_attn.k_norm.weight",
            QBias => "self_attn.q_proj.bias",
            KBias => "self_attn.k_proj.bias",
            VBias => "self_attn.v_proj.bias",
            Scalar => "layer_scalar",
            AttnConvBase => "attention_conv.base_kernel",
            AttnConvChange => "attention_conv.kernel_projection.weight",
            FfnConvBase => "mlp_conv.base_kernel",
            FfnConvChange => "mlp_conv.kernel_projection.weight",
        }
    }
}

impl Role {
    /// Its name in a GGUF file.
    pub(super) fn gguf(self) -> String {
        match self {
            Self::Embedding => "token_embd.weight".to_owned(),
            Self::Head => "output.weight".to_owned(),
            Self::FinalNorm => "output_norm.weight".to_owned(),
            Self::Fc => "fc.weight".to_owned(),
            Self::HiddenNorm => "enc.output_norm.weight".to_owned(),
            Self::SelectorHidden => "selector_hidden.weight".to_owned(),
            Self::Predecessors => "selector_predecessor.weight".to_owned(),
            Self::Successors => "selector_successor.weight".to_owned(),
            Self::Layer(i, part) => format!("blk.{i}.{}", part.gguf()),
        }
    }

    /// Its name in a safetensors file whose decoder's names begin with `prefix`.
    pub(super) fn hf(self, prefix: &str, post_norms: bool) -> String {
        match self {
            Self::Embedding => format!("{prefix}embed_tokens.weight"),
            // The head stands beside the decoder, not in it.
            Self::Head if prefix == "language_model.model." => {
                "language_model.lm_head.weight".to_owned()
            }
            Self::Head => "lm_head.weight".to_owned(),
            Self::FinalNorm => format!("{prefix}norm.weight"),
            Self::Fc => format!("{prefix}fc.weight"),
            Self::HiddenNorm => format!("{prefix}hidden_norm.weight"),
            Self::SelectorHidden => {
                format!("{prefix}candidate_selector.hidden_projection.weight")
            }
            // The two have no `.weight`.
            Self::Predecessors => format!("{prefix}candidate_selector.predecessor_codebook"),
            Self::Successors => format!("{prefix}candidate_selector.successor_codebook"),
            Self::Layer(i, part) => format!("{prefix}layers.{i}.{}", part.hf(post_norms)),
        }
    }
}
