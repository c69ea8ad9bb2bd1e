//! Blocks whose fate is known, played under the planner on machines whose passes have fixed costs.
#![allow(dead_code)]

use dflash_chat::decode::block_length::{Limits, Planner};
use dflash_chat::decode::session::RoundRecord;
use dflash_chat::event::{BlockSize, DraftSource, PlannedBy};
use dflash_chat::model::networks::Proposal;
use dflash_chat::model::ops::Choice;

/// What passes cost, in microseconds.
pub struct Machine {
    pub name: &'static str,
    /// The target's, by rows.
    pub verify: fn(usize) -> f64,
    /// The draft's, by slots that it fills.
    pub draft: fn(usize) -> f64,
}

impl Machine {
    /// A round with so many slots filled and drafts verified.
    fn round_us(&self, filled: usize, verified: usize) -> f64 {
        let draft_us = if filled > 0 { (self.draft)(filled) } else { 0.0 };
        (self.verify)(verified + 1) + draft_us
    }
}

/// SplitMix64, as numbers in [0, 1).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The fate of one block: for each slot whether it would be accepted, and what the draft says.
#[derive(Clone)]
pub struct Block {
    pub right: Vec<bool>,
    pub probs: Vec<f32>,
}

impl Block {
    /// Drafts that are accepted where the first `sent` are verified.
    fn kept(&self, sent: usize) -> usize {
        self.right[..sent].iter().take_while(|right| **right).count()
    }
}

/// What became of blocks.
#[derive(Default)]
pub struct Played {
    pub rounds: usize,
    pub tokens: usize,
    pub us: f64,
    /// Slots that the draft filled.
    pub filled: usize,
}

/// Microseconds a token with a fixed number of drafts, over `tokens` or all blocks.
pub fn fixed(
    machine: &Machine,
    blocks: impl Iterator<Item = Block>,
    drafts: usize,
    tokens: usize,
) -> f64 {
    let mut played = Played::default();
    for block in blocks {
        if played.tokens >= tokens {
            break;
        }
        played.tokens += block.kept(drafts) + 1;
        played.us += machine.round_us(drafts, drafts);
    }
    played.us / played.tokens as f64
}

/// What the planner makes of blocks, over `tokens` or all of them. It is told times that differ by
/// up to a tenth from those that are counted.
pub fn planned(
    machine: &Machine,
    planner: &mut Planner,
    blocks: impl Iterator<Item = Block>,
    tokens: usize,
) -> Played {
    let mut noise = Random(2);
    let mut shaken = |us: f64| (us * (0.9 + 0.2 * noise.next())) as u64;
    let mut played = Played::default();
    for block in blocks {
        if played.tokens >= tokens {
            break;
        }
        let slots = block.right.len();
        let limits = Limits { block: slots + 1, budget: 1000, room: 1000, context: 100 };
        let plan = planner.plan(BlockSize::Auto, &limits);
        let proposal = |i: usize| Proposal { id: 1, prob: block.probs[i] };
        let mut drafted: Vec<Proposal> = (0..plan.drafts).map(proposal).collect();
        let trimmed = planner.trim(&plan, &drafted, &limits);
        let unsent = drafted.split_off(trimmed.drafts.min(drafted.len()));
        let sent = drafted.len();
        let kept = block.kept(sent);
        // Each row's choice: the draft's token where it is right, another where not.
        let choice = |i: usize| Choice { id: u32::from(block.right[i]), margin: 1.0, prob: 1.0 };
        let record = RoundRecord {
            drafted,
            unsent,
            choices: (0..=sent).map(|i| choice(i.min(slots - 1))).collect(),
            draft_us: if plan.drafts > 0 { shaken((machine.draft)(plan.drafts)) } else { 0 },
            verify_us: shaken((machine.verify)(sent + 1)),
            ..round(kept)
        };
        planner.observe(&record, kept);
        played.rounds += 1;
        played.tokens += kept + 1;
        played.filled += plan.drafts;
        played.us += machine.round_us(plan.drafts, sent);
    }
    played
}

/// A round that kept so many drafts.
pub fn round(kept: usize) -> RoundRecord {
    RoundRecord {
        index: 0,
        position: 100,
        planned_by: PlannedBy::Auto,
        source: DraftSource::Draft,
        anchor: 0,
        drafted: Vec::new(),
        unsent: Vec::new(),
        choices: Vec::new(),
        accepted: kept,
        committed: vec![1; kept + 1],
        expected: None,
        draft_us: 0,
        verify_us: 0,
        other_us: 0,
    }
}
