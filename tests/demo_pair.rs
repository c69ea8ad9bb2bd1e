//! The demo pair, end to end: a real 135M chat model and the draft that the program carries.

#[path = "demo_support/mod.rs"]
mod demo;

use demo::{available, events, program};
use serde_json::Value;
use std::path::PathBuf;

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn ids(value: &Value) -> Vec<u64> {
    let id = |v: &Value| v.as_u64().unwrap_or_else(|| v["id"].as_u64().unwrap());
    value.as_array().unwrap().iter().map(id).collect()
}

#[test]
fn the_first_question_is_answered_speculatively() {
    if !available() {
        return;
    }
    let output = program(&["run", "What is the capital of France?"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Paris"), "{text}");
    assert!(!text.contains('\x1b'), "escape codes in a pipe");

    let events = events(&["run", "What is the capital of France?", "--format", "jsonl"]);
    for (i, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], i, "the sequence has a gap");
    }
    assert_eq!(of(&events, "model_ready")[0]["block_size"], 8);
    assert_eq!(of(&events, "run_started")[0]["mode"], "speculative");
    let rounds = of(&events, "round");
    let finished = of(&events, "run_finished")[0];
    assert_eq!(finished["reason"], "eos");
    let committed: usize = rounds.iter().map(|r| r["committed"].as_array().unwrap().len()).sum();
    assert_eq!(finished["totals"]["tokens"], committed + 1);
    for round in rounds {
        let accepted = round["accepted"].as_u64().unwrap() as usize;
        assert_eq!(
            ids(&round["committed"])[..accepted],
            ids(&round["drafted"])[..accepted],
            "{round}"
        );
    }
}

