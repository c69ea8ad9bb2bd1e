//! `dflash-chat doctor` on this machine and on odd ones.

mod program_support;

use assert_cmd::Command;
use program_support::Outcome;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/models");

/// The program in a world of its own; `odd` are variables that make it stranger.
fn doctor(world: &Path, arguments: &[&str], odd: &[(&str, &str)]) -> Outcome {
    let folder = |name: &str| world.join(name);
    Outcome::of(
        Command::cargo_bin("dflash-chat")
            .unwrap()
            .arg("doctor")
            .args(arguments)
            .env_clear()
            .env("DFLASH_CHAT_DATA", folder("data"))
            .env("DFLASH_CHAT_CONFIG", folder("config"))
            .env("DFLASH_CHAT_CACHE", folder("cache"))
            .envs(odd.iter().copied())
            .timeout(Duration::from_secs(120)),
    )
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.out).unwrap_or_else(|e| panic!("{e}: {}", outcome.out))
}

fn problems(report: &Value) -> Vec<&str> {
    report["problems"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

#[test]
fn all_is_well_here_and_the_text_fits_a_terminal() {
    let world = tempfile::tempdir().unwrap();
    let outcome = doctor(world.path(), &[], &[]);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.out, outcome.err);
    assert!(outcome.out.ends_with("\nAll is well.\n"));
    for part in ["Machine", "Devices", "Operations", "Folders", "Terminal", "attention, causal"] {
        assert!(outcome.out.contains(part), "{part} is missing: {}", outcome.out);
    }
    // The world's own path is the only thing that is longer than a line.
    let own = world.path().to_str().unwrap();
    let long = outcome.out.lines().find(|line| line.len() > 80 && !line.contains(own));
    assert_eq!(long, None);
    assert!(outcome.out.is_ascii() && !outcome.out.contains('\x1b'));
    assert_eq!(std::fs::read_dir(world.path()).unwrap().count(), 0, "it left something behind");
}

#[test]
fn the_report_for_programs_has_every_figure() {
    let world = tempfile::tempdir().unwrap();
    let outcome = doctor(world.path(), &["--format", "json", "--device", "candle-cpu"], &[]);
    let report = json(&outcome);
    assert_eq!((outcome.code, &report["well"]), (Some(0), &Value::Bool(true)), "{}", outcome.out);
    let results = report["operations"]["results"].as_array().unwrap();
    assert!(results.len() > 30);
    for result in results {
        let error = result["largest_error"].as_f64().unwrap();
        assert!(error <= result["bound"].as_f64().unwrap() + 1e-12, "{result}");
        assert_eq!(result["agrees"], true);
    }
    for set in report["operations"]["instruction_sets"].as_array().unwrap() {
        assert_eq!(set["differing"].as_array().unwrap().len(), 0, "{set}");
    }
    let machine = &report["machine"];
    assert!(machine["cores"].as_u64().unwrap() >= 1);
    let found = machine["instruction_sets"].as_array().unwrap();
    assert_eq!(found[0], "scalar");
    assert!(found.contains(&machine["instruction_set"]));
    assert!(machine["bandwidth"]["median"].as_f64().unwrap() > 1e8);
    assert_eq!(report["devices"][0]["name"], "cpu");
    assert_eq!(report["model"], Value::Null);
    assert_eq!(report["folders"].as_array().unwrap().len(), 4);
}

#[test]
fn a_model_is_loaded_and_slower_tensors_are_named() {
    let world = tempfile::tempdir().unwrap();
    let target = format!("{FIXTURES}/llama-tied");
    let draft = format!("{target}/draft");
    let model = ["--target", &target, "--draft", &draft, "--format", "json"];
    let outcome = doctor(world.path(), &model, &[]);
    let report = json(&outcome);
    assert_eq!(outcome.code, Some(0), "{}", outcome.out);
    assert_eq!(report["model"]["ready"]["target"]["architecture"], "llama");
    assert_eq!(report["model"]["ready"]["draft"]["layers"], 2);
    assert_eq!(report["model"]["slower"].as_array().unwrap().len(), 0);
    assert!(report["model"]["cache_bytes"].as_u64().unwrap() > 0);

    // A model whose rows are no whole blocks: it works, and each tensor is named.
    let narrow = narrow_model(world.path());
    let model = ["--target", narrow.to_str().unwrap(), "--quant", "q8", "--format", "json"];
    let outcome = doctor(world.path(), &model, &[]);
    let report = json(&outcome);
    assert_eq!(outcome.code, Some(0), "{}", outcome.out);
    let slower = report["model"]["slower"].as_array().unwrap();
    assert!(
        slower.iter().any(|note| note.as_str().unwrap().contains("embed_tokens")),
        "{slower:?}"
    );
    let text = doctor(world.path(), &model[..4], &[]);
    assert!(text.out.contains("slower"), "{}", text.out);
}

/// A Llama whose rows are 24 numbers wide.
fn narrow_model(world: &Path) -> std::path::PathBuf {
    use safetensors::tensor::{Dtype, TensorView, serialize};
    let folder = world.join("narrow");
    std::fs::create_dir_all(&folder).unwrap();
    let from = Path::new(FIXTURES).join("llama-tied");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(name), folder.join(name)).unwrap();
    }
    let config = r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 320, "hidden_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "intermediate_size": 24, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    let layer = "model.layers.0";
    let shapes = [
        ("model.embed_tokens.weight".to_owned(), vec![320, 24]),
        ("model.norm.weight".to_owned(), vec![24]),
        (format!("{layer}.input_layernorm.weight"), vec![24]),
        (format!("{layer}.post_attention_layernorm.weight"), vec![24]),
        (format!("{layer}.self_attn.q_proj.weight"), vec![24, 24]),
        (format!("{layer}.self_attn.k_proj.weight"), vec![12, 24]),
        (format!("{layer}.self_attn.v_proj.weight"), vec![12, 24]),
        (format!("{layer}.self_attn.o_proj.weight"), vec![24, 24]),
        (format!("{layer}.mlp.gate_proj.weight"), vec![24, 24]),
        (format!("{layer}.mlp.up_proj.weight"), vec![24, 24]),
        (format!("{layer}.mlp.down_proj.weight"), vec![24, 24]),
    ];
    let data: Vec<Vec<u8>> = shapes
        .iter()
        .map(|(_, shape)| 0.5f32.to_le_bytes().repeat(shape.iter().product()))
        .collect();
    let views = shapes.iter().zip(&data).map(|((name, shape), bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    std::fs::write(folder.join("model.safetensors"), serialize(views, None).unwrap()).unwrap();
    folder
}

#[test]
fn what_is_wrong_is_named_and_the_rest_is_told_all_the_same() {
    let world = tempfile::tempdir().unwrap();
    let wrong = |arguments: &[&str], odd: &[(&str, &str)]| {
        let outcome = doctor(world.path(), &[arguments, &["--format", "json"]].concat(), odd);
        assert_eq!(outcome.code, Some(1), "{arguments:?} {odd:?}: {}{}", outcome.out, outcome.err);
        let report = json(&outcome);
        assert_eq!(report["well"], false);
        assert!(report["operations"]["results"].as_array().unwrap().len() > 30);
        problems(&report).join("\n")
    };
    let file = world.path().join("file");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    assert!(wrong(&[], &[("DFLASH_CHAT_DATA", file)]).contains("the data folder"));
    assert!(wrong(&[], &[("DFLASH_CHAT_THREADS", "none")]).contains("DFLASH_CHAT_THREADS=none"));
    assert!(wrong(&["--target", "/nonexistent/model"], &[]).contains("/nonexistent/model"));
    assert!(wrong(&["--pair", "no-such-pair"], &[]).contains("no-such-pair"));
    // A draft of another family leaves plain decoding, and that is not what was asked for.
    let target = format!("{FIXTURES}/llama-tied");
    let draft = format!("{FIXTURES}/gemma3-text/model.f32.gguf");
    assert!(wrong(&["--target", &target, "--draft", &draft], &[]).contains("the draft"));
    if !cfg!(target_os = "macos") {
        assert!(wrong(&["--device", "metal"], &[]).contains("not in this build"));
    }
}

#[test]
fn odd_machines_get_an_answer() {
    let world = tempfile::tempdir().unwrap();
    for (arguments, odd) in [
        (&["--threads", "1"][..], &[][..]),
        (&["--threads", "1024"], &[]),
        (&[], &[("TERM", "dumb"), ("NO_COLOR", "1"), ("LANG", "C")]),
        (&[], &[("TERM", ""), ("LC_ALL", "xx_YY.nonsense"), ("COLUMNS", "-1")]),
        (&[], &[("PATH", "")]),
    ] {
        let outcome = doctor(world.path(), arguments, odd);
        assert_eq!(outcome.code, Some(0), "{arguments:?} {odd:?}: {}{}", outcome.out, outcome.err);
    }
    // Nobody's home: the folders are not known, and that is said.
    let output = Command::cargo_bin("dflash-chat").unwrap().arg("doctor").env_clear().output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let known = output.status.code() == Some(0);
    assert!(known || text.contains("cannot tell where to keep files"), "{text}");
}
