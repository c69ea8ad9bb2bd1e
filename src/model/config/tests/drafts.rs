use super::targets::qwen3_4b;
use super::{laid_over, message};
use crate::model::config::{
    Checked, ConvolutionConfig, DecoderConfig, DraftConfig, SelectorConfig,
};
use crate::model::ops::Visibility::{Bidirectional, Causal};
use crate::model::weights::testing::tiny;
use proptest::prelude::*;
use serde_json::{Value, json};

/// A target with these numbers.
fn target(layers: usize, hidden: usize, vocab: usize) -> DecoderConfig {
    let over = json!({"num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": vocab});
    DecoderConfig::from_hf(&laid_over(&qwen3_4b(), &over)).unwrap().config
}

/// Qwen3-4B-DFlash-b16.
fn b16() -> Value {
    json!({
        "architectures": ["DFlashDraftModel"], "attention_bias": false, "block_size": 16,
        "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
        "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "intermediate_size": 9728,
        "layer_types": vec!["full_attention"; 5], "max_position_embeddings": 40960,
        "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 5,
        "num_key_value_heads": 8, "num_target_layers": 36, "rms_norm_eps": 1e-06,
        "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
        "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936,
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
    })
}

fn read(config: &Value, target: &DecoderConfig) -> Checked<DraftConfig> {
    DraftConfig::from_hf(config, target, None).unwrap()
}

fn refused(over: Value) -> String {
    let config = laid_over(&b16(), &over);
    message(DraftConfig::from_hf(&config, &target(36, 2560, 151936), None))
}

struct Row {
    name: &'static str,
    over: Value,
    target: (usize, usize, usize),
    taps: &'static [usize],
    mask: u32,
    block: usize,
    layers: usize,
    causal: usize,
    window: Option<usize>,
}

/// Five sliding layers and a full one.
fn mixed(sliding: usize) -> Value {
    let kinds =
        (0..=sliding).map(|i| if i < sliding { "sliding_attention" } else { "full_attention" });
    json!(kinds.collect::<Vec<_>>())
}

