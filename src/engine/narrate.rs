//! From ids to events: text, token pieces, figures. Pure; the worker feeds it.

use crate::decode::detokenize::Detokenizer;
use crate::decode::session::RoundRecord;
use crate::decode::stop::StopMatcher;
use crate::event::{DraftedToken, EngineEvent, FinishReason, Round, Token};
use crate::model::networks::Proposal;
use crate::model::tokenizer::Tokenizer;
use crate::stats::RunStats;
use std::time::{Duration, Instant};

/// Tells one answer.
pub struct Narrator<'a> {
    tokenizer: &'a Tokenizer,
    detokenizer: Detokenizer,
    stop: StopMatcher,
    stats: RunStats,
    start: Instant,
    ttft: Duration,
    prefill: (usize, Duration),
    answer_tokens: usize,
    /// Answer tokens before the one that completed a stop string, once one was met.
    stopped: Option<usize>,
}

impl<'a> Narrator<'a> {
    /// For an answer that was asked for at `start`.
    pub fn new(tokenizer: &'a Tokenizer, stop: &[String], start: Instant) -> Self {
        Narrator {
            tokenizer,
            detokenizer: Detokenizer::new(tokenizer),
            stop: StopMatcher::new(stop),
            stats: RunStats::default(),
            start,
            ttft: Duration::ZERO,
            prefill: (0, Duration::ZERO),
            answer_tokens: 0,
            stopped: None,
        }
    }

    /// The prompt is processed (`tokens` of it, in `took`) and `first` is the first answer token.
    pub fn first(&mut self, first: u32, tokens: usize, took: Duration) -> (Token, String) {
        self.ttft = self.start.elapsed();
        self.prefill = (tokens, took);
        let (text, _) = self.text_of(&[first]);
        (self.token(first), text)
    }

    /// A round's event. Of a round that completes a stop string only the tokens before that one
    /// are committed.
    pub fn round(&mut self, record: RoundRecord, kv_len: usize) -> Round {
        let (text, kept) = self.text_of(&record.committed);
        let committed: Vec<Token> =
            record.committed[..kept].iter().map(|&id| self.token(id)).collect();
        let surplus = record.committed.len() - kept;
        let round = Round {
            index: record.index,
            position: record.position,
            block_size: record.drafted.len() + 1,
            planned_by: record.planned_by,
            source: record.source,
            anchor: self.token(record.anchor),
            drafted: self.drafted(&record.drafted),
            unsent: self.drafted(&record.unsent),
            target: record.choices.iter().map(|choice| self.token(choice.id)).collect(),
            margins: match record.choices.iter().all(|choice| choice.margin.is_finite()) {
                true => record.choices.iter().map(|choice| choice.margin).collect(),
                false => Vec::new(),
            },
            accepted: record.accepted.min(kept),
            committed,
            text,
            expected: record.expected,
            draft_us: record.draft_us,
            verify_us: record.verify_us,
            other_us: record.other_us,
            kv_len: kv_len - surplus,
        };
        self.stats.add(&round);
        round
    }

    /// The text that was held back for a stop string that did not come; asked for when the
    /// answer ends, and part of its last event.
    pub fn rest(&mut self) -> String {
        self.stop.finish()
    }

    /// Whether text is held back because a stop string may have begun.
    pub fn holds_back(&self) -> bool {
        self.stop.holds_back()
    }

    /// How many answer tokens come before the one that completed a stop string, once one was met.
    pub fn stopped(&self) -> Option<usize> {
        self.stopped
    }

    /// The answer ended.
    pub fn finished(&self, reason: FinishReason) -> EngineEvent {
        let (tokens, took) = self.prefill;
        let totals =
            self.stats.totals(self.ttft.as_micros() as u64, tokens, took.as_micros() as u64);
        EngineEvent::RunFinished { reason, totals }
    }

    /// The text that `ids` add, and how many of them are kept: all, unless one completes a stop
    /// string; then those before it. The text ends where the stop string begins, which may be
    /// within one of those, or before some of them.
    fn text_of(&mut self, ids: &[u32]) -> (String, usize) {
        let mut text = String::new();
        for (i, &id) in ids.iter().enumerate() {
            self.answer_tokens += 1;
            let seen = self.stop.push(&self.detokenizer.push(&[id]));
            text.push_str(&seen.text);
            if seen.stopped {
                self.stopped = Some(self.answer_tokens - 1);
                self.answer_tokens -= 1;
                return (text, i);
            }
        }
        (text, ids.len())
    }

    fn token(&self, id: u32) -> Token {
        Token { id, text: self.tokenizer.piece(id) }
    }

    fn drafted(&self, proposals: &[Proposal]) -> Vec<DraftedToken> {
        let token = |p: &Proposal| {
            let Token { id, text } = self.token(p.id);
            DraftedToken { id, text, prob: p.prob }
        };
        proposals.iter().map(token).collect()
    }
}
