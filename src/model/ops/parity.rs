//! The same operations on two implementations, compared.
//!
//! [`trial`] runs every operation of [`Ops`] on small random inputs, the same ones each time, and
//! [`compare`] sets two trials side by side. `doctor` shows that, and tests ask for it.

use super::{Activation, AttentionSpec, HeadNorms, Ops, RopeTable, Visibility};
use crate::model::weights::RawTensor;
use crate::text::panic_text;
use anyhow::{Result, anyhow, ensure};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What an operation gave.
#[derive(Debug)]
pub struct Trial {
    /// Which one, in words.
    pub operation: String,
    /// How far implementations may be apart, in parts of the largest number.
    pub bound: f32,
    /// The numbers; or why there are none, a panic included.
    pub outcome: Result<Vec<f32>>,
}

/// How far two implementations of an operation are apart.
#[derive(Debug)]
pub struct Agreement {
    /// Which one, in words.
    pub operation: String,
    /// How far they may be apart.
    pub bound: f32,
    /// The largest difference, in parts of the reference's largest number; or why one of them gave
    /// none.
    pub error: Result<f32>,
}

impl Agreement {
    /// Whether they are near enough.
    pub fn holds(&self) -> bool {
        matches!(self.error, Ok(error) if error <= self.bound)
    }
}

/// The second trial against the first.
pub fn compare(reference: &[Trial], other: &[Trial]) -> Vec<Agreement> {
    let pairs = reference.iter().zip(other);
    pairs
        .map(|(reference, other)| {
            let error = match (&reference.outcome, &other.outcome) {
                (Ok(wanted), Ok(got)) => difference(wanted, got),
                (_, Err(why)) => Err(anyhow!("{why:#}")),
                (Err(why), _) => Err(anyhow!("the reference fails: {why:#}")),
            };
            Agreement { operation: other.operation.clone(), bound: other.bound, error }
        })
        .collect()
}

fn difference(wanted: &[f32], got: &[f32]) -> Result<f32> {
    ensure!(wanted.len() == got.len(), "{} numbers instead of {}", got.len(), wanted.len());
    let size = wanted.iter().fold(f32::MIN_POSITIVE, |size, x| size.max(x.abs()));
    let pairs = wanted.iter().zip(got);
    Ok(pairs.fold(0.0, |largest: f32, (wanted, got)| {
        let error = (wanted - got).abs() / size;
        // Not-a-number is as far from anything as can be.
        if error <= largest {
            largest
        } else if error.is_nan() {
            f32::INFINITY
        } else {
            error
        }
    }))
}

/// Exact but for the order of sums.
const SINGLE: f32 = 1e-4;
/// Inputs or weights are rounded to binary16 where the device computes with it.
const HALF: f32 = 3e-3;
/// The same with bfloat16.
const BRAIN: f32 = 2e-2;
/// Inputs of quantised products are rounded to bytes where an implementation does so.
const ROUNDED: f32 = 3e-2;

const WIDTH: usize = 256;
const OUT: usize = 48;

/// Try every operation.
pub fn trial<O: Ops>(ops: &O) -> Vec<Trial> {
    let mut trials = Trials { ops, list: Vec::new() };
    trials.matrices();
    trials.rows();
    trials.attentions();
    trials.list
}

struct Trials<'a, O> {
    ops: &'a O,
    list: Vec<Trial>,
}