/// The published drafts (dflash-spec 1a; bugs.md B37: both layouts), as changes to Qwen3-4B's.
#[test]
fn published_drafts_are_read() {
    let qwen35 = json!({"hidden_size": 4096, "intermediate_size": 12288, "num_target_layers": 32,
        "vocab_size": 248320, "rope_theta": 1e7, "max_position_embeddings": 262144,
        "tie_word_embeddings": false,
        "dflash_config": {"mask_token_id": 248070, "target_layer_ids": [1, 8, 15, 22, 29]}});
    let rows = [
        Row {
            name: "Qwen3-4B-DFlash-b16",
            over: json!({}),
            target: (36, 2560, 151936),
            taps: &[1, 9, 17, 25, 33],
            mask: 151669,
            block: 16,
            layers: 5,
            causal: 0,
            window: None,
        },
        Row {
            name: "Qwen3-8B-DFlash-b16, without layer_types",
            over: json!({"hidden_size": 4096, "intermediate_size": 12288, "layer_types": null}),
            target: (36, 4096, 151936),
            taps: &[1, 9, 17, 25, 33],
            mask: 151669,
            block: 16,
            layers: 5,
            causal: 0,
            window: None,
        },
        Row {
            name: "LLaMA3.1-8B-Instruct-DFlash-UltraChat, taps by the formula",
            over: json!({"hidden_size": 4096, "vocab_size": 128256, "num_target_layers": 32,
                "block_size": 10, "rope_theta": 500000.0, "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
                "dflash_config": {"mask_token_id": 128002, "target_layer_ids": null}}),
            target: (32, 4096, 128256),
            taps: &[1, 8, 15, 22, 29],
            mask: 128002,
            block: 10,
            layers: 5,
            causal: 0,
            window: None,
        },
        Row {
            name: "Qwen3.5-9B",
            over: qwen35,
            target: (32, 4096, 248320),
            taps: &[1, 8, 15, 22, 29],
            mask: 248070,
            block: 16,
            layers: 5,
            causal: 0,
            window: None,
        },
        Row {
            name: "Qwen3.5-35B-A3B, first layout: rope_theta and block_size at the top",
            over: json!({"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 8,
                "num_key_value_heads": 4, "vocab_size": 248320, "rope_theta": 1e7,
                "layer_types": vec!["full_attention"; 8], "num_target_layers": 41,
                "dflash_config": {"mask_token_id": 248070,
                    "target_layer_ids": [1, 10, 19, 28, 37]}}),
            target: (41, 2048, 248320),
            taps: &[1, 10, 19, 28, 37],
            mask: 248070,
            block: 16,
            layers: 8,
            causal: 0,
            window: None,
        },
        Row {
            name: "Qwen3.5-35B-A3B, second layout: all in dflash_config and rope_parameters",
            over: json!({"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 6,
                "vocab_size": 248320, "rope_theta": null, "block_size": null,
                "rope_parameters": {"rope_theta": 1e7, "rope_type": "default"},
                "layer_types": mixed(5), "sliding_window": 4096, "use_sliding_window": true,
                "num_target_layers": 41,
                "dflash_config": {"mask_token_id": 248077, "block_size": 16,
                    "target_layer_ids": [1, 6, 11, 16, 22, 27, 32, 37]}}),
            target: (41, 2048, 248320),
            taps: &[1, 6, 11, 16, 22, 27, 32, 37],
            mask: 248077,
            block: 16,
            layers: 6,
            causal: 5,
            window: Some(4096),
        },
        Row {
            name: "gemma-4-31B-it-DFlash",
            over: json!({"hidden_size": 5376, "num_attention_heads": 64, "vocab_size": 262144,
                "intermediate_size": 10752, "layer_types": mixed(4), "sliding_window": 2048,
                "use_sliding_window": true, "num_target_layers": 60,
                "dflash_config": {"mask_token_id": 4, "final_logit_softcapping": 30.0,
                    "target_layer_ids": [1, 12, 23, 35, 46, 57]}}),
            target: (60, 5376, 262144),
            taps: &[1, 12, 23, 35, 46, 57],
            mask: 4,
            block: 16,
            layers: 5,
            causal: 4,
            window: Some(2048),
        },
        Row {
            name: "gpt-oss-20b: YaRN",
            over: json!({"hidden_size": 2880, "vocab_size": 201088, "num_target_layers": 24,
                "rope_theta": 150000.0, "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                    "beta_slow": 1.0, "original_max_position_embeddings": 4096,
                    "truncate": false},
                "dflash_config": {"mask_token_id": 200000, "target_layer_ids": [1, 6, 11, 16, 21]}}),
            target: (24, 2880, 201088),
            taps: &[1, 6, 11, 16, 21],
            mask: 200000,
            block: 16,
            layers: 5,
            causal: 0,
            window: None,
        },
    ];
    for row in rows {
        let (layers, hidden, vocab) = row.target;
        let checked = read(&laid_over(&b16(), &row.over), &target(layers, hidden, vocab));
        let draft = checked.config;
        let count = |hit: &dyn Fn(&crate::model::config::LayerConfig) -> bool| {
            draft.layers.iter().filter(|l| hit(l)).count()
        };
        assert_eq!(draft.taps, row.taps, "{}", row.name);
        assert_eq!(
            (draft.mask_token_id, draft.block_size, draft.layers.len(), draft.hidden),
            (row.mask, row.block, row.layers, hidden),
            "{}",
            row.name
        );
        assert_eq!(count(&|l| l.attention.visibility == Causal), row.causal, "{}", row.name);
        assert_eq!(draft.layers[0].attention.window, row.window, "{}", row.name);
        assert_eq!(draft.layers.last().unwrap().attention.window, None, "{}", row.name);
        assert!(draft.layers.iter().all(|l| l.qk_norm && l.rope.inv_freq.len() == 64));
        let expected_warnings = usize::from(row.name.contains("formula"));
        assert_eq!(
            checked.warnings.len(),
            expected_warnings,
            "{}: {:?}",
            row.name,
            checked.warnings
        );
    }
}

