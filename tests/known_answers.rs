//! Small models of every family, whose answers transformers and the published DFlash code
//! computed (`tests/fixtures/generate.py`): the program gives the same ids, the same drafts and
//! the same accepted counts, through the command line, from safetensors and from GGUF.

use dflash_chat::model::decoder::Decoder;
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::device::DeviceOps;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::{Ops, Quantise};
use dflash_chat::model::weights::{open_draft, open_target};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn models() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models");
    let mut all: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("expected.json").exists())
        .collect();
    all.sort();
    assert!(all.len() >= 12, "the fixtures are missing: {all:?}");
    all
}

fn expected(model: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(model.join("expected.json")).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The ids of a list of `{id, text}`.
fn token_ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|token| token["id"].as_u64().unwrap()).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// Run the program and compare its events with the reference.
fn check(target: &Path, draft: &Path, expected: &Value, extra: &[&str]) {
    let name = format!("{} {extra:?}", target.display());
    for prompt in expected["prompts"].as_array().unwrap() {
        let text = prompt["prompt"].as_str().unwrap();
        for mode in ["speculative", "baseline"] {
            let block = expected["block_size"].to_string();
            let output = assert_cmd::Command::cargo_bin("dflash-chat")
                .unwrap()
                .args(["run", text, "--format", "jsonl", "--no-chat-template", "--quant", "none"])
                .args(["--max-tokens", "80", "--block-size", &block, "--mode", mode])
                .arg("--target")
                .arg(target)
                .arg("--draft")
                .arg(draft)
                .args(extra)
                .env("DFLASH_CHAT_CONFIG", "/nonexistent")
                .output()
                .unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {stderr}");
            let events: Vec<Value> = output
                .stdout
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect();
            let of = |kind: &str| events.iter().filter(|e| e["type"] == kind).collect::<Vec<_>>();
            assert_eq!(of("model_ready")[0]["draft_missing"], Value::Null, "{name}");
            assert_eq!(ids(&of("run_started")[0]["prompt_ids"]), ids(&prompt["prompt_ids"]));
            let mut answer = vec![of("prefill_done")[0]["first"]["id"].as_u64().unwrap()];
            let rounds = of("round");
            for round in &rounds {
                answer.extend(token_ids(&round["committed"]));
            }
            assert_eq!(answer, ids(&prompt["greedy_ids"]), "{name} {mode}: greedy ids");
            if mode == "baseline" {
                continue;
            }
            for (i, want) in prompt["rounds"].as_array().unwrap().iter().enumerate() {
                let got = rounds[i];
                assert_eq!(got["position"], want["position"], "{name}: round {i}");
                assert_eq!(got["anchor"]["id"], want["anchor"], "{name}: round {i}");
                assert_eq!(
                    token_ids(&got["drafted"]),
                    ids(&want["drafted"]),
                    "{name}: drafts of round {i}"
                );
                let committed = ids(&want["committed"]);
                assert_eq!(token_ids(&got["committed"]), committed, "{name}: round {i}");
                let accepted = want["accepted"].as_u64().unwrap().min(committed.len() as u64);
                assert_eq!(got["accepted"].as_u64().unwrap(), accepted, "{name}: round {i}");
            }
        }
    }
}

#[test]
fn safetensors_give_the_reference_ids_and_rounds() {
    for model in models() {
        check(&model, &model.join("draft"), &expected(&model), &[]);
    }
}

#[test]
fn gguf_files_of_the_same_models_do_too() {
    let mut seen = 0;
    for model in models() {
        for kind in ["f32", "q8_0", "f16"] {
            let target = model.join(format!("model.{kind}.gguf"));
            let draft = model.join(format!("draft/draft.{kind}.gguf"));
            if target.exists() {
                check(&target, &draft, &expected(&model), &[]);
                seen += 1;
            }
        }
    }
    assert!(seen >= 14, "only {seen} GGUF files were found");
}

#[test]
fn the_code_path_of_gpus_gives_the_same() {
    for model in models() {
        check(&model, &model.join("draft"), &expected(&model), &["--device", "candle-cpu"]);
    }
}

/// Logits of the prompt's last row, relative to the largest of them.
fn logits_agree<O: Ops>(ops: O, model: &Path) {
    let files = open_target(model).unwrap();
    let mut decoder = Decoder::load(&ops, &files, 256, &mut |_, _| Ok(())).unwrap();
    for prompt in expected(model)["prompts"].as_array().unwrap() {
        let ids: Vec<u32> = ids(&prompt["prompt_ids"]).iter().map(|id| *id as u32).collect();
        decoder.truncate(&ops, 0);
        let pass = decoder.forward(&ops, &ids, &[]).unwrap();
        let last = ops.slice(&pass.hidden, ids.len() - 1..ids.len()).unwrap();
        let got = ops.download(&decoder.logits(&ops, &last).unwrap()).unwrap();
        near(&got, &floats(&prompt["prefill_logits"]), model);
        third_block(&ops, &mut decoder, prompt, model);
    }
}

/// The logits of all rows of the third round's block, after what was committed before it.
fn third_block<O: Ops>(ops: &O, decoder: &mut Decoder<O>, prompt: &Value, model: &Path) {
    let (round, wanted) = (&prompt["rounds"][2], &prompt["third_round"]["target_logits"]);
    if wanted.is_null() {
        return;
    }
    let mut text = ids(&prompt["prompt_ids"]);
    text.extend(ids(&prompt["greedy_ids"]));
    text.truncate(round["position"].as_u64().unwrap() as usize);
    let ids = |ids: &[u64]| ids.iter().map(|id| *id as u32).collect::<Vec<_>>();
    decoder.truncate(ops, 0);
    decoder.forward(ops, &ids(&text), &[]).unwrap();
    let drafted = self::ids(&round["drafted"]);
    let block = [vec![round["anchor"].as_u64().unwrap()], drafted].concat();
    let pass = decoder.forward(ops, &ids(&block), &[]).unwrap();
    let got = ops.download(&decoder.logits(ops, &pass.hidden).unwrap()).unwrap();
    let wanted = wanted.as_array().unwrap();
    assert_eq!(wanted.len(), block.len());
    for (got, wanted) in got.chunks(got.len() / block.len()).zip(wanted) {
        near(got, &floats(wanted), model);
    }
}

