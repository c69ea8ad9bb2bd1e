//! Sliding windows: what a window has forgotten, and what a rejected block may need again.
//! Every round is rejected, at every place around a window's edge, and the numbers are those of
//! plain decoding, bit for bit.

use dflash_chat::model::config::DraftConfig;
use dflash_chat::model::decoder::Decoder;
use dflash_chat::model::draft::Draft;
use dflash_chat::model::networks::Networks;
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::device::DeviceOps;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::{AttentionSpec, HeadNorms, Ops, Quantise, RopeTable, TAKE_BACK};
use dflash_chat::model::pair::Pair;
use dflash_chat::model::weights::{open_draft, open_target};
use std::path::PathBuf;

/// Models with windows in the target, in the draft, or in both; all of 8 or 12 positions.
const MODELS: [&str; 6] = [
    "gemma3-text",
    "gemma3-multimodal",
    "gemma4-text",
    "gemma4-multimodal",
    "qwen2-own-embedding",
    "qwen3-tied",
];

fn pair<O: Ops>(ops: O, name: &str) -> Pair<O> {
    let folder: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/models", name].iter().collect();
    let positions = 4096;
    let target = open_target(&folder).unwrap();
    let files = open_draft(&folder.join("draft"), &target.config, None).unwrap();
    let target = Decoder::load(&ops, &target, positions, &mut |_, _| Ok(())).unwrap();
    let draft = Draft::load(&ops, &files, &target, positions, false, &mut |_, _| Ok(())).unwrap();
    Pair::new(ops, target, Some(draft), positions)
}

fn cpu(name: &str) -> Pair<Cpu> {
    pair(Cpu::new(2, Quantise::None, KvType::F32), name)
}

fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| 20 + i.wrapping_mul(7919) % 250).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The logits of each step of plain decoding that says `answer` after `prompt`.
fn plain(networks: &mut impl Networks, prompt: &[u32], answer: &[u32]) -> Vec<Vec<f32>> {
    networks.rewind(0);
    read(networks, prompt);
    answer
        .iter()
        .map(|id| {
            networks.verify(&[*id], false).unwrap();
            let logits = networks.logits().unwrap();
            networks.commit(1).unwrap();
            logits
        })
        .collect()
}

fn read(networks: &mut impl Networks, ids: &[u32]) {
    for chunk in ids.chunks(256) {
        networks.prefill(chunk, true, false).unwrap();
    }
}

/// Rounds whose drafts are all rejected: the block's first row must be the plain step's, and the
/// draft must propose what it would have proposed without the rejections.
fn every_round_rejected<O: Ops>(
    networks: &mut Pair<O>,
    prompt: &[u32],
    answer: &[u32],
    block: usize,
    mut check: impl FnMut(usize, &[f32]),
) {
    networks.rewind(0);
    read(networks, prompt);
    for (i, id) in answer.iter().enumerate() {
        networks.propose(*id, block - 1).unwrap();
        // As wrong as can be, and other ones each time.
        let wrong = (0..block as u32 - 1).map(|j| 25 + (i as u32 * 31 + j * 17) % 240);
        let block: Vec<u32> = std::iter::once(*id).chain(wrong).collect();
        networks.verify(&block, true).unwrap();
        let logits = networks.logits().unwrap();
        check(i, &logits[..logits.len() / block.len()]);
        networks.commit(1).unwrap();
        assert_eq!(networks.len(), prompt.len() + i + 1);
        assert_eq!(networks.drafted_len(), networks.len());
    }
}

#[test]
fn rejections_at_every_place_around_a_window_change_nothing() {
    for name in MODELS {
        let mut networks = cpu(name);
        let block = networks.block_size();
        let text = ids(60);
        // From before the window is full to a block after it was passed, prompt by prompt.
        for prompt in 1..=8 + block {
            let (prompt, answer) = text[..prompt + 2 * block].split_at(prompt);
            let wanted = plain(&mut networks, prompt, answer);
            every_round_rejected(&mut networks, prompt, answer, block, |i, got| {
                assert!(bits(&wanted[i]) == bits(got), "{name}, {} + {i}", prompt.len());
            });
        }
    }
}

#[test]
fn rejections_on_a_gpus_code_path_change_little() {
    for name in MODELS {
        let ops = DeviceOps::new(candle_core::Device::Cpu, Quantise::None);
        let mut networks = pair(ops, name);
        let block = networks.block_size();
        let text = ids(40);
        for prompt in [1, 7, 8, 9, 12, 13, 20] {
            let (prompt, answer) = text[..prompt + block].split_at(prompt);
            let wanted = plain(&mut networks, prompt, answer);
            every_round_rejected(&mut networks, prompt, answer, block, |i, got| {
                near(&wanted[i], got, name);
            });
        }
    }
}

