//! Targets described by the metadata of a GGUF file.
//!
//! Key names are those of llama.cpp's converters; what an architecture implies beyond its keys
//! is read from llama.cpp's model code.

use super::rope::{self, Scaling};
use super::{Checked, DecoderConfig, LayerConfig, MAX_LAYERS, bounded, check_widths};
use crate::model::ops::{Activation, AttentionSpec, RopeTable, Visibility};
use crate::model::weights::gguf::GgufFile;
use anyhow::{Context, Result, bail};

/// Which layers slide.
pub(super) const SLIDING_PATTERN: &str = "attention.sliding_window_pattern";
/// Architectures of targets.
const TARGETS: [&str; 5] = ["llama", "qwen2", "qwen3", "gemma3", "gemma4"];

/// A file's keys that begin with its architecture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) file: &'a GgufFile,
    pub(super) architecture: &'a str,
}

impl Keys<'_> {
    pub(super) fn key(self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub(super) fn count(self, name: &str) -> Result<Option<usize>> {
        self.file.count(&self.key(name))
    }

    pub(super) fn need_count(self, name: &str) -> Result<usize> {
        self.count(name)?.with_context(|| self.missing(name))
    }

    pub(super) fn float(self, name: &str) -> Result<Option<f64>> {
        self.file.float(&self.key(name))
    }

    pub(super) fn need_float(self, name: &str) -> Result<f64> {
        self.float(name)?.with_context(|| self.missing(name))
    }

    pub(super) fn missing(self, name: &str) -> String {
        format!(
            "{} (architecture {}) has no {}",
            self.file.name(),
            self.architecture,
            self.key(name)
        )
    }

    pub(super) fn layer_count(self) -> Result<usize> {
        bounded("block_count", self.need_count("block_count")?, MAX_LAYERS)
    }

    /// A count a layer: written once for all or as an array.
    fn per_layer(self, name: &str, layers: usize) -> Result<Option<Vec<usize>>> {
        let key = self.key(name);
        if !self.file.is_array(&key) {
            return Ok(self.file.count(&key)?.map(|n| vec![n; layers]));
        }
        let values = self.file.integers(&key)?.unwrap_or_default();
        if values.len() != layers {
            bail!("{key} has {} entries for {layers} layers", values.len());
        }
        let counts = values.into_iter().map(usize::try_from).collect::<Result<_, _>>();
        Ok(Some(counts.with_context(|| format!("{key} has a negative entry"))?))
    }

    /// Which layers slide: an array of flags, or every layer but each n-th.
    pub(super) fn sliding_layers(self, layers: usize, default_every: usize) -> Result<Vec<bool>> {
        let key = self.key(SLIDING_PATTERN);
        if self.file.is_array(&key) {
            let flags = match self.file.flags(&key) {
                Ok(flags) => flags.unwrap_or_default(),
                Err(_) => {
                    let numbers = self.file.integers(&key)?.unwrap_or_default();
                    numbers.into_iter().map(|v| v != 0).collect()
                }
            };
            if flags.len() != layers {
                bail!("{key} has {} entries for {layers} layers", flags.len());
            }
            return Ok(flags);
        }
        let every = self.file.count(&key)?.unwrap_or(default_every);
        bounded(&key, every, MAX_LAYERS)?;
        Ok((0..layers).map(|i| (i + 1) % every != 0).collect())
    }

    /// Rope scaling by keys. Llama 3's scaling is not among them: see [`with_factors`].
    pub(super) fn scaling(self, max_positions: usize) -> Result<Scaling> {
        let kind = self.file.text(&self.key("rope.scaling.type"))?.unwrap_or("none");
        let factor =
            || super::positive("rope.scaling.factor", self.need_float("rope.scaling.factor")?);
        match kind {
            "none" => Ok(Scaling::None),
            "linear" => Ok(Scaling::Linear(factor()?)),
            "yarn" => {
                let factor = factor()?;
                let original = self.float("rope.scaling.original_context_length")?;
                let attention = self.float("rope.scaling.attn_factor")?.unwrap_or(1.0);
                Ok(Scaling::Yarn {
                    factor,
                    magnitude: attention * rope::yarn_magnitude(factor, 1.0),
                    beta_fast: self.float("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: self.float("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    original: original.unwrap_or(max_positions as f64),
                    truncate: true,
                })
            }
            other => bail!("rope scaling {other:?} is not supported; none, linear and yarn are"),
        }
    }
}

impl DecoderConfig {
    /// Read a target's GGUF metadata.
    ///
    /// # Errors
    /// When the architecture or something that it asks for is not supported (named), a key is
    /// missing or has a value outside sane limits.
    pub fn from_gguf(file: &GgufFile) -> Result<Checked<Self>> {
        let architecture = file.architecture()?;
        if !TARGETS.contains(&architecture) {
            let hint = match architecture {
                "dflash" => "; it is a draft: pass it with --draft",
                "clip" => "; it is the image part of a model",
                _ => "",
            };
            bail!(
                "{} is of architecture {architecture}, which is not supported as a target ({} \
                 are){hint}",
                file.name(),
                TARGETS.join(", ")
            );
        }
        let keys = Keys { file, architecture };
        if keys.count("expert_count")?.unwrap_or(0) > 0 {
            bail!("{} is a mixture of experts, which is not supported", file.name());
        }
        let parts = file.count("split.count")?.unwrap_or(1);
        if parts > 1 {
            bail!(
                "{} is one of {parts} parts; join them first (llama-gguf-split --merge)",
                file.name()
            );
        }
        let vocab = match file.shape("token_embd.weight") {
            Some(&[rows, _]) => rows,
            _ => bail!("{} has no embedding (token_embd.weight)", file.name()),
        };
        let hidden = keys.need_count("embedding_length")?;
        let max_positions = keys.need_count("context_length")?;
        let norm_eps = keys.need_float("attention.layer_norm_rms_epsilon")?;
        check_widths(vocab, hidden, max_positions, norm_eps)?;
        let gemma = architecture.starts_with("gemma");
        let layers = if gemma {
            gemma_layers(keys, hidden, max_positions, norm_eps)?
        } else {
            llama_layers(keys, hidden, max_positions)?
        };
        Self {
            architecture: architecture.to_owned(),
            vocab,
            hidden,
            layers,
            norm_eps: norm_eps as f32,
            norm_adds_one: false,
            embedding_scale: if gemma { (hidden as f32).sqrt() } else { 1.0 },
            tied: !file.has("output.weight"),
            final_softcap: keys
                .float("final_logit_softcapping")?
                .filter(|&cap| cap > 0.0)
                .map(|cap| cap as f32),
            max_positions,
        }
        .checked(Vec::new())
    }
}

fn llama_layers(keys: Keys<'_>, hidden: usize, max_positions: usize) -> Result<Vec<LayerConfig>> {
    let layers = keys.layer_count()?;
    let heads = keys.per_layer("attention.head_count", layers)?;
    let heads = heads.with_context(|| keys.missing("attention.head_count"))?;
    let kv_heads =
        keys.per_layer("attention.head_count_kv", layers)?.unwrap_or_else(|| heads.clone());
    let ffn = keys.per_layer("feed_forward_length", layers)?;
    let ffn = ffn.with_context(|| keys.missing("feed_forward_length"))?;
    let theta = keys.float("rope.freq_base")?.unwrap_or(10_000.0);
    let scaling = keys.scaling(max_positions)?;
    (0..layers)
        .map(|i| {
            let head_dim = match keys.count("attention.key_length")? {
                Some(width) => width,
                None => hidden.checked_div(heads[i]).context("attention.head_count is 0")?,
            };
            bounded("the head's width", head_dim, super::MAX_HEAD_DIM)?;
            whole_heads_turn(keys, "rope.dimension_count", head_dim)?;
            if keys.file.has(&format!("blk.{i}.attn_output.bias")) {
                bail!("{} has biases on attention outputs, not supported", keys.file.name());
            }
            let table = rope::table(head_dim, theta, scaling)?;
            Ok(LayerConfig {
                attention: AttentionSpec {
                    heads: heads[i],
                    kv_heads: kv_heads[i],
                    head_dim,
                    scale: (head_dim as f32).powf(-0.5),
                    window: None,
                    visibility: Visibility::Causal,
                    softcap: None,
                    values_are_keys: false,
                    value_norm: None,
                },
                rope: with_factors(keys.file, table)?,
                qk_norm: keys.architecture == "qwen3",
                qkv_bias: keys.file.has(&format!("blk.{i}.attn_q.bias")),
                ffn: ffn[i],
                activation: Activation::Silu,
                post_norms: false,
                layer_scalar: false,
                convolution: None,
            })
        })
        .collect()
}

/// Refuse a file whose rope turns only a part of each head.
fn whole_heads_turn(keys: Keys<'_>, name: &str, head_dim: usize) -> Result<()> {
    match keys.count(name)? {
        Some(turned) if turned != head_dim => bail!(
            "{} is {turned}, the head is {head_dim} wide; rope on a part of the head is not \
             supported here",
            keys.key(name)
        ),
        _ => Ok(()),
    }
}

/// Divide by the factors that converters store as `rope_freqs.weight`: Llama 3's scaling, and
/// Gemma 4's partial rope (factors of 1e30 for pairs that do not turn).
pub(super) fn with_factors(file: &GgufFile, mut table: RopeTable) -> Result<RopeTable> {
    const NAME: &str = "rope_freqs.weight";
    if !file.has(NAME) {
        return Ok(table);
    }
    let factors = file.tensor(NAME)?.to_f32()?;
    if factors.len() != table.inv_freq.len() {
        bail!("{NAME} has {} factors for {} pairs", factors.len(), table.inv_freq.len());
    }
    for (angle, &factor) in table.inv_freq.iter_mut().zip(&factors) {
        super::positive(NAME, f64::from(factor))?;
        *angle = if factor > 1e20 { 0.0 } else { *angle / f64::from(factor) };
    }
    while table.inv_freq.last() == Some(&0.0) {
        table.inv_freq.pop();
    }
    Ok(table)
}

fn gemma_layers(
    keys: Keys<'_>,
    hidden: usize,
    max_positions: usize,
    norm_eps: f64,
) -> Result<Vec<LayerConfig>> {
    let layers = keys.layer_count()?;
    let four = keys.architecture == "gemma4";
    for (name, what) in [
        ("embedding_length_per_layer_input", "per-layer embeddings (Gemma 4 E2B and E4B)"),
        ("attention.shared_kv_layers", "layers that share keys and values"),
    ] {
        if keys.count(name)?.unwrap_or(0) > 0 {
            bail!("{} has {what}, which are not supported", keys.file.name());
        }
    }
    let heads = keys.per_layer("attention.head_count", layers)?;
    let heads = heads.with_context(|| keys.missing("attention.head_count"))?;
    let kv_heads =
        keys.per_layer("attention.head_count_kv", layers)?.unwrap_or_else(|| heads.clone());
    let ffn = keys.per_layer("feed_forward_length", layers)?;
    let ffn = ffn.with_context(|| keys.missing("feed_forward_length"))?;
    let full_dim = keys.need_count("attention.key_length")?;
    let sliding_dim = keys.count("attention.key_length_swa")?.unwrap_or(full_dim);
    for head_dim in [full_dim, sliding_dim] {
        bounded("the head's width", head_dim, super::MAX_HEAD_DIM)?;
    }
    let window = keys.count("attention.sliding_window")?;
    let sliding = match window {
        Some(_) => keys.sliding_layers(layers, 6)?,
        None => vec![false; layers],
    };

    let theta = keys.float("rope.freq_base")?.unwrap_or(1e6);
    let full_rope = rope::table(full_dim, theta, keys.scaling(max_positions)?)?;
    let full_rope = if four { with_factors(keys.file, full_rope)? } else { full_rope };
    let theta = keys.float("rope.freq_base_swa")?.unwrap_or(1e4);
    let sliding_rope = rope::table(sliding_dim, theta, Scaling::None)?;

    Ok((0..layers)
        .map(|i| {
            let head_dim = if sliding[i] { sliding_dim } else { full_dim };
            let scale = match keys.architecture {
                "gemma4" => 1.0,
                // Gemma 3 27B scales by its hidden size; llama.cpp knows it by its 62 layers.
                _ if layers == 62 => (hidden as f32 / heads[i].max(1) as f32).powf(-0.5),
                _ => (head_dim as f32).powf(-0.5),
            };
            LayerConfig {
                attention: AttentionSpec {
                    heads: heads[i],
                    kv_heads: kv_heads[i],
                    head_dim,
                    scale,
                    window: window.filter(|_| sliding[i]),
                    visibility: Visibility::Causal,
                    softcap: None,
                    values_are_keys: four && !keys.file.has(&format!("blk.{i}.attn_v.weight")),
                    value_norm: four.then_some(norm_eps as f32),
                },
                rope: if sliding[i] { sliding_rope.clone() } else { full_rope.clone() },
                qk_norm: true,
                qkv_bias: false,
                ffn: ffn[i],
                activation: Activation::GeluTanh,
                post_norms: true,
                layer_scalar: keys.file.has(&format!("blk.{i}.layer_output_scale.weight")),
                convolution: None,
            }
        })
        .collect())
}
