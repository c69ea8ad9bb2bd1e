//! The target's choice at a position: greedy, or drawn from its distribution.
//!
//! A draw at a position uses a random number that belongs to (seed, position) alone. So the
//! token that the target draws at a position does not depend on how many rows were verified
//! together, and the text of a seed is the same with and without drafts.
//!
//! Why that is exact speculative sampling: the draft proposes its most likely token, i.e. its
//! proposal distribution q is a point mass on d. The rule of acceptance (Leviathan et al. 2023:
//! accept d with probability min(1, p(d)/q(d)) = p(d); else draw from max(p − q, 0)
//! renormalised, i.e. from p without d) has the same outcome distribution as drawing x from p
//! and accepting d exactly if x = d. A token with p = 0 is never drawn, hence never accepted.

use crate::event::Sampling;
use crate::model::ops::Choice;
use crate::model::ops::kernels::choose::{Choose, Weights};
use crate::model::ops::kernels::simd::Isa;
use std::cmp::Ordering;

/// Candidates that are sorted before it is known how many `top_p` keeps.
const SORTED_FIRST: usize = 256;
/// The least weight of the candidates that are looked at first, the likeliest weighing 1; squared
/// while these are too few.
const FLOOR: f32 = 1.0 / 256.0;
/// What of its share of the mass `top_p` may lack: weights are rounded.
const SLACK: f64 = 1e-6;

/// Chooses tokens from logits.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
    /// Of the CPU: logits come to the host to be drawn from, whatever computed them.
    isa: Isa,
    /// By token, the likeliest weighing 1.
    weights: Vec<f32>,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler for one run.
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        let (weights, candidates) = (Vec::new(), Vec::new());
        Sampler { sampling, seed, isa: Isa::best(), weights, candidates }
    }

    /// Whether choices need no logits but the largest.
    pub fn is_greedy(&self) -> bool {
        self.sampling.temperature <= 0.0 && self.sampling.repetition_penalty == 1.0
    }

    /// The choice at the position after `context`, whose tokens the repetition penalty sees.
    /// `logits` are changed. The margin is that of the penalised logits.
    pub fn choose(&mut self, logits: &mut [f32], context: &[u32]) -> Choice {
        self.penalise(logits, context);
        let best = self.isa.run(Choose { logits, with_prob: false });
        let top = logits.get(best.id as usize).copied().unwrap_or(0.0);
        if self.sampling.temperature <= 0.0 || !top.is_finite() {
            return best;
        }
        self.weights.resize(logits.len(), 0.0);
        let to = &mut self.weights[..];
        self.isa.run(Weights { logits, top, temperature: self.sampling.temperature, to });
        let (id, prob) = self.draw(unit(self.seed, context.len() as u64));
        Choice { id, prob, ..best }
    }

    /// Divide positive and multiply negative logits of tokens in `context` (CTRL's rule).
    fn penalise(&self, logits: &mut [f32], context: &[u32]) {
        let penalty = self.sampling.repetition_penalty;
        if penalty == 1.0 {
            return;
        }
        let mut seen: Vec<u32> = context.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for id in seen {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
    }

    /// Draw by inverting the cumulative distribution; returns the token and its probability
    /// after all transformations.
    fn draw(&mut self, u: f64) -> (u32, f32) {
        let Sampling { top_p, top_k, min_p, .. } = self.sampling;
        if min_p > 0.0 {
            for weight in &mut self.weights {
                *weight = if *weight >= min_p { *weight } else { 0.0 };
            }
        }
        if top_p >= 1.0 && top_k == 0 {
            return pick_among_all(&self.weights, u);
        }
        self.find_likeliest();
        let total = sum(&self.candidates);
        let (i, weight) = pick(self.candidates.iter().map(|c| c.0), u * total);
        let id = self.candidates.get(i).map_or(0, |c| c.1);
        (id, (f64::from(weight) / total) as f32)
    }

    /// The candidates that `top_k` and then `top_p` keep, the likeliest first.
    fn find_likeliest(&mut self) {
        let Sampling { top_p, top_k, .. } = self.sampling;
        // Descending weight; equal weights by id, so that the order is the same everywhere.
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let (kept, share) = (&mut self.candidates, f64::from(top_p) * (1.0 - SLACK));
        let all = mass(&self.weights);
        let mut floor = FLOOR;
        loop {
            kept.clear();
            let ids = self.weights.iter().zip(0u32..);
            kept.extend(ids.filter(|(w, _)| **w > floor).map(|(&w, id)| (w, id)));
            let enough = match top_k {
                0 => sum(kept) >= share * all,
                k => kept.len() >= k,
            };
            if enough || floor == 0.0 {
                break;
            }
            floor *= floor;
        }
        if top_k > 0 && kept.len() > top_k {
            kept.select_nth_unstable_by(top_k - 1, order);
            kept.truncate(top_k);
        }
        let total = if top_k > 0 { sum(kept) } else { all };
        keep_likeliest(kept, if top_p < 1.0 { share * total } else { f64::INFINITY }, order);
    }
}

