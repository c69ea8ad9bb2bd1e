//! A decode session: the ids that are in the caches, and the answer being written.
//!
//! With S committed positions the anchor (the last answer token) stands at S and is not in the
//! target's cache. A round verifies `[anchor, drafts…]` at S, commits the drafts that match and
//! one token of the target's own, and cuts the caches to S + committed. The caller owns the
//! loop: [`Session::begin`], [`Session::prefill_next`] until the first token is there, then
//! [`Session::round`] until the answer is finished.

use super::accept::longest_match;
use super::block_length::{Limits, Planner};
use super::repeats::continuation;
use super::sampler::Sampler;
use crate::event::{BlockSize, DraftSource, FinishReason, Mode, PlannedBy, Sampling};
use crate::model::networks::{Networks, Proposal};
use crate::model::ops::Choice;
use anyhow::{Result, bail, ensure};
use std::time::Instant;

/// What shapes one answer.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// How it decodes.
    pub mode: Mode,
    /// How long blocks may be.
    pub block_size: BlockSize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Most tokens of the answer; at least 1.
    pub max_tokens: usize,
    /// Tokens at which an answer ends.
    pub end_tokens: Vec<u32>,
    /// Most positions for prompt and answer.
    pub ctx_limit: usize,
}

/// The networks, the ids in their caches, and the answer in progress.
pub struct Session {
    networks: Box<dyn Networks>,
    /// The ids of the target's committed positions.
    ids: Vec<u32>,
    planner: Planner,
    run: Option<Run>,
}

/// An answer in progress.
struct Run {
    settings: RunSettings,
    sampler: Sampler,
    /// Prompt ids that are not in the cache yet.
    to_prefill: Vec<u32>,
    prefilled: usize,
    /// The last answer token.
    anchor: Option<u32>,
    produced: usize,
    rounds: usize,
    finished: Option<FinishReason>,
}

/// How far the prompt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefill {
    /// Tokens processed in this run.
    pub done: usize,
    /// Tokens to process in this run.
    pub total: usize,
    /// The first answer token, once the prompt is done.
    pub first: Option<u32>,
}

/// What happened in a round; the ids behind [`crate::event::Round`].
#[derive(Debug, Clone)]
pub struct RoundRecord {
    /// 0 for the first round of a run.
    pub index: usize,
    /// Absolute position of the anchor.
    pub position: usize,
    /// Why the block was this long.
    pub planned_by: PlannedBy,
    /// Where the drafts came from.
    pub source: DraftSource,
    /// The last committed token before the round.
    pub anchor: u32,
    /// Drafts that were verified.
    pub drafted: Vec<Proposal>,
    /// Drafts that were proposed after those.
    pub unsent: Vec<Proposal>,
    /// The target's choice at each row.
    pub choices: Vec<Choice>,
    /// Drafts that were kept.
    pub accepted: usize,
    /// Tokens added to the answer.
    pub committed: Vec<u32>,
    /// What the planner expected to commit.
    pub expected: Option<f32>,
    /// Time of the draft's pass.
    pub draft_us: u64,
    /// Time of the target's pass.
    pub verify_us: u64,
    /// All other time.
    pub other_us: u64,
}

impl Session {
    /// A session with empty caches.
    pub fn new(networks: Box<dyn Networks>, planner: Planner) -> Self {
        Session { networks, ids: Vec::new(), planner, run: None }
    }

    /// The networks, e.g. to measure a pass.
    pub fn networks(&mut self) -> &mut dyn Networks {
        self.networks.as_mut()
    }

    /// What the planner has learned.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Ids in the target's cache.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Why the answer ended; `None` while it has not.
    pub fn finished(&self) -> Option<FinishReason> {
        self.run.as_ref().and_then(|run| run.finished.clone())
    }

    /// Forget everything in the caches.
    pub fn forget(&mut self) {
        self.networks.rewind(0);
        self.ids.clear();
        self.run = None;
    }

