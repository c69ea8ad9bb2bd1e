//! A target's or a draft's files: configuration and weights, opened and checked together.

use super::gguf::GgufFile;
use super::role::{Part, Role};
use super::safetensors::SafetensorsFiles;
use super::{Bytes, RawTensor, dtype_name, read_json};
use crate::model::config::{DecoderConfig, DraftConfig, LayerConfig};
use anyhow::{Context, Result, bail};
use candle_core::quantized::GgmlDType;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where weights come from.
#[derive(Debug)]
pub enum Source {
    /// A GGUF file.
    Gguf(GgufFile),
    /// Safetensors files whose decoder's names begin with this prefix.
    Safetensors(SafetensorsFiles, &'static str),
}

impl Source {
    fn safetensors(files: SafetensorsFiles) -> Result<Self> {
        let prefix = ["model.", "model.language_model.", "language_model.model.", ""]
            .into_iter()
            .find(|prefix| files.has(&Role::FinalNorm.hf(prefix, false)));
        match prefix {
            Some(prefix) => Ok(Self::Safetensors(files, prefix)),
            None => bail!("{} has no final norm (model.norm.weight)", files.name()),
        }
    }

    fn name(&self, role: Role, post_norms: bool) -> String {
        match self {
            Self::Gguf(_) => role.gguf(),
            Self::Safetensors(_, prefix) => role.hf(prefix, post_norms),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Gguf(file) => file.has(name),
            Self::Safetensors(files, _) => files.has(name),
        }
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<RawTensor<'_>> {
        let tensor = match self {
            Self::Gguf(file) => file.tensor(name),
            Self::Safetensors(files, _) => files.tensor(name),
        }?;
        if tensor.shape != shape {
            bail!(
                "tensor {name} has shape {:?}, the configuration asks for {shape:?}; the files do \
                 not belong together",
                tensor.shape
            );
        }
        Ok(tensor)
    }

    fn release(&self, name: &str) {
        match self {
            Self::Gguf(file) => file.release(name),
            Self::Safetensors(files, _) => files.release(name),
        }
    }

    fn tensors(&self) -> Box<dyn Iterator<Item = (&str, GgmlDType, u64)> + '_> {
        match self {
            Self::Gguf(file) => Box::new(file.tensors()),
            Self::Safetensors(files, _) => Box::new(files.tensors()),
        }
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors().map(|(_, _, bytes)| bytes).sum()
    }

    /// The types that make up the weights, the most used first: `Q4_1, Q8_0`. Types with less
    /// than a hundredth of the bytes (norms) are left out.
    pub fn kinds(&self) -> String {
        let mut kinds: Vec<(GgmlDType, u64)> = Vec::new();
        for (_, dtype, bytes) in self.tensors() {
            match kinds.iter_mut().find(|(known, _)| *known == dtype) {
                Some((_, sum)) => *sum += bytes,
                None => kinds.push((dtype, bytes)),
            }
        }
        kinds.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        let total = self.bytes();
        let names = kinds
            .iter()
            .filter(|(_, bytes)| bytes.saturating_mul(100) >= total)
            .map(|(dtype, _)| dtype_name(*dtype));
        names.collect::<Vec<_>>().join(", ")
    }

    /// The GGUF file, for its tokenizer and template.
    pub fn gguf(&self) -> Option<&GgufFile> {
        match self {
            Self::Gguf(file) => Some(file),
            Self::Safetensors(..) => None,
        }
    }
}

fn layer(layers: &[LayerConfig], index: usize) -> Result<&LayerConfig> {
    layers.get(index).with_context(|| format!("there is no layer {index} of {}", layers.len()))
}

fn layer_roles(layers: &[LayerConfig]) -> impl Iterator<Item = Role> + '_ {
    layers
        .iter()
        .enumerate()
        .flat_map(|(i, layer)| Part::of(layer).map(move |part| Role::Layer(i, part)))
}

/// A target: what it is and its weights.
#[derive(Debug)]
pub struct TargetFiles {
    /// What it is.
    pub config: DecoderConfig,
    /// Its weights.
    pub source: Source,
    /// The directory or file that was opened.
    pub path: PathBuf,
    /// What its reader should be told.
    pub warnings: Vec<String>,
}

