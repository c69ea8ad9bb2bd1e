//! How long the next block is: as long as it pays.
//!
//! Three decisions a round, all by expected time saved against plain steps:
//! 1. Before drafting ([`Planner::plan`]): draft at all? Drafting goes on while the advantage
//!    of recent drafted rounds is positive: the time that plain steps would have taken for the
//!    tokens they were expected to commit, less what they cost. Otherwise plain steps, with a
//!    drafted round now and then to see whether the text has turned predictable; each failed
//!    probe makes the next one rarer.
//! 2. How many slots the draft shall fill ([`super::slot_gains`]): each costs time, also where it
//!    is not verified. Now and then all are filled, to see whether more have become worth it.
//! 3. After drafting ([`Planner::trim`]): how many of the proposed drafts to verify. The draft's
//!    time is spent; each row more is worth the chance that its draft is committed and costs
//!    the verify curve's slope. The best number maximises `tokens − rate · verify time`, where
//!    the rate (tokens a microsecond) is what decoding makes lately: the marginal rule that
//!    maximises tokens per time in the long run.
//!
//! Where the text repeats itself ([`super::repeats`]), [`Planner::prefer`] may take what followed
//! there instead of asking the draft: if that is worth more than drafted rounds are lately.

use super::acceptance::AcceptanceModel;
use super::cost::CostModel;
use super::session::RoundRecord;
use super::slot_gains::SlotGains;
use crate::event::{BlockSize, DraftSource, PlannedBy};
use crate::model::networks::Proposal;
use serde::{Deserialize, Serialize};

/// The gain of drafted rounds is a mean over about `1 / (1 − this)` of them.
const GAIN_MEMORY: f64 = 0.95;
/// The advantage is a mean over about `1 / (1 − this)` drafted rounds.
const ADVANTAGE_MEMORY: f64 = 0.9;
/// Plain rounds between two probes: at first, and at most.
const PROBE_GAPS: (u32, u32) = (6, 96);
/// Drafted rounds after which all slots are filled again.
const ALL_SLOTS_CHECK: u32 = 32;
/// Plain steps that make a cost to rely on, and rounds between two of them until then.
const PLAIN_SAMPLES: u32 = 6;
const PLAIN_SPACING: u32 = 3;
/// Rounds after which a plain step is measured again.
const PLAIN_CHECK: u32 = 160;

/// What bounds the next block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The draft's block size, anchor included; 1 where nothing can be drafted.
    pub block: usize,
    /// Answer tokens that may still be added.
    pub budget: usize,
    /// Positions that are left.
    pub room: usize,
    /// Positions in the cache.
    pub context: usize,
}

impl Limits {
    /// Drafts that fit: the round's own token takes a place too.
    pub fn most_drafts(&self) -> usize {
        self.block.min(self.budget).min(self.room).max(1) - 1
    }
}

/// How many drafts, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Drafts to propose or to verify; 0 is a plain step.
    pub drafts: usize,
    /// Why that many.
    pub planned_by: PlannedBy,
    /// Why there are drafts: `planned_by` before budget or room cut the plan. What is done with
    /// the drafts depends on it alone.
    pub purpose: PlannedBy,
    /// Tokens that the round is expected to commit.
    pub expected: Option<f32>,
}

impl Plan {
    /// To verify only what is worth it. A plan that this shortens was not cut by budget or room.
    fn to_verify(self, worth: &Worth) -> Plan {
        let shorter = worth.drafts < self.drafts;
        let planned_by = if shorter { self.purpose } else { self.planned_by };
        Plan { drafts: worth.drafts, planned_by, expected: Some(worth.tokens as f32), ..self }
    }
}

/// What verifying the best number of proposals is worth.
struct Worth {
    drafts: usize,
    /// Tokens that it is expected to commit.
    tokens: f64,
    /// Tokens more than a plain step, less what the additional time would make elsewhere.
    gain: f64,
    /// Tokens to expect if all proposals were verified.
    all: f64,
    /// The best gain among the first proposal, the first two, and so on.
    by_slots: Vec<f64>,
}

/// What was learned of a pair on a machine; kept between runs of the program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Learned {
    /// Passes of the target by number of rows, choosing tokens included.
    pub verify: CostModel,
    /// Passes of the draft by number of drafts.
    pub draft: CostModel,
    /// Chances of acceptance where the target takes the likeliest token.
    pub greedy: Chances,
    /// Those where it draws, which no draft foresees as well.
    pub sampled: Chances,
}

/// Chances of acceptance, and what they are worth.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Chances {
    /// Of the draft's proposals.
    pub draft: AcceptanceModel,
    /// What the draft's slots bring.
    pub slots: SlotGains,
    /// Of tokens that followed earlier in the text.
    pub repeats: AcceptanceModel,
}

