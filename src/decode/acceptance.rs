//! How likely each draft is to be accepted, learned while decoding.
//!
//! Two predictors are kept: the running rate of each slot, and what the draft says of this very
//! block, its probabilities, calibrated against what became of such probabilities. Whichever
//! predicted better lately (by log loss) is used.

use crate::model::networks::Proposal;
use serde::{Deserialize, Serialize};

/// Older outcomes count this much of newer ones.
const MEMORY: f64 = 0.985;
/// The log losses are means over about this many outcomes.
const LOSS_MEMORY: f64 = 0.99;
/// Bounds between the bins of the draft's probability.
const EDGES: [f32; 11] = [0.02, 0.05, 0.1, 0.18, 0.28, 0.4, 0.55, 0.7, 0.83, 0.93, 0.98];
/// Slots that are calibrated apart: the first, the second and third, those after.
const GROUPS: usize = 3;

/// A rate with a memory, drawn to a prior while little is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Rate {
    hits: f64,
    trials: f64,
}

impl Rate {
    fn prior(mean: f64, weight: f64) -> Self {
        Rate { hits: mean * weight, trials: weight }
    }

    fn mean(self) -> f64 {
        (self.hits / self.trials).clamp(0.005, 0.995)
    }

    fn add(&mut self, hit: bool) {
        self.hits = self.hits * MEMORY + f64::from(u8::from(hit));
        self.trials = self.trials * MEMORY + 1.0;
    }
}

/// The two predictors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcceptanceModel {
    slots: Vec<Rate>,
    bins: [[Rate; EDGES.len() + 1]; GROUPS],
    slot_loss: f64,
    bin_loss: f64,
}

impl Default for AcceptanceModel {
    fn default() -> Self {
        let mut bins = [[Rate::prior(0.5, 1.0); EDGES.len() + 1]; GROUPS];
        for group in &mut bins {
            for (i, bin) in group.iter_mut().enumerate() {
                let low = if i == 0 { 0.0 } else { EDGES[i - 1] };
                let high = EDGES.get(i).copied().unwrap_or(1.0);
                *bin = Rate::prior(f64::from(low + high) / 2.0, 3.0);
            }
        }
        AcceptanceModel { slots: Vec::new(), bins, slot_loss: 0.6, bin_loss: 0.6 }
    }
}

impl AcceptanceModel {
    /// The chance that slot `i` (0 for the first draft) is accepted if all before it are, from
    /// the running rates alone.
    fn slot(&self, i: usize) -> f64 {
        // A slot never seen is as good as the last one seen.
        self.slots.get(i).or(self.slots.last()).map_or(0.6, |rate| rate.mean())
    }

    /// The chance of a draft in slot `i`, given that all before it are accepted.
    pub fn chance(&self, i: usize, draft: &Proposal) -> f64 {
        if self.bin_loss <= self.slot_loss { self.calibrated(i, draft) } else { self.slot(i) }
    }

    /// Learn from a round: of `drafts`, the first `accepted` were accepted, and the next one,
    /// if `rejected`, was not. Those after were never judged.
    pub fn observe(&mut self, drafts: &[Proposal], accepted: usize, rejected: bool) {
        let judged = (accepted + usize::from(rejected)).min(drafts.len());
        for (i, draft) in drafts[..judged].iter().enumerate() {
            let hit = i < accepted;
            let loss = |p: f64| if hit { -p.ln() } else { -(1.0 - p).ln() };
            let blend = |old: f64, new: f64| LOSS_MEMORY * old + (1.0 - LOSS_MEMORY) * new;
            self.slot_loss = blend(self.slot_loss, loss(self.slot(i)));
            self.bin_loss = blend(self.bin_loss, loss(self.calibrated(i, draft)));
            if self.slots.len() <= i {
                let prior = Rate::prior(self.slot(i), 3.0);
                self.slots.push(prior);
            }
            self.slots[i].add(hit);
            self.bins[group(i)][bin(draft.prob)].add(hit);
        }
    }

    fn calibrated(&self, i: usize, draft: &Proposal) -> f64 {
        self.bins[group(i)][bin(draft.prob)].mean()
    }
}

fn group(slot: usize) -> usize {
    match slot {
        0 => 0,
        1 | 2 => 1,
        _ => 2,
    }
}

fn bin(prob: f32) -> usize {
    EDGES.iter().take_while(|edge| prob >= **edge).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(prob: f32) -> Proposal {
        Proposal { id: 0, prob }
    }

    #[test]
    fn probabilities_win_where_they_tell_more() {
        let mut model = AcceptanceModel::default();
        for i in 0..400 {
            // Sure drafts are right, unsure ones wrong, half of each.
            let sure = i % 2 == 0;
            model.observe(&[draft(if sure { 0.9 } else { 0.1 })], usize::from(sure), !sure);
        }
        assert!(model.chance(0, &draft(0.9)) > 0.9);
        assert!(model.chance(0, &draft(0.1)) < 0.1);
        assert!((model.slot(0) - 0.5).abs() < 0.1);
    }

    #[test]
    fn rates_win_where_probabilities_lie() {
        let mut model = AcceptanceModel::default();
        for i in 0..600u32 {
            // The probability says nothing: a hash decides, nine times of ten for it.
            let hit = i.wrapping_mul(2_654_435_761) % 10 != 0;
            let prob = (i.wrapping_mul(40_503) % 1000) as f32 / 1000.0;
            model.observe(&[draft(prob)], usize::from(hit), !hit);
        }
        assert!(model.chance(0, &draft(0.01)) > 0.7);
    }

    #[test]
    fn unjudged_slots_teach_nothing() {
        let mut model = AcceptanceModel::default();
        for _ in 0..50 {
            model.observe(&[draft(0.5), draft(0.5), draft(0.5)], 1, true);
        }
        assert_eq!(model.slots.len(), 2);
        assert!(model.slot(0) > 0.9 && model.slot(1) < 0.1);
    }
}
