//! Gemma 3 and Gemma 4 (dense, text) described by a `config.json` of transformers.

use super::fields::Fields;
use super::hf::{Family, activation, refuse_extras, with_windows};
use super::rope::{self, Scaling};
use super::{DecoderConfig, LayerConfig, check_widths};
use crate::model::ops::{AttentionSpec, RopeTable, Visibility};
use anyhow::{Context, Result, bail};
use half::{bf16, f16};
use serde_json::Value;

/// `outer` is the whole file, `fields` its text part (the same where there is no other).
pub(super) fn gemma(
    outer: Fields<'_>,
    fields: Fields<'_>,
    family: Family,
    tied: Option<bool>,
) -> Result<DecoderConfig> {
    refuse_extras(fields, &["attention_bias"])?;
    match fields.get("use_bidirectional_attention") {
        None | Some(Value::Bool(false)) => {}
        // Only image tokens see each other; there are none here.
        Some(Value::String(s)) if s == "vision" => {}
        Some(_) => bail!("attention in both directions is not supported in a target"),
    }
    // Published Gemma 3 files leave out what equals transformers' defaults.
    let vocab = fields.count("vocab_size")?.unwrap_or(match family {
        Family::Gemma3 => 262_208,
        _ => 262_144,
    });
    let hidden = fields.need_count("hidden_size")?;
    let max_positions = fields.count("max_position_embeddings")?.unwrap_or(131_072);
    let norm_eps = fields.number("rms_norm_eps")?.unwrap_or(1e-6);
    check_widths(vocab, hidden, max_positions, norm_eps)?;
    let layers = fields.layer_count()?;
    let sliding = sliding_pattern(fields, layers, family)?;
    let base = LayerConfig {
        attention: AttentionSpec {
            heads: fields.count("num_attention_heads")?.unwrap_or(8),
            kv_heads: fields.count("num_key_value_heads")?.unwrap_or(4),
            head_dim: fields.count("head_dim")?.unwrap_or(256),
            scale: 1.0,
            window: None,
            visibility: Visibility::Causal,
            softcap: fields.number("attn_logit_softcapping")?.map(|cap| cap as f32),
            values_are_keys: false,
            value_norm: None,
        },
        rope: RopeTable { inv_freq: Vec::new(), magnitude: 1.0 },
        qk_norm: true,
        qkv_bias: false,
        ffn: fields.need_count("intermediate_size")?,
        activation: activation(fields, "hidden_activation", "gelu_pytorch_tanh")?,
        post_norms: true,
        layer_scalar: family == Family::Gemma4,
        convolution: None,
    };
    let layers = match family {
        Family::Gemma3 => gemma3_layers(fields, base, &sliding, max_positions)?,
        _ => gemma4_layers(fields, base, &sliding, max_positions, norm_eps)?,
    };
    Ok(DecoderConfig {
        architecture: if family == Family::Gemma3 { "gemma3" } else { "gemma4" }.to_owned(),
        vocab,
        hidden,
        layers,
        norm_eps: norm_eps as f32,
        norm_adds_one: family == Family::Gemma3,
        embedding_scale: embedding_scale(hidden, outer, fields)?,
        tied: tied.unwrap_or(true),
        final_softcap: fields.number("final_logit_softcapping")?.map(|cap| cap as f32),
        max_positions,
    })
}

/// √hidden, rounded to the type that the model computes in.
fn embedding_scale(hidden: usize, outer: Fields<'_>, fields: Fields<'_>) -> Result<f32> {
    let scale = (hidden as f32).sqrt();
    for fields in [fields, outer] {
        for key in ["dtype", "torch_dtype"] {
            match fields.text(key)? {
                Some("float32") => return Ok(scale),
                Some("float16") => return Ok(f16::from_f32(scale).to_f32()),
                Some(_) => return Ok(bf16::from_f32(scale).to_f32()),
                None => {}
            }
        }
    }
    Ok(bf16::from_f32(scale).to_f32())
}

/// Which layers slide: five of six unless the file says otherwise.
fn sliding_pattern(fields: Fields<'_>, layers: usize, family: Family) -> Result<Vec<bool>> {
    let mut sliding = match fields.sliding_layers(layers)? {
        Some(sliding) => sliding,
        None => {
            let key = "sliding_window_pattern";
            let every = fields.count(key)?.unwrap_or(6);
            super::bounded(key, every, super::MAX_LAYERS)?;
            (0..layers).map(|i| (i + 1) % every != 0).collect()
        }
    };
    // transformers makes Gemma 4's last layer a full one whatever the file says.
    if let (Family::Gemma4, Some(last)) = (family, sliding.last_mut()) {
        *last = false;
    }
    Ok(sliding)
}