/// Chooses block lengths.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Planner {
    learned: Learned,
    /// The target draws its tokens.
    sampled: bool,
    /// Mean time saved by a drafted round, in microseconds; `None` before the first.
    advantage: Option<f64>,
    /// Mean worth of a drafted round, in tokens more than a plain step of the same time.
    draft_gain: f64,
    /// Tokens and microseconds of recent rounds, for the rate.
    recent: (f64, f64),
    plain_rounds: u32,
    probe_gap: u32,
    since_plain: u32,
    /// Drafted rounds since all slots were filled.
    since_all_slots: u32,
}

impl Planner {
    /// A planner that goes on from what was learned before.
    pub fn new(learned: Learned) -> Self {
        Planner { learned, probe_gap: PROBE_GAPS.0, ..Planner::default() }
    }

    /// What was learned so far.
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Begin an answer whose tokens are drawn (`sampled`), or not. What rounds of the other kind
    /// gained lately says nothing of these.
    pub fn begin(&mut self, sampled: bool) {
        if sampled != self.sampled {
            let learned = std::mem::take(&mut self.learned);
            *self = Planner { sampled, ..Planner::new(learned) };
        }
    }

    fn chances(&self) -> &Chances {
        if self.sampled { &self.learned.sampled } else { &self.learned.greedy }
    }

    fn chances_mut(&mut self) -> &mut Chances {
        if self.sampled { &mut self.learned.sampled } else { &mut self.learned.greedy }
    }

    /// How many slots the draft shall fill.
    pub fn plan(&mut self, asked: BlockSize, limits: &Limits) -> Plan {
        let most = limits.most_drafts();
        let (wanted, purpose) = match asked {
            BlockSize::Fixed(n) => (n.clamp(1, limits.block.max(1)) - 1, PlannedBy::Fixed),
            BlockSize::Auto => self.wanted(limits.block.saturating_sub(1), limits.context),
        };
        let planned_by = match wanted <= most {
            true => purpose,
            false if limits.room <= limits.budget => PlannedBy::Room,
            false => PlannedBy::Budget,
        };
        Plan { drafts: wanted.min(most), planned_by, purpose, expected: None }
    }

    /// Drafts worth proposing, out of at most `most`.
    fn wanted(&self, most: usize, context: usize) -> (usize, PlannedBy) {
        if most == 0 {
            return (0, PlannedBy::Auto);
        }
        // Without plain steps there is nothing to compare with, and one alone may be a slow one.
        let seen = self.learned.verify.samples_of(1, context);
        let enough = seen >= PLAIN_SAMPLES || (seen > 0 && self.since_plain < PLAIN_SPACING);
        if !enough || self.since_plain >= PLAIN_CHECK {
            return (0, PlannedBy::Probe);
        }
        if self.advantage.is_some_and(|advantage| advantage < 0.0) {
            return match self.plain_rounds < self.probe_gap {
                true => (0, PlannedBy::Auto),
                false => (self.slots(most, context), PlannedBy::Probe),
            };
        }
        (self.slots(most, context), PlannedBy::Auto)
    }

    /// Slots worth filling, of `most`.
    fn slots(&self, most: usize, context: usize) -> usize {
        if self.since_all_slots >= ALL_SLOTS_CHECK {
            return most;
        }
        let rate = self.rate(context);
        let cost = |n| rate * self.learned.draft.at(n, context).unwrap_or(0.0);
        self.chances().slots.worth_filling(most, cost)
    }

    /// Tokens a microsecond that decoding makes lately, at least the plain rate.
    fn rate(&self, context: usize) -> f64 {
        let plain = self.learned.verify.at(1, context).map_or(0.0, |us| 1.0 / us);
        let (tokens, us) = self.recent;
        if us > 0.0 { plain.max(tokens / us) } else { plain }
    }

    /// The number of `drafts` whose verification is worth most; `None` while costs are unknown.
    fn worth(
        &self,
        acceptance: &AcceptanceModel,
        drafts: &[Proposal],
        context: usize,
    ) -> Option<Worth> {
        let verify = |rows: usize| self.learned.verify.at(rows, context);
        let plain = verify(1)?;
        let rate = self.rate(context);
        let by_slots = Vec::with_capacity(drafts.len());
        let mut best = Worth { drafts: 0, tokens: 1.0, gain: 0.0, all: 1.0, by_slots };
        let (mut tokens, mut survival) = (1.0, 1.0);
        for (i, draft) in drafts.iter().enumerate() {
            survival *= acceptance.chance(i, draft);
            tokens += survival;
            let gain = tokens - 1.0 - rate * (verify(i + 2).unwrap_or(plain) - plain);
            best.all = tokens;
            if gain > best.gain {
                best = Worth { drafts: i + 1, tokens, gain, ..best };
            }
            best.by_slots.push(best.gain);
        }
        Some(best)
    }

