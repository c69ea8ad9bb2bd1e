//! How many slots the draft shall fill: what each of them brings, learned while decoding.
//!
//! A block's best number of drafts to verify is known when its slots are filled. The gain of that
//! number among the first `n` slots, less that among the first `n − 1`, is what slot `n` brought:
//! nothing where it would not have been verified. Means of these, against what filling the slots
//! costs, say how many to fill.

use serde::{Deserialize, Serialize};

/// Older blocks count this much of newer ones.
const MEMORY: f64 = 0.98;
/// Tokens a block that means may differ by for no reason.
const NOISE: f64 = 0.01;

/// The mean of what each slot brought, in tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlotGains {
    slots: Vec<Mean>,
}

/// A mean with a memory.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl SlotGains {
    /// Learn from a block; `gains` are those of the best number of drafts among its first slot,
    /// its first two, and so on.
    pub fn observe(&mut self, gains: &[f64]) {
        if self.slots.len() < gains.len() {
            self.slots.resize(gains.len(), Mean::default());
        }
        let mut before = 0.0;
        for (slot, &gain) in self.slots.iter_mut().zip(gains) {
            slot.sum = MEMORY * slot.sum + gain - before;
            slot.weight = MEMORY * slot.weight + 1.0;
            before = gain;
        }
    }

    /// How many of `most` slots are worth filling, if filling so many costs `cost` tokens: at
    /// least one, the most where several are about the same, and all of them as long as one is
    /// unknown.
    pub fn worth_filling(&self, most: usize, cost: impl Fn(usize) -> f64) -> usize {
        let Some(slots) = self.slots.get(..most) else { return most };
        let mut sum = 0.0;
        let worth = slots.iter().enumerate().map(|(i, slot)| {
            sum += slot.sum / slot.weight;
            sum - cost(i + 1)
        });
        let worth: Vec<f64> = worth.collect();
        let best = worth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        worth.iter().rposition(|worth| *worth >= best - NOISE).map_or(1, |i| i + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_filled_as_far_as_they_bring_more_than_they_cost() {
        let mut gains = SlotGains::default();
        assert_eq!(gains.worth_filling(4, |n| n as f64), 4, "nothing is known yet");
        for _ in 0..10 {
            gains.observe(&[0.5, 0.75, 0.75, 0.75]);
        }
        let at = |cost: f64| gains.worth_filling(4, |n| cost * n as f64);
        assert_eq!([at(0.0), at(0.1), at(0.3), at(2.0)], [4, 2, 1, 1]);
        assert_eq!(gains.worth_filling(5, |_| 0.0), 5, "the fifth was never filled");
        assert_eq!(gains.worth_filling(1, |n| n as f64), 1);
    }

    #[test]
    fn a_slot_that_brings_nothing_may_stand_before_one_that_does() {
        let mut gains = SlotGains::default();
        gains.observe(&[0.2, 0.2, 1.0]);
        assert_eq!(gains.worth_filling(3, |n| 0.1 * n as f64), 3);
    }

    #[test]
    fn what_was_long_ago_counts_little() {
        let mut gains = SlotGains::default();
        for _ in 0..300 {
            gains.observe(&[0.5, 1.0]);
        }
        // Shorter blocks say nothing of the second slot.
        for _ in 0..300 {
            gains.observe(&[0.5]);
        }
        assert_eq!(gains.worth_filling(2, |n| 0.2 * n as f64), 2);
        for _ in 0..300 {
            gains.observe(&[0.5, 0.5]);
        }
        assert_eq!(gains.worth_filling(2, |n| 0.2 * n as f64), 1);
    }
}
