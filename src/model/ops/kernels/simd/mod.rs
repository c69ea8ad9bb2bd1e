//! One vector abstraction for all instruction sets: sixteen lanes of `f32` or `i32`, and
//! products of sixteen groups of four bytes.
//!
//! Kernels are written once, generic over [`Simd`], as the `run` of a [`Kernel`];
//! [`Isa::run`] compiles that body for each instruction set. Every operation here is exact (IEEE
//! single operations, integer arithmetic) and every reduction has a fixed order, so all
//! instruction sets give the bits that [`scalar`] defines.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use scalar::Scalar;

/// Lanes of a vector, and output rows of a weight tile.
pub const LANES: usize = 16;

/// The operations that kernels are made of. A value of the type is proof that the processor has
/// the instructions: only [`Isa::run`] makes them.
pub trait Simd: Copy {
    /// Sixteen `f32`.
    type F: Copy;
    /// Sixteen `i32`.
    type I: Copy;
    /// Sixty-four bytes.
    type Bytes: Copy;
    /// Sums of products of nibbles with bytes over at most 32 products a lane.
    type NibbleSum: Copy;
    /// Activation rows that a product with quantised weights keeps in registers at once.
    const ROWS: usize;
    /// Those of a product with dense weights, which has two sums a row.
    const DENSE_ROWS: usize;
    /// Queries that attention keeps in registers at once: 6 or 8.
    const QUERIES: usize;
    /// Whether there are registers for two sums of each query.
    const PAIRS: bool;

    /// The same value in all lanes.
    fn splat(self, x: f32) -> Self::F;
    /// Sixteen values from memory.
    fn load(self, x: &[f32; LANES]) -> Self::F;
    /// Sixteen values to memory.
    fn store(self, to: &mut [f32; LANES], x: Self::F);
    /// IEEE binary16 (bits) to `f32`.
    fn load_f16(self, x: &[u16; LANES]) -> Self::F;
    /// bfloat16 (bits) to `f32`.
    fn load_bf16(self, x: &[u16; LANES]) -> Self::F;
    /// `f32` to IEEE binary16 (bits), ties to even.
    fn store_f16(self, to: &mut [u16; LANES], x: Self::F);

    /// `a + b`
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b`
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: the second operand where one is not a number.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: the second operand where one is not a number.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The sum of the lanes, by halves: lane `i` with `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    fn sum(self, x: Self::F) -> f32;
    /// The largest of the lanes, none of which may be not-a-number.
    fn largest(self, x: Self::F) -> f32;

