//! Targets described by a `config.json` of transformers.
//!
//! What the families do is read from transformers 5.24 (`models/{llama,qwen2,qwen3,gemma3,
//! gemma4,gemma4_unified}`).

use super::fields::Fields;
use super::rope;
use super::{Checked, DecoderConfig, LayerConfig, check_widths};
use crate::model::ops::{Activation, AttentionSpec, Visibility};
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What is supported, for messages.
const SUPPORTED: &str = "Llama, Qwen2, Qwen3, Gemma 3 and Gemma 4 (dense, text) are supported";

/// What a target is a kind of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Qwen2,
    Qwen3,
    Gemma3,
    Gemma4,
}

impl DecoderConfig {
    /// Read a target's `config.json`.
    ///
    /// # Errors
    /// When the architecture or something that it asks for is not supported (named), a key is
    /// missing or has a value outside sane limits.
    pub fn from_hf(config: &Value) -> Result<Checked<Self>> {
        let outer = Fields::new(config)?;
        let architecture = outer.architecture()?;
        let family = family(architecture)?;
        let mut warnings = Vec::new();
        let fields = match outer.object("text_config")? {
            Some(text) => {
                warnings
                    .push(format!("{architecture} takes images too; only its text part is used"));
                text
            }
            None => outer,
        };
        let tied = match fields.flag("tie_word_embeddings")? {
            Some(tied) => Some(tied),
            None => outer.flag("tie_word_embeddings")?,
        };
        let decoder = match family {
            Family::Gemma3 | Family::Gemma4 => super::hf_gemma::gemma(outer, fields, family, tied)?,
            _ => llama_like(fields, family, tied)?,
        };
        decoder.checked(warnings)
    }
}

fn family(architecture: &str) -> Result<Family> {
    Ok(match architecture {
        "LlamaForCausalLM" => Family::Llama,
        "Qwen2ForCausalLM" => Family::Qwen2,
        "Qwen3ForCausalLM" => Family::Qwen3,
        "Gemma3ForCausalLM" | "Gemma3ForConditionalGeneration" => Family::Gemma3,
        "Gemma4ForCausalLM"
        | "Gemma4ForConditionalGeneration"
        | "Gemma4UnifiedForCausalLM"
        | "Gemma4UnifiedForConditionalGeneration" => Family::Gemma4,
        a if a.contains("DFlash") || a.contains("DSpark") => {
            bail!("{a} is a draft, not a target; pass it with --draft")
        }
        a if a.contains("Moe") || a.contains("Mixtral") => {
            bail!("{a} is a mixture of experts, which is not supported; {SUPPORTED}")
        }
        a if ["Qwen3_5", "Qwen3Next", "Mamba", "Jamba", "FalconH1", "Lfm2", "KimiLinear"]
            .iter()
            .any(|hybrid| a.contains(hybrid)) =>
        {
            bail!(
                "{a} has linear attention or recurrent layers (a hybrid model), which are not \
                 supported; {SUPPORTED}"
            )
        }
        a if a.ends_with("ForConditionalGeneration")
            || a.contains("Vision")
            || a.contains("VL") =>
        {
            bail!("{a} is built around image or audio inputs, which are not supported; {SUPPORTED}")
        }
        a => bail!("architecture {a} is not supported; {SUPPORTED}"),
    })
}

/// Refuse what no family here does.
pub(super) fn refuse_extras(fields: Fields<'_>, biased: &[&str]) -> Result<()> {
    for key in biased {
        if fields.flag(key)?.unwrap_or(false) {
            bail!("{key} is true: these biases are not supported");
        }
    }
    for key in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if fields.count(key)?.unwrap_or(0) > 0 {
            bail!("{key} is set: a mixture of experts is not supported");
        }
    }
    if fields.has("quantization_config") {
        bail!(
            "its weights are quantised (quantization_config), which only GGUF files may be; take \
             the unquantised model or a GGUF file"
        );
    }
    Ok(())
}

