//! DFlash drafts: `config.json` as z-lab publishes it, in both of its layouts, and the check
//! that a draft fits its target.

use super::fields::Fields;
use super::rope;
use super::{
    Checked, ConvolutionConfig, DecoderConfig, DraftConfig, LayerConfig, MAX_BLOCK, SelectorConfig,
    bounded, check_widths, positive,
};
use crate::model::ops::{Activation, AttentionSpec, RopeTable, Visibility};
use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Most taps of a draft.
const MAX_TAPS: usize = 64;

impl DraftConfig {
    /// Read a draft's `config.json` and check that it fits `target`. `taps` replaces the file's
    /// target layers (`--dflash-layers`).
    ///
    /// # Errors
    /// When the draft is of a kind that cannot be run (named, with what it would need), a key
    /// is missing or out of limits, or draft and target do not fit (with both sides' numbers).
    pub fn from_hf(
        config: &Value,
        target: &DecoderConfig,
        taps: Option<&[usize]>,
    ) -> Result<Checked<Self>> {
        let fields = Fields::new(config)?;
        refuse_speculators(fields)?;
        let architecture = fields.architecture()?;
        refuse_architecture(architecture)?;
        let own = fields.object("dflash_config")?.unwrap_or(Fields::empty());
        refuse_extras(fields, own)?;
        let mut warnings = Vec::new();

        let vocab = fields.need_count("vocab_size")?;
        let hidden = fields.need_count("hidden_size")?;
        let max_positions = fields.need_count("max_position_embeddings")?;
        let norm_eps = fields.need_number("rms_norm_eps")?;
        check_widths(vocab, hidden, max_positions, norm_eps)?;
        let either_count =
            |key: &str| -> Result<Option<usize>> { Ok(own.count(key)?.or(fields.count(key)?)) };
        let selector = selector(either_count)?;
        if architecture == "DFlash2DraftModel" && selector.is_none() {
            bail!("{architecture} has no selector_rank; without its selector it drafts badly");
        }
        let convolution = convolution(either_count, hidden)?;
        let layers = layers(fields, max_positions, convolution, &mut warnings)?;
        let either = |key| -> Result<Option<f64>> {
            Ok(match own.number(key)? {
                Some(value) => Some(value),
                None => fields.number(key)?,
            })
        };
        let num_target_layers = either_count("num_target_layers")?;
        let listed = match own.counts("target_layer_ids")? {
            Some(list) => Some(list),
            None => fields.counts("target_layer_ids")?,
        };
        let taps = match (taps, listed) {
            (Some(given), _) => given.to_vec(),
            (None, Some(listed)) => listed,
            (None, None) => {
                let of = num_target_layers.unwrap_or(target.layers.len());
                let taps = spread_taps(of, layers.len());
                warnings
                    .push(format!("the draft does not list its target layers; taking {taps:?}"));
                taps
            }
        };
        let draft = Self {
            architecture: architecture.to_owned(),
            hidden,
            vocab,
            layers,
            norm_eps: norm_eps as f32,
            block_size: block_size(fields, own, &mut warnings)?,
            mask_token_id: mask_token_id(fields, own)?,
            taps,
            num_target_layers,
            embedding_scale: either("input_embedding_scale")?.map(|v| v as f32),
            final_softcap: either("final_logit_softcapping")?
                .filter(|&cap| cap > 0.0)
                .map(|cap| cap as f32),
            max_positions,
            vocabulary: vocabulary(own.counts("draft_vocabulary")?, vocab)?,
            selector,
        };
        draft.fitted(target, warnings)
    }

    /// Check the numbers and that draft and target fit.
    pub(super) fn fitted(
        self,
        target: &DecoderConfig,
        mut warnings: Vec<String>,
    ) -> Result<Checked<Self>> {
        for (i, layer) in self.layers.iter().enumerate() {
            layer.check(i)?;
        }
        if self.block_size < 2 || self.block_size > MAX_BLOCK {
            bail!("block_size is {}; it must be from 2 to {MAX_BLOCK}", self.block_size);
        }
        if let Some(scale) = self.embedding_scale {
            positive("input_embedding_scale", f64::from(scale))?;
        }
        let target_layers = target.layers.len();
        bounded(
            "the number of target layers to read (target_layer_ids)",
            self.taps.len(),
            MAX_TAPS,
        )?;
        for (i, &tap) in self.taps.iter().enumerate() {
            if tap >= target_layers {
                bail!(
                    "the draft reads target layer {tap}, but this {} has {target_layers} layers \
                     (0 to {})",
                    target.architecture,
                    target_layers - 1
                );
            }
            if self.taps[..i].contains(&tap) {
                bail!("the draft reads target layer {tap} twice: {:?}", self.taps);
            }
        }
        if self.hidden != target.hidden {
            bail!(
                "the draft is {} wide (hidden_size), the target {}; they were not made for each \
                 other",
                self.hidden,
                target.hidden
            );
        }
        if self.vocab != target.vocab {
            bail!(
                "the draft's vocabulary has {} entries, the target's {}; they were not made for \
                 each other",
                self.vocab,
                target.vocab
            );
        }
        if self.mask_token_id as usize >= target.vocab {
            bail!(
                "the draft's mask token {} has no row in the target's embedding of {} rows",
                self.mask_token_id,
                target.vocab
            );
        }
        if let Some(n) = self.num_target_layers.filter(|&n| n != target_layers) {
            warnings.push(format!(
                "the draft was made for a target of {n} layers, this one has {target_layers}; if \
                 few drafts are accepted, this is the reason"
            ));
        }
        Ok(Checked { config: self, warnings })
    }
}

