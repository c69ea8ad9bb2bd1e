//! The greedy choice among logits, and their weights for a draw.

use super::math::exp;
use super::simd::{Kernel, LANES, Simd};
use crate::model::ops::Choice;

/// The choice of one row. Not-a-number is never chosen, unless there is nothing else.
pub struct Choose<'a> {
    /// The row.
    pub logits: &'a [f32],
    /// Fill in the probability.
    pub with_prob: bool,
}

impl Kernel for Choose<'_> {
    type Output = Choice;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Choice {
        let (full, rest) = self.logits.as_chunks::<LANES>();
        let nothing = s.splat(f32::NEG_INFINITY);
        let (mut first, mut second) = (nothing, nothing);
        for x in full {
            let x = s.load(x);
            // Where `x` is not a number, `max` and `min` give their second operand.
            second = s.max(s.min(first, x), second);
            first = s.max(x, first);
        }
        let (mut largest, mut next) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
        let [first, second] = [s.array(first), s.array(second)];
        for &x in first.iter().chain(&second).chain(rest) {
            if x > largest {
                next = largest;
                largest = x;
            } else if x > next {
                next = x;
            }
        }
        let id = self.logits.iter().position(|&x| x == largest).unwrap_or(0);
        let prob = if self.with_prob {
            let mut sum = s.splat(0.0);
            for x in full {
                sum = s.add(sum, exp(s, s.sub(s.load(x), s.splat(largest))));
            }
            let mut tail = [f32::NEG_INFINITY; LANES];
            tail[..rest.len()].copy_from_slice(rest);
            1.0 / s.sum(s.add(sum, exp(s, s.sub(s.load(&tail), s.splat(largest)))))
        } else {
            f32::NAN
        };
        Choice { id: id as u32, margin: largest - next, prob }
    }
}

/// `to ← e^((logits - top) / temperature)`; 0 for not-a-number.
pub struct Weights<'a> {
    /// The row.
    pub logits: &'a [f32],
    /// The largest of it.
    pub top: f32,
    /// Above zero.
    pub temperature: f32,
    /// As wide as the row.
    pub to: &'a mut [f32],
}

impl Kernel for Weights<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (top, temperature) = (s.splat(self.top), s.splat(self.temperature));
        for (x, to) in self.logits.chunks(LANES).zip(self.to.chunks_mut(LANES)) {
            let weight = exp(s, s.div(s.sub(s.load_part(x), top), temperature));
            s.store_part(to, s.max(weight, s.splat(0.0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::Isa;
    use super::*;

    #[test]
    fn weights_are_the_same_with_any_instructions() {
        let mut logits: Vec<f32> = (0..1003).map(|i| (i * 7919 % 1003) as f32 / 20.0).collect();
        logits[17] = f32::NAN;
        logits[18] = f32::NEG_INFINITY;
        let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for temperature in [0.01, 0.7, 1.0, 50.0] {
            let weights = |isa: Isa| {
                let mut to = vec![f32::NAN; logits.len()];
                isa.run(Weights { logits: &logits, top, temperature, to: &mut to });
                to
            };
            let first = weights(Isa::plain());
            for (&x, &weight) in logits.iter().zip(&first) {
                let wanted = (f64::from(x - top) / f64::from(temperature)).exp();
                let wanted = if x.is_nan() { 0.0 } else { wanted };
                let error = (f64::from(weight) - wanted).abs();
                assert!(error <= 2e-5 * wanted + 1e-37, "{weight}, not {wanted}");
            }
            for isa in Isa::available() {
                assert_eq!(weights(isa), first, "{}", isa.name());
            }
        }
    }
}
