//! Small models for tests: a GGUF writer, and the same tiny model in both formats.

use super::role::{Part, Role};
use crate::model::config::DecoderConfig;
use serde_json::{Value, json};
use std::path::Path;

/// Writes a GGUF file of version 3.
#[derive(Debug, Clone, Default)]
pub(crate) struct GgufWriter {
    entries: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, Vec<usize>, u32, Vec<u8>)>,
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl GgufWriter {
    fn entry(&mut self, key: &str, kind: u32, value: &[u8]) -> &mut Self {
        self.entries.retain(|(known, _)| known != key);
        self.entries.push((key.to_owned(), [&kind.to_le_bytes(), value].concat()));
        self
    }

    fn array(&mut self, key: &str, kind: u32, count: usize, values: &[u8]) -> &mut Self {
        let head = [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat();
        self.entry(key, 9, &[&head, values].concat())
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.entry(key, 8, &string(value))
    }

    pub(crate) fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.entry(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.entry(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn flag(&mut self, key: &str, value: bool) -> &mut Self {
        self.entry(key, 7, &[u8::from(value)])
    }

    pub(crate) fn texts(&mut self, key: &str, values: &[&str]) -> &mut Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| string(v)).collect();
        self.array(key, 8, values.len(), &bytes)
    }

    pub(crate) fn i32s(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.array(key, 5, values.len(), &bytes)
    }

    pub(crate) fn f32s(&mut self, key: &str, values: &[f32]) -> &mut Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.array(key, 6, values.len(), &bytes)
    }

    pub(crate) fn flags(&mut self, key: &str, values: &[bool]) -> &mut Self {
        let bytes: Vec<u8> = values.iter().map(|&v| u8::from(v)).collect();
        self.array(key, 7, values.len(), &bytes)
    }

    pub(crate) fn remove(&mut self, name: &str) -> &mut Self {
        self.entries.retain(|(key, _)| key != name);
        self.tensors.retain(|(tensor, ..)| tensor != name);
        self
    }

    /// A tensor of the type with this number in `ggml.h`; `shape` outermost first.
    pub(crate) fn raw(
        &mut self,
        name: &str,
        shape: &[usize],
        kind: u32,
        bytes: &[u8],
    ) -> &mut Self {
        self.tensors.push((name.to_owned(), shape.to_vec(), kind, bytes.to_vec()));
        self
    }

    pub(crate) fn tensor(&mut self, name: &str, shape: &[usize], values: &[f32]) -> &mut Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.raw(name, shape, 0, &bytes)
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            out.extend(string(key));
            out.extend(value);
        }
        let mut data = Vec::new();
        for (name, shape, kind, bytes) in &self.tensors {
            out.extend(string(name));
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&d| out.extend((d as u64).to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend((data.len() as u64).to_le_bytes());
            data.extend(bytes);
            data.resize(data.len().next_multiple_of(32), 0);
        }
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(data);
        out
    }
}

/// A tiny target of a family (`llama`, `qwen2`, `qwen3`, `gemma3`, `gemma4`) as `config.json` and
/// as GGUF metadata, without tensors.
pub(crate) fn tiny(family: &str) -> (Value, GgufWriter) {
    let gemma = family.starts_with("gemma");
    let mut config = json!({
        "architectures": [format!("{}ForCausalLM", family[..1].to_uppercase() + &family[1..])],
        "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 6, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "tie_word_embeddings": gemma, "dtype": "float32",
    });
    let mut gguf = GgufWriter::default();
    let key = |name: &str| format!("{family}.{name}");
    gguf.text("general.architecture", family)
        .u32(&key("block_count"), 6)
        .u32(&key("embedding_length"), 32)
        .u32(&key("context_length"), 256)
        .u32(&key("feed_forward_length"), 48)
        .u32(&key("attention.head_count"), 4)
        .u32(&key("attention.head_count_kv"), 2)
        .u32(&key("attention.key_length"), 8)
        .f32(&key("attention.layer_norm_rms_epsilon"), 1e-6)
        .f32(&key("rope.freq_base"), 1e6);
    if gemma {
        config["sliding_window"] = json!(16);
        config["query_pre_attn_scalar"] = json!(8);
        gguf.u32(&key("attention.sliding_window"), 16);
    }
    if family == "gemma4" {
        config["hidden_size_per_layer_input"] = json!(0);
        config["attention_k_eq_v"] = json!(true);
        config["global_head_dim"] = json!(16);
        config["num_global_key_value_heads"] = json!(1);
        config["final_logit_softcapping"] = json!(30.0);
        let sliding = [true, true, true, true, true, false];
        gguf.u32(&key("attention.key_length"), 16)
            .u32(&key("attention.key_length_swa"), 8)
            .i32s(&key("attention.head_count_kv"), &[2, 2, 2, 2, 2, 1])
            .flags(&key("attention.sliding_window_pattern"), &sliding)
            .f32(&key("final_logit_softcapping"), 30.0)
            .tensor("rope_freqs.weight", &[8], &[1.0, 1.0, 1e30, 1e30, 1e30, 1e30, 1e30, 1e30]);
    }
    (config, gguf)
}

/// Roles and shapes of all tensors of a target.
pub(crate) fn roles(config: &DecoderConfig) -> Vec<(Role, Vec<usize>, bool)> {
    let matrix = vec![config.vocab, config.hidden];
    let mut roles = vec![
        (Role::Embedding, matrix.clone(), false),
        (Role::FinalNorm, vec![config.hidden], false),
    ];
    if !config.tied {
        roles.push((Role::Head, matrix, false));
    }
    for (i, layer) in config.layers.iter().enumerate() {
        let shape = |part: Part| part.shape(layer, config.hidden);
        roles.extend(
            Part::of(layer).map(|part| (Role::Layer(i, part), shape(part), layer.post_norms)),
        );
    }
    roles
}

/// Numbers that differ from tensor to tensor and from place to place.
pub(crate) fn numbers(name: &str, count: usize) -> Vec<f32> {
    let seed = name.bytes().fold(7u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
    (0..count as u32).map(|i| (seed.wrapping_add(i * 7919) % 10007) as f32 / 1000.0 - 5.0).collect()
}

/// Write f32 safetensors.
pub(crate) fn write_safetensors(path: &Path, tensors: &[(String, Vec<usize>)]) {
    std::fs::write(path, safetensors_bytes(tensors)).unwrap();
}

/// The bytes of an f32 safetensors file with [`numbers`] in it.
pub(crate) fn safetensors_bytes(tensors: &[(String, Vec<usize>)]) -> Vec<u8> {
    let data: Vec<(&String, &Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, shape)| {
            let values = numbers(name, shape.iter().product());
            (name, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect())
        })
        .collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes);
        (name.as_str(), view.unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}
