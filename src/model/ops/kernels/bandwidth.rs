//! How fast memory gives what a pass reads: the bound of plain decoding.

use super::memory::Slab;
use super::pool::Pool;
use super::simd::{Isa, Kernel, LANES, Simd};
use anyhow::Result;
use std::hint::black_box;
use std::time::Instant;

/// Vectors that are read in one go.
const PART: usize = 4096;

/// The sum of some vectors.
struct Sum<'a>(&'a [[f32; LANES]]);

impl Kernel for Sum<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 4];
        let (fours, rest) = self.0.as_chunks::<4>();
        for four in fours {
            for (sum, x) in sums.iter_mut().zip(four) {
                *sum = s.add(*sum, s.load(x));
            }
        }
        for x in rest {
            sums[0] = s.add(sums[0], s.load(x));
        }
        s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
    }
}

/// Bytes a second at which all threads together read `bytes` of memory, pass by pass.
///
/// # Errors
/// When there is not so much memory.
pub fn bandwidth((pool, isa): (&Pool, Isa), bytes: usize, passes: usize) -> Result<Vec<f64>> {
    let mut memory: Slab<[f32; LANES]> = Slab::alone(bytes / size_of::<[f32; LANES]>())?;
    // Memory that was never written is one page of zeros, over and over.
    pool.rows(&mut memory, PART, |_, part| part.fill([1.0; LANES]));
    let read = (memory.len() / PART * PART * size_of::<[f32; LANES]>()) as f64;
    let time = |_| {
        let start = Instant::now();
        pool.ranges(memory.len() / PART, 1, &|parts| {
            black_box(isa.run(Sum(&memory[parts.start * PART..parts.end * PART])));
        });
        read / start.elapsed().as_secs_f64().max(1e-9)
    };
    Ok((0..passes).map(time).collect())
}
