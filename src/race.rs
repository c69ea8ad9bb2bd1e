//! Two runs of one prompt, compared; and a race of several.

pub mod report;

use crate::event::{BlockSize, EngineEvent, FinishReason, Generate, Mode, RunStarted};
use crate::stats::{RunStats, ratio};
use serde::{Deserialize, Serialize};

/// Below this distance between the two best logits, a difference between two runs on a GPU is
/// taken for the rounding of sums in another order.
pub const NEAR_TIE: f32 = 0.05;

/// Most tokens of an answer in a race, unless told otherwise: enough to compare, soon over.
pub const TOKENS: usize = 200;

/// Why no race can be run; `why` there is no draft.
pub fn nothing_to_race(why: Option<&str>) -> String {
    format!("there is no draft, so nothing to race: {}", why.unwrap_or("the pair has none"))
}

/// What a comparison of two runs says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The same tokens.
    Identical {
        /// How many.
        tokens: usize,
    },
    /// They part at a token whose two best logits were almost equal.
    NearTie {
        /// Index of the first different token.
        at: usize,
        /// Distance of the two best logits there, in the baseline.
        margin: f32,
    },
    /// They part where they should not.
    Mismatch {
        /// Index of the first different token.
        at: usize,
        /// The baseline's token there, if it has one.
        baseline: Option<u32>,
        /// The other's.
        other: Option<u32>,
    },
    /// The comparison says nothing.
    NotComparable {
        /// Why.
        why: String,
    },
}

impl Verdict {
    /// Of several verdicts the one with the highest counts.
    pub fn badness(&self) -> u8 {
        match self {
            Verdict::Identical { .. } => 0,
            Verdict::NearTie { .. } => 1,
            Verdict::NotComparable { .. } => 2,
            Verdict::Mismatch { .. } => 3,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Verdict::Identical { tokens } => write!(f, "identical for {tokens} tokens"),
            Verdict::NearTie { at, margin } => {
                write!(f, "near tie at token {at} (margin {margin:.4})")
            }
            Verdict::Mismatch { at, .. } => write!(f, "MISMATCH at token {at}"),
            Verdict::NotComparable { why } => write!(f, "not comparable: {why}"),
        }
    }
}

/// The tokens of one run, gathered from its events.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transcript {
    /// The answer's ids.
    pub ids: Vec<u32>,
    /// The exact text.
    pub text: String,
    /// Distance of the two best logits at each token; NaN where not known.
    pub margins: Vec<f32>,
    /// Why it ended; `None` while it has not.
    pub reason: Option<FinishReason>,
    /// How it was decoded.
    pub run: Option<RunStarted>,
}

impl Transcript {
    /// Take one event into account.
    pub fn add(&mut self, event: &EngineEvent) {
        match event {
            EngineEvent::RunStarted(run) => {
                *self = Transcript { run: Some((**run).clone()), ..Transcript::default() };
            }
            EngineEvent::PrefillDone { first, text, .. } => {
                self.ids.push(first.id);
                self.margins.push(f32::NAN);
                self.text.push_str(text);
            }
            EngineEvent::Round(round) => {
                self.text.push_str(&round.text);
                for (i, token) in round.committed.iter().enumerate() {
                    self.ids.push(token.id);
                    self.margins.push(round.margins.get(i).copied().unwrap_or(f32::NAN));
                }
            }
            EngineEvent::RunFinished { reason, .. } => self.reason = Some(reason.clone()),
            _ => {}
        }
    }
}

/// Compare a run with the baseline. `exact`: the device gives the same bits for any number of
/// rows, so that there is no excuse for a difference.
pub fn compare(baseline: &Transcript, other: &Transcript, exact: bool) -> Verdict {
    let not_comparable = |why: &str| Verdict::NotComparable { why: why.into() };
    for transcript in [baseline, other] {
        match transcript.reason {
            None => return not_comparable("a run has not finished"),
            Some(FinishReason::Cancelled) => return not_comparable("a run was stopped"),
            Some(FinishReason::Failed) => return not_comparable("a run failed"),
            _ => {}
        }
    }
    if let (Some(a), Some(b)) = (&baseline.run, &other.run) {
        if a.prompt_ids != b.prompt_ids {
            return not_comparable("the prompts differ");
        }
        if a.sampling != b.sampling || a.seed != b.seed {
            return not_comparable("the sampling differs");
        }
    }
    let at = baseline.ids.iter().zip(&other.ids).take_while(|(a, b)| a == b).count();
    if at == baseline.ids.len() && at == other.ids.len() {
        return Verdict::Identical { tokens: at };
    }
    let margin = baseline.margins.get(at).copied().unwrap_or(f32::NAN);
    if !exact && margin < NEAR_TIE {
        return Verdict::NearTie { at, margin };
    }
    Verdict::Mismatch {
        at,
        baseline: baseline.ids.get(at).copied(),
        other: other.ids.get(at).copied(),
    }
}

/// How a lane of a race decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LaneKind {
    /// Its mode.
    pub mode: Mode,
    /// Its block size; of no effect in the baseline.
    pub block_size: BlockSize,
}

impl LaneKind {
    /// What this lane is asked, where all are asked `request`.
    pub fn request(self, request: &Generate) -> Generate {
        Generate { mode: self.mode, block_size: self.block_size, ..request.clone() }
    }
}

impl std::fmt::Display for LaneKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.mode {
            Mode::Baseline => f.pad("baseline"),
            Mode::Speculative => f.pad(&format!("speculative, block {}", self.block_size)),
        }
    }
}

