//! What the rounds of a run add up to. Pure: fed with events, asked for figures.
//!
//! Definitions, used everywhere in the program:
//! - τ = committed ÷ rounds (the first token, prefill's, is not counted);
//! - acceptance rate = accepted ÷ drafted (drafts that were sent to verification);
//! - position acceptance of slot i = how often draft i was accepted, of the rounds in which all
//!   drafts before it were accepted and draft i was sent (conditional);
//! - break-even τ = mean time of a speculative round ÷ time of a plain step.

use crate::event::{DraftSource, Round, Totals};

/// Sums over the rounds of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunStats {
    /// Rounds seen.
    pub rounds: usize,
    /// Tokens that they committed.
    pub committed: usize,
    /// Drafts that they verified.
    pub drafted: usize,
    /// Drafts that they kept.
    pub accepted: usize,
    /// Of the rounds that came to slot i with all before accepted: (accepted, judged).
    pub slots: Vec<(usize, usize)>,
    /// How many rounds committed n tokens, by n.
    pub committed_histogram: Vec<usize>,
    /// Time of the draft's passes.
    pub draft_us: u64,
    /// Time of the target's passes.
    pub verify_us: u64,
    /// All other time of the rounds.
    pub other_us: u64,
    /// Rounds without drafts, and their time.
    pub plain: (usize, u64),
    /// Rounds with drafts: count, time, committed.
    pub speculative: (usize, u64, usize),
    /// Those of them whose drafts were a repeat of the text, not the draft's.
    pub repeats: usize,
}

impl RunStats {
    /// Take one more round into account.
    pub fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.committed += round.committed.len();
        self.drafted += round.drafted.len();
        self.accepted += round.accepted;
        self.draft_us += round.draft_us;
        self.verify_us += round.verify_us;
        self.other_us += round.other_us;
        // A draft after an end token or a limit was not judged.
        let judged = round.committed.len().min(round.drafted.len());
        if self.slots.len() < judged {
            self.slots.resize(judged, (0, 0));
        }
        for (i, slot) in self.slots.iter_mut().take(judged).enumerate() {
            slot.0 += usize::from(i < round.accepted);
            slot.1 += 1;
        }
        let n = round.committed.len();
        if self.committed_histogram.len() <= n {
            self.committed_histogram.resize(n + 1, 0);
        }
        self.committed_histogram[n] += 1;
        if round.drafted.is_empty() {
            self.plain.0 += 1;
            self.plain.1 += round.total_us();
        } else {
            self.speculative.0 += 1;
            self.speculative.1 += round.total_us();
            self.speculative.2 += n;
            self.repeats += usize::from(round.source == DraftSource::Ngram);
        }
    }

    /// Committed tokens ÷ rounds; 0 before the first round.
    pub fn tau(&self) -> f64 {
        ratio(self.committed as f64, self.rounds as f64)
    }

    /// Accepted ÷ drafted; 0 where nothing was drafted.
    pub fn acceptance_rate(&self) -> f64 {
        ratio(self.accepted as f64, self.drafted as f64)
    }

    /// The conditional chance of each slot.
    pub fn position_acceptance(&self) -> Vec<f64> {
        self.slots.iter().map(|&(kept, judged)| ratio(kept as f64, judged as f64)).collect()
    }

    /// Time of all rounds, in microseconds.
    pub fn total_us(&self) -> u64 {
        self.draft_us + self.verify_us + self.other_us
    }

    /// Tokens a second over the rounds; 0 before the first.
    pub fn decode_tok_s(&self) -> f64 {
        ratio(self.committed as f64 * 1e6, self.total_us() as f64)
    }

    /// Mean time of a plain step, where one was seen.
    pub fn plain_step_us(&self) -> Option<f64> {
        (self.plain.0 > 0).then(|| self.plain.1 as f64 / self.plain.0 as f64)
    }

    /// τ at which drafting would be as fast as plain steps of `plain_us`; `None` before the
    /// first speculative round.
    pub fn break_even_tau(&self, plain_us: f64) -> Option<f64> {
        let (rounds, us, _) = self.speculative;
        (rounds > 0 && plain_us > 0.0).then(|| us as f64 / rounds as f64 / plain_us)
    }

    /// How many times faster than plain steps of `plain_us` the rounds were; `None` before the
    /// first round.
    pub fn speedup(&self, plain_us: f64) -> Option<f64> {
        (self.committed > 0 && self.total_us() > 0)
            .then(|| self.committed as f64 * plain_us / self.total_us() as f64)
    }

    /// The sums of a finished run.
    pub fn totals(&self, ttft_us: u64, prefill_tokens: usize, prefill_us: u64) -> Totals {
        Totals {
            tokens: self.committed + 1,
            rounds: self.rounds,
            drafted: self.drafted,
            accepted: self.accepted,
            tau: self.tau(),
            acceptance_rate: self.acceptance_rate(),
            position_acceptance: self.position_acceptance(),
            ttft_us,
            prefill_tok_s: ratio(prefill_tokens as f64 * 1e6, prefill_us as f64),
            decode_tok_s: self.decode_tok_s(),
            draft_us: self.draft_us,
            verify_us: self.verify_us,
            other_us: self.other_us,
        }
    }
}

