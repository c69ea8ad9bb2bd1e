//! What a race and its repeats come to, as text and as JSON.

use super::{LaneKind, Race, Verdict};
use crate::event::{FinishReason, Mode, ModelReady};
use crate::stats::Spread;
use crate::text::sanitise;
use serde::Serialize;
use std::fmt;

/// What the repeats of a race come to.
#[derive(Debug, Clone, Serialize)]
pub struct RaceReport {
    /// What was asked.
    pub prompt: String,
    /// The networks, one pair for all lanes.
    pub model: ModelReady,
    /// How often it was run.
    pub repeats: usize,
    /// The lanes; the first is what the others are compared with.
    pub lanes: Vec<LaneReport>,
}

/// What one lane came to.
#[derive(Debug, Clone, Serialize)]
pub struct LaneReport {
    /// How it decoded.
    #[serde(flatten)]
    pub kind: LaneKind,
    /// The exact text of its answer.
    pub text: String,
    /// The answer's token ids.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub reason: Option<FinishReason>,
    /// Committed tokens ÷ rounds.
    pub tau: f64,
    /// The lane's clock at its end, prefill included, in microseconds.
    pub clock_us: Spread,
    /// Tokens a second, prefill left out.
    pub decode_tok_s: Spread,
    /// Times as fast as the first lane, prefill left out.
    pub speedup: Spread,
    /// The worst verdict of all repeats, against the first lane.
    pub verdict: Verdict,
}

impl RaceReport {
    /// Sum up finished races of one prompt. `None` for none.
    pub fn new(prompt: &str, model: &ModelReady, races: &[Race]) -> Option<RaceReport> {
        let last = races.last()?;
        let exact = model.is_exact();
        let lane = |i: usize| {
            let lane = &last.lanes[i];
            let spread = |figure: &dyn Fn(&Race) -> f64| {
                Spread::of(&races.iter().map(figure).collect::<Vec<_>>())
            };
            let verdicts = races.iter().filter_map(|race| race.verdict(i, exact));
            LaneReport {
                kind: lane.kind,
                text: lane.transcript.text.clone(),
                ids: lane.transcript.ids.clone(),
                reason: lane.transcript.reason.clone(),
                tau: lane.stats.tau(),
                clock_us: spread(&|race| race.lanes[i].clock_us as f64),
                decode_tok_s: spread(&|race| race.lanes[i].stats.decode_tok_s()),
                speedup: spread(&|race| race.speedup(i).unwrap_or(0.0)),
                verdict: verdicts
                    .max_by_key(Verdict::badness)
                    .unwrap_or_else(|| Verdict::NotComparable { why: "nothing was run".into() }),
            }
        };
        Some(RaceReport {
            prompt: prompt.into(),
            model: model.clone(),
            repeats: races.len(),
            lanes: (0..last.lanes.len()).map(lane).collect(),
        })
    }

    /// Lanes whose answer differs from the first lane's where it must not.
    pub fn mismatches(&self) -> usize {
        self.lanes.iter().filter(|lane| matches!(lane.verdict, Verdict::Mismatch { .. })).count()
    }
}

impl fmt::Display for RaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for lane in &self.lanes {
            writeln!(f, "--- {} ---\n{}\n", lane.kind, sanitise(lane.text.trim_end()))?;
        }
        let widest = self.lanes.iter().map(|lane| lane.kind.to_string().len()).max().unwrap_or(0);
        for lane in &self.lanes {
            write!(
                f,
                "{:widest$}  {:5} tokens  {:7.2} s  {:7.1} tokens a second",
                lane.kind,
                lane.ids.len(),
                lane.clock_us.median / 1e6,
                lane.decode_tok_s.median
            )?;
            match lane.kind.mode {
                Mode::Speculative => writeln!(f, "  τ {:.2}", lane.tau)?,
                Mode::Baseline => writeln!(f)?,
            }
        }
        let Some((first, others)) = self.lanes.split_first() else { return Ok(()) };
        for lane in others {
            let Spread { median, min, max } = lane.speedup;
            if median == 0.0 {
                writeln!(f, "\nanswers of one token have no rounds to compare; {}", lane.verdict)?;
                continue;
            }
            let spread = match self.repeats {
                0 | 1 => String::new(),
                n => format!(" ({min:.2} to {max:.2} over {n} runs)"),
            };
            writeln!(
                f,
                "\n{} against {}: {median:.2}×{spread}, {}; {}",
                lane.kind,
                first.kind,
                Pace::of(median),
                lane.verdict
            )?;
        }
        Ok(())
    }
}

/// What a speed-up means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// It pays.
    Faster,
    /// No difference that would show.
    Same,
    /// It is a loss.
    Slower,
}

impl Pace {
    /// What `speedup` means.
    pub fn of(speedup: f64) -> Pace {
        match speedup {
            x if x >= 1.005 => Pace::Faster,
            x if x > 0.995 => Pace::Same,
            _ => Pace::Slower,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pace::Faster => "faster",
            Pace::Same => "as fast",
            Pace::Slower => "slower",
        })
    }
}
