//! Two runs of one prompt, compared.

use crate::event::{EngineEvent, FinishReason, RunStarted};
use serde::{Deserialize, Serialize};

/// Below this distance between the two best logits, a difference between two runs on a GPU is
/// taken for the rounding of sums in another order.
pub const NEAR_TIE: f32 = 0.05;

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
    /// The ids that a next turn's prompt holds for this answer: without the end token.
    pub fn answer_ids(&self) -> Vec<u32> {
        let end = usize::from(self.reason == Some(FinishReason::Eos));
        self.ids[..self.ids.len().saturating_sub(end)].to_vec()
    }

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
}
