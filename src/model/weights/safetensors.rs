//! Safetensors files: one, or several with an index.

use super::{Bytes, RawTensor, read_json};
use anyhow::{Context, Result, bail};
use candle_core::quantized::GgmlDType;
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

/// Most files that a model may be split into.
const MAX_SHARDS: usize = 1024;
/// The name of an unsplit model's weights.
const SINGLE: &str = "model.safetensors";
/// The name of a split model's list of tensors.
const INDEX: &str = "model.safetensors.index.json";

/// A tensor's place.
#[derive(Debug, Clone)]
struct Place {
    shard: usize,
    shape: Vec<usize>,
    dtype: Dtype,
    range: Range<usize>,
}

/// The weights of a model in safetensors files, all of them mapped and checked.
#[derive(Debug)]
pub struct SafetensorsFiles {
    name: String,
    shards: Vec<Bytes>,
    places: BTreeMap<String, Place>,
}

impl SafetensorsFiles {
    /// Open a directory's `model.safetensors`, or all files that its index lists.
    ///
    /// # Errors
    /// When a file is missing, damaged or cut short, or lacks a tensor that the index promises.
    pub fn open(dir: &Path) -> Result<Self> {
        let mut files =
            Self { name: dir.display().to_string(), shards: Vec::new(), places: BTreeMap::new() };
        let index = dir.join(INDEX);
        if !index.exists() {
            let single = dir.join(SINGLE);
            if !single.exists() {
                bail!("{} has neither {SINGLE} nor {INDEX}; download it again", dir.display());
            }
            files.add(Bytes::map(&single)?, &single.display().to_string())?;
            return Ok(files);
        }
        let listed = weight_map(&index)?;
        let shards: BTreeSet<&str> = listed.values().map(String::as_str).collect();
        if shards.is_empty() || shards.len() > MAX_SHARDS {
            bail!("{} lists {} files", index.display(), shards.len());
        }
        for shard in shards {
            let path = dir.join(shard);
            files.add(Bytes::map(&path)?, &path.display().to_string())?;
        }
        match listed.keys().find(|tensor| !files.has(tensor)) {
            Some(tensor) => bail!(
                "{} lists tensor {tensor}, but no file has it; download it again",
                index.display()
            ),
            None => Ok(files),
        }
    }

    /// Read a single file's bytes; `name` is for messages.
    ///
    /// # Errors
    /// When they are damaged or cut short.
    pub fn from_bytes(bytes: Bytes, name: &str) -> Result<Self> {
        let mut files = Self { name: name.to_owned(), shards: Vec::new(), places: BTreeMap::new() };
        files.add(bytes, name)?;
        Ok(files)
    }

    fn add(&mut self, bytes: Bytes, name: &str) -> Result<()> {
        // The crate checks that tensors fit their shapes and fill the file exactly.
        let tensors = SafeTensors::deserialize(&bytes).with_context(|| {
            format!("{name} is not a whole safetensors file; download it again")
        })?;
        let base = bytes.as_ptr() as usize;
        for (tensor, view) in tensors.iter() {
            let start = view.data().as_ptr() as usize - base;
            let place = Place {
                shard: self.shards.len(),
                shape: view.shape().to_vec(),
                dtype: view.dtype(),
                range: start..start + view.data().len(),
            };
            if self.places.insert(tensor.to_owned(), place).is_some() {
                bail!("tensor {tensor} is in two files; the second is {name}");
            }
        }
        self.shards.push(bytes);
        Ok(())
    }

    /// Where the files lie, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A tensor of type f32, f16 or bf16.
    ///
    /// # Errors
    /// When there is none of that name or it is of another type.
    pub fn tensor(&self, name: &str) -> Result<RawTensor<'_>> {
        let Some(place) = self.places.get(name) else {
            bail!("{} has no tensor {name}", self.name);
        };
        let Some(dtype) = dtype(place.dtype) else {
            bail!(
                "tensor {name} is of type {:?}; f32, f16 and bf16 are supported (or a GGUF file)",
                place.dtype
            );
        };
        Ok(RawTensor {
            name: name.to_owned(),
            shape: place.shape.clone(),
            dtype,
            bytes: Cow::Borrowed(&self.shards[place.shard][place.range.clone()]),
        })
    }

    /// Give back the memory that holds a tensor, until it is read again.
    pub fn release(&self, name: &str) {
        if let Some(place) = self.places.get(name) {
            self.shards[place.shard].release(place.range.clone());
        }
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Names, types and bytes of the tensors of a supported type.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, GgmlDType, u64)> {
        self.places
            .iter()
            .filter_map(|(name, p)| Some((name.as_str(), dtype(p.dtype)?, p.range.len() as u64)))
    }
}

fn dtype(dtype: Dtype) -> Option<GgmlDType> {
    match dtype {
        Dtype::F32 => Some(GgmlDType::F32),
        Dtype::F16 => Some(GgmlDType::F16),
        Dtype::BF16 => Some(GgmlDType::BF16),
        _ => None,
    }
}

/// The index's `weight_map`: tensor → file beside the index.
fn weight_map(index: &Path) -> Result<BTreeMap<String, String>> {
    let json = read_json(index)?;
    let Some(map) = json.get("weight_map").and_then(|map| map.as_object()) else {
        bail!("{} has no weight_map; download it again", index.display());
    };
    map.iter()
        .map(|(tensor, file)| match file.as_str() {
            // Only names of files beside the index, nothing that leads elsewhere.
            Some(file) if !file.contains(['/', '\\']) && file.ends_with(".safetensors") => {
                Ok((tensor.clone(), file.to_owned()))
            }
            _ => bail!("{} names a file {file} for {tensor}", index.display()),
        })
        .collect()
}