    /// Whether to verify `repeat`, what followed earlier in the text, instead of the draft's
    /// block that `plan` asks for, and how much of it.
    pub fn prefer(&self, plan: &Plan, repeat: &[Proposal], limits: &Limits) -> Option<Plan> {
        // Fixed lengths are the draft's alone, and a probe has a question of its own.
        if plan.purpose != PlannedBy::Auto {
            return None;
        }
        let worth = self.worth(&self.chances().repeats, repeat, limits.context)?;
        let rival = if plan.drafts == 0 { 0.0 } else { self.draft_gain.max(0.0) };
        (worth.gain > rival).then(|| plan.to_verify(&worth))
    }

    /// How many of the proposed drafts shall be verified.
    pub fn trim(&mut self, plan: &Plan, drafted: &[Proposal], limits: &Limits) -> Plan {
        let context = limits.context;
        let verify = |rows: usize| self.learned.verify.at(rows, context);
        let worth = self.worth(&self.chances().draft, drafted, context);
        let (Some(plain), Some(worth), false) = (verify(1), worth, drafted.is_empty()) else {
            return Plan { expected: drafted.is_empty().then_some(1.0), ..*plan };
        };
        let draft_us = self.learned.draft.at(drafted.len(), context).unwrap_or(0.0);
        let spent = draft_us + verify(worth.drafts + 1).unwrap_or(plain);
        let saved = worth.tokens * plain - spent;
        let gain = worth.gain - self.rate(context) * draft_us;
        self.chances_mut().slots.observe(&worth.by_slots);
        let all_slots = drafted.len() + 1 >= limits.block;
        self.since_all_slots = if all_slots { 0 } else { self.since_all_slots + 1 };
        self.draft_gain = GAIN_MEMORY * self.draft_gain + (1.0 - GAIN_MEMORY) * gain;
        self.advantage = Some(match self.advantage {
            None => saved,
            Some(mean) => ADVANTAGE_MEMORY * mean + (1.0 - ADVANTAGE_MEMORY) * saved,
        });
        if plan.purpose == PlannedBy::Probe {
            // A probe that would have paid is believed at once; one that did not makes the
            // next one rarer.
            self.probe_gap = match saved > 0.0 {
                true => PROBE_GAPS.0,
                false => (self.probe_gap * 2).min(PROBE_GAPS.1),
            };
            if saved > 0.0 {
                self.advantage = Some(saved);
            }
        }
        match plan.purpose {
            PlannedBy::Fixed => Plan { expected: Some(worth.all as f32), ..*plan },
            _ => plan.to_verify(&worth),
        }
    }

    /// Learn what `repeat` would have been worth, whether it was verified or not: the tokens
    /// that a round committed judge it up to the first that differs.
    pub fn observe_repeat(&mut self, repeat: &[Proposal], committed: &[u32]) {
        let judged = repeat.len().min(committed.len());
        let same = repeat.iter().zip(committed).take_while(|(p, id)| p.id == **id).count();
        self.chances_mut().repeats.observe(&repeat[..judged], same, same < judged);
    }

    /// The target's choices judge the drafts up to the first that differs: also the first one
    /// that was not sent, if all before it were accepted. (Were only sent ones counted, a draft
    /// that is thought useless could never prove otherwise.)
    fn learn_acceptance(&mut self, round: &RoundRecord, matched: usize) {
        // What lies after an end token says nothing of the draft.
        if round.committed.len() <= matched {
            let judged = &round.drafted[..round.committed.len().min(round.drafted.len())];
            return self.chances_mut().draft.observe(judged, judged.len(), false);
        }
        let mut proposals = round.drafted.clone();
        let mut accepted = matched;
        if let (true, Some(next)) = (matched == round.drafted.len(), round.unsent.first()) {
            proposals.push(*next);
            accepted += usize::from(round.choices.get(matched).is_some_and(|c| c.id == next.id));
        }
        let rejected = accepted < proposals.len();
        self.chances_mut().draft.observe(&proposals, accepted, rejected);
    }

    /// Learn from a round; `matched` drafts agreed with the target, before an end token or a
    /// limit cut the round.
    pub fn observe(&mut self, round: &RoundRecord, matched: usize) {
        let rows = round.drafted.len() + 1;
        let context = round.position;
        self.learned.verify.observe(rows, context, round.verify_us as f64);
        // A draft that was asked counts, even if none of its proposals was verified.
        let proposed = match round.source {
            DraftSource::Ngram => 0,
            _ => round.drafted.len() + round.unsent.len(),
        };
        if proposed > 0 {
            self.learned.draft.observe(proposed, context, round.draft_us as f64);
            self.learn_acceptance(round, matched);
            self.plain_rounds = 0;
        } else if rows == 1 {
            self.plain_rounds += 1;
        }
        self.since_plain = if rows == 1 { 0 } else { self.since_plain + 1 };
        let verify = self.learned.verify.at(rows, context).unwrap_or(0.0);
        let draft = match proposed {
            0 => 0.0,
            n => self.learned.draft.at(n, context).unwrap_or(0.0),
        };
        let keep = 0.95;
        self.recent.0 = keep * self.recent.0 + (matched + 1) as f64;
        self.recent.1 = keep * self.recent.1 + verify + draft;
    }
}