/// Open a target: a directory with `config.json` and safetensors, or a GGUF file.
///
/// # Errors
/// When files are missing or damaged, the model is not supported, or a tensor is missing or
/// has another shape than the configuration asks for.
pub fn open_target(path: &Path) -> Result<TargetFiles> {
    let files = if path.is_dir() {
        let file = config_file(path)?;
        let checked = DecoderConfig::from_hf(&read_json(&file)?)
            .with_context(|| format!("cannot use {}", file.display()))?;
        let source = Source::safetensors(SafetensorsFiles::open(path)?)?;
        TargetFiles {
            config: checked.config,
            source,
            path: path.into(),
            warnings: checked.warnings,
        }
    } else {
        let file = GgufFile::open(path)?;
        let checked = DecoderConfig::from_gguf(&file)
            .with_context(|| format!("cannot use {}", path.display()))?;
        let source = Source::Gguf(file);
        TargetFiles {
            config: checked.config,
            source,
            path: path.into(),
            warnings: checked.warnings,
        }
    };
    files.with_head()?.complete()
}

impl TargetFiles {
    /// A tensor, with its shape checked against the configuration. The rows of q and k of
    /// `llama` GGUF files come back in half-split order, which [`crate::model::ops::RopeTable`]
    /// asks for.
    ///
    /// # Errors
    /// When the model has no such tensor or it has another shape.
    pub fn tensor(&self, role: Role) -> Result<RawTensor<'_>> {
        let tensor = self.stored(role)?;
        match role {
            Role::Layer(i, Part::Q | Part::K | Part::QBias | Part::KBias)
                if self.config.architecture == "llama" && self.source.gguf().is_some() =>
            {
                let head_dim = layer(&self.config.layers, i)?.attention.head_dim;
                let rows = tensor.shape[0];
                tensor.permute_rows(half_split(rows, head_dim))
            }
            _ => Ok(tensor),
        }
    }

    /// A tensor as it is stored, with its shape checked.
    fn stored(&self, role: Role) -> Result<RawTensor<'_>> {
        let c = &self.config;
        let shape = match role {
            Role::Embedding | Role::Head => vec![c.vocab, c.hidden],
            Role::FinalNorm => vec![c.hidden],
            Role::Layer(i, part) => part.shape(layer(&c.layers, i)?, c.hidden),
            _ => bail!("a target has no {role:?}"),
        };
        self.source.tensor(&self.stored_name(role), &shape)
    }

    /// Give back the memory that holds a tensor of the file, until it is read again.
    pub fn release(&self, role: Role) {
        self.source.release(&self.stored_name(role));
    }

    fn stored_name(&self, role: Role) -> String {
        let post_norms = match role {
            Role::Layer(i, _) => self.config.layers.get(i).is_some_and(|layer| layer.post_norms),
            _ => false,
        };
        self.source.name(role, post_norms)
    }

    /// Whether its matrices are quantised.
    pub fn is_quantised(&self) -> bool {
        let of = |role| self.stored(role).map(|tensor| tensor.dtype);
        let dense = [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16];
        of(Role::Layer(0, Part::Q)).is_ok_and(|dtype| !dense.contains(&dtype))
    }

    /// Ids that end an answer, of `generation_config.json` and `config.json`, or of the GGUF
    /// metadata (end of sequence, of turn, of message).
    ///
    /// # Errors
    /// When one of these files is damaged.
    pub fn end_tokens(&self) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        match self.source.gguf() {
            Some(file) => {
                for key in ["eos_token_id", "eot_token_id", "eom_token_id"] {
                    ids.extend(file.id(&format!("tokenizer.ggml.{key}"))?);
                }
            }
            None => {
                for name in ["generation_config.json", "config.json"] {
                    let path = self.path.join(name);
                    if path.exists() {
                        let json = read_json(&path)?;
                        ids.extend(listed_ids(&json["eos_token_id"]));
                        ids.extend(listed_ids(&json["text_config"]["eos_token_id"]));
                    }
                }
            }
        }
        ids.retain(|&id| (id as usize) < self.config.vocab);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// A file may say that its head is untied and yet have none: then it is the embedding.
    fn with_head(mut self) -> Result<Self> {
        if !self.config.tied && !self.source.has(&self.source.name(Role::Head, false)) {
            self.config.tied = true;
            self.warnings.push("the files have no output head; the embedding is used".to_owned());
        }
        Ok(self)
    }

    /// Refuse files that lack a tensor, before gigabytes are read.
    fn complete(self) -> Result<Self> {
        let head = (!self.config.tied).then_some(Role::Head);
        let roles = [Role::Embedding, Role::FinalNorm].into_iter().chain(head);
        for role in roles.chain(layer_roles(&self.config.layers)) {
            self.stored(role)?;
        }
        Ok(self)
    }
}

/// For each row in half-split order the row of the interleaved order that holds it: pair `j` of
/// a head is rows `2j, 2j + 1` there, and `j, j + head_dim/2` here.
fn half_split(rows: usize, head_dim: usize) -> impl ExactSizeIterator<Item = usize> {
    let half = head_dim / 2;
    (0..rows).map(move |row| {
        let (head, within) = (row / head_dim, row % head_dim);
        head * head_dim + 2 * (within % half) + within / half
    })
}