/// Configurations of vLLM's "speculators" have another layout.
fn refuse_speculators(fields: Fields<'_>) -> Result<()> {
    for key in ["speculators_model_type", "speculators_config", "transformer_layer_config"] {
        if fields.has(key) {
            bail!(
                "the draft is in the \"speculators\" format ({key}), which is not supported: it \
                 would need its own head and vocabulary map; take the original DFlash draft"
            );
        }
    }
    Ok(())
}

fn refuse_architecture(architecture: &str) -> Result<()> {
    let lacks = match architecture {
        "DFlashDraftModel" | "DFlash2DraftModel" => return Ok(()),
        "DFlashLagunaForCausalLM" => "a norm for each tap, gated attention and normed context rows",
        "MuseGlimmerAssistantModel" => "interleaved rope and an output multiplier",
        a if a.contains("DSpark") => "a Markov head and a confidence head",
        a if a.to_lowercase().contains("eagle") => "EAGLE's drafting, token by token",
        a => {
            bail!("{a} is not a DFlash draft; DFlashDraftModel and DFlash2DraftModel are supported")
        }
    };
    bail!(
        "{architecture} needs {lacks}, which this program does not have; DFlashDraftModel and \
         DFlash2DraftModel are supported"
    )
}

fn refuse_extras(fields: Fields<'_>, own: Fields<'_>) -> Result<()> {
    for place in [own, fields] {
        for key in ["attention_bias", "rope_interleaved"] {
            if place.flag(key)?.unwrap_or(false) {
                bail!("the draft asks for {key}, which is not supported");
            }
        }
        let multiplier = place.number("output_multiplier")?.unwrap_or(1.0);
        if multiplier != 1.0 {
            bail!(
                "the draft asks for an output_multiplier of {multiplier}, which is not supported"
            );
        }
        if place.has("draft_vocab_size") {
            bail!(
                "the draft has a vocabulary of its own (draft_vocab_size), which is not supported"
            );
        }
    }
    Ok(())
}

/// Under `dflash_config` first, then at the top level.
fn block_size(fields: Fields<'_>, own: Fields<'_>, warnings: &mut Vec<String>) -> Result<usize> {
    match (own.count("block_size")?, fields.count("block_size")?) {
        (Some(inner), outer) => {
            if let Some(outer) = outer.filter(|&outer| outer != inner) {
                warnings.push(format!(
                    "the draft gives two block sizes; taking {inner} of dflash_config, not {outer}"
                ));
            }
            Ok(inner)
        }
        (None, Some(outer)) => Ok(outer),
        (None, None) => bail!("block_size is missing"),
    }
}

/// Under `dflash_config` first, then at the top level. The tokenizer need not know the token.
fn mask_token_id(fields: Fields<'_>, own: Fields<'_>) -> Result<u32> {
    let id = match own.count("mask_token_id")? {
        Some(id) => id,
        None => fields.need_count("mask_token_id")?,
    };
    u32::try_from(id).with_context(|| format!("mask_token_id {id} is not a token id"))
}

/// `draft_vocabulary`: the ids that a draft proposes from.
pub(super) fn vocabulary(ids: Option<Vec<usize>>, vocab: usize) -> Result<Option<Vec<u32>>> {
    let Some(ids) = ids else { return Ok(None) };
    if ids.is_empty() || ids.len() > vocab {
        bail!(
            "draft_vocabulary lists {} of {vocab} tokens; leave it out to draft from all",
            ids.len()
        );
    }
    ids.into_iter()
        .map(|id| match u32::try_from(id) {
            Ok(short) if id < vocab => Ok(short),
            _ => bail!("draft_vocabulary names token {id} of {vocab}"),
        })
        .collect::<Result<_>>()
        .map(Some)
}

/// DFlash 2's selector, of the counts that `read` finds.
pub(super) fn selector(
    read: impl Fn(&str) -> Result<Option<usize>>,
) -> Result<Option<SelectorConfig>> {
    let Some([rank, candidates]) = together(read, ["selector_rank", "selector_top_k"])? else {
        return Ok(None);
    };
    Ok(Some(SelectorConfig {
        rank: bounded("selector_rank", rank, super::MAX_HIDDEN)?,
        candidates: bounded("selector_top_k", candidates, super::MAX_CANDIDATES)?,
    }))
}

