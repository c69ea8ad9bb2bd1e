//! Blocks of 32 weights: out of the bytes of GGUF files, and rounded from floats.
//!
//! `Q4_0`, `Q4_1`, `Q5_0` and `Q8_0` become [`Nibbles`] or [`Bytes`] exactly. `Q4_K` becomes
//! [`Nibbles`] whose scale and minimum are rounded to binary16. All other types are decoded to
//! floats and rounded to [`Bytes`].

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Result};
use half::f16;
use std::borrow::Cow;

/// Weights in a block.
pub const BLOCK: usize = 32;

/// A block of four bits: `scale · quants[i] + min`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nibbles {
    /// Distance between neighbouring values.
    pub scale: f16,
    /// Value of the quant 0.
    pub min: f16,
    /// 0 to 15.
    pub quants: [u8; BLOCK],
}

/// A block of eight bits: `scale · quants[i]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bytes {
    /// Distance between neighbouring values.
    pub scale: f16,
    /// The factors.
    pub quants: [i8; BLOCK],
}

fn f16_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The 32 quants of 16 bytes: all low nibbles, then all high ones.
fn split_nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 })
}

impl Nibbles {
    /// Whether [`Nibbles::decode`] reads the type.
    pub fn holds(dtype: GgmlDType) -> bool {
        matches!(dtype, GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q4K)
    }

    /// The blocks of a row of a type that [`Nibbles::holds`]. None if a minimum or a scale
    /// leaves the range of binary16.
    pub fn decode(dtype: GgmlDType, row: &[u8]) -> Option<Vec<Nibbles>> {
        let blocks: Vec<Nibbles> = match dtype {
            GgmlDType::Q4_0 => row.chunks_exact(18).map(Self::from_q4_0).collect(),
            GgmlDType::Q4_1 => row.chunks_exact(20).map(Self::from_q4_1).collect(),
            GgmlDType::Q4K => row.chunks_exact(144).flat_map(Self::from_q4_k).collect(),
            _ => return None,
        };
        blocks.iter().all(|b| b.scale.is_finite() && b.min.is_finite()).then_some(blocks)
    }

    fn from_q4_0(bytes: &[u8]) -> Nibbles {
        let scale = f16_at(bytes, 0);
        // A power of two times the scale is exact.
        let min = f16::from_f32(-8.0 * scale.to_f32());
        Nibbles { scale, min, quants: split_nibbles(&bytes[2..]) }
    }

    fn from_q4_1(bytes: &[u8]) -> Nibbles {
        let quants = split_nibbles(&bytes[4..]);
        Nibbles { scale: f16_at(bytes, 0), min: f16_at(bytes, 2), quants }
    }

    fn from_q4_k(bytes: &[u8]) -> [Nibbles; 8] {
        let (scale, min) = (f16_at(bytes, 0).to_f32(), f16_at(bytes, 2).to_f32());
        let (packed, quants) = (&bytes[4..16], &bytes[16..144]);
        std::array::from_fn(|j| {
            // Six bits of scale and of minimum for each of eight sub-blocks, in twelve bytes.
            let (s, m) = if j < 4 {
                (packed[j] & 63, packed[j + 4] & 63)
            } else {
                let high = |byte: u8| byte >> 6 << 4;
                let low = packed[j + 4];
                ((low & 15) | high(packed[j - 4]), (low >> 4) | high(packed[j]))
            };
            let bytes = &quants[j / 2 * 32..][..32];
            Nibbles {
                scale: f16::from_f32(scale * f32::from(s)),
                min: f16::from_f32(-(min * f32::from(m))),
                quants: std::array::from_fn(|i| bytes[i] >> (j % 2 * 4) & 15),
            }
        })
    }