#[test]
fn rope_scalings_reach_the_draft() {
    let with = |scaling: Value| {
        let config = laid_over(&b16(), &json!({ "rope_scaling": scaling }));
        read(&config, &target(36, 2560, 151936)).config.layers.remove(0).rope
    };
    let yarn =
        with(json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}));
    assert!((yarn.magnitude - 1.138629436111989).abs() < 1e-9);
    assert_eq!(with(json!({"rope_type": "linear", "factor": 2.0})).inv_freq[0], 0.5);
    let llama3 = with(json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}));
    assert!((llama3.inv_freq[63] * 8.0 - 1e6f64.powf(-126.0 / 128.0)).abs() < 1e-15);
    // The base may stand in rope_scaling too.
    let config = laid_over(
        &b16(),
        &json!({"rope_theta": null, "rope_scaling": {"rope_type": "default", "rope_theta": 1e4}}),
    );
    let draft = read(&config, &target(36, 2560, 151936)).config;
    assert_eq!(draft.layers[0].rope.inv_freq[32], 1e4f64.powf(-0.5));
}

/// B07: `is_causal` true, false and absent, for sliding and full layers.
#[test]
fn causality_of_the_six_combinations() {
    for (is_causal, sliding, full) in [
        (json!(null), Causal, Bidirectional),
        (json!(true), Causal, Causal),
        (json!(false), Bidirectional, Bidirectional),
    ] {
        let over = json!({"layer_types": mixed(4), "sliding_window": 64, "is_causal": is_causal,
            "use_sliding_window": true});
        let draft = read(&laid_over(&b16(), &over), &target(36, 2560, 151936)).config;
        assert_eq!(draft.layers[0].attention.visibility, sliding);
        assert_eq!(draft.layers[4].attention.visibility, full);
        assert_eq!(draft.layers[0].attention.window, Some(64));
    }
}

#[test]
fn missing_taps_are_spread_with_halves_to_even() {
    let spread = |target_layers: usize, draft_layers: usize| {
        let over = json!({"num_hidden_layers": draft_layers, "layer_types": null,
            "num_target_layers": target_layers, "dflash_config": {"target_layer_ids": null}});
        read(&laid_over(&b16(), &over), &target(target_layers, 2560, 151936)).config.taps
    };
    assert_eq!(spread(36, 1), [18]);
    assert_eq!(spread(36, 5), [1, 9, 17, 25, 33]);
    assert_eq!(spread(40, 8), [1, 6, 11, 16, 22, 27, 32, 37]);
    // 1, 4.5, 8: half up would give 5.
    assert_eq!(spread(11, 3), [1, 4, 8]);
    // 1, 5.5, 10
    assert_eq!(spread(13, 3), [1, 6, 10]);
}

#[test]
fn block_size_and_mask_stand_in_two_places() {
    let t = target(36, 2560, 151936);
    let both = laid_over(&b16(), &json!({"dflash_config": {"block_size": 8}}));
    let checked = read(&both, &t);
    assert_eq!(checked.config.block_size, 8);
    assert_eq!(
        checked.warnings,
        ["the draft gives two block sizes; taking 8 of dflash_config, not 16"]
    );
    let equal = laid_over(&b16(), &json!({"dflash_config": {"block_size": 16}}));
    assert_eq!(read(&equal, &t).warnings, Vec::<String>::new());
    let top = laid_over(
        &b16(),
        &json!({"mask_token_id": 5, "target_layer_ids": [3], "dflash_config": null}),
    );
    let draft = read(&top, &t).config;
    assert_eq!((draft.mask_token_id, draft.taps), (5, vec![3]));
}

#[test]
fn scale_and_softcap_are_read_from_either_place() {
    let t = target(36, 2560, 151936);
    let draft = |over: Value| read(&laid_over(&b16(), &over), &t).config;
    let plain = draft(json!({}));
    assert_eq!((plain.embedding_scale, plain.final_softcap), (None, None));
    let inner = draft(json!({"final_logit_softcapping": 50.0,
        "dflash_config": {"input_embedding_scale": 2.5, "final_logit_softcapping": 30.0}}));
    assert_eq!((inner.embedding_scale, inner.final_softcap), (Some(2.5), Some(30.0)));
    let outer = draft(json!({"final_logit_softcapping": 50.0, "input_embedding_scale": 3.0}));
    assert_eq!((outer.embedding_scale, outer.final_softcap), (Some(3.0), Some(50.0)));
}

