//! The block-length planner on what the demo pair really foresees: rounds of held-out prompts with
//! every slot filled and verified, played again on machines whose passes have fixed costs, so that
//! planners can be compared to a percent, which no clock of a shared machine allows.
//!
//! `cargo test --release --test demo_planner -- --nocapture` prints the figures.

#[path = "demo_support/mod.rs"]
mod demo;
#[path = "planner_support/mod.rs"]
mod replay;

use dflash_chat::decode::block_length::{Learned, Planner};
use replay::{Block, Machine};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::OnceLock;

/// Every third held-out prompt, of each category about as many.
const EVERY: usize = 3;
/// Slots of the draft's blocks.
const SLOTS: usize = 7;

/// As measured by `bench verify-cost --repeats 20 --threads 2` (README.md). Rows that were not lie
/// between, and the draft's times on AVX2 from the fifth slot on are guesses.
const MACHINES: [Machine; 2] = [
    Machine {
        name: "AVX2",
        verify: |rows| [7.2, 7.6, 8.8, 10.1, 11.9, 13.7, 15.5, 17.3][rows - 1] * 1e3,
        draft: |slots| [0.8, 0.9, 1.1, 1.3, 1.45, 1.6, 1.75][slots - 1] * 1e3,
    },
    Machine {
        name: "AVX-512 VNNI",
        verify: |rows| [3.16, 3.19, 3.43, 3.63, 3.91, 4.38, 4.85, 5.32][rows - 1] * 1e3,
        draft: |slots| [0.37, 0.38, 0.41, 0.44, 0.50, 0.55, 0.61][slots - 1] * 1e3,
    },
];

/// The second of them in a spell, as a shared machine has: one row costs what it always does, and
/// every row more costs more (medians of rounds of `run` with `--block-size` 1, 3, 5 and 8; other
/// rows lie between).
const SPELL: Machine = Machine {
    name: "AVX-512 VNNI in a slow spell",
    verify: |rows| [2.75, 3.35, 3.96, 4.82, 5.68, 6.34, 7.01, 7.67][rows - 1] * 1e3,
    draft: |slots| [0.50, 0.53, 0.64, 0.77, 0.83, 0.90, 1.01][slots - 1] * 1e3,
};

/// The blocks of each category, in the order of its prompts.
fn recorded() -> &'static [(String, Vec<Block>)] {
    static RECORDED: OnceLock<Vec<(String, Vec<Block>)>> = OnceLock::new();
    RECORDED.get_or_init(record)
}

fn record() -> Vec<(String, Vec<Block>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/heldout.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let mut categories: Vec<(String, String)> = Vec::new();
    for line in text.lines().step_by(EVERY) {
        let prompt: Value = serde_json::from_str(line).unwrap();
        let category = prompt["category"].as_str().unwrap();
        if categories.last().is_none_or(|(last, _)| last != category) {
            categories.push((category.to_string(), String::new()));
        }
        let (_, lines) = categories.last_mut().unwrap();
        lines.push_str(&format!("{}\n", json!({ "turns": prompt["turns"] })));
    }
    let blocks = |(category, lines): (String, String)| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        let size = (SLOTS + 1).to_string();
        let whole = ["--format", "jsonl", "--max-tokens", "128", "--block-size", &size];
        let events = demo::events(&[&["run", "--prompts", path], &whole[..]].concat());
        (category, events.iter().filter_map(block).collect())
    };
    categories.into_iter().map(blocks).collect()
}

/// The fate of a round's block, if it was a whole one of the draft.
fn block(event: &Value) -> Option<Block> {
    let drafted = event["drafted"].as_array().filter(|drafts| drafts.len() == SLOTS)?;
    let accepted = event["accepted"].as_u64()? as usize;
    Some(Block {
        right: (0..drafted.len()).map(|slot| slot < accepted).collect(),
        probs: drafted.iter().map(|draft| draft["prob"].as_f64().unwrap() as f32).collect(),
    })
}

/// What the planner makes of all categories, one after the other: times plain, in the mean. In each
/// it must keep up with the best fixed length.
fn mean_speed(machine: &Machine, planner: &mut Planner) -> f64 {
    let mut sum = 0.0;
    for (category, blocks) in recorded() {
        let blocks = || blocks.iter().cloned();
        let fixed = |drafts| replay::fixed(machine, blocks(), drafts, usize::MAX);
        let plain = fixed(0);
        let speeds: Vec<f64> = (1..=SLOTS).map(|drafts| plain / fixed(drafts)).collect();
        let best = speeds.iter().copied().fold(1.0, f64::max);
        let played = replay::planned(machine, planner, blocks(), usize::MAX);
        let speed = plain * played.tokens as f64 / played.us;
        println!(
            "{}, {category}: {} rounds, {speed:.3} times plain with {:.1} slots filled; always 1 to \
             {SLOTS}: {speeds:.2?}",
            machine.name,
            played.rounds,
            played.filled as f64 / played.rounds as f64,
        );
        assert!(speed >= 0.95 * best, "{}, {category}: {speed} for {best}", machine.name);
        sum += speed;
    }
    let mean = sum / recorded().len() as f64;
    println!("{}: {mean:.3} in the mean", machine.name);
    mean
}

#[test]
fn the_planner_keeps_up_with_the_best_fixed_length() {
    if !demo::available() {
        return;
    }
    for machine in &MACHINES {
        let mean = mean_speed(machine, &mut Planner::new(Learned::default()));
        assert!(mean >= 1.45, "{}: {mean} in the mean", machine.name);
    }
}

/// What was learned while rows cost little does no harm when they suddenly cost much.
#[test]
fn a_slow_spell_is_met_well_from_its_first_rounds() {
    if !demo::available() {
        return;
    }
    let mut planner = Planner::new(Learned::default());
    mean_speed(&MACHINES[1], &mut planner);
    let mean = mean_speed(&SPELL, &mut planner);
    assert!(mean >= 1.2, "{mean} in the mean");
}