    /// Sixteen even steps from the smallest to the largest weight. The error is at most half a
    /// step and 2^-11 of the smallest weight's magnitude (plus 2^-24 where binary16 has no
    /// more digits). None if `x` is not finite or out of binary16's range.
    pub fn round(x: &[f32; BLOCK]) -> Option<Nibbles> {
        if x.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let low = fold(x, f32::MAX, f32::min);
        let high = fold(x, f32::MIN, f32::max);
        let min = f16::from_f32(low);
        let scale = round_up((high - min.to_f32()).max(0.0) / 15.0);
        if !min.is_finite() || !scale.is_finite() {
            return None;
        }
        let mut quants = [0; BLOCK];
        if scale > f16::ZERO {
            let (from, step) = (min.to_f32(), scale.to_f32());
            for (quant, x) in quants.iter_mut().zip(x) {
                *quant = nearest(((x - from) / step).clamp(0.0, 15.0));
            }
        }
        Some(Nibbles { scale, min, quants })
    }
}

impl Bytes {
    /// Whether [`Bytes::decode`] reads the type.
    pub fn holds(dtype: GgmlDType) -> bool {
        matches!(dtype, GgmlDType::Q8_0 | GgmlDType::Q5_0)
    }

    /// The blocks of a row of a type that [`Bytes::holds`]. None if a scale is not finite.
    pub fn decode(dtype: GgmlDType, row: &[u8]) -> Option<Vec<Bytes>> {
        let blocks: Vec<Bytes> = match dtype {
            GgmlDType::Q8_0 => row.chunks_exact(34).map(Self::from_q8_0).collect(),
            GgmlDType::Q5_0 => row.chunks_exact(22).map(Self::from_q5_0).collect(),
            _ => return None,
        };
        blocks.iter().all(|b| b.scale.is_finite()).then_some(blocks)
    }

    fn from_q8_0(bytes: &[u8]) -> Bytes {
        let quants = std::array::from_fn(|i| bytes[2 + i] as i8);
        Bytes { scale: f16_at(bytes, 0), quants }
    }

    fn from_q5_0(bytes: &[u8]) -> Bytes {
        let fifth = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
        let low = split_nibbles(&bytes[6..]);
        let quants = std::array::from_fn(|i| (low[i] | ((fifth >> i & 1) as u8) << 4) as i8 - 16);
        Bytes { scale: f16_at(bytes, 0), quants }
    }

    /// 255 even steps around zero. The error is at most half a step, which is the largest
    /// magnitude / 254, and 2^-10 of that and 2^-25 more where the step was rounded up to
    /// binary16. None if `x` is not finite or out of binary16's range.
    pub fn round(x: &[f32; BLOCK]) -> Option<Bytes> {
        let largest = fold(x, 0.0, |largest, x| largest.max(x.abs()));
        let scale = round_up(largest / 127.0);
        if !scale.is_finite() || x.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let mut quants = [0; BLOCK];
        if scale > f16::ZERO {
            let step = scale.to_f32();
            for (quant, x) in quants.iter_mut().zip(x) {
                *quant = nearest((x / step).clamp(-127.0, 127.0)) as i8;
            }
        }
        Some(Bytes { scale, quants })
    }
}

/// `with` over all of `x`, eight chains side by side: one of 32 steps would wait for each.
fn fold(x: &[f32; BLOCK], start: f32, with: impl Fn(f32, f32) -> f32) -> f32 {
    let mut chains = [start; 8];
    for part in x.as_chunks::<8>().0 {
        for (chain, &x) in chains.iter_mut().zip(part) {
            *chain = with(*chain, x);
        }
    }
    chains.into_iter().fold(start, with)
}

/// The nearest integer, ties to even, of a number between -128 and 255, as a byte. The sum has no
/// digits below 1, and the integer in its low ones; this is what a vector unit can do, while the
/// library's rounding is a call for each number.
fn nearest(x: f32) -> u8 {
    (x + 12_582_912.0).to_bits() as u8
}

/// The smallest binary16 that is not below `x >= 0`.
fn round_up(x: f32) -> f16 {
    let nearest = f16::from_f32(x);
    if nearest.to_f32() < x { f16::from_bits(nearest.to_bits() + 1) } else { nearest }
}