impl<O: Ops> Trials<'_, O> {
    fn add(&mut self, operation: String, bound: f32, run: impl FnOnce(&O) -> Result<Vec<f32>>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(self.ops)));
        let outcome = outcome.unwrap_or_else(|panic| Err(anyhow!("{}", panic_text(&*panic))));
        self.list.push(Trial { operation, bound, outcome });
    }

    fn matrices(&mut self) {
        for (name, dtype, bound) in [
            ("f32", GgmlDType::F32, SINGLE),
            ("f16", GgmlDType::F16, HALF),
            ("bf16", GgmlDType::BF16, BRAIN),
            ("Q4_0", GgmlDType::Q4_0, ROUNDED),
            ("Q4_1", GgmlDType::Q4_1, ROUNDED),
            ("Q5_0", GgmlDType::Q5_0, ROUNDED),
            ("Q8_0", GgmlDType::Q8_0, ROUNDED),
            ("Q4_K", GgmlDType::Q4K, ROUNDED),
            ("Q5_K", GgmlDType::Q5K, ROUNDED),
            ("Q6_K", GgmlDType::Q6K, ROUNDED),
        ] {
            self.add(format!("product with a matrix in {name}"), bound, |ops| {
                let linear = ops.linear(&[tensor(dtype, 1, OUT)?], None)?;
                ensure!(ops.linear_shape(&linear) == (OUT, WIDTH), "a wrong shape");
                let x = Noise(2).floats(16 * WIDTH);
                // One row goes another way than many on some devices.
                let one = ops.upload(&x[..WIDTH], WIDTH)?;
                let many = ops.upload(&x, WIDTH)?;
                let products = [&one, &many].map(|x| ops.project(x, None, &linear));
                download_all(ops, products)
            });
        }
        self.add("product of rows cut out of others".into(), ROUNDED, |ops| {
            let dense = ops.linear(&[tensor(GgmlDType::F32, 17, OUT)?], None)?;
            let rounded = ops.linear(&[tensor(GgmlDType::Q4_0, 18, OUT)?], None)?;
            let cut = ops.slice(&input(ops, 19, 9)?, 3..8)?;
            download_all(ops, [&dense, &rounded].map(|linear| ops.project(&cut, None, linear)))
        });
        self.add("product after a norm, with a bias".into(), ROUNDED, |ops| {
            let parts = [tensor(GgmlDType::Q4_1, 3, 32)?, tensor(GgmlDType::Q8_0, 4, 16)?];
            let linear = ops.linear(&parts, Some(Noise(5).floats(OUT)))?;
            let norm = ops.norm(Noise(6).floats(WIDTH), 1e-5)?;
            download_all(ops, [ops.project(&input(ops, 7, 5)?, Some(&norm), &linear)])
        });
        for (name, normed) in [("added product", false), ("added product, normed", true)] {
            self.add(name.into(), SINGLE, |ops| {
                let linear = ops.linear(&[tensor(GgmlDType::F32, 8, WIDTH)?], None)?;
                let norm = ops.norm(Noise(9).floats(WIDTH), 1e-5)?;
                let mut into = input(ops, 10, 5)?;
                let x = input(ops, 11, 5)?;
                ops.project_add(&mut into, &x, &linear, normed.then_some(&norm))?;
                ops.download(&into)
            });
        }
        for (name, activation) in [("SiLU", Activation::Silu), ("GELU", Activation::GeluTanh)] {
            self.add(format!("gate with {name}"), SINGLE, |ops| {
                let linear = ops.linear(&[tensor(GgmlDType::F32, 12, 2 * OUT)?], None)?;
                let norm = ops.norm(Noise(13).floats(WIDTH), 1e-5)?;
                ops.download(&ops.gated(&input(ops, 14, 5)?, Some(&norm), &linear, activation)?)
            });
        }
        for (name, dtype) in [("f32", GgmlDType::F32), ("Q4_1", GgmlDType::Q4_1)] {
            self.add(format!("rows of a table in {name}"), SINGLE, |ops| {
                let table = ops.table(tensor(dtype, 15, OUT)?)?;
                ops.download(&ops.embed(&table, &[47, 0, 16, 16, 5], 2.5)?)
            });
            self.add(format!("chosen rows of a matrix in {name}"), ROUNDED, |ops| {
                let table = ops.table(tensor(dtype, 15, OUT)?)?;
                let some = ops.select_rows(&table, &[5, 47, 0, 16, 17, 31])?;
                download_all(ops, [ops.project(&input(ops, 16, 3)?, None, &some)])
            });
        }
    }

    fn rows(&mut self) {
        self.add("rows cut and joined".into(), 0.0, |ops| {
            let x = input(ops, 20, 7)?;
            ensure!(ops.count(&x) == 7, "{} rows instead of 7", ops.count(&x));
            let (a, b) = (ops.slice(&x, 1..4)?, ops.slice(&x, 4..7)?);
            download_all(ops, [ops.beside(&[&a, &b]), ops.stack(&[&b, &x]), ops.copy(&a)])
        });
        self.add("norm".into(), SINGLE, |ops| {
            let norm = ops.norm(Noise(21).floats(WIDTH), 1e-5)?;
            ops.download(&ops.normed(&input(ops, 22, 5)?, &norm)?)
        });
        self.add("sum of rows".into(), 0.0, |ops| {
            let mut x = input(ops, 26, 5)?;
            ops.add(&mut x, &input(ops, 27, 5)?)?;
            ops.download(&x)
        });
        self.add("convolution over rows".into(), SINGLE, |ops| {
            let (x, group) = (input(ops, 28, 5)?, 16);
            let base = ops.upload(&Noise(29).floats(3 * WIDTH), WIDTH)?;
            let changes = 2 * 3 * WIDTH / group;
            let change = ops.upload(&Noise(33).floats(5 * changes), changes)?;
            let convolve = |side| ops.convolve(&x, &base, &change, group, side);
            download_all(ops, [convolve(0), convolve(1)])
        });
        self.add("rows times a number".into(), SINGLE, |ops| {
            let mut x = input(ops, 23, 5)?;
            ops.scale(&mut x, 0.37)?;
            ops.download(&x)
        });
        self.add("soft cap".into(), SINGLE, |ops| {
            let mut x = input(ops, 24, 5)?;
            ops.softcap(&mut x, 0.5)?;
            ops.download(&x)
        });
        let choices = |ops: &O| {
            let logits = Noise(25).floats(3 * 1000);
            ops.choose(&ops.upload(&logits, 1000)?, true)
        };
        self.add("greedy choice".into(), 0.0, |ops| {
            Ok(choices(ops)?.iter().map(|choice| choice.id as f32).collect())
        });
        self.add("margin of the choice".into(), SINGLE, |ops| {
            Ok(choices(ops)?.iter().map(|choice| choice.margin).collect())
        });
        self.add("probability of the choice".into(), SINGLE, |ops| {
            Ok(choices(ops)?.iter().map(|choice| choice.prob).collect())
        });
    }

    fn attentions(&mut self) {
        let plain = AttentionSpec {
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            scale: 0.125,
            window: None,
            visibility: Visibility::Causal,
            softcap: None,
            values_are_keys: false,
            value_norm: None,
        };
        let both_ways = AttentionSpec { visibility: Visibility::Bidirectional, ..plain.clone() };
        let windowed = AttentionSpec { window: Some(70), ..plain.clone() };
        let shared =
            AttentionSpec { values_are_keys: true, value_norm: Some(1e-6), ..plain.clone() };
        for (name, spec, norms, context) in [
            ("causal", plain.clone(), false, 100),
            ("both ways", both_ways.clone(), false, 100),
            ("windowed", windowed.clone(), false, 100),
            ("far past its window", windowed, false, 1700),
            ("window both ways", AttentionSpec { window: Some(9), ..both_ways }, false, 100),
            ("with head norms", plain.clone(), true, 100),
            ("soft-capped", AttentionSpec { softcap: Some(0.7), ..plain }, false, 100),
            ("keys as values", shared, true, 100),
        ] {
            self.add(format!("attention, {name}"), SINGLE, |ops| {
                attention(ops, &spec, norms, context)
            });
        }
    }
}

