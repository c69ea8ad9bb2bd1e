use super::{laid_over, message};
use crate::model::config::{DecoderConfig, LayerConfig};
use crate::model::ops::Activation;
use crate::model::weights::Bytes;
use crate::model::weights::gguf::GgufFile;
use crate::model::weights::testing::{GgufWriter, tiny};
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(config: &Value) -> DecoderConfig {
    DecoderConfig::from_hf(config).unwrap().config
}

fn refused(family: &str, over: Value) -> String {
    message(DecoderConfig::from_hf(&laid_over(&tiny(family).0, &over)))
}

fn from_gguf(writer: &GgufWriter) -> anyhow::Result<DecoderConfig> {
    let file = GgufFile::from_bytes(Bytes::Owned(writer.build()), "a.gguf")?;
    Ok(DecoderConfig::from_gguf(&file)?.config)
}

fn windows(layers: &[LayerConfig]) -> Vec<Option<usize>> {
    layers.iter().map(|layer| layer.attention.window).collect()
}

/// Qwen3-4B's `config.json`.
pub(super) fn qwen3_4b() -> Value {
    json!({
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "bos_token_id": 151643,
        "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560,
        "intermediate_size": 9728, "max_position_embeddings": 40960, "max_window_layers": 36,
        "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null,
        "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936,
    })
}

#[test]
fn qwen3_has_head_norms_and_its_own_head_width() {
    let config = read(&qwen3_4b());
    assert_eq!(config.architecture, "qwen3");
    assert_eq!((config.layers.len(), config.hidden, config.vocab), (36, 2560, 151936));
    let layer = &config.layers[35];
    assert!(layer.qk_norm && !layer.qkv_bias && !layer.post_norms && config.tied);
    assert_eq!(layer.attention.qkv_width(), 48 * 128);
    assert_eq!(layer.attention.scale, 128f32.powf(-0.5));
    assert_eq!(windows(&config.layers), vec![None; 36]);
    assert_eq!(layer.rope.inv_freq[64 / 2], 1e6f64.powf(-0.5));
}

#[test]
fn llama_3_1_scales_its_rope() {
    let config = read(&json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "tie_word_embeddings": false, "vocab_size": 128256,
    }));
    let layer = &config.layers[0];
    assert_eq!((layer.attention.head_dim, layer.activation), (128, Activation::Silu));
    let slowest = layer.rope.inv_freq[63];
    assert!((slowest - 500000f64.powf(-126.0 / 128.0) / 8.0).abs() < 1e-12);
    assert_eq!(layer.rope.inv_freq[0], 1.0);
    assert!(!config.tied && !layer.qk_norm && config.embedding_scale == 1.0);
}

#[test]
fn qwen2_has_biases_and_its_late_layers_may_slide() {
    let (config, _) = tiny("qwen2");
    let plain = read(&config);
    assert!(plain.layers.iter().all(|l| l.qkv_bias && !l.qk_norm));
    let sliding = read(&laid_over(
        &config,
        &json!({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 4}),
    ));
    assert_eq!(windows(&sliding.layers), [None, None, None, None, Some(9), Some(9)]);
}

#[test]
fn gemma3_fills_what_published_files_leave_out() {
    // As in gemma-3-4b-it.
    let checked = DecoderConfig::from_hf(&json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16",
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
            "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
        "vision_config": {"hidden_size": 1152},
    }))
    .unwrap();
    assert!(checked.warnings[0].contains("only its text part"));
    let config = checked.config;
    assert_eq!((config.vocab, config.max_positions, config.tied), (262_208, 131_072, true));
    // √2560 = 50.596… in bf16.
    assert_eq!(config.embedding_scale, 50.5);
    assert!(config.norm_adds_one);
    let [sliding, full] = [&config.layers[4], &config.layers[5]];
    assert_eq!((sliding.attention.window, full.attention.window), (Some(1024), None));
    assert_eq!(
        (full.attention.heads, full.attention.kv_heads, full.attention.head_dim),
        (8, 4, 256)
    );
    assert_eq!(full.attention.scale, 1.0 / 16.0);
    assert_eq!((sliding.rope.inv_freq[0], full.rope.inv_freq[0]), (1.0, 0.125));
    assert_eq!(sliding.rope.inv_freq[64], 1e4f64.powf(-0.5));
    assert_eq!(full.rope.inv_freq[64], 1e6f64.powf(-0.5) / 8.0);
    assert!(full.post_norms && full.qk_norm && full.activation == Activation::GeluTanh);
}