#[test]
fn a_draft_may_propose_from_a_part_of_the_vocabulary() {
    let with = |ids: Value| {
        let over = json!({"dflash_config": {"draft_vocabulary": ids}});
        DraftConfig::from_hf(&laid_over(&b16(), &over), &target(36, 2560, 151936), None)
    };
    assert_eq!(with(json!([9, 3])).unwrap().config.vocabulary, Some(vec![9, 3]));
    assert_eq!(with(json!(null)).unwrap().config.vocabulary, None);
    assert!(message(with(json!([]))).contains("lists 0 of 151936 tokens"));
    assert!(message(with(json!([0, 151936]))).contains("names token 151936"));
    assert!(message(with(json!([1u64 << 32]))).contains("names token 4294967296"));
}

#[test]
fn layers_given_by_hand_replace_the_files() {
    let t = target(36, 2560, 151936);
    let with = |taps: &[usize]| DraftConfig::from_hf(&b16(), &t, Some(taps));
    assert_eq!(with(&[0, 35]).unwrap().config.taps, [0, 35]);
    assert!(message(with(&[])).contains("target layers to read"));
    assert!(message(with(&[0, 36])).contains("reads target layer 36"));
    assert!(message(with(&[3, 3])).contains("layer 3 twice"));
}

#[test]
fn a_mismatch_names_both_sides() {
    for (over, parts) in [
        (json!({"hidden_size": 4096}), ["4096 wide", "the target 2560"]),
        (json!({"vocab_size": 151935}), ["has 151935 entries", "the target's 151936"]),
        (json!({"dflash_config": {"mask_token_id": 151936}}), ["151936 has no row", "151936 rows"]),
        (json!({"dflash_config": {"target_layer_ids": [36]}}), ["layer 36", "has 36 layers"]),
    ] {
        let error = refused(over);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // Another number of target layers is only odd while all taps exist.
    let config = laid_over(&b16(), &json!({"num_target_layers": 41}));
    let checked = read(&config, &target(36, 2560, 151936));
    assert!(checked.warnings[0].contains("41 layers, this one has 36"));
}

#[test]
fn drafts_that_cannot_run_are_refused_with_what_they_need() {
    let kind = |architecture: &str| refused(json!({"architectures": [architecture]}));
    for (architecture, needs) in [
        ("DSparkDraftModel", "Markov head"),
        ("DFlashLagunaForCausalLM", "gated attention"),
        ("MuseGlimmerAssistantModel", "interleaved rope"),
        ("LlamaForCausalLMEagle3", "token by token"),
        ("Qwen3ForCausalLM", "is not a DFlash draft"),
    ] {
        let error = kind(architecture);
        assert!(error.contains(architecture) && error.contains(needs), "{error}");
    }
    for key in ["speculators_model_type", "speculators_config", "transformer_layer_config"] {
        assert!(refused(json!({ key: {"a": 1} })).contains("\"speculators\" format"));
    }
    assert!(refused(json!({"architectures": null})).contains("name its architecture"));
}

/// The additions of Qwen3.8-27B-DFlash2.
#[test]
fn dflash_2_has_a_selector_and_convolutions() {
    let second = |own: Value| {
        let both = json!({"architectures": ["DFlash2DraftModel"], "dflash_config": own});
        laid_over(&b16(), &both)
    };
    let own = json!({
        "selector_rank": 256, "selector_top_k": 16, "conv_kernel_size": 2, "conv_group_size": 16,
    });
    let target = target(36, 2560, 151936);
    let draft = read(&second(own.clone()), &target).config;
    assert_eq!(draft.architecture, "DFlash2DraftModel");
    assert_eq!(draft.selector, Some(SelectorConfig { rank: 256, candidates: 16 }));
    let convolution = Some(ConvolutionConfig { taps: 2, group: 16 });
    assert!(draft.layers.iter().all(|layer| layer.convolution == convolution));
    assert_eq!(read(&b16(), &target).config.selector, None);

    for (over, reason) in [
        (json!({"selector_rank": null, "selector_top_k": null}), "has no selector_rank"),
        (json!({"selector_rank": null}), "selector_top_k, but no selector_rank"),
        (json!({"selector_top_k": null}), "selector_rank, but no selector_top_k"),
        (json!({"selector_top_k": 0}), "selector_top_k is 0"),
        (json!({"selector_rank": 1u64 << 40}), "selector_rank is 1099511627776"),
        (json!({"conv_kernel_size": null}), "conv_group_size, but no conv_kernel_size"),
        (json!({"conv_group_size": null}), "conv_kernel_size, but no conv_group_size"),
        (json!({"conv_kernel_size": 17}), "conv_kernel_size is 17; it must be from 1 to 16"),
        (json!({"conv_group_size": 0}), "conv_group_size is 0"),
        (json!({"conv_group_size": 24}), "conv_group_size 24 does not divide the width of 2560"),
    ] {
        let config = second(laid_over(&own, &over));
        let error = message(DraftConfig::from_hf(&config, &target, None));
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn odd_requests_are_refused() {
    for (over, reason) in [
        (json!({"block_size": null}), "block_size is missing"),
        (json!({"block_size": 1}), "block_size is 1; it must be from 2"),
        (json!({"block_size": 1 << 20}), "it must be from 2 to 256"),
        (json!({"dflash_config": {"mask_token_id": null}}), "mask_token_id is missing"),
        (json!({"dflash_config": {"mask_token_id": 1u64 << 40}}), "is not a token id"),
        (json!({"rope_theta": null}), "rope_theta is missing"),
        (json!({"layer_types": ["full_attention"]}), "layer_types has 1 entries"),
        (json!({"layer_types": vec!["chunked_attention"; 5]}), "\"chunked_attention\""),
        (json!({"layer_types": mixed(4)}), "sliding_window is missing"),
        (json!({"attention_bias": true}), "attention_bias"),
        (json!({"dflash_config": {"rope_interleaved": true}}), "rope_interleaved"),
        (json!({"dflash_config": {"output_multiplier": 0.196}}), "output_multiplier of 0.196"),
        (json!({"draft_vocab_size": 32000}), "draft_vocab_size"),
        (json!({"hidden_act": "relu"}), "activation \"relu\""),
        (json!({"dflash_config": {"target_layer_ids": [-1]}}), "a list of counts"),
        (json!({"dflash_config": {"target_layer_ids": []}}), "target layers to read"),
        (json!({"dflash_config": {"input_embedding_scale": -1.0}}), "input_embedding_scale is -1"),
        (json!({"rope_scaling": {"rope_type": "longrope", "factor": 2}}), "longrope"),
    ] {
        let error = refused(over);
        assert!(error.contains(reason), "{error}");
    }
}

proptest! {
    #[test]
    fn odd_drafts_never_panic(
        key in prop::sample::select(vec!["num_hidden_layers", "num_attention_heads", "head_dim",
            "num_target_layers", "block_size", "rope_theta", "vocab_size", "hidden_size"]),
        value in prop_oneof![any::<u64>().prop_map(Value::from), (0u64..600).prop_map(Value::from),
            any::<f64>().prop_map(|v| json!(v))],
        listed in any::<bool>(),
    ) {
        let mut config = laid_over(&b16(), &json!({"layer_types": null}));
        if !listed {
            config = laid_over(&config, &json!({"dflash_config": {"target_layer_ids": null}}));
        }
        config[key] = value;
        let target = DecoderConfig::from_hf(&tiny("llama").0).unwrap().config;
        let _ = DraftConfig::from_hf(&config, &target, None);
        let _ = DraftConfig::from_hf(&config, &self::target(36, 2560, 151936), None);
    }
}