/// The floats of some rows of any type; `bytes` holds whole blocks.
pub fn to_floats(dtype: GgmlDType, bytes: &[u8]) -> Result<Vec<f32>> {
    let elements = bytes.len() / dtype.type_size() * dtype.block_size();
    match dtype {
        GgmlDType::F32 => Ok(bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect()),
        GgmlDType::F16 => {
            Ok(bytes.as_chunks().0.iter().map(|x| f16::from_le_bytes(*x).to_f32()).collect())
        }
        GgmlDType::BF16 => {
            Ok(bytes.as_chunks().0.iter().map(|x| half::bf16::from_le_bytes(*x).to_f32()).collect())
        }
        // A scale and a sum that is not needed, as two binary16, then 32 bytes. candle cannot
        // decode it, for it is a type of activations.
        GgmlDType::Q8_1 => candle_core::bail!("Q8_1 is not a type of weights"),
        _ => {
            // candle asks for aligned bytes.
            let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
            let view = as_bytes_mut(&mut aligned);
            view[..bytes.len()].copy_from_slice(bytes);
            let data = Cow::Borrowed(&view[..bytes.len()]);
            let storage = QStorage::from_data(data, &Device::Cpu, dtype)?;
            QTensor::new(storage, elements)?.dequantize(&Device::Cpu)?.to_vec1()
        }
    }
}

fn as_bytes_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: any bytes make a `u64` and the other way round; the length is the same memory.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 8 * words.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_holds_its_bounds_at_all_sizes() {
        for exponent in -50..9 {
            let size = 2f32.powi(exponent);
            for offset in [0.0, 1.0, -3.0, 100.0] {
                let x = std::array::from_fn(|i| size * (offset + (i as f32 * 1.7).sin()));
                let largest = x.iter().fold(0.0f32, |l: f32, x| l.max(x.abs()));
                let bytes = Bytes::round(&x).unwrap();
                let bound = largest / 254.0 * (1.0 + 1.0 / 1024.0) * 1.0001 + 2f32.powi(-25);
                for (x, q) in x.iter().zip(bytes.quants) {
                    assert!((x - bytes.scale.to_f32() * f32::from(q)).abs() <= bound);
                }
                let nibbles = Nibbles::round(&x).unwrap();
                let spread = x.iter().fold(f32::MIN, |l, x| l.max(*x))
                    - x.iter().fold(f32::MAX, |l, x| l.min(*x));
                let bound = (spread / 30.0 * (1.0 + 1.0 / 1024.0)) * 1.0001
                    + largest / 1024.0
                    + 2f32.powi(-24);
                for (x, q) in x.iter().zip(nibbles.quants) {
                    let got = nibbles.scale.to_f32() * f32::from(q) + nibbles.min.to_f32();
                    assert!((x - got).abs() <= bound, "{x} {got} {bound}");
                }
            }
        }
    }

    #[test]
    fn what_no_block_holds_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30] {
            let mut x = [1.0; BLOCK];
            x[17] = bad;
            assert_eq!(Bytes::round(&x), None);
            assert_eq!(Nibbles::round(&x), None);
        }
        // -8 times the scale leaves binary16.
        let mut block = [0u8; 18];
        block[..2].copy_from_slice(&f16::from_f32(60000.0).to_le_bytes());
        assert_eq!(Nibbles::decode(GgmlDType::Q4_0, &block), None);
    }

    #[test]
    fn nearest_is_the_librarys_rounding() {
        for quarter in -4 * 128..4 * 256 {
            for nudge in [-1e-5, 0.0, 1e-5] {
                let x = quarter as f32 / 4.0 + nudge;
                assert_eq!(nearest(x), x.round_ties_even() as i32 as u8, "{x}");
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        let zeros = [0.0; BLOCK];
        assert_eq!(Bytes::round(&zeros).unwrap().scale, f16::ZERO);
        let nibbles = Nibbles::round(&zeros).unwrap();
        assert_eq!((nibbles.scale, nibbles.min), (f16::ZERO, f16::ZERO));
    }
}
