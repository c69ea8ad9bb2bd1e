//! NEON, with and without the dot product instructions: four registers a vector.

use super::{Kernel, LANES, Simd};
use std::arch::aarch64::*;

/// Proof of NEON, and of the dot product instructions if `DOT`.
#[derive(Clone, Copy)]
pub struct Neon<const DOT: bool>(());

/// Run `kernel` compiled for NEON.
///
/// # Safety
/// The processor must have the features named.
#[target_feature(enable = "neon")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon::<false>(()))
}

/// Run `kernel` compiled for NEON with the dot product instructions.
///
/// # Safety
/// The processor must have the features named.
#[target_feature(enable = "neon,dotprod")]
pub unsafe fn run_dot<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon::<true>(()))
}

/// Lanes 0 to 3, 4 to 7, 8 to 11, 12 to 15.
type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type Bytes = [int8x16_t; 4];

/// An expression for each quarter. Not a closure: those would not inherit the instruction set.
macro_rules! each {
    ($i:ident => $e:expr) => {
        unsafe {
            [
                {
                    const $i: usize = 0;
                    $e
                },
                {
                    const $i: usize = 1;
                    $e
                },
                {
                    const $i: usize = 2;
                    $e
                },
                {
                    const $i: usize = 3;
                    $e
                },
            ]
        }
    };
}

/// `sum + w · x` by group of four bytes, in 32 bits.
///
/// # Safety
/// The processor must have the features of `Neon<DOT>`.
#[inline(always)]
unsafe fn dot<const DOT: bool>(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    unsafe {
        if DOT {
            // The intrinsic is not stable yet.
            let mut sum = sum;
            std::arch::asm!(
                ".arch_extension dotprod",
                "sdot {sum:v}.4s, {w:v}.16b, {x:v}.16b",
                sum = inout(vreg) sum,
                w = in(vreg) w,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
            return sum;
        }
        // Products of bytes fit in 16 bits; their sums of two may not, so they are widened.
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
        let high = vpaddlq_s16(vmull_high_s8(w, x));
        vaddq_s32(sum, vpaddq_s32(low, high))
    }
}

/// The four bytes in each group of four.
#[inline(always)]
fn quads(x: &[i8; 4]) -> int8x16_t {
    let quad = i32::from_ne_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8]);
    // SAFETY: NEON is there, for the callers have a `Neon`.
    unsafe { vreinterpretq_s8_s32(vdupq_n_s32(quad)) }
}

