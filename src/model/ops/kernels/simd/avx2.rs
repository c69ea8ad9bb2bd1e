//! AVX2 with FMA and F16C, with and without AVX-VNNI: two registers a vector.

use super::{Kernel, LANES, Simd};
use std::arch::x86_64::*;

/// Proof of AVX2, FMA and F16C, and of AVX-VNNI if `VNNI`.
#[derive(Clone, Copy)]
pub struct Avx2<const VNNI: bool>(());

/// Run `kernel` compiled for AVX2.
///
/// # Safety
/// The processor must have the features named.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2::<false>(()))
}

/// Run `kernel` compiled for AVX2 with AVX-VNNI.
///
/// # Safety
/// The processor must have the features named.
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
pub unsafe fn run_vnni<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2::<true>(()))
}

#[inline(always)]
fn quad(x: &[i8; 4]) -> i32 {
    i32::from_ne_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8])
}

/// A sum that is formed here, after all those before it. The compiler, which may reorder integer
/// additions, would else keep the weights of a whole block in registers instead of the sums: more
/// than there are, and a product of three or four rows takes up to 1.4 times as long. For the order
/// the assembly is not `pure`.
///
/// # Safety
/// The processor must have AVX.
#[inline]
#[target_feature(enable = "avx")]
unsafe fn settle(mut x: __m256i) -> __m256i {
    // SAFETY: no instructions.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) x,
            options(nomem, nostack, preserves_flags));
    }
    x
}

/// Lanes 0 to 7 and 8 to 15.
type F = [__m256; 2];
type I = [__m256i; 2];

/// `f` of each half.
macro_rules! halves {
    ($f:ident($($x:expr),*)) => { unsafe { [$f($($x[0]),*), $f($($x[1]),*)] } };
}

/// An expression for each half. Not a closure: those would not inherit the instruction set.
macro_rules! each {
    ($x:ident => $e:expr) => {{
        let [low, high] = $x;
        [
            {
                let $x = low;
                $e
            },
            {
                let $x = high;
                $e
            },
        ]
    }};
}