    /// Start an answer to `prompt`: keep the longest prefix that the caches already hold.
    /// Returns how many tokens that is. At least one prompt token is always processed, since
    /// its row gives the first answer token.
    pub fn begin(&mut self, prompt: &[u32], settings: RunSettings) -> Result<usize> {
        self.run = None;
        ensure!(!prompt.is_empty(), "the prompt is empty; there is nothing to answer");
        ensure!(settings.max_tokens >= 1, "an answer of 0 tokens was asked for");
        let limit = settings.ctx_limit.min(self.networks.max_positions());
        if prompt.len() >= limit {
            let raise = if self.networks.knows_more() { ", or raise --ctx" } else { "" };
            bail!(
                "the prompt has {} tokens and the context {limit}; shorten it or start a new \
                 conversation{raise}",
                prompt.len()
            );
        }
        if let Some(id) = prompt.iter().find(|id| **id as usize >= self.networks.vocab()) {
            bail!("token {id} is outside the target's vocabulary of {}", self.networks.vocab());
        }
        let common = self.ids.iter().zip(prompt).take_while(|(have, want)| have == want).count();
        let mut keep = common.min(prompt.len() - 1);
        if settings.mode == Mode::Speculative && self.networks.block_size() > 1 {
            // What the draft does not know must pass through the target again.
            keep = keep.min(self.networks.drafted_len());
        }
        let kept = self.networks.rewind(keep);
        self.ids.truncate(kept);
        let sampler = Sampler::new(settings.sampling.clone(), settings.seed);
        self.planner.begin(!sampler.is_greedy());
        self.run = Some(Run {
            settings: RunSettings { ctx_limit: limit, ..settings },
            sampler,
            to_prefill: prompt[kept..].to_vec(),
            prefilled: 0,
            anchor: None,
            produced: 0,
            rounds: 0,
            finished: None,
        });
        Ok(kept)
    }

    /// Process the next chunk of the prompt; the last chunk gives the first answer token.
    pub fn prefill_next(&mut self) -> Result<Prefill> {
        let Some(run) = &mut self.run else { bail!("no answer was begun") };
        let total = run.to_prefill.len();
        let start = run.prefilled;
        let end = (start + self.networks.prefill_rows()).min(total);
        let last = end == total;
        let taps = run.settings.mode == Mode::Speculative;
        if start < end {
            let chunk = &run.to_prefill[start..end];
            self.networks.prefill(chunk, taps, last)?;
            self.ids.extend_from_slice(chunk);
            run.prefilled = end;
        }
        if last && run.anchor.is_none() {
            let first = choose(self.networks.as_mut(), &mut run.sampler, &self.ids, &[])?;
            let Some(first) = first.first() else { bail!("the target gave no logits") };
            run.anchor = Some(first.id);
            run.produced = 1;
            run.finish_at(first.id, self.ids.len());
        }
        Ok(Prefill { done: end, total, first: run.anchor.filter(|_| last) })
    }