/// `a / b`, or 0 where `b` is 0.
pub fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// Median, least and greatest of some figures; all 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
pub struct Spread {
    /// The middle one (mean of the two middle ones).
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of `figures`, in any order; NaN counts as greatest.
    pub fn of(figures: &[f64]) -> Spread {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        if n == 0 {
            return Spread::default();
        }
        Spread {
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            min: sorted[0],
            max: sorted[n - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{DraftedToken, Token};

    fn round(drafted: usize, accepted: usize, us: u64) -> Round {
        Round {
            drafted: vec![DraftedToken::default(); drafted],
            accepted,
            committed: vec![Token::default(); accepted + 1],
            verify_us: us,
            ..Round::default()
        }
    }

    #[test]
    fn figures_follow_their_definitions() {
        let mut stats = RunStats::default();
        stats.add(&round(3, 3, 20)); // all accepted: 4 committed
        stats.add(&round(3, 1, 20)); // slot 0 kept, slot 1 rejected, slot 2 never judged
        stats.add(&round(0, 0, 10)); // plain
        assert_eq!(stats.tau(), 7.0 / 3.0);
        assert_eq!(stats.acceptance_rate(), 4.0 / 6.0);
        assert_eq!(stats.slots, [(2, 2), (1, 2), (1, 1)]);
        assert_eq!(stats.committed_histogram, [0, 1, 1, 0, 1]);
        assert_eq!(stats.break_even_tau(10.0), Some(2.0));
        assert_eq!(stats.speedup(10.0), Some(70.0 / 50.0));
        assert_eq!(stats.plain_step_us(), Some(10.0));
        stats.add(&Round { source: DraftSource::Ngram, ..round(3, 2, 10) });
        assert_eq!((stats.repeats, stats.speculative.0), (1, 3));
    }

    #[test]
    fn drafts_after_the_end_are_not_judged() {
        let mut stats = RunStats::default();
        let mut last = round(3, 2, 20);
        last.committed.pop(); // the second draft was the end token
        stats.add(&last);
        assert_eq!(stats.slots, [(1, 1), (1, 1)]);
    }

    #[test]
    fn nothing_divides_by_zero() {
        let totals = RunStats::default().totals(0, 0, 0);
        assert_eq!((totals.tau, totals.decode_tok_s, totals.prefill_tok_s), (0.0, 0.0, 0.0));
        assert_eq!(RunStats::default().break_even_tau(0.0), None);
    }

    #[test]
    fn spread_of_even_and_odd_counts() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).median, 2.0);
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