#[test]
fn gemma3_27b_scales_by_its_own_number() {
    let config = read(&laid_over(
        &tiny("gemma3").0,
        &json!({"query_pre_attn_scalar": 168, "dtype": "float16"}),
    ));
    assert_eq!(config.layers[0].attention.scale, 168f32.powf(-0.5));
    assert_eq!(config.embedding_scale, half::f16::from_f32(32f32.sqrt()).to_f32());
}

#[test]
fn gemma4_global_layers_differ() {
    // As in gemma-4-31B-it.
    let kinds: Vec<&str> =
        (1..=60).map(|i| if i % 6 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    let published = json!({
        "architectures": ["Gemma4ForConditionalGeneration"], "dtype": "bfloat16",
        "text_config": {
            "attention_k_eq_v": true, "final_logit_softcapping": 30.0, "global_head_dim": 512,
            "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 5376,
            "hidden_size_per_layer_input": 0, "intermediate_size": 21504, "layer_types": kinds,
            "max_position_embeddings": 262144, "num_attention_heads": 32,
            "num_global_key_value_heads": 4, "num_hidden_layers": 60, "num_key_value_heads": 16,
            "num_kv_shared_layers": 0, "rms_norm_eps": 1e-06,
            "rope_parameters": {
                "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                    "rope_type": "proportional"},
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
            "sliding_window": 1024, "tie_word_embeddings": true,
            "use_bidirectional_attention": "vision", "vocab_size": 262144},
    });
    let config = read(&published);
    assert!(!config.norm_adds_one && config.tied);
    assert_eq!(config.final_softcap, Some(30.0));
    assert_eq!(config.embedding_scale, 73.5);
    let (sliding, full) = (&config.layers[0], &config.layers[59]);
    assert_eq!(sliding.attention.qkv_width(), (32 + 2 * 16) * 256);
    assert_eq!(sliding.rope.inv_freq.len(), 128);
    // Keys serve as values, and a quarter of the pairs turns.
    assert_eq!(full.attention.qkv_width(), (32 + 4) * 512);
    assert_eq!(full.rope.inv_freq.len(), 64);
    assert_eq!(full.rope.inv_freq[32], 1e6f64.powf(-64.0 / 512.0));
    for layer in [sliding, full] {
        assert_eq!((layer.attention.scale, layer.attention.value_norm), (1.0, Some(1e-6)));
        assert!(layer.layer_scalar && layer.post_norms && layer.qk_norm);
    }
    assert_eq!((sliding.attention.window, full.attention.window), (Some(1024), None));

    // transformers 5.24 writes the sizes of single layers instead of the global keys.
    let sizes: serde_json::Map<String, Value> = (0..60)
        .filter(|i| i % 6 == 5)
        .map(|i| (format!("{i:02}"), json!({"head_dim": 512, "num_key_value_heads": 4})))
        .collect();
    let rewritten = laid_over(
        &published,
        &json!({"text_config": {"global_head_dim": null, "num_global_key_value_heads": null,
            "per_layer_config": sizes}}),
    );
    assert_eq!(read(&rewritten), config);

    // The "unified" 12B has no per-layer inputs at all; its text part says so by its type.
    let unified = laid_over(
        &published,
        &json!({"architectures": ["Gemma4UnifiedForConditionalGeneration"],
            "text_config": {"hidden_size_per_layer_input": null,
                "model_type": "gemma4_unified_text", "attention_k_eq_v": false}}),
    );
    let unified = read(&unified);
    assert_eq!(unified.layers[59].attention.kv_heads, 16);
    assert!(!unified.layers[59].attention.values_are_keys);
}

#[test]
fn unsupported_architectures_are_named_with_the_reason() {
    let named = |architecture: &str| refused("llama", json!({"architectures": [architecture]}));
    for (architecture, reason) in [
        ("Qwen3MoeForCausalLM", "mixture of experts"),
        ("MixtralForCausalLM", "mixture of experts"),
        ("Qwen3_5ForConditionalGeneration", "linear attention"),
        ("Qwen3NextForCausalLM", "linear attention"),
        ("Qwen2_5_VLForConditionalGeneration", "image or audio"),
        ("LlavaForConditionalGeneration", "image or audio"),
        ("DFlashDraftModel", "pass it with --draft"),
        ("PhiForCausalLM", "is not supported; Llama, Qwen2, Qwen3"),
    ] {
        let error = named(architecture);
        assert!(error.contains(architecture) && error.contains(reason), "{error}");
    }
    assert!(refused("llama", json!({"architectures": []})).contains("name its architecture"));
    assert!(message(DecoderConfig::from_hf(&json!([1]))).contains("not a JSON object"));
}

#[test]
fn unsupported_features_are_named() {
    for (family, over, reason) in [
        ("llama", json!({"attention_bias": true}), "attention_bias"),
        ("llama", json!({"mlp_bias": true}), "mlp_bias"),
        ("qwen3", json!({"num_experts": 8}), "num_experts"),
        ("qwen3", json!({"hidden_act": "relu"}), "activation \"relu\""),
        ("qwen3", json!({"quantization_config": {"bits": 4}}), "quantization_config"),
        ("qwen3", json!({"layer_types": vec!["linear_attention"; 6]}), "hybrid"),
        ("qwen3", json!({"layer_types": ["full_attention"]}), "layer_types has 1 entries"),
        ("qwen3", json!({"rope_theta": null}), "rope_theta is missing"),
        (
            "qwen3",
            json!({"layer_types": vec!["sliding_attention"; 6]}),
            "sliding_window is missing",
        ),
        ("gemma3", json!({"use_bidirectional_attention": true}), "both directions"),
        ("gemma4", json!({"use_bidirectional_attention": "all"}), "both directions"),
        ("gemma4", json!({"hidden_size_per_layer_input": 256}), "E2B and E4B"),
        ("gemma4", json!({"hidden_size_per_layer_input": null}), "E2B and E4B"),
        ("gemma4", json!({"num_kv_shared_layers": 2}), "share keys and values"),
        ("gemma4", json!({"enable_moe_block": true}), "mixture of experts"),
    ] {
        let error = refused(family, over);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn sizes_outside_sane_limits_are_refused() {
    for (over, reason) in [
        (json!({"num_hidden_layers": 513}), "num_hidden_layers is 513; it must be from 1 to 512"),
        (json!({"num_hidden_layers": 4294967296u64}), "must be from 1 to 512"),
        (json!({"num_hidden_layers": 0}), "num_hidden_layers is 0"),
        (json!({"hidden_size": 65537}), "hidden size"),
        (json!({"vocab_size": 1048577}), "vocabulary"),
        (json!({"vocab_size": -3}), "vocab_size should be a count but is -3"),
        (json!({"vocab_size": null}), "vocab_size is missing"),
        (json!({"head_dim": 514}), "head_dim is 514"),
        (json!({"head_dim": 7}), "rope needs an even one"),
        (json!({"num_attention_heads": 0, "head_dim": null}), "num_attention_heads is 0"),
        (json!({"num_key_value_heads": 3}), "4 heads cannot share 3 key and value heads"),
        (json!({"num_key_value_heads": 0}), "key and value heads is 0"),
        (json!({"intermediate_size": 1 << 20}), "feed-forward"),
        (json!({"rms_norm_eps": 0.0}), "epsilon is 0"),
        (json!({"rms_norm_eps": "x"}), "rms_norm_eps should be a number"),
        (json!({"max_position_embeddings": 0}), "positions"),
    ] {
        let error = refused("llama", over);
        assert!(error.contains(reason), "{error}");
    }
}

/// B33: an error about a GGUF file names the architecture that was found.
#[test]
fn gguf_errors_name_the_architecture() {
    let mut gemma2 = tiny("gemma3").1;
    gemma2.text("general.architecture", "gemma2");
    gemma2.tensor("token_embd.weight", &[64, 32], &[0.0; 2048]);
    assert_eq!(
        message(from_gguf(&gemma2)),
        "a.gguf is of architecture gemma2, which is not supported as a target (llama, qwen2, \
         qwen3, gemma3, gemma4 are)"
    );
    let lacking = |family: &str, key: &str| {
        let mut writer = tiny(family).1;
        writer.tensor("token_embd.weight", &[64, 32], &[0.0; 2048]);
        writer.remove(&format!("{family}.{key}"));
        message(from_gguf(&writer))
    };
    assert_eq!(
        lacking("gemma3", "attention.head_count"),
        "a.gguf (architecture gemma3) has no gemma3.attention.head_count"
    );
    assert!(
        lacking("llama", "block_count").contains("(architecture llama) has no llama.block_count")
    );
    let nameless = GgufWriter::default();
    assert!(message(from_gguf(&nameless)).contains("general.architecture"));
    let without = tiny("qwen3").1;
    assert!(message(from_gguf(&without)).contains("token_embd.weight"));
}

/// B33: what files leave out.
#[test]
fn gguf_files_may_leave_keys_out() {
    let mut writer = tiny("llama").1;
    writer
        .tensor("token_embd.weight", &[64, 32], &[0.0; 2048])
        .remove("llama.attention.key_length")
        .remove("llama.attention.head_count_kv")
        .remove("llama.rope.freq_base");
    let config = from_gguf(&writer).unwrap();
    let layer = &config.layers[0];
    assert_eq!((layer.attention.head_dim, layer.attention.kv_heads), (8, 4));
    assert_eq!(layer.rope.inv_freq[2], 1e4f64.powf(-0.5));
    assert!(config.tied);
    writer.tensor("output.weight", &[64, 32], &[0.0; 2048]);
    assert!(!from_gguf(&writer).unwrap().tied);
    // Llama 3's rope scaling is a tensor.
    writer.tensor("rope_freqs.weight", &[4], &[1.0, 1.0, 2.0, 8.0]);
    let scaled = from_gguf(&writer).unwrap();
    assert_eq!(scaled.layers[0].rope.inv_freq[2], 1e4f64.powf(-0.5) / 2.0);
    writer.u32("split.count", 3);
    assert!(message(from_gguf(&writer)).contains("one of 3 parts"));
    writer.u32("llama.expert_count", 8);
    assert!(message(from_gguf(&writer)).contains("mixture of experts"));
}

#[test]
fn gguf_rope_scaling_and_partial_rope() {
    let with = |kind: &str, factor: f32| {
        let mut writer = tiny("qwen3").1;
        writer
            .tensor("token_embd.weight", &[64, 32], &[0.0; 2048])
            .text("qwen3.rope.scaling.type", kind)
            .f32("qwen3.rope.scaling.factor", factor)
            .u32("qwen3.rope.scaling.original_context_length", 64);
        writer
    };
    let layer = |writer: &GgufWriter| from_gguf(writer).unwrap().layers.remove(0);
    assert_eq!(layer(&with("linear", 4.0)).rope.inv_freq[0], 0.25);
    let yarn = layer(&with("yarn", 4.0)).rope;
    assert!((yarn.magnitude - 1.138629436111989).abs() < 1e-9);
    assert!(message(from_gguf(&with("longrope", 4.0))).contains("\"longrope\" is not supported"));
    assert!(message(from_gguf(&with("linear", 0.0))).contains("positive"));
    let mut partial = tiny("qwen3").1;
    partial
        .tensor("token_embd.weight", &[64, 32], &[0.0; 2048])
        .u32("qwen3.rope.dimension_count", 4);
    assert!(message(from_gguf(&partial)).contains("rope on a part of the head"));
}

#[test]
fn gguf_gemma_refusals() {
    let with = |key: &str, value: u32| {
        let mut writer = tiny("gemma4").1;
        writer.tensor("token_embd.weight", &[64, 32], &[0.0; 2048]).u32(key, value);
        from_gguf(&writer)
    };
    assert!(message(with("gemma4.embedding_length_per_layer_input", 256)).contains("E2B and E4B"));
    assert!(
        message(with("gemma4.attention.shared_kv_layers", 2)).contains("share keys and values")
    );
    let config = with("gemma4.embedding_length_per_layer_input", 0).unwrap();
    assert_eq!(config.layers[5].rope.inv_freq.len(), 2);
    assert!(config.layers[5].attention.values_are_keys);
}

/// A value that a hostile file may hold in place of a number.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        (0u64..1024).prop_map(Value::from),
        any::<f64>().prop_map(|v| json!(v)),
        Just(json!("full_attention")),
        Just(json!([1, 2, 3])),
        Just(json!({"rope_type": "yarn", "factor": 1e-300, "rope_theta": 1.0000001})),
    ]
}

proptest! {
    #[test]
    fn odd_configurations_never_panic(
        family in prop::sample::select(vec!["llama", "qwen2", "qwen3", "gemma3", "gemma4"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 1..4),
    ) {
        let mut config = tiny(family).0;
        let mut keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        keys.extend(
            ["rope_scaling", "rope_parameters", "layer_types", "per_layer_config"].map(String::from),
        );
        for (index, value) in changes {
            config[index.get(&keys).as_str()] = value;
        }
        if let Ok(read) = DecoderConfig::from_hf(&config) {
            prop_assert!(read.config.layers.len() <= 512 && read.config.vocab <= 1 << 20);
        }
    }
}
