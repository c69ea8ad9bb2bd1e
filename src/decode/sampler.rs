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
use std::cmp::Ordering;

/// Candidates that are sorted before it is known how many `top_p` keeps.
const SORTED_FIRST: usize = 256;

/// Chooses tokens from logits.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler for one run.
    pub fn new(sampling: Sampling, seed: u64) -> Self {
        Sampler { sampling, seed, candidates: Vec::new() }
    }

    /// Whether choices need no logits but the largest.
    pub fn is_greedy(&self) -> bool {
        self.sampling.temperature <= 0.0 && self.sampling.repetition_penalty == 1.0
    }

    /// The choice at the position after `context`, whose tokens the repetition penalty sees.
    /// `logits` are changed. The margin is that of the penalised logits.
    pub fn choose(&mut self, logits: &mut [f32], context: &[u32]) -> Choice {
        self.penalise(logits, context);
        let (mut best, mut second) = (0usize, f32::NEG_INFINITY);
        for (i, &logit) in logits.iter().enumerate().skip(1) {
            if logit > logits[best] {
                second = logits[best];
                best = i;
            } else if logit > second {
                second = logit;
            }
        }
        let top = logits.get(best).copied().unwrap_or(0.0);
        let margin = top - second;
        if self.sampling.temperature <= 0.0 || !top.is_finite() {
            return Choice { id: best as u32, margin, prob: f32::NAN };
        }
        let (id, prob) = self.draw(logits, top, unit(self.seed, context.len() as u64));
        Choice { id, margin, prob }
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

    /// Draw by inverting the cumulative distribution, most likely token first; returns the
    /// token and its probability after all transformations.
    fn draw(&mut self, logits: &[f32], top: f32, u: f64) -> (u32, f32) {
        let Sampling { temperature, top_p, top_k, min_p, .. } = self.sampling;
        let weight = |logit: f32| ((logit - top) / temperature).exp();
        let kept = &mut self.candidates;
        kept.clear();
        kept.extend(logits.iter().enumerate().filter_map(|(i, &logit)| {
            let w = weight(logit);
            (w > 0.0 && w >= min_p).then_some((w, i as u32))
        }));
        // Descending weight; equal weights by id, so that the order is the same everywhere.
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if top_k > 0 && kept.len() > top_k {
            kept.select_nth_unstable_by(top_k - 1, order);
            kept.truncate(top_k);
        }
        if top_p < 1.0 {
            keep_likeliest(kept, f64::from(top_p), order);
        } else if top_k > 0 {
            kept.sort_unstable_by(order);
        }
        let total: f64 = kept.iter().map(|c| f64::from(c.0)).sum();
        let mut left = u * total;
        let mut last = (1.0, 0);
        for &(w, id) in kept.iter() {
            last = (w, id);
            left -= f64::from(w);
            if left < 0.0 {
                break;
            }
        }
        (last.1, (f64::from(last.0) / total) as f32)
    }
}

/// Keep, in `order`, the fewest candidates whose weights make `share` of all. A few hundred mostly
/// do: sorting a whole vocabulary for them would cost more than the row's share of the pass.
fn keep_likeliest(
    kept: &mut Vec<(f32, u32)>,
    share: f64,
    order: impl Fn(&(f32, u32), &(f32, u32)) -> Ordering + Copy,
) {
    let total: f64 = kept.iter().map(|c| f64::from(c.0)).sum();
    let mut sorted = SORTED_FIRST.min(kept.len());
    loop {
        if sorted < kept.len() {
            kept.select_nth_unstable_by(sorted - 1, order);
        }
        kept[..sorted].sort_unstable_by(order);
        let mut sum = 0.0;
        let enough = kept[..sorted].iter().position(|c| {
            sum += f64::from(c.0);
            sum >= share * total
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
            keep_likeliest(&mut kept, share, order);
            let sum = |some: &[(f32, u32)]| some.iter().map(|c| f64::from(c.0)).sum::<f64>();
            assert_eq!(kept, sorted[..kept.len()], "{falling}");
            let (enough, total) = (sum(&kept), sum(&sorted));
            assert!(enough >= share * total * (1.0 - 1e-9), "{enough} of {total}");
            assert!(sum(&kept[..kept.len() - 1]) < share * total, "{falling}: one too many");
        }
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