/// Context rows that are appended alone, a block that attends, a rejection, and one more row.
fn attention<O: Ops>(
    ops: &O,
    spec: &AttentionSpec,
    with_norms: bool,
    context: usize,
) -> Result<Vec<f32>> {
    let norm = |seed| match with_norms {
        true => ops.norm(Noise(seed).floats(spec.head_dim), 1e-5).map(Some),
        false => Ok(None),
    };
    let norms = HeadNorms { q: norm(30)?, k: norm(31)? };
    let pairs = spec.head_dim / 2;
    let inv_freq = (0..pairs).map(|i| 10_000f64.powf(-(i as f64) / pairs as f64)).collect();
    let rope = ops.rope(&RopeTable { inv_freq, magnitude: 1.1 }, 2048)?;
    let mut cache = ops.cache(spec, 2048)?;
    let mut noise = Noise(32);
    let mut rows = |count: usize, width: usize| ops.upload(&noise.floats(count * width), width);
    // In two passes, so that there is something to forget.
    let first = context - 40;
    for (position, count) in [(0, first), (first, context - first)] {
        let kv = rows(count, spec.kv_width())?;
        ops.append(&kv, spec, &norms, &rope, &mut cache, position)?;
    }
    let block = rows(16, spec.qkv_width())?;
    let block = ops.attend(&block, spec, &norms, &rope, &mut cache, context)?;
    ensure!(ops.cache_len(&cache) == context + 16, "a cache of another length");
    ops.truncate(&mut cache, context + 3);
    let last = rows(1, spec.qkv_width())?;
    let last = ops.attend(&last, spec, &norms, &rope, &mut cache, context + 3)?;
    download_all(ops, [Ok(block), Ok(last)])
}