/// Within 1e-4 of the largest.
fn near(got: &[f32], wanted: &[f32], model: &Path) {
    assert_eq!(got.len(), wanted.len());
    let scale = wanted.iter().fold(0f32, |a, b| a.max(b.abs()));
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let error = (got - wanted).abs() / scale;
        assert!(error < 1e-4, "{}: {i}: {got} for {wanted}", model.display());
    }
}

/// bugs.md B05: a tap is the output of the layer that the draft names, in the draft's order, and
/// the last layer's is there too, before the final norm.
fn taps_agree<O: Ops>(ops: O, model: &Path) {
    let files = open_target(model).unwrap();
    let draft = open_draft(&model.join("draft"), &files.config, None).unwrap();
    let mut decoder = Decoder::load(&ops, &files, 256, &mut |_, _| Ok(())).unwrap();
    for prompt in expected(model)["prompts"].as_array().unwrap() {
        let ids: Vec<u32> = ids(&prompt["prompt_ids"]).iter().map(|id| *id as u32).collect();
        let mut pass = |taps: &[usize]| {
            decoder.truncate(&ops, 0);
            decoder.forward(&ops, &ids, taps).unwrap()
        };
        let last = |rows: &O::Rows| {
            ops.download(&ops.slice(rows, ids.len() - 1..ids.len()).unwrap()).unwrap()
        };
        let found: Vec<f32> = pass(&draft.config.taps).taps.iter().flat_map(last).collect();
        near(&found, &floats(&prompt["prefill_taps"]), model);
        let top = files.config.layers.len() - 1;
        let both = pass(&[top, 0]);
        assert_eq!(last(&both.taps[0]), last(&both.hidden), "{}", model.display());
        assert_eq!(last(&both.taps[1]), last(&pass(&[0]).taps[0]), "{}", model.display());
        assert_ne!(last(&both.taps[0]), last(&both.taps[1]));
    }
}

#[test]
fn taps_are_the_outputs_of_their_layers() {
    for model in models() {
        taps_agree(Cpu::new(2, Quantise::None, KvType::F32), &model);
        taps_agree(DeviceOps::new(candle_core::Device::Cpu, Quantise::None), &model);
    }
}

#[test]
fn logits_agree_with_the_reference() {
    for model in models() {
        logits_agree(Cpu::new(2, Quantise::None, KvType::F32), &model);
        logits_agree(DeviceOps::new(candle_core::Device::Cpu, Quantise::None), &model);
    }
}

/// Many texts in one pass (`step_each`): each row is what a pass over its text alone gives, bit
/// for bit, whatever stands beside it. Texts differ in length, and join in another order.
fn rows_of_texts_are_alone(ops: Cpu, model: &Path) {
    let files = open_target(model).unwrap();
    let mut decoder = Decoder::load(&ops, &files, 256, &mut |_, _| Ok(())).unwrap();
    let vocabulary = files.config.vocab as u32;
    let id = |text: u32, i: u32| (17 + 101 * text + 7919 * i) % vocabulary;
    let taps = [0, files.config.layers.len() - 1];
    let bits = |rows: &<Cpu as Ops>::Rows| -> Vec<u32> {
        ops.download(rows).unwrap().iter().map(|x| x.to_bits()).collect()
    };
    let lengths = [1, 70, 9, 23, 16];
    let mut texts: Vec<_> = (0..)
        .zip(lengths)
        .map(|(text, length)| {
            let ids: Vec<u32> = (0..length).map(|i| id(text, i)).collect();
            let mut sequence = decoder.sequence(&ops).unwrap();
            decoder.forward_in(&ops, &ids, &mut sequence, &[]).unwrap();
            (text, ids, sequence)
        })
        .collect();
    for step in 0..4 {
        texts.rotate_left(1);
        let next: Vec<u32> = texts.iter().map(|(text, ..)| id(*text, 300 + step)).collect();
        texts.iter_mut().zip(&next).for_each(|((_, ids, _), next)| ids.push(*next));
        let mut sequences: Vec<_> = texts.iter_mut().map(|(.., sequence)| sequence).collect();
        let pass = decoder.step_each(&ops, &next, &mut sequences, &taps).unwrap();
        for (row, (text, ids, _)) in texts.iter().enumerate() {
            decoder.truncate(&ops, 0);
            let alone = decoder.forward(&ops, ids, &taps).unwrap();
            let [row, last] = [row..row + 1, ids.len() - 1..ids.len()];
            let of = |rows: &<Cpu as Ops>::Rows, at| bits(&ops.slice(rows, at).unwrap());
            let name = format!("{}: text {text}, step {step}", model.display());
            assert_eq!(of(&pass.hidden, row.clone()), of(&alone.hidden, last.clone()), "{name}");
            for (here, there) in pass.taps.iter().zip(&alone.taps) {
                assert_eq!(of(here, row.clone()), of(there, last.clone()), "{name}: a tap");
            }
        }
    }
}

#[test]
fn each_of_many_texts_has_the_bits_it_has_alone() {
    for model in models() {
        rows_of_texts_are_alone(Cpu::new(2, Quantise::None, KvType::F32), &model);
        rows_of_texts_are_alone(Cpu::new(2, Quantise::Q8, KvType::F16), &model);
    }
}