/// One lane of a race: what it has said, and its clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// How it decodes.
    pub kind: LaneKind,
    /// What it has said.
    pub transcript: Transcript,
    /// What its rounds add up to.
    pub stats: RunStats,
    /// Its clock: time of its prefill and rounds, in microseconds. It stands while others compute.
    pub clock_us: u64,
}

/// A race: several runs of one prompt. Fed with the lanes' events; the first lane is the one
/// that the others are compared with.
#[derive(Debug, Clone, PartialEq)]
pub struct Race {
    /// The lanes.
    pub lanes: Vec<Lane>,
}

impl Race {
    /// Before the start.
    pub fn new(kinds: &[LaneKind]) -> Race {
        let lane = |kind: &LaneKind| Lane {
            kind: *kind,
            transcript: Transcript::default(),
            stats: RunStats::default(),
            clock_us: 0,
        };
        Race { lanes: kinds.iter().map(lane).collect() }
    }

    /// Take an event of a lane into account.
    pub fn add(&mut self, lane: usize, event: &EngineEvent) {
        let Some(lane) = self.lanes.get_mut(lane) else { return };
        lane.transcript.add(event);
        match event {
            EngineEvent::PrefillDone { us, .. } => lane.clock_us += us,
            EngineEvent::Round(round) => {
                lane.stats.add(round);
                lane.clock_us += round.total_us();
            }
            _ => {}
        }
    }

    /// The answer's length that a lane's progress is measured by: that of the longest answer
    /// which has ended, since all should become the same; `None` before one has.
    pub fn length(&self) -> Option<usize> {
        let ended = self.lanes.iter().filter(|lane| lane.transcript.reason.is_some());
        ended.map(|lane| lane.transcript.ids.len()).max()
    }

    /// Whether every lane has ended.
    pub fn finished(&self) -> bool {
        self.lanes.iter().all(|lane| lane.transcript.reason.is_some())
    }

    /// How a lane's answer compares with the first lane's; `None` for a lane that is not there.
    pub fn verdict(&self, lane: usize, exact: bool) -> Option<Verdict> {
        let (first, lane) = (self.lanes.first()?, self.lanes.get(lane)?);
        Some(compare(&first.transcript, &lane.transcript, exact))
    }

    /// How many times faster than the first lane a lane decodes; prefill, which is the same
    /// work in all, is left out. `None` before both have committed something.
    pub fn speedup(&self, lane: usize) -> Option<f64> {
        let us_per_token = |lane: &Lane| {
            let us = ratio(lane.stats.total_us() as f64, lane.stats.committed as f64);
            (us > 0.0).then_some(us)
        };
        let (first, lane) = (self.lanes.first()?, self.lanes.get(lane)?);
        Some(us_per_token(first)? / us_per_token(lane)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(ids: &[u32], margin: f32) -> Transcript {
        Transcript {
            ids: ids.to_vec(),
            margins: vec![margin; ids.len()],
            reason: Some(FinishReason::Eos),
            ..Transcript::default()
        }
    }

    #[test]
    fn the_four_verdicts() {
        let base = transcript(&[1, 2, 3], 0.01);
        assert_eq!(compare(&base, &base, true), Verdict::Identical { tokens: 3 });
        let other = transcript(&[1, 9, 3], 0.01);
        assert_eq!(compare(&base, &other, false), Verdict::NearTie { at: 1, margin: 0.01 });
        let strict = compare(&base, &other, true);
        assert_eq!(strict, Verdict::Mismatch { at: 1, baseline: Some(2), other: Some(9) });
        let far = compare(&transcript(&[1, 2], 3.0), &other, false);
        assert!(matches!(far, Verdict::Mismatch { at: 1, .. }));
        let short = compare(&base, &transcript(&[1, 2], 3.0), true);
        assert_eq!(short, Verdict::Mismatch { at: 2, baseline: Some(3), other: None });
        let stopped = Transcript { reason: Some(FinishReason::Cancelled), ..base.clone() };
        assert!(matches!(compare(&base, &stopped, true), Verdict::NotComparable { .. }));
    }

    #[test]
    fn a_race_is_timed_by_the_lanes_own_clocks() {
        use crate::event::{Round, Token, Totals};
        let kind = |mode| LaneKind { mode, block_size: BlockSize::Fixed(4) };
        let mut race = Race::new(&[kind(Mode::Baseline), kind(Mode::Speculative)]);
        let token = |id| Token { id, text: String::new() };
        assert_eq!((race.speedup(1), race.finished()), (None, false));
        for lane in 0..2 {
            let (first, text) = (token(1), "a".to_string());
            race.add(lane, &EngineEvent::PrefillDone { tokens: 3, us: 50, first, text });
        }
        let round = |ids: &[u32], us| {
            let committed = ids.iter().map(|id| token(*id)).collect();
            EngineEvent::Round(Box::new(Round { committed, verify_us: us, ..Round::default() }))
        };
        race.add(0, &round(&[2], 10));
        race.add(0, &round(&[3], 10));
        race.add(1, &round(&[2, 3], 16));
        race.add(9, &round(&[2], 10));
        assert_eq!(race.speedup(1), Some(1.25));
        assert_eq!([race.lanes[0].clock_us, race.lanes[1].clock_us], [70, 66]);
        for lane in 0..2 {
            let (reason, totals) = (FinishReason::Eos, Totals::default());
            race.add(lane, &EngineEvent::RunFinished { reason, totals });
        }
        assert!(race.finished());
        assert_eq!(race.verdict(1, true), Some(Verdict::Identical { tokens: 3 }));
        assert_eq!(race.verdict(2, true), None);
    }
}
