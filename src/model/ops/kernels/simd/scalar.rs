//! The definition of every operation, and the set of a processor without any other.

use super::{LANES, Simd};
use half::{bf16, f16};
use std::array::from_fn;

/// Plain Rust.
#[derive(Clone, Copy)]
pub struct Scalar;

type F = [f32; LANES];
type I = [i32; LANES];

#[inline(always)]
fn dot(sum: I, w: &[u8; 64], x: &[i8; 4], weight: impl Fn(u8) -> i32) -> I {
    from_fn(|lane| (0..4).fold(sum[lane], |sum, i| sum + weight(w[4 * lane + i]) * i32::from(x[i])))
}

impl Simd for Scalar {
    type F = F;
    type I = I;
    type Bytes = [u8; 64];
    type NibbleSum = I;
    // As many as in the widest set, so that tests on any machine run what that set runs.
    const ROWS: usize = 8;
    const DENSE_ROWS: usize = 8;
    const QUERIES: usize = 8;
    const PAIRS: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &F) -> F {
        *x
    }
    #[inline(always)]
    fn store(self, to: &mut F, x: F) {
        *to = x;
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> F {
        x.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> F {
        x.map(|bits| bf16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES], x: F) {
        *to = x.map(|x| f16::from_f32(x).to_bits());
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sum(self, mut x: F) -> f32 {
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                x[i] += x[i + half];
            }
        }
        x[0]
    }
    #[inline(always)]
    fn largest(self, x: F) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn round(self, x: F) -> I {
        x.map(|x| x.round_ties_even() as i32)
    }
    #[inline(always)]
    fn to_float(self, x: I) -> F {
        x.map(|x| x as f32)
    }
    #[inline(always)]
    fn exp2(self, x: I) -> F {
        x.map(|x| f32::from_bits((x.wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    fn magnitude_bits(self, x: F) -> I {
        x.map(|x| (x.to_bits() & 0x7fff_ffff) as i32)
    }
    #[inline(always)]
    fn max_int(self, a: I, b: I) -> I {
        from_fn(|i| a[i].max(b[i]))
    }
    #[inline(always)]
    fn add_int(self, a: I, b: I) -> I {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn largest_int(self, x: I) -> i32 {
        x.into_iter().fold(i32::MIN, i32::max)
    }
    #[inline(always)]
    fn sum_int(self, x: I) -> i32 {
        x.into_iter().fold(0, i32::wrapping_add)
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; LANES], x: I) {
        *to = x.map(|x| x as i8);
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 64]) -> [u8; 64] {
        *x
    }
    #[inline(always)]
    fn low_nibbles(self, x: [u8; 64]) -> [u8; 64] {
        x.map(|x| x & 15)
    }
    #[inline(always)]
    fn high_nibbles(self, x: [u8; 64]) -> [u8; 64] {
        x.map(|x| x >> 4)
    }
    #[inline(always)]
    fn no_nibbles(self) -> I {
        [0; LANES]
    }
    #[inline(always)]
    fn dot_nibbles(self, sum: I, w: [u8; 64], x: &[i8; 4]) -> I {
        dot(sum, &w, x, i32::from)
    }
    #[inline(always)]
    fn nibble_sum(self, sum: I) -> I {
        sum
    }
    #[inline(always)]
    fn load_weights(self, x: &[i8; 64]) -> [u8; 64] {
        x.map(|x| x as u8)
    }
    #[inline(always)]
    fn start_bytes(self, _: i32) -> I {
        [0; LANES]
    }
    #[inline(always)]
    fn dot_bytes(self, sum: I, w: [u8; 64], x: &[i8; 4]) -> I {
        dot(sum, &w, x, |w| i32::from(w as i8))
    }
    #[inline(always)]
    fn prefetch<T>(self, _: *const T) {}
}
