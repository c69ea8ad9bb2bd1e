//! Elementary functions and row operations, the same bits on every instruction set.

use super::simd::{Kernel, LANES, Simd};
use crate::model::ops::Activation;

/// `e^x`: within 2 units in the last place for -87 to 88; 0 below -88, infinity above 88.4.
///
/// Range reduction by multiples of ln 2 and the polynomial of the Cephes library's `expf`.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // The bounds come first so that not-a-number passes through.
    let x = s.min(s.splat(88.7), s.max(s.splat(-88.0), x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let minus_n = s.sub(s.splat(0.0), s.to_float(n));
    let r = s.fma(minus_n, s.splat(0.693_359_4), x);
    let r = s.fma(minus_n, s.splat(-2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.0e-1] {
        p = s.fma(p, r, s.splat(c));
    }
    let p = s.add(s.fma(s.mul(r, r), p, r), s.splat(1.0));
    s.mul(p, s.exp2(n))
}

/// `x / (1 + e^-y)`
#[inline(always)]
fn times_sigmoid<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), y))))
}

/// `act(x)`
#[inline(always)]
pub fn activate<S: Simd>(s: S, activation: Activation, x: S::F) -> S::F {
    match activation {
        Activation::Silu => times_sigmoid(s, x, x),
        // (1 + tanh z) / 2 = sigmoid(2z)
        Activation::GeluTanh => {
            let cubic = s.fma(s.mul(x, x), s.splat(0.044_715), s.splat(1.0));
            let twice_z = s.mul(s.mul(s.splat(1.595_769), x), cubic);
            times_sigmoid(s, x, twice_z)
        }
    }
}

/// `cap · tanh(x / cap)`, with `tanh z = 1 - 2 / (e^2z + 1)`.
#[inline(always)]
pub fn soft_cap<S: Simd>(s: S, x: S::F, cap: f32) -> S::F {
    let z = s.div(x, s.splat(cap));
    let e = exp(s, s.add(z, z));
    let tanh = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    s.mul(s.splat(cap), tanh)
}

/// `1 / √(mean x² + eps)`
#[inline(always)]
pub fn rms_factor<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let (full, rest) = x.as_chunks::<LANES>();
    let mut sum = s.splat(0.0);
    for part in full {
        let part = s.load(part);
        sum = s.fma(part, part, sum);
    }
    let part = s.load_part(rest);
    let sum = s.sum(s.fma(part, part, sum));
    1.0 / (sum / x.len() as f32 + eps).sqrt()
}

/// The weight and the epsilon of an RMS norm.
#[derive(Debug)]
pub struct Norm {
    /// One factor a column.
    pub weight: Vec<f32>,
    /// Added to the mean square.
    pub eps: f32,
}

/// `x ← x · factor · weight`, in that order; `to` and `x` and `weight` are equally long.
#[inline(always)]
pub fn scale_row<S: Simd>(s: S, x: &[f32], factor: f32, weight: &[f32], to: &mut [f32]) {
    let factor = s.splat(factor);
    let chunks = x.chunks(LANES).zip(weight.chunks(LANES)).zip(to.chunks_mut(LANES));
    for ((x, w), to) in chunks {
        s.store_part(to, s.mul(s.mul(s.load_part(x), factor), s.load_part(w)));
    }
}

/// `to ← norm(x)` for one row.
pub struct NormRow<'a> {
    /// The row.
    pub x: &'a [f32],
    /// As wide as the row.
    pub norm: &'a Norm,
    /// As wide as the row.
    pub to: &'a mut [f32],
}

impl Kernel for NormRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factor = rms_factor(s, self.x, self.norm.eps);
        scale_row(s, self.x, factor, &self.norm.weight, self.to);
    }
}

/// `to ← act(g) ⊙ u` for one row `g ‖ u`.
pub struct GateRow<'a> {
    /// Twice as wide as `to`.
    pub gate_up: &'a [f32],
    /// The function on the gate.
    pub activation: Activation,
    /// The result.
    pub to: &'a mut [f32],
}

impl Kernel for GateRow<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (gate, up) = self.gate_up.split_at(self.gate_up.len() / 2);
        let chunks = gate.chunks(LANES).zip(up.chunks(LANES)).zip(self.to.chunks_mut(LANES));
        for ((g, u), to) in chunks {
            let g = activate(s, self.activation, s.load_part(g));
            s.store_part(to, s.mul(g, s.load_part(u)));
        }
    }
}

/// `x ← cap · tanh(x / cap)` in place.
pub struct SoftCap<'a> {
    /// The values.
    pub x: &'a mut [f32],
    /// Their limit.
    pub cap: f32,
}

impl Kernel for SoftCap<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for x in self.x.chunks_mut(LANES) {
            let capped = soft_cap(s, s.load_part(x), self.cap);
            s.store_part(x, capped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::Isa;
    use super::*;

    struct Exp<'a>(&'a mut [f32]);

    impl Kernel for Exp<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for x in self.0.chunks_mut(LANES) {
                let e = exp(s, s.load_part(x));
                s.store_part(x, e);
            }
        }
    }

    #[test]
    fn exponentials() {
        let arguments: Vec<f32> = (-8700..8800).map(|i| i as f32 * 0.010_01).collect();
        for isa in Isa::available() {
            let mut got = arguments.clone();
            isa.run(Exp(&mut got));
            for (x, got) in arguments.iter().zip(&got) {
                let wanted = f64::from(*x).exp();
                let error = (f64::from(*got) - wanted).abs() / wanted;
                assert!(error < 2.5e-7 || *x > 88.3, "e^{x} = {got}, not {wanted}");
            }
            let mut edges = [f32::NEG_INFINITY, -89.0, 0.0, 89.0, f32::INFINITY, f32::NAN];
            isa.run(Exp(&mut edges));
            assert_eq!(edges[..5], [0.0, 0.0, 1.0, f32::INFINITY, f32::INFINITY]);
            assert!(edges[5].is_nan());
        }
    }
}