/// An id or a list of ids.
fn listed_ids(value: &Value) -> Vec<u32> {
    let one = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) => list.iter().filter_map(one).collect(),
        other => one(other).into_iter().collect(),
    }
}

/// The path of a directory's `config.json`.
fn config_file(dir: &Path) -> Result<PathBuf> {
    let file = dir.join("config.json");
    if !file.exists() {
        bail!(
            "{} has no config.json; name a directory with config.json and safetensors, or a \
             .gguf file",
            dir.display()
        );
    }
    Ok(file)
}

/// A draft: what it is and its weights.
#[derive(Debug)]
pub struct DraftFiles {
    /// What it is.
    pub config: DraftConfig,
    /// Its weights.
    pub source: Source,
    /// What its reader should be told.
    pub warnings: Vec<String>,
}

/// Open a draft for `target`: a directory with `config.json` and safetensors, or a GGUF file of
/// architecture `dflash`. `taps` replaces its target layers (`--dflash-layers`).
///
/// # Errors
/// When files are missing or damaged, the draft cannot be run or does not fit the target, or a
/// tensor is missing or has another shape than the configuration asks for.
pub fn open_draft(
    path: &Path,
    target: &DecoderConfig,
    taps: Option<&[usize]>,
) -> Result<DraftFiles> {
    if path.is_dir() {
        let config = config_file(path)?;
        let json = read_json(&config)?;
        let checked = DraftConfig::from_hf(&json, target, taps)
            .with_context(|| format!("cannot use the draft {}", config.display()))?;
        let source = Source::safetensors(SafetensorsFiles::open(path)?)?;
        let files = DraftFiles { config: checked.config, source, warnings: checked.warnings };
        return files.complete();
    }
    draft_gguf(GgufFile::open(path)?, target, taps)
}

/// Open a draft that is part of the program: the bytes of its GGUF file.
///
/// # Errors
/// As [`open_draft`].
pub fn open_embedded_draft(
    file: &'static [u8],
    target: &DecoderConfig,
    taps: Option<&[usize]>,
) -> Result<DraftFiles> {
    let file = GgufFile::from_bytes(Bytes::Static(file), "the built-in draft")?;
    draft_gguf(file, target, taps)
}

fn draft_gguf(
    file: GgufFile,
    target: &DecoderConfig,
    taps: Option<&[usize]>,
) -> Result<DraftFiles> {
    let checked = DraftConfig::from_gguf(&file, target, taps)
        .with_context(|| format!("cannot use the draft {}", file.name()))?;
    let source = Source::Gguf(file);
    DraftFiles { config: checked.config, source, warnings: checked.warnings }.complete()
}

impl DraftFiles {
    /// A tensor, with its shape checked against the configuration.
    ///
    /// # Errors
    /// When the draft has no such tensor or it has another shape.
    pub fn tensor(&self, role: Role) -> Result<RawTensor<'_>> {
        let c = &self.config;
        let shape = match role {
            Role::Embedding | Role::Head => vec![c.vocab, c.hidden],
            Role::FinalNorm | Role::HiddenNorm => vec![c.hidden],
            Role::Fc => vec![c.hidden, c.taps.len() * c.hidden],
            Role::SelectorHidden => vec![c.selector.map_or(0, |s| s.rank), c.hidden],
            Role::Predecessors | Role::Successors => {
                vec![c.proposed(), c.selector.map_or(0, |s| s.rank)]
            }
            Role::Layer(i, part) => part.shape(layer(&c.layers, i)?, c.hidden),
        };
        self.source.tensor(&self.source.name(role, false), &shape)
    }

    /// Give back the memory that holds a tensor of the file, until it is read again.
    pub fn release(&self, role: Role) {
        self.source.release(&self.source.name(role, false));
    }

    /// Whether the draft has this tensor: an embedding or a head of its own is optional, the
    /// target's is used otherwise.
    pub fn has(&self, role: Role) -> bool {
        self.source.has(&self.source.name(role, false))
    }

    fn complete(self) -> Result<Self> {
        let roles = [Role::Fc, Role::HiddenNorm, Role::FinalNorm].into_iter();
        let own = [Role::Embedding, Role::Head].into_iter().filter(|&role| self.has(role));
        let selector = [Role::SelectorHidden, Role::Predecessors, Role::Successors];
        let selector = selector.into_iter().filter(|_| self.config.selector.is_some());
        for role in roles.chain(own).chain(selector).chain(layer_roles(&self.config.layers)) {
            self.tensor(role)?;
        }
        Ok(self)
    }
}