// SAFETY of every block below: a value of `Neon` exists only inside of `run` and `run_dot`,
// whose caller has seen that the processor has the instructions; loads and stores go through
// references to arrays of the size that they touch.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<const DOT: bool> Simd for Neon<DOT> {
    type F = F;
    type I = I;
    type Bytes = Bytes;
    type NibbleSum = I;
    const ROWS: usize = 4;
    const DENSE_ROWS: usize = 4;
    const QUERIES: usize = 6;
    const PAIRS: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        each!(_I => vdupq_n_f32(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> F {
        each!(I => vld1q_f32(x.as_ptr().add(4 * I)))
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: F) {
        each!(I => vst1q_f32(to.as_mut_ptr().add(4 * I), x[I]));
    }
    // The 16-bit float type is not stable yet; the conversions are of the base instruction set.
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> F {
        each!(I => {
            let half = vld1_u16(x.as_ptr().add(4 * I));
            let wide: float32x4_t;
            std::arch::asm!(
                "fcvtl {wide:v}.4s, {half:v}.4h",
                wide = out(vreg) wide,
                half = in(vreg) half,
                options(pure, nomem, nostack, preserves_flags),
            );
            wide
        })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> F {
        each!(I => vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(x.as_ptr().add(4 * I)))))
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES], x: F) {
        each!(I => {
            let half: uint16x4_t;
            std::arch::asm!(
                "fcvtn {half:v}.4h, {x:v}.4s",
                half = out(vreg) half,
                x = in(vreg) x[I],
                options(pure, nomem, nostack, preserves_flags),
            );
            vst1_u16(to.as_mut_ptr().add(4 * I), half);
        });
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        each!(I => vaddq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        each!(I => vsubq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        each!(I => vmulq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        each!(I => vdivq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        each!(I => vfmaq_f32(c[I], a[I], b[I]))
    }
    // NEON's own maximum and minimum prefer what is not a number.
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        each!(I => vbslq_f32(vcgtq_f32(a[I], b[I]), a[I], b[I]))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        each!(I => vbslq_f32(vcltq_f32(a[I], b[I]), a[I], b[I]))
    }
    #[inline(always)]
    fn sum(self, x: F) -> f32 {
        unsafe {
            let x = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
            let x = vadd_f32(vget_low_f32(x), vget_high_f32(x));
            vget_lane_f32::<0>(x) + vget_lane_f32::<1>(x)
        }
    }
    #[inline(always)]
    fn largest(self, x: F) -> f32 {
        unsafe { vmaxvq_f32(vmaxq_f32(vmaxq_f32(x[0], x[1]), vmaxq_f32(x[2], x[3]))) }
    }
    #[inline(always)]
    fn round(self, x: F) -> I {
        each!(I => vcvtnq_s32_f32(x[I]))
    }
    #[inline(always)]
    fn to_float(self, x: I) -> F {
        each!(I => vcvtq_f32_s32(x[I]))
    }
    #[inline(always)]
    fn exp2(self, x: I) -> F {
        each!(I => {
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(x[I], vdupq_n_s32(127))))
        })
    }
    #[inline(always)]
    fn magnitude_bits(self, x: F) -> I {
        each!(I => vreinterpretq_s32_f32(vabsq_f32(x[I])))
    }
    #[inline(always)]
    fn max_int(self, a: I, b: I) -> I {
        each!(I => vmaxq_s32(a[I], b[I]))
    }
    #[inline(always)]
    fn add_int(self, a: I, b: I) -> I {
        each!(I => vaddq_s32(a[I], b[I]))
    }
    #[inline(always)]
    fn largest_int(self, x: I) -> i32 {
        unsafe { vmaxvq_s32(vmaxq_s32(vmaxq_s32(x[0], x[1]), vmaxq_s32(x[2], x[3]))) }
    }
    #[inline(always)]
    fn sum_int(self, x: I) -> i32 {
        unsafe { vaddvq_s32(vaddq_s32(vaddq_s32(x[0], x[1]), vaddq_s32(x[2], x[3]))) }
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; LANES], x: I) {
        unsafe {
            let low = vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1]));
            let high = vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]));
            vst1q_s8(to.as_mut_ptr(), vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 64]) -> Bytes {
        each!(I => vreinterpretq_s8_u8(vld1q_u8(x.as_ptr().add(16 * I))))
    }
    #[inline(always)]
    fn low_nibbles(self, x: Bytes) -> Bytes {
        each!(I => vandq_s8(x[I], vdupq_n_s8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, x: Bytes) -> Bytes {
        each!(I => vreinterpretq_s8_u8(vshrq_n_u8::<4>(vreinterpretq_u8_s8(x[I]))))
    }
    #[inline(always)]
    fn no_nibbles(self) -> I {
        self.start_bytes(0)
    }
    #[inline(always)]
    fn dot_nibbles(self, sum: I, w: Bytes, x: &[i8; 4]) -> I {
        self.dot_bytes(sum, w, x)
    }
    #[inline(always)]
    fn nibble_sum(self, sum: I) -> I {
        sum
    }
    #[inline(always)]
    fn load_weights(self, x: &[i8; 64]) -> Bytes {
        each!(I => vld1q_s8(x.as_ptr().add(16 * I)))
    }
    #[inline(always)]
    fn start_bytes(self, _: i32) -> I {
        each!(_I => vdupq_n_s32(0))
    }
    #[inline(always)]
    fn dot_bytes(self, sum: I, w: Bytes, x: &[i8; 4]) -> I {
        let x = quads(x);
        each!(I => dot::<DOT>(sum[I], w[I], x))
    }
    // The processors of this family fetch ahead on their own; the instruction is not stable.
    #[inline(always)]
    fn prefetch<T>(self, _: *const T) {}
}
