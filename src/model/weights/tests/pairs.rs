//! Whole targets and drafts, the same tiny model in both formats.

use crate::model::config::DecoderConfig;
use crate::model::weights::testing::{GgufWriter, numbers, roles, tiny, write_safetensors};
use crate::model::weights::{
    Part, Role, TargetFiles, open_draft, open_embedded_draft, open_target,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn message<T>(result: anyhow::Result<T>) -> String {
    result.err().map(|e| format!("{e:#}")).expect("an error")
}

fn write_config(dir: &Path, config: &Value) {
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

/// A model directory whose tensors' names begin with `prefix`.
fn directory(dir: &Path, config: &Value, prefix: &str) -> anyhow::Result<TargetFiles> {
    write_config(dir, config);
    let decoder = DecoderConfig::from_hf(config).unwrap().config;
    let tensors: Vec<_> = roles(&decoder)
        .into_iter()
        .map(|(role, shape, post_norms)| (role.hf(prefix, post_norms), shape))
        .collect();
    write_safetensors(&dir.join("model.safetensors"), &tensors);
    open_target(dir)
}

/// The same numbers in a GGUF file, with the rows of q and k interleaved as llama.cpp's
/// converter does it for `llama`.
fn gguf(mut writer: GgufWriter, config: &DecoderConfig) -> GgufWriter {
    for (role, shape, post_norms) in roles(config) {
        let mut values = numbers(&role.hf("model.", post_norms), shape.iter().product());
        if let (Role::Layer(_, Part::Q | Part::K), "llama") = (role, config.architecture.as_str()) {
            // reshape(heads, 2, head_dim / 2, width).swapaxes(1, 2)
            let (width, head_dim) = (shape[1], 8);
            let mut interleaved = Vec::new();
            for head in 0..shape[0] / head_dim {
                for j in 0..head_dim / 2 {
                    for half in 0..2 {
                        let row = head * head_dim + half * head_dim / 2 + j;
                        interleaved.extend_from_slice(&values[row * width..(row + 1) * width]);
                    }
                }
            }
            values = interleaved;
        }
        writer.tensor(&role.gguf(), &shape, &values);
    }
    writer
}

#[test]
fn both_formats_give_the_same_model() {
    for family in ["llama", "qwen2", "qwen3", "gemma3", "gemma4"] {
        let (config, writer) = tiny(family);
        let dir = tempfile::tempdir().unwrap();
        let hf = directory(dir.path(), &config, "model.").unwrap();
        let path = dir.path().join("model.gguf");
        // Whether q, k, v have biases is known by their presence.
        fs::write(&path, gguf(writer, &hf.config).build()).unwrap();
        let gguf = open_target(&path).unwrap();

        let mut expected = hf.config.clone();
        expected.norm_adds_one = false;
        assert_eq!(gguf.config, expected, "{family}");
        for (role, ..) in roles(&hf.config) {
            let from = |files: &TargetFiles| files.tensor(role).unwrap().to_f32().unwrap();
            assert_eq!(from(&hf), from(&gguf), "{family} {role:?}");
        }
        assert_eq!(hf.source.kinds(), "F32");
        assert!(hf.source.bytes() > 0 && hf.source.gguf().is_none());
    }
}

#[test]
fn quantised_rows_move_whole() {
    let (mut config, mut writer) = tiny("llama");
    config["tie_word_embeddings"] = json!(true);
    let decoder = DecoderConfig::from_hf(&config).unwrap().config;
    for (role, shape, _) in roles(&decoder) {
        // Q8_0 blocks of 34 bytes, one a row of 32; each row holds its own number.
        let rows = |n: usize| (0..n).flat_map(|row| [row as u8; 34]).collect::<Vec<_>>();
        match role {
            Role::Layer(_, Part::Q) => writer.raw(&role.gguf(), &shape, 8, &rows(shape[0])),
            _ => writer.tensor(&role.gguf(), &shape, &vec![1.0; shape.iter().product()]),
        };
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    fs::write(&path, writer.build()).unwrap();
    let target = open_target(&path).unwrap();
    let tensor = target.tensor(Role::Layer(0, Part::Q)).unwrap();
    let order: Vec<u8> = tensor.bytes.chunks_exact(34).map(|row| row[0]).collect();
    assert_eq!(order[..16], [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15]);
    assert!(tensor.bytes.chunks_exact(34).all(|row| row.iter().all(|&b| b == row[0])));
}

#[test]
fn the_known_prefixes_are_found() {
    for prefix in ["model.", "model.language_model.", "language_model.model."] {
        let (config, _) = tiny("qwen3");
        let dir = tempfile::tempdir().unwrap();
        let target = directory(dir.path(), &config, prefix).unwrap();
        target.tensor(Role::Head).unwrap();
        target.tensor(Role::Layer(5, Part::KNorm)).unwrap();
    }
}

#[test]
fn gemma_norms_are_told_apart() {
    let (config, _) = tiny("gemma3");
    let dir = tempfile::tempdir().unwrap();
    let target = directory(dir.path(), &config, "model.").unwrap();
    let name = |part| target.tensor(Role::Layer(1, part)).unwrap().name;
    assert_eq!(name(Part::FfnNorm), "model.layers.1.pre_feedforward_layernorm.weight");
    assert_eq!(name(Part::PostAttnNorm), "model.layers.1.post_attention_layernorm.weight");
    let (config, _) = tiny("llama");
    let dir = tempfile::tempdir().unwrap();
    let target = directory(dir.path(), &config, "model.").unwrap();
    let tensor = target.tensor(Role::Layer(1, Part::FfnNorm)).unwrap();
    assert_eq!(tensor.name, "model.layers.1.post_attention_layernorm.weight");
}

#[test]
fn missing_and_misshapen_tensors_are_named_when_opened() {
    let (config, writer) = tiny("llama");
    let decoder = DecoderConfig::from_hf(&config).unwrap().config;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let open = |writer: &GgufWriter| {
        fs::write(&path, writer.build()).unwrap();
        message(open_target(&path))
    };
    let mut lacking = gguf(writer.clone(), &decoder);
    lacking.remove("blk.3.ffn_up.weight");
    assert!(open(&lacking).contains("has no tensor blk.3.ffn_up.weight"));
    lacking.tensor("blk.3.ffn_up.weight", &[32, 48], &[0.0; 32 * 48]);
    assert!(open(&lacking).contains(
        "tensor blk.3.ffn_up.weight has shape [32, 48], the configuration asks for [48, 32]"
    ));
}

#[test]
fn an_untied_model_without_a_head_uses_its_embedding() {
    let (mut config, _) = tiny("qwen3");
    config["tie_word_embeddings"] = json!(true);
    let dir = tempfile::tempdir().unwrap();
    directory(dir.path(), &config, "model.").unwrap();
    config["tie_word_embeddings"] = json!(false);
    write_config(dir.path(), &config);
    let target = open_target(dir.path()).unwrap();
    assert!(target.config.tied);
    assert!(target.warnings.iter().any(|w| w.contains("no output head")));
}

/// B23: every end token counts, wherever it is said.
#[test]
fn end_tokens_of_all_sources() {
    let (mut config, mut writer) = tiny("qwen3");
    config["eos_token_id"] = json!(7);
    let dir = tempfile::tempdir().unwrap();
    let target = directory(dir.path(), &config, "model.").unwrap();
    assert_eq!(target.end_tokens().unwrap(), [7]);
    let generation = dir.path().join("generation_config.json");
    // 64 is outside the vocabulary.
    fs::write(&generation, json!({"eos_token_id": [9, 7, 64, -1, "x"]}).to_string()).unwrap();
    assert_eq!(target.end_tokens().unwrap(), [7, 9]);
    fs::write(&generation, "{").unwrap();
    assert!(message(target.end_tokens()).contains("generation_config.json"));

    let path = dir.path().join("m.gguf");
    writer.u32("tokenizer.ggml.eos_token_id", 5).u32("tokenizer.ggml.eot_token_id", 3);
    fs::write(&path, gguf(writer, &target.config).build()).unwrap();
    assert_eq!(open_target(&path).unwrap().end_tokens().unwrap(), [3, 5]);
}

fn draft_config() -> Value {
    json!({
        "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": 64,
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "block_size": 4, "num_target_layers": 6,
        "dflash_config": {"target_layer_ids": [1, 3, 5], "mask_token_id": 63},
    })
}

fn draft_tensors(prefix: &str) -> Vec<(String, Vec<usize>)> {
    let (mut config, _) = tiny("qwen3");
    config["num_hidden_layers"] = json!(2);
    let decoder = DecoderConfig::from_hf(&config).unwrap().config;
    let own = [("fc.weight", vec![32, 96]), ("hidden_norm.weight", vec![32])];
    roles(&decoder)
        .into_iter()
        .filter(|(role, ..)| !matches!(role, Role::Embedding | Role::Head))
        .map(|(role, shape, _)| (role.hf(prefix, false), shape))
        .chain(own.map(|(name, shape)| (format!("{prefix}{name}"), shape)))
        .collect()
}

#[test]
fn drafts_open_from_directories_memory_and_gguf() {
    let target = DecoderConfig::from_hf(&tiny("llama").0).unwrap().config;
    for prefix in ["", "model."] {
        let dir = tempfile::tempdir().unwrap();
        write_config(dir.path(), &draft_config());
        let weights = dir.path().join("model.safetensors");
        let mut tensors = draft_tensors(prefix);
        write_safetensors(&weights, &tensors);
        let draft = open_draft(dir.path(), &target, None).unwrap();
        assert_eq!(draft.config.taps, [1, 3, 5]);
        assert_eq!(draft.tensor(Role::Fc).unwrap().shape, [32, 96]);
        assert!(!draft.has(Role::Embedding));

        // A draft with an embedding of its own (B37).
        tensors.push((format!("{prefix}embed_tokens.weight"), vec![64, 32]));
        write_safetensors(&weights, &tensors);
        let draft = open_draft(dir.path(), &target, None).unwrap();
        assert_eq!(draft.tensor(Role::Embedding).unwrap().shape, [64, 32]);

        // Two taps do not fit an fc for three.
        let error = message(open_draft(dir.path(), &target, Some(&[0, 2])));
        assert!(error.contains("shape [32, 96], the configuration asks for [32, 64]"), "{error}");
        let draft = open_draft(dir.path(), &target, Some(&[0, 2, 4])).unwrap();
        assert_eq!(draft.config.taps, [0, 2, 4]);
    }

    let dir = tempfile::tempdir().unwrap();
    write_config(dir.path(), &draft_config());
    write_safetensors(&dir.path().join("model.safetensors"), &draft_tensors(""));
    let expected = open_draft(dir.path(), &target, None).unwrap();
    let path = dir.path().join("draft.gguf");
    fs::write(&path, gguf_draft().build()).unwrap();
    let draft = open_draft(&path, &target, None).unwrap();
    let mut config = draft.config.clone();
    config.architecture = "DFlashDraftModel".to_owned();
    config.num_target_layers = Some(6);
    assert_eq!(config, expected.config);
    for role in [Role::Fc, Role::HiddenNorm, Role::FinalNorm, Role::Layer(1, Part::Q)] {
        draft.tensor(role).unwrap();
    }

    // The same from memory, with a vocabulary of its own.
    let file = gguf_draft().i32s("dflash.draft_vocabulary", &[5, 9, 60]).build().leak();
    let embedded = open_embedded_draft(file, &target, None).unwrap();
    assert_eq!(embedded.config.vocabulary, Some(vec![5, 9, 60]));
    for (ids, complaint) in [(&[5, 64][..], "names token 64"), (&[-1], "names token -1")] {
        let file = gguf_draft().i32s("dflash.draft_vocabulary", ids).build().leak();
        assert!(message(open_embedded_draft(file, &target, None)).contains(complaint));
    }
}

/// As `draft_to_gguf.py` and llama.cpp's converter write it: layer ids name inputs.
fn gguf_draft() -> GgufWriter {
    let mut writer = GgufWriter::default();
    writer
        .text("general.architecture", "dflash")
        .u32("dflash.block_count", 2)
        .u32("dflash.context_length", 256)
        .u32("dflash.embedding_length", 32)
        .u32("dflash.feed_forward_length", 48)
        .u32("dflash.attention.head_count", 4)
        .u32("dflash.attention.head_count_kv", 2)
        .u32("dflash.attention.key_length", 8)
        .u32("dflash.attention.value_length", 8)
        .u32("dflash.vocab_size", 64)
        .u32("dflash.block_size", 4)
        .f32("dflash.rope.freq_base", 1e6)
        .f32("dflash.attention.layer_norm_rms_epsilon", 1e-6)
        .i32s("dflash.target_layers", &[2, 4, 6])
        .u32("tokenizer.ggml.mask_token_id", 63);
    let (mut config, _) = tiny("qwen3");
    config["num_hidden_layers"] = json!(2);
    let decoder = DecoderConfig::from_hf(&config).unwrap().config;
    for (role, shape, _) in roles(&decoder) {
        if !matches!(role, Role::Embedding | Role::Head) {
            writer.tensor(&role.gguf(), &shape, &vec![0.5; shape.iter().product()]);
        }
    }
    writer.tensor("fc.weight", &[32, 96], &[0.5; 32 * 96]);
    writer.tensor("enc.output_norm.weight", &[32], &[0.5; 32]);
    writer
}

#[test]
fn gguf_drafts_that_cannot_run_are_named() {
    let target = DecoderConfig::from_hf(&tiny("llama").0).unwrap().config;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("draft.gguf");
    let open = |change: &dyn Fn(&mut GgufWriter)| {
        let mut writer = gguf_draft();
        change(&mut writer);
        fs::write(&path, writer.build()).unwrap();
        message(open_draft(&path, &target, None))
    };
    let one = |name: &'static str| move |w: &mut GgufWriter| _ = w.tensor(name, &[1], &[0.0]);
    assert!(open(&one("selector_hidden.weight")).contains("no dflash.selector_rank"));
    let selector = |w: &mut GgufWriter| {
        w.u32("dflash.selector_rank", 4);
        w.u32("dflash.selector_top_k", 2);
    };
    assert!(open(&selector).contains("selector_hidden.weight"));
    let convolution = |w: &mut GgufWriter| {
        w.u32("dflash.conv_kernel_size", 2);
        w.u32("dflash.conv_group_size", 8);
    };
    assert!(open(&convolution).contains("blk.0.attn_conv_base"));
    assert!(open(&one("markov_w1.weight")).contains("DSpark"));
    assert!(open(&one("d2t")).contains("vocabulary of its own"));
    assert!(
        open(&|w| _ = w.text("general.architecture", "eagle3")).contains("architecture eagle3")
    );
    assert!(open(&|w| _ = w.i32s("dflash.target_layers", &[0, 4, 6])).contains("target layer 0"));
    assert!(open(&|w| _ = w.i32s("dflash.target_layers", &[2, 4, 7])).contains("layer 6, but"));
    assert!(open(&|w| _ = w.remove("dflash.block_size")).contains("has no dflash.block_size"));
    assert!(
        open(&|w| _ = w.u32("dflash.vocab_size", 65)).contains("has 65 entries, the target's 64")
    );
}

#[test]
fn what_is_no_model_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    assert!(message(open_target(dir.path())).contains("has no config.json"));
    assert!(message(open_target(&dir.path().join("absent.gguf"))).contains("cannot open"));
    let path = dir.path().join("empty.gguf");
    fs::write(&path, b"").unwrap();
    assert!(message(open_target(&path)).contains("is empty"));
    fs::write(&path, gguf_draft().build()).unwrap();
    assert!(message(open_target(&path)).contains("pass it with --draft"));
}