    /// One round. Must not be called on a finished answer.
    pub fn round(&mut self) -> Result<RoundRecord> {
        let start = Instant::now();
        let Some(run) = &mut self.run else { bail!("no answer was begun") };
        let Some(anchor) = run.anchor else { bail!("the prompt is not processed yet") };
        ensure!(run.finished.is_none(), "the answer is finished");
        let position = self.ids.len();
        ensure!(
            self.networks.len() == position,
            "the caches hold {} positions, the session {position}",
            self.networks.len()
        );
        let speculative = run.settings.mode == Mode::Speculative;
        let limits = Limits {
            block: if speculative { self.networks.block_size() } else { 1 },
            budget: run.settings.max_tokens - run.produced,
            // The anchor is a token of the context too.
            room: run.settings.ctx_limit - position - 1,
            context: position,
        };
        let plan = self.planner.plan(run.settings.block_size, &limits);

        let repeat = match (speculative, run.settings.block_size) {
            (true, BlockSize::Auto) => continuation(&self.ids, anchor, limits.most_drafts()),
            _ => Vec::new(),
        };
        let (trimmed, mut drafted, draft_us, source) =
            match self.planner.prefer(&plan, &repeat, &limits) {
                Some(plan) => (plan, repeat.clone(), 0, DraftSource::Ngram),
                None => {
                    let start = Instant::now();
                    let drafted = match plan.drafts {
                        0 => Vec::new(),
                        n => self.networks.propose(anchor, n)?,
                    };
                    let us = if drafted.is_empty() { 0 } else { micros(start) };
                    (self.planner.trim(&plan, &drafted, &limits), drafted, us, DraftSource::Draft)
                }
            };
        let unsent = drafted.split_off(trimmed.drafts.min(drafted.len()));

        let verify_start = Instant::now();
        let mut block = vec![anchor];
        block.extend(drafted.iter().map(|draft| draft.id));
        self.networks.verify(&block, speculative)?;
        let choices = choose(self.networks.as_mut(), &mut run.sampler, &self.ids, &block)?;
        let verify_us = micros(verify_start);

        let chosen: Vec<u32> = choices.iter().map(|choice| choice.id).collect();
        let Some(verdict) = longest_match(&block[1..], &chosen) else {
            bail!("the target gave {} rows of logits for {}", chosen.len(), block.len())
        };
        let mut committed: Vec<u32> = block[1..1 + verdict.accepted].to_vec();
        committed.push(verdict.own);
        // An end token inside the block ends the answer: nothing after it exists.
        if let Some(i) = committed.iter().position(|id| run.settings.end_tokens.contains(id)) {
            committed.truncate(i + 1);
        }
        committed.truncate(run.settings.max_tokens - run.produced);
        self.planner.observe_repeat(&repeat, &committed);
        let kept = committed.len();
        self.networks.commit(kept)?;
        self.ids.extend_from_slice(&block[..kept]);
        run.produced += kept;
        let last = committed[kept - 1];
        run.anchor = Some(last);
        run.finish_at(last, self.ids.len());
        let accepted = verdict.accepted.min(kept);
        let index = run.rounds;
        run.rounds += 1;
        let other_us = micros(start).saturating_sub(draft_us + verify_us);
        let record = RoundRecord {
            index,
            position,
            planned_by: trimmed.planned_by,
            source: if drafted.is_empty() { DraftSource::Plain } else { source },
            anchor,
            drafted,
            unsent,
            choices,
            accepted,
            committed,
            expected: trimmed.expected,
            draft_us,
            verify_us,
            other_us,
        };
        self.planner.observe(&record, verdict.accepted);
        Ok(record)
    }

    /// End the answer before all of the last round's tokens: keep `answer` tokens of it (the next
    /// one completed a stop string).
    pub fn cut(&mut self, answer: usize, reason: FinishReason) {
        let Some(run) = &mut self.run else { return };
        let surplus = run.produced.saturating_sub(answer);
        let len = self.ids.len().saturating_sub(surplus);
        let kept = self.networks.rewind(len);
        self.ids.truncate(kept);
        run.produced -= surplus;
        run.finished = Some(reason);
    }

    /// End the answer where it stands.
    pub fn stop(&mut self, reason: FinishReason) {
        if let Some(run) = &mut self.run {
            run.finished = Some(reason);
        }
    }

    /// After a failed pass the caches may hold rows that are not committed: cut them.
    pub fn recover(&mut self) {
        let len = self.ids.len().min(self.networks.len());
        let kept = self.networks.rewind(len);
        self.ids.truncate(kept);
        self.stop(FinishReason::Failed);
    }
}

impl Run {
    /// Note why the answer ends with `last`, if it does; `positions` are in the cache, and `last`
    /// is not.
    fn finish_at(&mut self, last: u32, positions: usize) {
        self.finished = if self.settings.end_tokens.contains(&last) {
            Some(FinishReason::Eos)
        } else if self.produced >= self.settings.max_tokens {
            Some(FinishReason::MaxTokens)
        } else if positions + 1 >= self.settings.ctx_limit {
            Some(FinishReason::ContextFull)
        } else {
            None
        };
    }
}

/// The target's choice at each row of the last pass. `before` are the committed ids and `block`
/// the rows of the pass (empty after a prefill, whose last row is already committed).
fn choose(
    networks: &mut dyn Networks,
    sampler: &mut Sampler,
    before: &[u32],
    block: &[u32],
) -> Result<Vec<Choice>> {
    if sampler.is_greedy() {
        return networks.choices();
    }
    let vocab = networks.vocab();
    let mut logits = networks.logits()?;
    let mut context = before.to_vec();
    let mut choices = Vec::new();
    for (i, row) in logits.chunks_exact_mut(vocab).enumerate() {
        context.extend(block.get(i));
        choices.push(sampler.choose(row, &context));
    }
    Ok(choices)
}

fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}