/// The trainer's own runs in f32: ids, drafts and accepted counts of every round.
#[test]
fn rounds_equal_the_trainers_in_f32() {
    if !available() {
        return;
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/demo_parity.json");
    let parity: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for prompt in parity["prompts"].as_array().unwrap() {
        let events = events(&[
            "run",
            prompt["prompt"].as_str().unwrap(),
            "--no-chat-template",
            "--quant",
            "none",
            "--block-size",
            &prompt["block_size"].to_string(),
            "--max-tokens",
            "48",
            "--format",
            "jsonl",
        ]);
        assert_eq!(ids(&of(&events, "run_started")[0]["prompt_ids"]), ids(&prompt["prompt_ids"]));
        let mut answer = vec![of(&events, "prefill_done")[0]["first"]["id"].as_u64().unwrap()];
        let rounds = of(&events, "round");
        let expected = prompt["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), expected.len());
        for (i, (got, want)) in rounds.iter().zip(expected).enumerate() {
            answer.extend(ids(&got["committed"]));
            assert_eq!(got["position"], want["start"], "round {i}");
            assert_eq!(got["anchor"]["id"], want["anchor"], "round {i}");
            assert_eq!(ids(&got["drafted"]), ids(&want["draft_ids"]), "round {i}");
            assert_eq!(got["committed"].as_array().unwrap().len(), want["emitted"], "round {i}");
        }
        assert_eq!(answer, ids(&prompt["greedy_ids"]));
    }
}

/// Greedy speculative ids are the greedy baseline ids, whatever the block size, bit for bit.
#[test]
fn speculation_changes_no_token() {
    if !available() {
        return;
    }
    for size in ["auto", "3", "5"] {
        let output = program(&[
            "bench",
            "--repeat",
            "1",
            "--limit",
            "3",
            "--max-tokens",
            "120",
            "--block-size",
            size,
            "--format",
            "json",
        ]);
        // `bench` fails on a mismatch.
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        for prompt in report["prompts"].as_array().unwrap() {
            assert_eq!(prompt["verdicts"][0]["verdict"], "identical", "{prompt}");
        }
    }
}

/// The first three tokens of an answer over many seeds, with drafts and without: two samples of
/// one distribution, by a χ² test. The seeds of the two are different ones, since the same seed
/// has the same text in both modes, which the first hundred show.
///
/// `DFLASH_SEEDS` says how many; 2000 is the figure of a full check, and takes minutes.
#[test]
fn three_tokens_are_distributed_as_without_drafts() {
    use dflash_chat::catalog::{Selection, Store};
    use dflash_chat::engine::load::{LoadRequest, Place, load};
    use dflash_chat::engine::{CancelToken, EventSink};
    use dflash_chat::event::{
        BlockSize, ChatMessage, EngineCommand, EngineEvent, Generate, Mode, Prompt, Role, Sampling,
    };
    use dflash_chat::model::ops::Quantise;
    use dflash_chat::settings::Paths;
    use std::collections::HashMap;

    if !available() {
        return;
    }
    let seeds: u64 = std::env::var("DFLASH_SEEDS").map_or(300, |n| n.parse().unwrap());
    let paths = Paths::from_env().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let request = LoadRequest {
        selection: Selection::default(),
        store: Store::from_env(&paths),
        offline: true,
        place: Place::Cpu,
        threads: 2,
        quantise: Quantise::AsStored,
        context: Some(256),
        cache: cache.path().into(),
        taps: None,
    };
    let cancel = CancelToken::default();
    let (mut sink, _loading) = EventSink::channel();
    let mut engine = load(&request, &mut sink, &cancel).unwrap();
    let mut answer = |mode: Mode, seed: u64| {
        let message = ChatMessage::new(Role::User, "Name a colour.");
        let asked = Generate {
            prompt: Prompt::Messages(vec![message]),
            mode,
            block_size: BlockSize::Fixed(3),
            sampling: Sampling { temperature: 0.9, top_k: 40, top_p: 0.95, ..Sampling::default() },
            seed,
            max_tokens: 3,
            ..Generate::default()
        };
        let (mut sink, mut events) = EventSink::channel();
        engine.handle(EngineCommand::Generate(Box::new(asked)), &mut sink, &cancel);
        let mut ids = Vec::new();
        while let Ok(envelope) = events.try_recv() {
            match envelope.event {
                EngineEvent::PrefillDone { first, .. } => ids.push(first.id),
                EngineEvent::Round(round) => ids.extend(round.committed.iter().map(|t| t.id)),
                EngineEvent::Error(message) => panic!("{}", message.message),
                _ => {}
            }
        }
        ids
    };
    let mut counts: HashMap<Vec<u32>, [f64; 2]> = HashMap::new();
    for seed in 0..seeds {
        let drafted = answer(Mode::Speculative, seed);
        if seed < 100 {
            assert_eq!(drafted, answer(Mode::Baseline, seed), "seed {seed}");
        }
        counts.entry(drafted).or_default()[0] += 1.0;
        counts.entry(answer(Mode::Baseline, seeds + seed)).or_default()[1] += 1.0;
    }
    // Triples that came seldom are taken together.
    let (often, seldom): (Vec<[f64; 2]>, Vec<[f64; 2]>) =
        counts.into_values().partition(|cell| cell[0] + cell[1] >= 10.0);
    let rest = [0, 1].map(|mode| seldom.iter().map(|cell| cell[mode]).sum::<f64>());
    let cells: Vec<[f64; 2]> = often.into_iter().chain([rest]).collect();
    let filled = cells.iter().filter(|cell| cell[0] + cell[1] > 0.0);
    let chi: f64 = filled.map(|cell| (cell[0] - cell[1]).powi(2) / (cell[0] + cell[1])).sum();
    // The 99.9 % point of χ², by Wilson and Hilferty.
    let freedom = (cells.len() - 1) as f64;
    let step = 2.0 / (9.0 * freedom);
    let bound = freedom * (1.0 - step + 3.09 * step.sqrt()).powi(3);
    println!("{seeds} seeds, {} cells: χ² {chi:.1}, bound {bound:.1}", cells.len());
    assert!(cells.len() > 4, "nothing to compare: {cells:?}");
    assert!(chi < bound, "χ² {chi:.1}, bound {bound:.1}: {cells:?}");
}

/// The same seed gives the same text with and without drafts.
#[test]
fn sampling_is_the_same_with_and_without_drafts() {
    if !available() {
        return;
    }
    let answer = |mode: &str, seed: &str| {
        let output = program(&[
            "run",
            "Tell me a story.",
            "--temperature",
            "0.8",
            "--seed",
            seed,
            "--mode",
            mode,
            "--max-tokens",
            "60",
        ]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(answer("speculative", "1"), answer("baseline", "1"));
    assert_eq!(answer("speculative", "1"), answer("speculative", "1"));
    assert_ne!(answer("speculative", "1"), answer("speculative", "2"));
    // A recording of it says the same.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("story.jsonl");
    let file = file.to_str().unwrap();
    let sampled = ["--temperature", "0.8", "--seed", "1", "--max-tokens", "60"];
    let record = ["run", "Tell me a story.", "--record", file];
    let output = program(&[&record[..], &sampled].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let replayed = program(&["replay", file, "--format", "json"]);
    let replayed: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    let said = answer("speculative", "1");
    assert_eq!(replayed["text"].as_str().unwrap().trim_end(), said.trim_end());
}