// SAFETY of every block below: a value of `Avx2` exists only inside of `run` and `run_vnni`,
// whose caller has seen that the processor has the instructions; loads and stores go through
// references to arrays of the size that they touch, and the unaligned forms are used.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<const VNNI: bool> Simd for Avx2<VNNI> {
    type F = F;
    type I = I;
    type Bytes = I;
    type NibbleSum = I;
    const ROWS: usize = 6;
    const DENSE_ROWS: usize = 4;
    const QUERIES: usize = 6;
    const PAIRS: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        unsafe { [_mm256_set1_ps(x); 2] }
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> F {
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: F) {
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
        }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> F {
        unsafe {
            let x: *const __m128i = x.as_ptr().cast();
            [_mm256_cvtph_ps(_mm_loadu_si128(x)), _mm256_cvtph_ps(_mm_loadu_si128(x.add(1)))]
        }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> F {
        unsafe {
            let x: *const __m128i = x.as_ptr().cast();
            let x = [x, x.add(1)];
            each!(x => {
                let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
            })
        }
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES], x: F) {
        unsafe {
            let to: *mut __m128i = to.as_mut_ptr().cast();
            _mm_storeu_si128(to, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0]));
            _mm_storeu_si128(to.add(1), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1]));
        }
    }
    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        halves!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        halves!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        halves!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        halves!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        halves!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        halves!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        halves!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn sum(self, x: F) -> f32 {
        unsafe {
            let x = _mm256_add_ps(x[0], x[1]);
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    fn largest(self, x: F) -> f32 {
        unsafe {
            let x = _mm256_max_ps(x[0], x[1]);
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    fn round(self, x: F) -> I {
        halves!(_mm256_cvtps_epi32(x))
    }
    #[inline(always)]
    fn to_float(self, x: I) -> F {
        halves!(_mm256_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn exp2(self, x: I) -> F {
        unsafe {
            each!(x => {
                let exponent = _mm256_add_epi32(x, _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
            })
        }
    }
    #[inline(always)]
    fn magnitude_bits(self, x: F) -> I {
        unsafe {
            each!(x => _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fff_ffff)))
        }
    }
    #[inline(always)]
    fn max_int(self, a: I, b: I) -> I {
        halves!(_mm256_max_epi32(a, b))
    }
    #[inline(always)]
    fn add_int(self, a: I, b: I) -> I {
        halves!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn largest_int(self, x: I) -> i32 {
        unsafe {
            let x = _mm256_max_epi32(x[0], x[1]);
            let x = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_max_epi32(x, _mm_shuffle_epi32::<0b1110>(x));
            _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32::<1>(x)))
        }
    }
    #[inline(always)]
    fn sum_int(self, x: I) -> i32 {
        unsafe {
            let x = _mm256_add_epi32(x[0], x[1]);
            let x = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            let x = _mm_add_epi32(x, _mm_shuffle_epi32::<0b1110>(x));
            _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32::<1>(x)))
        }
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; LANES], x: I) {
        unsafe {
            // Of each 32-bit lane its low byte; then the four lanes of each register half.
            let low = _mm256_set1_epi32(0xff);
            let words =
                _mm256_packus_epi32(_mm256_and_si256(x[0], low), _mm256_and_si256(x[1], low));
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(words);
            let bytes = _mm_packus_epi16(
                _mm256_castsi256_si128(words),
                _mm256_extracti128_si256::<1>(words),
            );
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 64]) -> I {
        unsafe {
            let x: *const __m256i = x.as_ptr().cast();
            [_mm256_loadu_si256(x), _mm256_loadu_si256(x.add(1))]
        }
    }
    #[inline(always)]
    fn low_nibbles(self, x: I) -> I {
        unsafe { each!(x => _mm256_and_si256(x, _mm256_set1_epi8(15))) }
    }
    #[inline(always)]
    fn high_nibbles(self, x: I) -> I {
        unsafe { each!(x => _mm256_and_si256(_mm256_srli_epi16::<4>(x), _mm256_set1_epi8(15))) }
    }
    #[inline(always)]
    fn no_nibbles(self) -> I {
        unsafe { [_mm256_setzero_si256(); 2] }
    }
    // Without VNNI the sums are of pairs in 16 bits: 8 · 2 · 15 · 127 = 30,480 still fits.
    #[inline(always)]
    fn dot_nibbles(self, sum: I, w: I, x: &[i8; 4]) -> I {
        unsafe {
            let x = _mm256_set1_epi32(quad(x));
            if VNNI {
                [_mm256_dpbusd_avx_epi32(sum[0], w[0], x), _mm256_dpbusd_avx_epi32(sum[1], w[1], x)]
            } else {
                [
                    settle(_mm256_add_epi16(sum[0], _mm256_maddubs_epi16(w[0], x))),
                    settle(_mm256_add_epi16(sum[1], _mm256_maddubs_epi16(w[1], x))),
                ]
            }
        }
    }
    #[inline(always)]
    fn nibble_sum(self, sum: I) -> I {
        if VNNI {
            return sum;
        }
        unsafe { each!(sum => _mm256_madd_epi16(sum, _mm256_set1_epi16(1))) }
    }
    // With VNNI the weights are raised by 128 as in AVX-512; without, the sign of the weight
    // moves to the activation: 2 · 128 · 127 fits in 16 bits.
    #[inline(always)]
    fn load_weights(self, x: &[i8; 64]) -> I {
        unsafe {
            let x: *const __m256i = x.as_ptr().cast();
            let x = [_mm256_loadu_si256(x), _mm256_loadu_si256(x.add(1))];
            if VNNI { each!(x => _mm256_xor_si256(x, _mm256_set1_epi8(-128))) } else { x }
        }
    }
    #[inline(always)]
    fn start_bytes(self, x_sum: i32) -> I {
        unsafe { [_mm256_set1_epi32(if VNNI { -128 * x_sum } else { 0 }); 2] }
    }
    #[inline(always)]
    fn dot_bytes(self, sum: I, w: I, x: &[i8; 4]) -> I {
        unsafe {
            let x = _mm256_set1_epi32(quad(x));
            if VNNI {
                return [
                    _mm256_dpbusd_avx_epi32(sum[0], w[0], x),
                    _mm256_dpbusd_avx_epi32(sum[1], w[1], x),
                ];
            }
            let [low, high] = each!(w => {
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))
            });
            [settle(_mm256_add_epi32(sum[0], low)), settle(_mm256_add_epi32(sum[1], high))]
        }
    }
    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