fn sum(some: &[(f32, u32)]) -> f64 {
    some.iter().map(|c| f64::from(c.0)).sum()
}

/// The sum of the weights, as eight sums side by side: additions to one wait for each other.
fn mass(weights: &[f32]) -> f64 {
    let (full, rest) = weights.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for part in full {
        for (sum, &weight) in sums.iter_mut().zip(part) {
            *sum += f64::from(weight);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|&w| f64::from(w)).sum::<f64>()
}

/// The index and the weight of the one in which the sum from the front on passes `wanted`: the
/// last one above zero if none does.
fn pick(weights: impl Iterator<Item = f32>, wanted: f64) -> (usize, f32) {
    let (mut left, mut last) = (wanted, (0, 1.0));
    for (i, weight) in weights.enumerate().filter(|(_, weight)| *weight > 0.0) {
        last = (i, weight);
        left -= f64::from(weight);
        if left < 0.0 {
            break;
        }
    }
    last
}

/// Draw a token, in the order of the ids, by `u` in [0, 1); and its probability.
fn pick_among_all(weights: &[f32], u: f64) -> (u32, f32) {
    const PART: usize = 512;
    let masses: Vec<f64> = weights.chunks(PART).map(mass).collect();
    let total: f64 = masses.iter().sum();
    let (mut left, mut part) = (u * total, 0);
    // Down to the part that `left` is in: never one of nothing.
    for (i, mass) in masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        part = i;
        if left < *mass {
            break;
        }
        left -= mass;
    }
    let weights = &weights[part * PART..];
    let (i, weight) = pick(weights[..PART.min(weights.len())].iter().copied(), left);
    ((part * PART + i) as u32, (f64::from(weight) / total) as f32)
}

/// Keep, in `order`, the fewest candidates whose weights make `wanted`. A few hundred mostly do:
/// sorting all for them would cost more than the row's share of the pass.
fn keep_likeliest(
    kept: &mut Vec<(f32, u32)>,
    wanted: f64,
    order: impl Fn(&(f32, u32), &(f32, u32)) -> Ordering + Copy,
) {
    let mut sorted = SORTED_FIRST.min(kept.len());
    loop {
        if sorted < kept.len() {
            kept.select_nth_unstable_by(sorted - 1, order);
        }
        kept[..sorted].sort_unstable_by(order);
        let mut sum = 0.0;
        let enough = kept[..sorted].iter().position(|c| {
            sum += f64::from(c.0);
            sum >= wanted
        });
        if enough.is_some() || sorted == kept.len() {
            return kept.truncate(enough.map_or(sorted, |i| i + 1));
        }
        sorted = (sorted * 8).min(kept.len());
    }
}