pub(super) fn activation(fields: Fields<'_>, key: &str, default: &str) -> Result<Activation> {
    match fields.text(key)?.unwrap_or(default) {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
        other => bail!("activation {other:?} is not supported; silu and gelu_pytorch_tanh are"),
    }
}

fn llama_like(fields: Fields<'_>, family: Family, tied: Option<bool>) -> Result<DecoderConfig> {
    match family {
        Family::Llama => refuse_extras(fields, &["attention_bias", "mlp_bias"])?,
        _ => refuse_extras(fields, &["attention_bias"])?,
    }
    let vocab = fields.need_count("vocab_size")?;
    let hidden = fields.need_count("hidden_size")?;
    let max_positions = fields.need_count("max_position_embeddings")?;
    let norm_eps = fields.need_number("rms_norm_eps")?;
    check_widths(vocab, hidden, max_positions, norm_eps)?;
    let heads = fields.need_count("num_attention_heads")?;
    let head_dim = match fields.count("head_dim")? {
        Some(width) => width,
        None if family == Family::Qwen3 => 128,
        None => hidden.checked_div(heads).context("num_attention_heads is 0")?,
    };
    let parameters = rope::parameters(fields, "full_attention")?;
    let theta = match (rope::theta(fields, parameters)?, family) {
        (Some(theta), _) => theta,
        // Llama 1 and 2 files leave it out.
        (None, Family::Llama) => 10_000.0,
        (None, _) => bail!("rope_theta is missing"),
    };
    super::bounded("head_dim", head_dim, super::MAX_HEAD_DIM)?;
    let layers = fields.layer_count()?;
    let sliding = match fields.sliding_layers(layers)? {
        Some(sliding) => sliding,
        None => {
            let used = fields.flag("use_sliding_window")?.unwrap_or(false);
            let first =
                if used { fields.count("max_window_layers")?.unwrap_or(28) } else { layers };
            (0..layers).map(|i| i >= first).collect()
        }
    };
    let full = LayerConfig {
        attention: AttentionSpec {
            heads,
            kv_heads: fields.count("num_key_value_heads")?.unwrap_or(heads),
            head_dim,
            scale: (head_dim as f32).powf(-0.5),
            window: None,
            visibility: Visibility::Causal,
            softcap: None,
            values_are_keys: false,
            value_norm: None,
        },
        rope: rope::table(head_dim, theta, rope::scaling(fields, parameters, max_positions)?)?,
        qk_norm: family == Family::Qwen3,
        qkv_bias: family == Family::Qwen2,
        ffn: fields.need_count("intermediate_size")?,
        activation: activation(fields, "hidden_act", "silu")?,
        post_norms: false,
        layer_scalar: false,
        convolution: None,
    };
    Ok(DecoderConfig {
        architecture: match family {
            Family::Llama => "llama",
            Family::Qwen2 => "qwen2",
            _ => "qwen3",
        }
        .to_owned(),
        vocab,
        hidden,
        layers: with_windows(fields, &sliding, &full, &full)?,
        norm_eps: norm_eps as f32,
        norm_adds_one: false,
        embedding_scale: 1.0,
        tied: tied.unwrap_or(false),
        final_softcap: None,
        max_positions,
    })
}

/// One entry a layer: `full`, or `sliding` with the configuration's window.
pub(super) fn with_windows(
    fields: Fields<'_>,
    kinds: &[bool],
    full: &LayerConfig,
    sliding: &LayerConfig,
) -> Result<Vec<LayerConfig>> {
    let window = fields.count("sliding_window")?;
    kinds
        .iter()
        .map(|&is_sliding| {
            if !is_sliding {
                return Ok(full.clone());
            }
            let mut layer = sliding.clone();
            layer.attention.window =
                Some(window.context("it has sliding layers, but sliding_window is missing")?);
            Ok(layer)
        })
        .collect()
}
