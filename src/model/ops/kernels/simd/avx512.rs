//! AVX-512 with VNNI: one register a vector.

use super::{Kernel, LANES, Simd};
use std::arch::x86_64::*;

/// Proof of AVX-512 F, BW and VNNI.
#[derive(Clone, Copy)]
pub struct Avx512(());

/// Run `kernel` compiled for AVX-512.
///
/// # Safety
/// The processor must have the features named.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,fma,f16c")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

#[inline(always)]
fn quad(x: &[i8; 4]) -> i32 {
    i32::from_ne_bytes([x[0] as u8, x[1] as u8, x[2] as u8, x[3] as u8])
}

// SAFETY of every block below: a value of `Avx512` exists only inside of `run`, whose caller has
// seen that the processor has the instructions; loads and stores go through references to
// arrays of the size that they touch, and the unaligned forms are used.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type Bytes = __m512i;
    type NibbleSum = __m512i;
    const ROWS: usize = 8;
    const DENSE_ROWS: usize = 8;
    const QUERIES: usize = 8;
    const PAIRS: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> __m512 {
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: __m512) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES], x: __m512) {
        unsafe {
            let half = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), half);
        }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        unsafe {
            let high = _mm512_castps512_ps256(_mm512_shuffle_f32x4::<0b1110>(x, x));
            let x = _mm256_add_ps(_mm512_castps512_ps256(x), high);
            let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    fn largest(self, x: __m512) -> f32 {
        unsafe {
            let high = _mm512_castps512_ps256(_mm512_shuffle_f32x4::<0b1110>(x, x));
            let x = _mm256_max_ps(_mm512_castps512_ps256(x), high);
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
        }
    }
    #[inline(always)]
    fn round(self, x: __m512) -> __m512i {
        unsafe { _mm512_cvt_roundps_epi32::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }
    #[inline(always)]
    fn to_float(self, x: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(x) }
    }
    #[inline(always)]
    fn exp2(self, x: __m512i) -> __m512 {
        unsafe {
            let exponent = _mm512_add_epi32(x, _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }
    #[inline(always)]
    fn magnitude_bits(self, x: __m512) -> __m512i {
        unsafe { _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff)) }
    }
    #[inline(always)]
    fn max_int(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_max_epi32(a, b) }
    }
    #[inline(always)]
    fn add_int(self, a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn largest_int(self, x: __m512i) -> i32 {
        unsafe { _mm512_reduce_max_epi32(x) }
    }
    #[inline(always)]
    fn sum_int(self, x: __m512i) -> i32 {
        unsafe { _mm512_reduce_add_epi32(x) }
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; LANES], x: __m512i) {
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(x)) }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 64]) -> __m512i {
        unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn low_nibbles(self, x: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(x, _mm512_set1_epi8(15)) }
    }
    #[inline(always)]
    fn high_nibbles(self, x: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(x), _mm512_set1_epi8(15)) }
    }
    #[inline(always)]
    fn no_nibbles(self) -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    fn dot_nibbles(self, sum: __m512i, w: __m512i, x: &[i8; 4]) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(quad(x))) }
    }
    #[inline(always)]
    fn nibble_sum(self, sum: __m512i) -> __m512i {
        sum
    }
    // `dpbusd` takes its first factor unsigned: weights are raised by 128, and the sum starts
    // 128 times the activations lower.
    #[inline(always)]
    fn load_weights(self, x: &[i8; 64]) -> __m512i {
        unsafe {
            let x = _mm512_loadu_si512(x.as_ptr().cast());
            _mm512_xor_si512(x, _mm512_set1_epi8(-128))
        }
    }
    #[inline(always)]
    fn start_bytes(self, x_sum: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(-128 * x_sum) }
    }
    #[inline(always)]
    fn dot_bytes(self, sum: __m512i, w: __m512i, x: &[i8; 4]) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(quad(x))) }
    }
    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