/// A number in [0, 1) that belongs to `seed` and `position` (SplitMix64 of both).
fn unit(seed: u64, position: u64) -> f64 {
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let bits = mix(mix(seed) ^ position.wrapping_mul(0xd6e8_feb8_6659_fd93));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(seed: u64, change: impl Fn(&mut Sampling)) -> Sampler {
        let mut sampling = Sampling { temperature: 1.0, ..Sampling::default() };
        change(&mut sampling);
        Sampler::new(sampling, seed)
    }

    /// Draws over many positions, as shares by token.
    fn shares(sampler: &mut Sampler, logits: &[f32], n: usize) -> Vec<f64> {
        let mut counts = vec![0usize; logits.len()];
        for position in 0..n {
            let choice = sampler.choose(&mut logits.to_vec(), &vec![0; position % 997]);
            // Positions repeat after 997 draws: another seed for each turn.
            sampler.seed = sampler.seed.wrapping_add(u64::from(position % 997 == 996));
            counts[choice.id as usize] += 1;
        }
        counts.into_iter().map(|c| c as f64 / n as f64).collect()
    }

    #[test]
    fn draws_follow_the_distribution() {
        let p = [0.5f64, 0.3, 0.15, 0.05];
        let logits: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
        let n = 100_000;
        let got = shares(&mut sampler(7, |_| ()), &logits, n);
        let chi2: f64 = got.iter().zip(p).map(|(g, p)| (g - p).powi(2) / p).sum::<f64>() * n as f64;
        // 3 degrees of freedom: 16.3 is the 0.1 % bound.
        assert!(chi2 < 16.3, "chi² {chi2}, shares {got:?}");
    }

    #[test]
    fn filters_drop_what_they_should() {
        let p = [0.5f32, 0.3, 0.15, 0.05];
        let logits: Vec<f32> = p.iter().map(|p| p.ln()).collect();
        for (name, mut s, kept) in [
            ("top_k", sampler(1, |s| s.top_k = 2), 2),
            ("top_p", sampler(1, |s| s.top_p = 0.7), 2),
            ("top_p exact", sampler(1, |s| s.top_p = 0.5), 1),
            ("min_p", sampler(1, |s| s.min_p = 0.25), 3),
        ] {
            let got = shares(&mut s, &logits, 5000);
            let seen = got.iter().filter(|share| **share > 0.0).count();
            assert_eq!(seen, kept, "{name}: {got:?}");
        }
    }

    #[test]
    fn the_likeliest_are_kept_however_many_they_are() {
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        for (falling, share) in [(0.5f32, 0.9), (0.99, 0.9), (0.999, 0.5), (1.0, 0.95), (1.0, 1.0)]
        {
            let all: Vec<_> =
                (0..5000u32).map(|i| (falling.powi(i as i32 * 7 % 5000), i)).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable_by(order);
            let mut kept = all;
            keep_likeliest(&mut kept, share * sum(&sorted), order);
            assert_eq!(kept, sorted[..kept.len()], "{falling}");
            let (enough, total) = (sum(&kept), sum(&sorted));
            assert!(enough >= share * total * (1.0 - 1e-9), "{enough} of {total}");
            assert!(sum(&kept[..kept.len() - 1]) < share * total, "{falling}: one too many");
        }
    }

    #[test]
    fn filters_agree_with_a_sort_of_all_candidates() {
        let logits: Vec<f32> = (0..3000u32).map(|i| (i * 7919 % 3000) as f32 / 150.0).collect();
        for (temperature, top_k, top_p) in [
            (0.1, 0, 0.9),
            (1.0, 0, 0.5),
            (1.0, 40, 1.0),
            (1.0, 40, 0.8),
            (9.0, 2000, 0.99),
            (1e6, 0, 0.9),
        ] {
            let mut s =
                sampler(1, |s| (s.temperature, s.top_k, s.top_p) = (temperature, top_k, top_p));
            s.choose(&mut logits.clone(), &[]);
            let mut sorted: Vec<(f32, u32)> = s.weights.iter().copied().zip(0..).collect();
            sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            sorted.truncate(if top_k > 0 { top_k } else { sorted.len() });
            let (wanted, mut so_far) = (f64::from(top_p) * sum(&sorted), 0.0);
            let enough = sorted.iter().position(|c| {
                so_far += f64::from(c.0);
                so_far >= wanted * (1.0 - SLACK) && top_p < 1.0
            });
            sorted.truncate(enough.map_or(sorted.len(), |i| i + 1));
            assert_eq!(s.candidates, sorted, "temperature {temperature}, {top_k}, {top_p}");
        }
    }

    #[test]
    fn all_of_a_large_vocabulary_can_be_drawn() {
        // A few likely ones, far apart, and nothing else: the parts between weigh nothing.
        let mut logits = vec![f32::NEG_INFINITY; 5000];
        for id in [3, 1500, 4999] {
            logits[id] = 0.0;
        }
        let got = shares(&mut sampler(5, |_| ()), &logits, 6000);
        for id in [3, 1500, 4999] {
            assert!((got[id] - 1.0 / 3.0).abs() < 0.03, "{id}: {}", got[id]);
        }
        assert!((got.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(pick_among_all(&[1.0, 2.0, 1.0], 0.5), (1, 0.5));
        assert_eq!(pick_among_all(&[0.0, 1.0, 0.0], 0.999_999_999_999_999_9).0, 1);
    }

    #[test]
    fn impossible_tokens_are_never_drawn() {
        let logits = [0.0, f32::NEG_INFINITY, 0.0];
        let got = shares(&mut sampler(3, |_| ()), &logits, 5000);
        assert_eq!(got[1], 0.0);
    }

    #[test]
    fn a_penalty_makes_repeats_less_likely() {
        let mut s = sampler(0, |s| {
            s.temperature = 0.0;
            s.repetition_penalty = 2.0;
        });
        assert_eq!(s.choose(&mut [1.5, 1.0], &[0]).id, 1);
        assert_eq!(s.choose(&mut [-1.0, -1.5], &[0]).id, 1);
        assert_eq!(s.choose(&mut [1.5, 1.0], &[]).id, 0);
    }

    #[test]
    fn greedy_takes_the_first_of_equals_and_survives_nan() {
        let mut s = sampler(0, |s| s.temperature = 0.0);
        assert_eq!(s.choose(&mut [1.0, 2.0, 2.0], &[]).id, 1);
        s.choose(&mut [f32::NAN, f32::NAN], &[]);
        sampler(0, |_| ()).choose(&mut [f32::NAN, 1.0], &[]);
    }
}
