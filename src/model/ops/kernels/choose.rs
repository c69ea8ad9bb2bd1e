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