    /// To the nearest integer, ties to even; unspecified outside of `i32`.
    fn round(self, x: Self::F) -> Self::I;
    /// To `f32`, ties to even.
    fn to_float(self, x: Self::I) -> Self::F;
    /// `2^x` for `-126 <= x <= 127`; 0 for -127 and infinity for 128.
    fn exp2(self, x: Self::I) -> Self::F;
    /// The bits without the sign. As integers they are ordered as the magnitudes are, with
    /// not-a-number above infinity.
    fn magnitude_bits(self, x: Self::F) -> Self::I;
    /// The larger of each lane.
    fn max_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a + b`, wrapping.
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// The largest lane.
    fn largest_int(self, x: Self::I) -> i32;
    /// The sum of the lanes, wrapping.
    fn sum_int(self, x: Self::I) -> i32;
    /// The low byte of each lane.
    fn store_i8(self, to: &mut [i8; LANES], x: Self::I);

    /// Sixty-four bytes from memory.
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Self::Bytes;
    /// The low four bits of each byte.
    fn low_nibbles(self, x: Self::Bytes) -> Self::Bytes;
    /// The high four bits of each byte.
    fn high_nibbles(self, x: Self::Bytes) -> Self::Bytes;
    /// An empty sum.
    fn no_nibbles(self) -> Self::NibbleSum;
    /// Lane `i` grows by the four products of `w[4i..4i + 4]`, each at most 15, and `x`.
    fn dot_nibbles(self, sum: Self::NibbleSum, w: Self::Bytes, x: &[i8; 4]) -> Self::NibbleSum;
    /// The finished sums.
    fn nibble_sum(self, sum: Self::NibbleSum) -> Self::I;

    /// Signed weight bytes in the form that [`Simd::dot_bytes`] takes.
    fn load_weights(self, x: &[i8; 4 * LANES]) -> Self::Bytes;
    /// The start of a sum of `dot_bytes` with activations that sum to `x_sum`.
    fn start_bytes(self, x_sum: i32) -> Self::I;
    /// Lane `i` grows by the four products of the weights `4i..4i + 4` and `x`; neither `x` is
    /// -128.
    fn dot_bytes(self, sum: Self::I, w: Self::Bytes, x: &[i8; 4]) -> Self::I;

    /// Bring the cache line at `at`, which need not be readable memory, nearer.
    fn prefetch<T>(self, at: *const T);

    /// The lanes as an array.
    #[inline(always)]
    fn array(self, x: Self::F) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        self.store(&mut out, x);
        out
    }

    /// Up to sixteen values, the rest of the lanes 0.
    #[inline(always)]
    fn load_part(self, x: &[f32]) -> Self::F {
        match x.first_chunk() {
            Some(full) => self.load(full),
            None => {
                let mut padded = [0.0; LANES];
                padded[..x.len()].copy_from_slice(x);
                self.load(&padded)
            }
        }
    }

    /// As many of the lanes as `to` is long, at most sixteen.
    #[inline(always)]
    fn store_part(self, to: &mut [f32], x: Self::F) {
        match to.first_chunk_mut() {
            Some(full) => self.store(full, x),
            None => to.copy_from_slice(&self.array(x)[..to.len()]),
        }
    }
}

/// Work that is compiled for each instruction set. `run` and all that it calls must be
/// `#[inline(always)]`, else the compiler emits it without the instructions.
pub trait Kernel {
    /// What it computes.
    type Output;
    /// The body.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// Finds out [`Simd::ROWS`], [`Simd::DENSE_ROWS`] and [`Simd::QUERIES`].
struct Heights;

impl Kernel for Heights {
    type Output = [usize; 3];
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> [usize; 3] {
        [S::ROWS, S::DENSE_ROWS, S::QUERIES]
    }
}

/// An instruction set of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx2Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "aarch64")]
    NeonDot,
}

impl Isa {
    /// Every set that this machine has, the plain one first and the best one last.
    pub fn available() -> Vec<Isa> {
        let mut sets = vec![Set::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            sets.push(Set::Avx2);
            if is_x86_feature_detected!("avxvnni") {
                sets.push(Set::Avx2Vnni);
            }
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni")
            {
                sets.push(Set::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            sets.push(Set::Neon);
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                sets.push(Set::NeonDot);
            }
        }
        sets.into_iter().map(Isa).collect()
    }

    /// The plain one, which every machine has and which defines what is right.
    pub fn plain() -> Isa {
        Isa(Set::Scalar)
    }

    /// The fastest set of this machine.
    pub fn best() -> Isa {
        *Isa::available().last().unwrap_or(&Isa::plain())
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2Vnni => "AVX2 with AVX-VNNI",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "AVX-512 VNNI",
            #[cfg(target_arch = "aarch64")]
            Set::Neon => "NEON",
            #[cfg(target_arch = "aarch64")]
            Set::NeonDot => "NEON with dot product",
        }
    }

    /// Rows of a quantised product's panel ([`Simd::ROWS`]).
    pub fn rows(self) -> usize {
        self.run(Heights)[0]
    }

    /// Rows of a dense product's panel ([`Simd::DENSE_ROWS`]).
    pub fn dense_rows(self) -> usize {
        self.run(Heights)[1]
    }

    /// Queries that attention keeps in registers at once ([`Simd::QUERIES`]).
    pub fn queries(self) -> usize {
        self.run(Heights)[2]
    }

    /// Run `kernel` with these instructions.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Set::Scalar => kernel.run(Scalar),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a set other than `Scalar` comes only from `available`, which has seen
            // that the processor has its instructions.
            Set::Avx2 => unsafe { avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            Set::Avx2Vnni => unsafe { avx2::run_vnni(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            Set::Avx512 => unsafe { avx512::run(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: see above.
            Set::Neon => unsafe { neon::run(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: see above.
            Set::NeonDot => unsafe { neon::run_dot(kernel) },
        }
    }
}
