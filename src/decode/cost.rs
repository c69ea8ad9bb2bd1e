//! What passes cost on this machine, learned while decoding.
//!
//! A measured time is a pass's own cost times how busy the machine is just now. Decisions need
//! only the former, as ratios, so the two are told apart: a common *load* follows quickly, the
//! cost of each number of rows slowly. One wild sample moves nothing much: it is clamped before
//! it counts.

use serde::{Deserialize, Serialize};

/// Share of the way that the common load moves with a sample.
const LOAD_RATE: f64 = 0.15;
/// Share of the way that a settled entry moves with a sample.
const ENTRY_RATE: f64 = 0.06;
/// A sample counts as at most this many times what was expected, or as at least its inverse.
const MOST_SURPRISE: f64 = 1.6;
/// Rows added to one cost this share of a one-row pass each, until measured.
const FIRST_GUESS: f64 = 0.08;
/// Context is told apart by powers of two from here up.
const FIRST_DEPTH: usize = 512;

/// The cost of passes by number of rows, for one depth of context.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Curve {
    /// `(cost in µs, samples)` at index rows; cost 0 where not measured.
    entries: Vec<(f64, u32)>,
}

/// The cost of one kind of pass, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// By depth: below 512 positions, below 1024, below 2048, …
    curves: Vec<Curve>,
    #[serde(skip, default = "one")]
    load: f64,
}

fn one() -> f64 {
    1.0
}

impl Default for CostModel {
    fn default() -> Self {
        CostModel { curves: Vec::new(), load: 1.0 }
    }
}

impl CostModel {
    /// Take a measured pass into account.
    pub fn observe(&mut self, rows: usize, context: usize, us: f64) {
        if us <= 0.0 || !us.is_finite() {
            return;
        }
        let depth = depth(context);
        if let Some(expected) = self.at(rows, context) {
            let known = self.samples(rows, depth) > 0;
            let surprise = (us / expected / self.load).clamp(1.0 / MOST_SURPRISE, MOST_SURPRISE);
            if known {
                self.load *= surprise.powf(LOAD_RATE);
                self.load = self.load.clamp(0.2, 20.0);
            }
        }
        if self.curves.len() <= depth {
            self.curves.resize(depth + 1, Curve::default());
        }
        let entries = &mut self.curves[depth].entries;
        if entries.len() <= rows {
            entries.resize(rows + 1, (0.0, 0));
        }
        let (cost, samples) = &mut entries[rows];
        let own = us / self.load;
        *samples = samples.saturating_add(1);
        if *samples == 1 {
            *cost = own;
        } else {
            let clamped = own.clamp(*cost / MOST_SURPRISE, *cost * MOST_SURPRISE);
            let rate = ENTRY_RATE.max(1.0 / f64::from(*samples));
            *cost += rate * (clamped - *cost);
        }
    }

    /// How often a pass of this size was measured at this depth.
    pub fn samples_of(&self, rows: usize, context: usize) -> u32 {
        self.samples(rows, depth(context))
    }

    /// The cost of a pass on an idle machine; `None` before the first measurement. Between
    /// measured numbers of rows it is interpolated, beyond them extended with a mild slope.
    pub fn at(&self, rows: usize, context: usize) -> Option<f64> {
        let depth = depth(context);
        // The nearest depth that knows anything; shallower first.
        let order = (0..=depth).rev().chain(depth + 1..self.curves.len());
        order.filter_map(|d| self.curves.get(d)).find_map(|curve| curve.at(rows))
    }

    fn samples(&self, rows: usize, depth: usize) -> u32 {
        let curve = self.curves.get(depth);
        curve.and_then(|curve| curve.entries.get(rows)).map_or(0, |entry| entry.1)
    }
}

impl Curve {
    fn at(&self, rows: usize) -> Option<f64> {
        let known = |n: usize| self.entries.get(n).filter(|entry| entry.1 > 0).map(|entry| entry.0);
        let below = (0..=rows).rev().find_map(|n| known(n).map(|us| (n, us)));
        let above = (rows..self.entries.len()).find_map(|n| known(n).map(|us| (n, us)));
        match (below, above) {
            (Some((a, x)), Some((b, y))) if a < b => {
                Some(x + (y - x) * (rows - a) as f64 / (b - a) as f64)
            }
            (Some((a, x)), None) => Some(x * guess(rows) / guess(a)),
            (None, Some((b, y))) => Some(y * guess(rows) / guess(b)),
            (Some((_, x)), Some(_)) => Some(x),
            (None, None) => None,
        }
    }
}

/// The shape of a curve that nobody has measured.
fn guess(rows: usize) -> f64 {
    1.0 + FIRST_GUESS * rows.saturating_sub(1) as f64
}

fn depth(context: usize) -> usize {
    (context / FIRST_DEPTH).checked_ilog2().map_or(0, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_between_what_was_measured() {
        let mut model = CostModel::default();
        assert_eq!(model.at(1, 0), None);
        model.observe(1, 0, 100.0);
        model.observe(9, 0, 180.0);
        assert_eq!(model.at(5, 0), Some(140.0));
        assert_eq!(model.at(1, 0), Some(100.0));
        assert!(model.at(16, 0).unwrap() > 180.0);
    }

    #[test]
    fn a_busy_spell_changes_the_load_and_not_the_ratios() {
        let mut model = CostModel::default();
        for _ in 0..100 {
            model.observe(1, 0, 100.0);
            model.observe(8, 0, 160.0);
        }
        for _ in 0..40 {
            model.observe(8, 0, 480.0); // three times slower, one size seen
        }
        let ratio = model.at(8, 0).unwrap() / model.at(1, 0).unwrap();
        assert!((1.4..2.4).contains(&ratio), "ratio {ratio}");
    }

    #[test]
    fn one_wild_sample_moves_little() {
        let mut model = CostModel::default();
        for _ in 0..50 {
            model.observe(4, 0, 100.0);
        }
        model.observe(4, 0, 1e9);
        assert!(model.at(4, 0).unwrap() < 110.0);
    }

    #[test]
    fn depths_are_learned_apart() {
        let mut model = CostModel::default();
        model.observe(1, 100, 100.0);
        assert_eq!(model.at(1, 100_000), Some(100.0));
        model.observe(1, 5000, 150.0);
        assert_eq!(model.at(1, 100), Some(100.0));
        assert!(model.at(1, 5000).unwrap() > 100.0);
    }
}