/// DFlash 2's convolutions over rows of `hidden`, of the counts that `read` finds.
pub(super) fn convolution(
    read: impl Fn(&str) -> Result<Option<usize>>,
    hidden: usize,
) -> Result<Option<ConvolutionConfig>> {
    let Some([taps, group]) = together(read, ["conv_kernel_size", "conv_group_size"])? else {
        return Ok(None);
    };
    bounded("conv_kernel_size", taps, super::MAX_CONVOLUTION)?;
    bounded("conv_group_size", group, hidden)?;
    if !hidden.is_multiple_of(group) {
        bail!("conv_group_size {group} does not divide the width of {hidden}");
    }
    Ok(Some(ConvolutionConfig { taps, group }))
}

/// Two counts of which neither says anything without the other.
fn together(
    read: impl Fn(&str) -> Result<Option<usize>>,
    [first, second]: [&str; 2],
) -> Result<Option<[usize; 2]>> {
    match (read(first)?, read(second)?) {
        (Some(a), Some(b)) => Ok(Some([a, b])),
        (None, None) => Ok(None),
        (None, _) => bail!("the draft has {second}, but no {first}"),
        (_, None) => bail!("the draft has {first}, but no {second}"),
    }
}

/// The target layers for a draft that lists none: evenly spread over `[1, target - 3]`, halves
/// rounded to even (`build_target_layer_ids` of the reference).
fn spread_taps(target_layers: usize, draft_layers: usize) -> Vec<usize> {
    if draft_layers == 1 {
        return vec![target_layers / 2];
    }
    let span = target_layers as f64 - 4.0;
    let step = |i: usize| 1.0 + i as f64 * span / (draft_layers as f64 - 1.0);
    (0..draft_layers).map(|i| step(i).round_ties_even().max(0.0) as usize).collect()
}

fn layers(
    fields: Fields<'_>,
    max_positions: usize,
    convolution: Option<ConvolutionConfig>,
    warnings: &mut Vec<String>,
) -> Result<Vec<LayerConfig>> {
    let count = fields.layer_count()?;
    let sliding = fields.sliding_layers(count)?.unwrap_or_else(|| vec![false; count]);
    let heads = fields.need_count("num_attention_heads")?;
    let head_dim = match fields.count("head_dim")? {
        Some(width) => width,
        None => fields
            .need_count("hidden_size")?
            .checked_div(heads)
            .context("num_attention_heads is 0")?,
    };
    bounded("head_dim", head_dim, super::MAX_HEAD_DIM)?;
    let window = fields.count("sliding_window")?;
    if sliding.contains(&true) && fields.flag("use_sliding_window")? == Some(false) {
        warnings.push(
            "the draft has sliding layers and says use_sliding_window false; the window is used"
                .to_owned(),
        );
    }
    let shape = Shape {
        heads,
        kv_heads: fields.need_count("num_key_value_heads")?,
        head_dim,
        ffn: fields.need_count("intermediate_size")?,
        activation: super::hf::activation(fields, "hidden_act", "silu")?,
        window,
        is_causal: fields.flag("is_causal")?,
        convolution,
    };
    sliding
        .into_iter()
        .map(|is_sliding| {
            let kind = if is_sliding { "sliding_attention" } else { "full_attention" };
            let parameters = rope::parameters(fields, kind)?;
            let theta = rope::theta(fields, parameters)?.context(
                "rope_theta is missing; other programs guess it, and a wrong guess only shows as \
                 few accepted drafts",
            )?;
            let scaling = rope::scaling(fields, parameters, max_positions)?;
            shape.layer(is_sliding, rope::table(head_dim, theta, scaling)?)
        })
        .collect()
}

/// What the layers of a draft share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) ffn: usize,
    pub(super) activation: Activation,
    pub(super) window: Option<usize>,
    /// `is_causal`, where the file says.
    pub(super) is_causal: Option<bool>,
    pub(super) convolution: Option<ConvolutionConfig>,
}

impl Shape {
    /// A layer. Where the file does not say, sliding layers are causal and full ones are not.
    pub(super) fn layer(self, sliding: bool, rope: RopeTable) -> Result<LayerConfig> {
        let window = if sliding {
            Some(self.window.context("it has sliding layers, but sliding_window is missing")?)
        } else {
            None
        };
        Ok(LayerConfig {
            attention: AttentionSpec {
                heads: self.heads,
                kv_heads: self.kv_heads,
                head_dim: self.head_dim,
                scale: (self.head_dim as f32).powf(-0.5),
                window,
                visibility: if self.is_causal.unwrap_or(sliding) {
                    Visibility::Causal
                } else {
                    Visibility::Bidirectional
                },
                softcap: None,
                values_are_keys: false,
                value_norm: None,
            },
            rope,
            qk_norm: true,
            qkv_bias: false,
            ffn: self.ffn,
            activation: self.activation,
            post_norms: false,
            layer_scalar: false,
            convolution: self.convolution,
        })
    }
}
