//! Drafts in GGUF files of architecture `dflash`, as llama.cpp's converter writes them.

use super::draft::{Shape, convolution, selector, vocabulary};
use super::gguf::{Keys, SLIDING_PATTERN, with_factors};
use super::rope;
use super::{Checked, DecoderConfig, DraftConfig, bounded, check_widths};
use crate::model::ops::Activation;
use crate::model::weights::gguf::GgufFile;
use anyhow::{Context, Result, bail};

impl DraftConfig {
    /// Read a draft's GGUF metadata and check that it fits `target`. `taps` replaces the file's
    /// target layers (`--dflash-layers`, 0-based outputs).
    ///
    /// # Errors
    /// As [`DraftConfig::from_hf`].
    pub fn from_gguf(
        file: &GgufFile,
        target: &DecoderConfig,
        taps: Option<&[usize]>,
    ) -> Result<Checked<Self>> {
        let architecture = file.architecture()?;
        refuse_draft(file, architecture)?;
        let keys = Keys { file, architecture };
        let hidden = keys.need_count("embedding_length")?;
        let max_positions = keys.need_count("context_length")?;
        let norm_eps = keys.need_float("attention.layer_norm_rms_epsilon")?;
        // A converted draft carries the target's tokenizer, and not always vocab_size.
        let vocab = match keys.count("vocab_size")? {
            Some(vocab) => vocab,
            None => file.array_len("tokenizer.ggml.tokens").unwrap_or(target.vocab),
        };
        check_widths(vocab, hidden, max_positions, norm_eps)?;
        let heads = keys.need_count("attention.head_count")?;
        let head_dim = match keys.count("attention.key_length")? {
            Some(width) => width,
            None => hidden.checked_div(heads).context("attention.head_count is 0")?,
        };
        bounded("the head's width", head_dim, super::MAX_HEAD_DIM)?;
        let shape = Shape {
            heads,
            kv_heads: keys.count("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            ffn: keys.need_count("feed_forward_length")?,
            activation: Activation::Silu,
            window: keys.count("attention.sliding_window")?.filter(|&window| window > 0),
            is_causal: file.flag(&keys.key("attention.causal"))?,
            convolution: convolution(|key| keys.count(key), hidden)?,
        };
        let count = keys.layer_count()?;
        let sliding = if shape.window.is_some() && file.has_key(&keys.key(SLIDING_PATTERN)) {
            keys.sliding_layers(count, 1)?
        } else {
            vec![false; count]
        };
        let base = keys.need_float("rope.freq_base")?;
        let table = rope::table(head_dim, base, keys.scaling(max_positions)?)?;
        let table = with_factors(file, table)?;
        let layers = sliding
            .into_iter()
            .map(|sliding| shape.layer(sliding, table.clone()))
            .collect::<Result<_>>()?;
        let taps = match taps {
            Some(given) => given.to_vec(),
            None => stored_taps(keys)?,
        };
        let selector = selector(|key| keys.count(key))?;
        if selector.is_none() && file.has("selector_hidden.weight") {
            bail!("{} has a candidate selector, but no dflash.selector_rank", file.name());
        }
        let mask_token_id = file
            .id("tokenizer.ggml.mask_token_id")?
            .context("the draft has no tokenizer.ggml.mask_token_id")?;
        Self {
            architecture: architecture.to_owned(),
            hidden,
            vocab,
            layers,
            norm_eps: norm_eps as f32,
            block_size: keys.need_count("block_size")?,
            mask_token_id,
            taps,
            num_target_layers: None,
            embedding_scale: keys.float("embedding_scale")?.map(|scale| scale as f32),
            final_softcap: keys
                .float("final_logit_softcapping")?
                .filter(|&cap| cap > 0.0)
                .map(|cap| cap as f32),
            max_positions,
            vocabulary: vocabulary(ranked(keys)?, vocab)?,
            selector,
        }
        .fitted(target, Vec::new())
    }
}

fn refuse_draft(file: &GgufFile, architecture: &str) -> Result<()> {
    if architecture != "dflash" {
        bail!(
            "{} is of architecture {architecture}, not a DFlash draft (architecture dflash)",
            file.name()
        );
    }
    for (tensor, kind) in [
        ("markov_w1.weight", "a DSpark draft (Markov head)"),
        ("d2t", "a draft with a vocabulary of its own"),
    ] {
        if file.has(tensor) {
            bail!("{} is {kind}, which is not supported", file.name());
        }
    }
    for key in ["dflash.hyper_connection.count", "dflash.expert_count"] {
        if file.count(key)?.unwrap_or(0) > 0 {
            bail!("{} has {key} set: this kind of draft is not supported", file.name());
        }
    }
    let scale = file.float("dflash.logit_scale")?.unwrap_or(1.0);
    if scale != 1.0 && scale != 0.0 {
        bail!("{} asks for a logit_scale of {scale}, which is not supported", file.name());
    }
    Ok(())
}

/// The ids that the draft proposes from; a key of our own (see `training/export.py`).
fn ranked(keys: Keys<'_>) -> Result<Option<Vec<usize>>> {
    let Some(ids) = keys.file.integers(&keys.key("draft_vocabulary"))? else { return Ok(None) };
    let id =
        |id: i64| usize::try_from(id).with_context(|| format!("draft_vocabulary names token {id}"));
    ids.into_iter().map(id).collect::<Result<_>>().map(Some)
}

/// The stored ids name layers by their inputs: one more than the layer whose output that is.
fn stored_taps(keys: Keys<'_>) -> Result<Vec<usize>> {
    let inputs = keys
        .file
        .integers(&keys.key("target_layers"))?
        .with_context(|| keys.missing("target_layers"))?;
    inputs
        .into_iter()
        .map(|input| {
            usize::try_from(input).ok().and_then(|input| input.checked_sub(1)).with_context(|| {
                format!("target layer {input} of the draft has no output before it")
            })
        })
        .collect()
}
