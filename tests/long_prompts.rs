//! bugs.md B38: prompts longer than any table or cache was at first, up to the last position and
//! beyond it.

use dflash_chat::decode::block_length::{Learned, Planner};
use dflash_chat::decode::session::{RunSettings, Session};
use dflash_chat::event::{BlockSize, FinishReason, Mode, Sampling};
use dflash_chat::model::decoder::Decoder;
use dflash_chat::model::draft::Draft;
use dflash_chat::model::networks::Networks;
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::device::DeviceOps;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::{Ops, Quantise};
use dflash_chat::model::pair::Pair;
use dflash_chat::model::weights::{open_draft, open_target};
use std::path::PathBuf;

/// Positions of caches and rotary tables.
const MOST: usize = 4200;

fn pair<O: Ops>(ops: O, name: &str) -> Pair<O> {
    let folder: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/models", name].iter().collect();
    let target = open_target(&folder).unwrap();
    let files = open_draft(&folder.join("draft"), &target.config, None).unwrap();
    let target = Decoder::load(&ops, &target, MOST, &mut |_, _| Ok(())).unwrap();
    let draft = Draft::load(&ops, &files, &target, MOST, false, &mut |_, _| Ok(())).unwrap();
    Pair::new(ops, target, Some(draft), MOST)
}

fn kernels(name: &str) -> Pair<Cpu> {
    pair(Cpu::new(2, Quantise::None, KvType::F32), name)
}

fn candle(name: &str) -> Pair<DeviceOps> {
    pair(DeviceOps::new(candle_core::Device::Cpu, Quantise::None), name)
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| 20 + i.wrapping_mul(7919) % 250).collect()
}

/// The answer's ids, and why it ended; or what was said instead.
fn answer(
    session: &mut Session,
    len: usize,
    mode: Mode,
) -> Result<(Vec<u32>, FinishReason), String> {
    let settings = RunSettings {
        mode,
        block_size: BlockSize::Fixed(4),
        sampling: Sampling::default(),
        seed: 0,
        max_tokens: 24,
        end_tokens: vec![],
        ctx_limit: MOST,
    };
    session.begin(&prompt(len), settings).map_err(|why| why.to_string())?;
    let first = loop {
        if let Some(first) = session.prefill_next().unwrap().first {
            break first;
        }
    };
    let mut ids = vec![first];
    while session.finished().is_none() {
        ids.extend(session.round().unwrap().committed);
    }
    Ok((ids, session.finished().unwrap()))
}

fn all_lengths<O: Ops>(make: fn(&str) -> Pair<O>) {
    for name in ["llama3-rope", "gemma3-text", "qwen3-tied"] {
        let session = || Session::new(Box::new(make(name)), Planner::new(Learned::default()));
        let (mut speculative, mut plain) = (session(), session());
        for (len, tokens, reason) in [
            (1025, 24, FinishReason::MaxTokens),
            (4097, 24, FinishReason::MaxTokens),
            (MOST - 2, 2, FinishReason::ContextFull),
            (MOST - 1, 1, FinishReason::ContextFull),
        ] {
            let drafted = answer(&mut speculative, len, Mode::Speculative).unwrap();
            assert_eq!((drafted.0.len(), &drafted.1), (tokens, &reason), "{name}, {len}");
            assert_eq!(drafted, answer(&mut plain, len, Mode::Baseline).unwrap(), "{name}, {len}");
        }
        for len in [MOST, MOST + 1] {
            let said = answer(&mut speculative, len, Mode::Speculative).unwrap_err();
            let wanted = format!("the prompt has {len} tokens and the context {MOST}");
            assert!(said.starts_with(&wanted), "{said}");
        }
        assert!(answer(&mut speculative, 30, Mode::Speculative).is_ok(), "{name}");
    }
}

#[test]
fn kernels_take_prompts_of_any_length_that_fits() {
    all_lengths(kernels);
}

#[test]
fn the_code_path_of_gpus_does_too() {
    all_lengths(candle);
}

#[test]
fn long_prompts_have_the_same_logits_on_both() {
    for name in ["llama3-rope", "gemma3-text"] {
        let (mut kernels, mut candle) = (kernels(name), candle(name));
        for len in [1025, 4097] {
            let text = prompt(len);
            let last = |networks: &mut dyn Networks| {
                networks.rewind(0);
                let (most, rest) = text.split_at(len - 1);
                for chunk in most.chunks(256) {
                    networks.prefill(chunk, false, false).unwrap();
                }
                networks.prefill(rest, false, true).unwrap();
                networks.logits().unwrap()
            };
            let (wanted, got) = (last(&mut kernels), last(&mut candle));
            let size = wanted.iter().fold(0f32, |size, x| size.max(x.abs()));
            let error = wanted.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error < 1e-3 * size, "{name}, {len}: {error} of {size}");
        }
    }
}