/// Random rows, [`WIDTH`] wide.
fn input<O: Ops>(ops: &O, seed: u64, count: usize) -> Result<O::Rows> {
    ops.upload(&Noise(seed).floats(count * WIDTH), WIDTH)
}

fn download_all<O: Ops, const N: usize>(ops: &O, rows: [Result<O::Rows>; N]) -> Result<Vec<f32>> {
    let mut all = Vec::new();
    for rows in rows {
        all.extend(ops.download(&rows?)?);
    }
    Ok(all)
}

/// A random matrix of `rows` rows as a file has it, [`WIDTH`] wide.
fn tensor(dtype: GgmlDType, seed: u64, rows: usize) -> Result<RawTensor<'static>> {
    let floats = Noise(seed).floats(rows * WIDTH);
    let bytes = match dtype {
        GgmlDType::F32 => floats.iter().flat_map(|x| x.to_le_bytes()).collect(),
        GgmlDType::F16 => {
            floats.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect()
        }
        GgmlDType::BF16 => {
            floats.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect()
        }
        _ => {
            let dense = Tensor::from_vec(floats, (rows, WIDTH), &Device::Cpu)?;
            QTensor::quantize(&dense, dtype)?.data()?.into_owned()
        }
    };
    let shape = vec![rows, WIDTH];
    Ok(RawTensor { name: format!("{dtype:?}"), shape, dtype, bytes: bytes.into() })
}

/// A reproducible stream of numbers between -1 and 1.
struct Noise(u64);

impl Noise {
    fn floats(&mut self, n: usize) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Quantise;
    use super::super::cpu::Cpu;
    use super::super::device::DeviceOps;
    use super::super::kernels::cache::KvType;
    use super::super::kernels::simd::Isa;
    use super::*;

    fn exact(isa: Isa) -> Vec<Trial> {
        trial(&Cpu::with_isa(isa, 2, Quantise::AsStored, KvType::F32))
    }

    /// bugs.md B39. On a machine with a GPU `doctor` asks the same of it.
    #[test]
    fn the_kernels_and_candle_agree() {
        let kernels = exact(Isa::best());
        let candle = trial(&DeviceOps::new(Device::Cpu, Quantise::AsStored));
        assert_eq!(kernels.len(), candle.len());
        for agreement in compare(&kernels, &candle) {
            assert!(agreement.holds(), "{agreement:?}");
        }
    }

    #[test]
    fn instruction_sets_give_the_same_bits() {
        let scalar = exact(Isa::plain());
        for isa in Isa::available() {
            for agreement in compare(&scalar, &exact(isa)) {
                assert_eq!(agreement.error.unwrap(), 0.0, "{} {}", isa.name(), agreement.operation);
            }
        }
    }

    #[test]
    fn differences_are_seen() {
        let of = |outcome| [Trial { operation: "x".into(), bound: 0.1, outcome }];
        let error = |wanted, got| compare(&of(Ok(wanted)), &of(Ok(got))).remove(0);
        assert!(error(vec![1.0, 2.0], vec![1.1, 2.0]).holds());
        assert_eq!(error(vec![1.0, 2.0], vec![1.5, 2.0]).error.unwrap(), 0.25);
        assert!(!error(vec![1.0, 2.0], vec![1.5, 2.0]).holds());
        assert!(!error(vec![1.0, 2.0], vec![f32::NAN, 2.0]).holds());
        assert!(!error(vec![1.0], vec![1.0, 2.0]).holds());
        assert!(!compare(&of(Ok(vec![])), &of(Err(anyhow!("no")))).remove(0).holds());
        let mut trials =
            Trials { ops: &Cpu::new(1, Quantise::AsStored, KvType::F32), list: Vec::new() };
        trials.add("panics".into(), 0.0, |_| panic!("on purpose"));
        assert_eq!(trials.list[0].outcome.as_ref().unwrap_err().to_string(), "on purpose");
    }
}