fn near(wanted: &[f32], got: &[f32], name: &str) {
    let size = wanted.iter().fold(0f32, |size, x| size.max(x.abs()));
    let error = wanted.iter().zip(got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(error < 1e-4 * size, "{name}: {error} of {size}");
}

/// Far beyond the window its cache has forgotten the beginning, more than once. Rejections, the
/// draft and the target go on as if it had not.
#[test]
fn what_a_window_has_forgotten_is_not_missed() {
    for name in ["gemma3-text", "gemma4-multimodal", "qwen3-tied"] {
        let mut networks = cpu(name);
        let block = networks.block_size();
        let text = ids(3 * TAKE_BACK);
        // In one pass nothing is forgotten: every row still sees its own window.
        let whole = {
            let ops = Cpu::new(2, Quantise::None, KvType::F32);
            let mut alone = pair(ops, name);
            alone.verify(&text, false).unwrap();
            alone.logits().unwrap()
        };
        let vocab = networks.vocab();
        let prompt = 2 * TAKE_BACK + 400;
        let answer = &text[prompt..prompt + 300];
        every_round_rejected(&mut networks, &text[..prompt], answer, block, |i, got| {
            let wanted = &whole[(prompt + i) * vocab..][..vocab];
            assert!(bits(wanted) == bits(got), "{name}, {}", prompt + i);
        });
    }
}

/// What was forgotten cannot be gone back to: then all is read again, by target and draft.
#[test]
fn a_rewind_into_what_is_forgotten_begins_anew() {
    for name in ["gemma3-text", "gemma4-multimodal", "qwen3-tied"] {
        let mut networks = cpu(name);
        let text = ids(2 * TAKE_BACK + 800);
        read(&mut networks, &text);
        let long = networks.len();
        // The last answer can be taken back.
        assert_eq!(networks.rewind(long - TAKE_BACK), long - TAKE_BACK, "{name}");
        assert_eq!(networks.drafted_len(), networks.len());
        read(&mut networks, &text[long - TAKE_BACK..]);
        let (answer, block) = (&text[..30], networks.block_size());
        let wanted = plain(&mut cpu(name), &text, answer);
        for (i, id) in answer.iter().enumerate() {
            networks.propose(*id, block - 1).unwrap();
            networks.verify(&[*id], true).unwrap();
            assert!(bits(&wanted[i]) == bits(&networks.logits().unwrap()), "{name} {i}");
            networks.commit(1).unwrap();
        }
        // The beginning cannot.
        assert_eq!(networks.rewind(100), 0, "{name}");
        assert_eq!((networks.len(), networks.drafted_len()), (0, 0));
        let wanted = plain(&mut cpu(name), &text[..100], answer);
        every_round_rejected(&mut networks, &text[..100], answer, block, |i, got| {
            assert!(bits(&wanted[i]) == bits(got), "{name}, after a rewind: {i}");
        });
    }
}

/// bugs.md B07: which positions each kind of draft layer sees, by what its config says of causality
/// and windows. Keys are all alike and values say their position, so that the result shows who was
/// looked at.
fn seen<O: Ops>(ops: &O, spec: &AttentionSpec) -> Vec<String> {
    let (context, block) = (6, 4);
    let norms = HeadNorms { q: None, k: None };
    let inv_freq = vec![0.0; spec.head_dim / 2];
    let rope = ops.rope(&RopeTable { inv_freq, magnitude: 1.0 }, 64).unwrap();
    let mut cache = ops.cache(spec, 64).unwrap();
    let rows = |positions: std::ops::Range<usize>, queries: usize| {
        let values = positions.flat_map(|position| {
            let mut row = vec![0.0; (queries + spec.kv_heads) * spec.head_dim];
            for _ in 0..spec.kv_heads {
                row.extend((0..spec.head_dim).map(|i| if i == position { 1.0 } else { 0.0 }));
            }
            row
        });
        let width = (queries + 2 * spec.kv_heads) * spec.head_dim;
        ops.upload(&values.collect::<Vec<f32>>(), width).unwrap()
    };
    ops.append(&rows(0..context, 0), spec, &norms, &rope, &mut cache, 0).unwrap();
    let block = rows(context..context + block, spec.heads);
    let result = ops.attend(&block, spec, &norms, &rope, &mut cache, context).unwrap();
    ops.download(&result)
        .unwrap()
        .chunks(spec.output_width())
        .map(|row| row[..10].iter().map(|x| if *x > 0.0 { '#' } else { '.' }).collect())
        .collect()
}

#[test]
fn each_kind_of_draft_layer_sees_what_it_should() {
    let folder: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/models/qwen2-own-embedding"].iter().collect();
    let target = open_target(&folder).unwrap().config;
    let text = std::fs::read_to_string(folder.join("draft/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["sliding_window"] = 3.into();
    let causal = ["#######...", "########..", "#########.", "##########"];
    let all = ["##########"; 4];
    let causal_window = ["....###...", ".....###..", "......###.", ".......###"];
    let window = ["....#####.", ".....#####", "......####", ".......###"];
    for (is_causal, sliding, full) in [
        (serde_json::Value::Null, causal_window, all),
        (true.into(), causal_window, causal),
        (false.into(), window, all),
    ] {
        config["is_causal"] = is_causal.clone();
        let draft = DraftConfig::from_hf(&config, &target, None).unwrap().config;
        let [first, second] = [0, 1].map(|i| &draft.layers[i].attention);
        assert_eq!((first.window, second.window), (Some(3), None));
        let cpu = Cpu::new(1, Quantise::None, KvType::F32);
        let candle = DeviceOps::new(candle_core::Device::Cpu, Quantise::None);
        for (spec, wanted) in [(first, sliding), (second, full)] {
            assert_eq!(seen(&cpu, spec), wanted, "is_causal {is_causal}");
            assert_eq!(seen(&candle, spec), wanted, "is_causal {is_causal}, candle");
        }
    }
}