fn gemma3_layers(
    fields: Fields<'_>,
    base: LayerConfig,
    kinds: &[bool],
    max_positions: usize,
) -> Result<Vec<LayerConfig>> {
    let head_dim = super::bounded("head_dim", base.attention.head_dim, super::MAX_HEAD_DIM)?;
    let scalar = fields.number("query_pre_attn_scalar")?.unwrap_or(256.0);
    let mut full = base;
    full.attention.scale = super::positive("query_pre_attn_scalar", scalar)?.powf(-0.5) as f32;
    let mut sliding = full.clone();

    let parameters = rope::parameters(fields, "full_attention")?;
    let theta = rope::theta(fields, parameters)?.unwrap_or(1e6);
    full.rope = rope::table(head_dim, theta, rope::scaling(fields, parameters, max_positions)?)?;
    // Without an entry of its own the sliding layers' rope is unscaled, with its own base.
    let local = match fields.object("rope_parameters")? {
        Some(by_kind) => by_kind.object("sliding_attention")?.unwrap_or(Fields::empty()),
        None => Fields::empty(),
    };
    let theta = match local.number("rope_theta")? {
        Some(theta) => theta,
        None => fields.number("rope_local_base_freq")?.unwrap_or(1e4),
    };
    sliding.rope = rope::table(head_dim, theta, rope::scaling(fields, local, max_positions)?)?;
    with_windows(fields, kinds, &full, &sliding)
}

fn gemma4_layers(
    fields: Fields<'_>,
    mut base: LayerConfig,
    kinds: &[bool],
    max_positions: usize,
    norm_eps: f64,
) -> Result<Vec<LayerConfig>> {
    // Only the "unified" files lack the key; elsewhere its default is 256.
    let unified = fields.text("model_type")?.is_some_and(|t| t.contains("unified"));
    let per_layer = fields.count("hidden_size_per_layer_input")?;
    if per_layer.unwrap_or(if unified { 0 } else { 256 }) > 0 {
        bail!(
            "hidden_size_per_layer_input is not 0: per-layer embeddings (Gemma 4 E2B and E4B) \
             are not supported"
        );
    }
    if fields.count("num_kv_shared_layers")?.unwrap_or(0) > 0 {
        bail!("num_kv_shared_layers is not 0: layers that share keys and values are not supported");
    }
    if fields.flag("enable_moe_block")?.unwrap_or(false) {
        bail!("enable_moe_block is true: a mixture of experts is not supported");
    }
    base.attention.value_norm = Some(norm_eps as f32);
    let keys_as_values = fields.flag("attention_k_eq_v")?.unwrap_or(false);
    let global_head_dim = fields.count("global_head_dim")?;
    let global_kv_heads = fields.count("num_global_key_value_heads")?.filter(|_| keys_as_values);
    let overrides = overrides(fields)?;

    let mut by_kind = [false, true].map(|_| None);
    let window = fields.count("sliding_window")?.unwrap_or(512);
    let mut layers = Vec::with_capacity(kinds.len());
    for (i, &is_sliding) in kinds.iter().enumerate() {
        let mut layer = base.clone();
        let attention = &mut layer.attention;
        if is_sliding {
            attention.window = Some(window);
        } else {
            attention.values_are_keys = keys_as_values;
            if overrides.is_empty() {
                attention.head_dim = global_head_dim.unwrap_or(512);
                attention.kv_heads = global_kv_heads.unwrap_or(attention.kv_heads);
            }
        }
        if let Some((_, own)) = overrides.iter().find(|(layer, _)| *layer == i) {
            attention.head_dim = own.count("head_dim")?.unwrap_or(attention.head_dim);
            attention.kv_heads = own.count("num_key_value_heads")?.unwrap_or(attention.kv_heads);
        }
        let head_dim = super::bounded("head_dim", attention.head_dim, super::MAX_HEAD_DIM)?;
        let rope = &mut by_kind[usize::from(is_sliding)];
        let (theta, scaling) = match *rope {
            Some(known) => known,
            None => *rope.insert(gemma4_rope(fields, is_sliding, max_positions)?),
        };
        layer.rope = rope::table(head_dim, theta, scaling)?;
        layers.push(layer);
    }
    Ok(layers)
}

/// `per_layer_config`: sizes of single layers, by index (newer files have this in place of the
/// `global_…` keys).
fn overrides(fields: Fields<'_>) -> Result<Vec<(usize, Fields<'_>)>> {
    let Some(Value::Object(map)) = fields.get("per_layer_config") else { return Ok(Vec::new()) };
    map.iter()
        .map(|(layer, own)| {
            let index = layer
                .parse()
                .with_context(|| format!("per_layer_config has an entry {layer:?}"))?;
            Ok((index, Fields::new(own)?))
        })
        .collect()
}

fn gemma4_rope(fields: Fields<'_>, sliding: bool, max_positions: usize) -> Result<(f64, Scaling)> {
    if !fields.has("rope_parameters") {
        return Ok(if sliding {
            (1e4, Scaling::None)
        } else {
            (1e6, Scaling::Proportional { part: 0.25, factor: 1.0 })
        });
    }
    let kind = if sliding { "sliding_attention" } else { "full_attention" };
    let parameters = rope::parameters(fields, kind)?;
    let theta = rope::theta(fields, parameters)?.context("rope_theta is missing")?;
    Ok((theta, rope::scaling(fields, parameters, max_positions)?))
}
