//! The CPU operations, against their own promise (the same bits for any number of rows, threads
//! and any instruction set) and against plain f64 arithmetic.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::kernels::simd::Isa;
use dflash_chat::model::ops::{
    Activation, AttentionSpec, HeadNorms, Ops, Quantise, RopeTable, Visibility,
};
use dflash_chat::model::weights::RawTensor;

/// Every GGUF type that a matrix can have, and the width that fits its block.
const TYPES: [(GgmlDType, usize); 14] = [
    (GgmlDType::F32, 96),
    (GgmlDType::F16, 96),
    (GgmlDType::BF16, 96),
    (GgmlDType::Q4_0, 96),
    (GgmlDType::Q4_1, 96),
    (GgmlDType::Q5_0, 96),
    (GgmlDType::Q5_1, 96),
    (GgmlDType::Q8_0, 96),
    (GgmlDType::Q2K, 256),
    (GgmlDType::Q3K, 256),
    (GgmlDType::Q4K, 512),
    (GgmlDType::Q5K, 256),
    (GgmlDType::Q6K, 512),
    (GgmlDType::Q8K, 256),
];

const ROW_COUNTS: [usize; 10] = [1, 2, 3, 5, 8, 9, 16, 17, 64, 300];

/// A reproducible stream of numbers, roughly normal.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f32 {
        (0..4)
            .map(|_| {
                self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5
            })
            .sum()
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// A tensor in a file's form, and the floats that it stands for.
fn stored(
    noise: &mut Noise,
    dtype: GgmlDType,
    rows: usize,
    width: usize,
) -> (RawTensor<'static>, Vec<f32>) {
    let floats = Tensor::from_vec(noise.floats(rows * width), (rows, width), &Device::Cpu).unwrap();
    let (bytes, meant) = match dtype {
        GgmlDType::F16 | GgmlDType::BF16 => {
            let kind = if dtype == GgmlDType::F16 {
                candle_core::DType::F16
            } else {
                candle_core::DType::BF16
            };
            let floats = floats.to_dtype(kind).unwrap().to_dtype(candle_core::DType::F32).unwrap();
            let meant: Vec<f32> = floats.flatten_all().unwrap().to_vec1().unwrap();
            let bytes = meant.iter().flat_map(|&x| match dtype {
                GgmlDType::F16 => half::f16::from_f32(x).to_le_bytes(),
                _ => half::bf16::from_f32(x).to_le_bytes(),
            });
            (bytes.collect(), meant)
        }
        _ => {
            let quantised = QTensor::quantize(&floats, dtype).unwrap();
            let meant = quantised.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap();
            (quantised.data().unwrap().to_vec(), meant.to_vec1().unwrap())
        }
    };
    let name = format!("{dtype:?}");
    (RawTensor { name, shape: vec![rows, width], dtype, bytes: bytes.into() }, meant)
}

fn cpus(quantise: Quantise, kv: KvType) -> Vec<Cpu> {
    let mut cpus: Vec<Cpu> =
        Isa::available().into_iter().map(|isa| Cpu::with_isa(isa, 1, quantise, kv)).collect();
    cpus.push(Cpu::new(3, quantise, kv));
    cpus
}

fn bits(x: &[f32]) -> Vec<u32> {
    // All that is not a number counts as the same.
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

fn download(cpu: &Cpu, rows: &<Cpu as Ops>::Rows) -> Vec<u32> {
    bits(&cpu.download(rows).unwrap())
}

#[test]
fn products_have_the_same_bits_for_any_number_of_rows_and_any_instructions() {
    let mut noise = Noise(1);
    for (dtype, width) in TYPES {
        // One row below, at and above the tiles' edges.
        for out in [1, 15, 16, 17, 40] {
            let (tensor, _) = stored(&mut noise, dtype, out, width);
            let bias = noise.floats(out);
            let mut x = noise.floats(300 * width);
            // Extreme activations, each in a row of its own.
            x[width] = f32::NAN;
            x[2 * width] = f32::INFINITY;
            x[3 * width..4 * width].fill(1e-42);
            x[4 * width..5 * width].fill(0.0);
            x[5 * width..6 * width].iter_mut().for_each(|x| *x *= 1e35);
            let weight = noise.floats(width);
            let mut first: Option<Vec<u32>> = None;
            for cpu in cpus(Quantise::AsStored, KvType::F16) {
                let linear = cpu.linear(std::slice::from_ref(&tensor), Some(bias.clone())).unwrap();
                let norm = cpu.norm(weight.clone(), 1e-5).unwrap();
                let all = cpu.upload(&x, width).unwrap();
                let all = cpu.project(&all, Some(&norm), &linear).unwrap();
                let all = download(&cpu, &all);
                for rows in ROW_COUNTS {
                    let some = cpu.upload(&x[..rows * width], width).unwrap();
                    let some = cpu.project(&some, Some(&norm), &linear).unwrap();
                    assert_eq!(download(&cpu, &some), all[..rows * out], "{dtype:?}, {rows} rows");
                }
                for row in 0..20 {
                    let one = cpu.upload(&x[row * width..][..width], width).unwrap();
                    let one = cpu.project(&one, Some(&norm), &linear).unwrap();
                    assert_eq!(
                        download(&cpu, &one),
                        all[row * out..][..out],
                        "{dtype:?}, row {row} alone, {}",
                        cpu.device_detail()
                    );
                }
                let first = first.get_or_insert_with(|| all.clone());
                assert!(*first == all, "{dtype:?}, {out} rows, {}", cpu.device_detail());
            }
        }
    }
}

#[test]
fn products_of_all_shapes_have_the_same_bits_with_any_instructions() {
    let mut noise = Noise(13);
    let types = [GgmlDType::Q4_1, GgmlDType::Q8_0, GgmlDType::F32, GgmlDType::BF16];
    for (i, (out, rows)) in
        [(1, 1), (16, 7), (31, 5), (32, 6), (33, 64), (65, 65), (80, 71), (200, 2)]
            .iter()
            .enumerate()
    {
        for dtype in types {
            for blocks in [1, 2, 3, 8, 17] {
                let dense = dtype == GgmlDType::F32 || dtype == GgmlDType::BF16;
                let width = 32 * blocks - if dense { i } else { 0 };
                let (tensor, _) = stored(&mut noise, dtype, *out, width);
                let x = noise.floats(rows * width);
                let mut first: Option<Vec<u32>> = None;
                for cpu in cpus(Quantise::AsStored, KvType::F16) {
                    let linear = cpu.linear(std::slice::from_ref(&tensor), None).unwrap();
                    let x = cpu.upload(&x, width).unwrap();
                    let got = download(&cpu, &cpu.project(&x, None, &linear).unwrap());
                    let first = first.get_or_insert_with(|| got.clone());
                    assert!(*first == got, "{dtype:?} {out} × {width}, {rows} rows");
                }
            }
        }
    }
}

#[test]
fn products_are_those_of_the_stored_weights() {
    let mut noise = Noise(2);
    for (dtype, width) in TYPES {
        let (tensor, meant) = stored(&mut noise, dtype, 33, width);
        let x = noise.floats(5 * width);
        let cpu = Cpu::new(1, Quantise::AsStored, KvType::F16);
        let linear = cpu.linear(&[tensor], None).unwrap();
        let rows = cpu.upload(&x, width).unwrap();
        let got = cpu.download(&cpu.project(&rows, None, &linear).unwrap()).unwrap();
        for (i, &got) in got.iter().enumerate() {
            let (x, w) = (&x[i / 33 * width..][..width], &meant[i % 33 * width..][..width]);
            let wanted: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w)).sum();
            let size: f64 = x.iter().zip(w).map(|(x, w)| f64::from(x * w).powi(2)).sum();
            // Activations keep seven bits; the errors add up as a random walk does.
            assert!((f64::from(got) - wanted).abs() < 0.03 * size.sqrt() + 1e-5, "{dtype:?}");
        }
    }
}

/// The largest error of a packed matrix, in parts of the largest magnitude of its block of 32.
fn packing_error(tensor: RawTensor<'_>, meant: &[f32], width: usize, quantise: Quantise) -> f32 {
    let cpu = Cpu::new(1, quantise, KvType::F16);
    let rows = meant.len() / width;
    let linear = cpu.linear(&[tensor], None).unwrap();
    let ids: Vec<u32> = (0..rows as u32).collect();
    let got = cpu.download(&cpu.embed(&linear, &ids, 1.0).unwrap()).unwrap();
    let largest = |block: &[f32]| block.iter().fold(0.0f32, |l, x| l.max(x.abs()));
    got.chunks(32)
        .zip(meant.chunks(32))
        .map(|(got, meant)| {
            let difference: Vec<f32> = got.iter().zip(meant).map(|(a, b)| a - b).collect();
            if largest(&difference) == 0.0 { 0.0 } else { largest(&difference) / largest(meant) }
        })
        .fold(0.0, f32::max)
}

#[test]
fn layouts_hold_each_type_within_its_bound() {
    let mut noise = Noise(3);
    for (dtype, width) in TYPES {
        let (tensor, meant) = stored(&mut noise, dtype, 37, width);
        let error = packing_error(tensor, &meant, width, Quantise::AsStored);
        let bound = match dtype {
            GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16 => 0.0,
            GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q5_0 | GgmlDType::Q8_0 => 0.0,
            // Scale and minimum rounded to binary16; a value is their difference.
            GgmlDType::Q4K => 3.0 / 2048.0,
            // Half of a step of 1/127, which binary16 rounds up.
            _ => 1.001 / 254.0,
        };
        assert!(error <= bound, "{dtype:?}: {error} > {bound}");
    }
    for (quantise, bound) in [(Quantise::Q8, 1.001 / 254.0), (Quantise::Q4, 2.01 / 30.0)] {
        let (tensor, meant) = stored(&mut noise, GgmlDType::F32, 37, 96);
        let error = packing_error(tensor, &meant, 96, quantise);
        assert!(error <= bound, "{quantise:?}: {error} > {bound}");
    }
}

#[test]
fn widths_that_fit_no_block_are_kept_dense_and_noted() {
    let mut noise = Noise(4);
    for width in [1, 2, 31, 33, 63] {
        let (tensor, meant) = stored(&mut noise, GgmlDType::F32, 20, width);
        let cpu = Cpu::new(2, Quantise::Q4, KvType::F16);
        let linear = cpu.linear(&[tensor], None).unwrap();
        assert_eq!(cpu.notes().len(), 1);
        let x = noise.floats(3 * width);
        let rows = cpu.upload(&x, width).unwrap();
        let got = cpu.download(&cpu.project(&rows, None, &linear).unwrap()).unwrap();
        for (i, got) in got.iter().enumerate() {
            let (x, w) = (&x[i / 20 * width..][..width], &meant[i % 20 * width..][..width]);
            let wanted: f32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
            assert!((got - wanted).abs() < 1e-4);
        }
    }
}

#[test]
fn hostile_tensors_are_errors() {
    let cpu = Cpu::new(1, Quantise::AsStored, KvType::F16);
    let tensor = |shape: Vec<usize>, dtype, bytes: usize| RawTensor {
        name: "x".into(),
        shape,
        dtype,
        bytes: vec![0xff; bytes].into(),
    };
    for bad in [
        tensor(vec![4, 32], GgmlDType::Q8_0, 4 * 34 - 1),
        tensor(vec![4, 33], GgmlDType::Q8_0, 4 * 34),
        tensor(vec![usize::MAX, 32], GgmlDType::Q8_0, 34),
        tensor(vec![4, 0], GgmlDType::F32, 0),
        tensor(vec![4], GgmlDType::F32, 16),
        tensor(vec![1, 32], GgmlDType::Q8_1, 36),
    ] {
        assert!(cpu.linear(&[bad], None).is_err());
    }
    assert!(cpu.linear(&[], None).is_err());
    // Scales that are no numbers: the row keeps what the file says.
    let nan = cpu.linear(&[tensor(vec![1, 32], GgmlDType::Q8_0, 34)], None).unwrap();
    assert_eq!(cpu.notes().len(), 1);
    let row = cpu.download(&cpu.embed(&nan, &[0], 1.0).unwrap()).unwrap();
    assert!(row.iter().all(|x| x.is_nan()));
    assert!(cpu.embed(&nan, &[1], 1.0).is_err());
    assert!(cpu.select_rows(&nan, &[1]).is_err());
}

#[test]
fn parts_and_selections_are_the_same_rows() {
    let mut noise = Noise(5);
    let cpu = Cpu::new(2, Quantise::AsStored, KvType::F16);
    let parts: Vec<(RawTensor<'_>, Vec<f32>)> =
        [(GgmlDType::Q4_1, 32), (GgmlDType::Q4_0, 5), (GgmlDType::Q8_0, 16), (GgmlDType::Q4_1, 3)]
            .map(|(dtype, rows)| stored(&mut noise, dtype, rows, 64))
            .into();
    let meant: Vec<f32> = parts.iter().flat_map(|part| part.1.clone()).collect();
    let tensors: Vec<_> = parts.into_iter().map(|part| part.0).collect();
    let bias = noise.floats(56);
    let linear = cpu.linear(&tensors, Some(bias)).unwrap();
    assert_eq!(cpu.linear_shape(&linear), (56, 64));
    let ids: Vec<u32> = (0..56).collect();
    assert_eq!(cpu.download(&cpu.embed(&linear, &ids, 1.0).unwrap()).unwrap(), meant);

    let ids = [55, 0, 33, 33, 40, 7, 31, 32];
    let some = cpu.select_rows(&linear, &ids).unwrap();
    let x = cpu.upload(&noise.floats(3 * 64), 64).unwrap();
    let all = download(&cpu, &cpu.project(&x, None, &linear).unwrap());
    let few = download(&cpu, &cpu.project(&x, None, &some).unwrap());
    for (i, row) in few.chunks(ids.len()).enumerate() {
        let wanted: Vec<u32> = ids.iter().map(|&id| all[i * 56 + id as usize]).collect();
        assert_eq!(row, wanted);
    }
}

#[test]
fn row_operations_are_those_of_f64_and_the_same_everywhere() {
    let mut noise = Noise(6);
    for width in [2usize, 16, 30, 576] {
        let x = noise.floats(7 * width);
        let weight = noise.floats(width);
        let mut first: Option<[Vec<u32>; 3]> = None;
        for cpu in cpus(Quantise::AsStored, KvType::F16) {
            let rows = cpu.upload(&x, width).unwrap();
            let norm = cpu.norm(weight.clone(), 1e-5).unwrap();
            let normed = cpu.download(&cpu.normed(&rows, &norm).unwrap()).unwrap();
            for (x, normed) in x.chunks(width).zip(normed.chunks(width)) {
                let square: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
                let factor = 1.0 / (square / width as f64 + 1e-5).sqrt();
                for i in 0..width {
                    let wanted = f64::from(x[i]) * factor * f64::from(weight[i]);
                    assert!((f64::from(normed[i]) - wanted).abs() < 1e-5);
                }
            }
            let mut capped = cpu.copy(&rows).unwrap();
            cpu.softcap(&mut capped, 0.5).unwrap();
            let capped = cpu.download(&capped).unwrap();
            for (x, capped) in x.iter().zip(&capped) {
                assert!((capped - 0.5 * (x / 0.5).tanh()).abs() < 1e-6);
            }
            let mut identity = vec![0.0; width * width];
            (0..width).for_each(|i| identity[i * width + i] = 1.0);
            let shape = vec![width, width];
            let bytes: Vec<u8> = identity.iter().flat_map(|x: &f32| x.to_le_bytes()).collect();
            let dtype = GgmlDType::F32;
            let identity = RawTensor { name: "1".into(), shape, dtype, bytes: bytes.into() };
            let linear = cpu.linear(&[identity.clone(), identity], None).unwrap();
            let gated = cpu.gated(&rows, Some(&norm), &linear, Activation::GeluTanh).unwrap();
            let gated = cpu.download(&gated).unwrap();
            for (x, gated) in normed.iter().zip(&gated) {
                let x = f64::from(*x);
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                assert!((f64::from(*gated) - 0.5 * x * (1.0 + inner.tanh()) * x).abs() < 1e-5);
            }
            let all = [bits(&normed), bits(&capped), bits(&gated)];
            assert!(*first.get_or_insert(all.clone()) == all, "{}", cpu.device_detail());
        }
    }
}

#[test]
fn added_products_and_post_norms() {
    let mut noise = Noise(7);
    let cpu = Cpu::new(2, Quantise::AsStored, KvType::F16);
    let (tensor, _) = stored(&mut noise, GgmlDType::Q4_1, 40, 64);
    let linear = cpu.linear(&[tensor], None).unwrap();
    let norm = cpu.norm(noise.floats(40), 1e-5).unwrap();
    let x = cpu.upload(&noise.floats(9 * 64), 64).unwrap();
    let start = noise.floats(9 * 40);
    let product = cpu.project(&x, None, &linear).unwrap();
    for (post, more) in
        [(None, cpu.copy(&product).unwrap()), (Some(&norm), cpu.normed(&product, &norm).unwrap())]
    {
        let mut into = cpu.upload(&start, 40).unwrap();
        cpu.project_add(&mut into, &x, &linear, post).unwrap();
        let more = cpu.download(&more).unwrap();
        let wanted: Vec<f32> = start.iter().zip(more).map(|(a, b)| a + b).collect();
        assert_eq!(cpu.download(&into).unwrap(), wanted);
    }
}

#[test]
fn choices_are_the_same_with_any_instructions() {
    let mut noise = Noise(14);
    for width in [1, 15, 16, 17, 1000] {
        let logits = noise.floats(9 * width);
        let mut first = None;
        for cpu in cpus(Quantise::AsStored, KvType::F16) {
            let rows = cpu.upload(&logits, width).unwrap();
            let choices = cpu.choose(&rows, true).unwrap();
            for (choice, logits) in choices.iter().zip(logits.chunks(width)) {
                let largest = logits.iter().fold(f32::MIN, |l, x| l.max(*x));
                assert_eq!(logits[choice.id as usize], largest);
                let sum: f64 = logits.iter().map(|x| f64::from(x - largest).exp()).sum();
                assert!((f64::from(choice.prob) - 1.0 / sum).abs() < 1e-6);
            }
            let bits: Vec<_> =
                choices.iter().map(|c| (c.id, c.margin.to_bits(), c.prob.to_bits())).collect();
            let first = first.get_or_insert_with(|| bits.clone());
            assert_eq!(*first, bits, "{}", cpu.device_detail());
        }
    }
}

#[test]
fn choices() {
    for cpu in cpus(Quantise::AsStored, KvType::F16) {
        let choose = |logits: &[f32]| {
            let rows = cpu.upload(logits, logits.len()).unwrap();
            cpu.choose(&rows, true).unwrap()[0]
        };
        let mut logits = vec![0.0; 100];
        assert_eq!((choose(&logits).id, choose(&logits).margin), (0, 0.0));
        assert!((choose(&logits).prob - 0.01).abs() < 1e-6);
        logits[37] = 3.0;
        logits[99] = 5.0;
        assert_eq!((choose(&logits).id, choose(&logits).margin), (99, 2.0));
        logits[40] = 5.0;
        assert_eq!((choose(&logits).id, choose(&logits).margin), (40, 0.0));
        logits[20] = f32::NAN;
        assert_eq!((choose(&logits).id, choose(&logits).margin), (40, 0.0));
        logits[41] = f32::INFINITY;
        assert_eq!(choose(&logits).id, 41);
        assert_eq!(choose(&[f32::NAN; 20]).id, 0);
        assert_eq!(choose(&[f32::NEG_INFINITY; 20]).id, 0);
        assert_eq!(choose(&[-1.0, -2.0, -0.5]).id, 2);
    }
}

/// An attention to try: its rules and the norms.
#[derive(Clone)]
struct Case {
    spec: AttentionSpec,
    rope: RopeTable,
    q_norm: Option<Vec<f32>>,
    k_norm: Option<Vec<f32>>,
}

fn cases(noise: &mut Noise) -> Vec<Case> {
    let plain = AttentionSpec {
        heads: 6,
        kv_heads: 2,
        head_dim: 32,
        scale: 0.17,
        window: None,
        visibility: Visibility::Causal,
        softcap: None,
        values_are_keys: false,
        value_norm: None,
    };
    let rope = |pairs: u32, magnitude| RopeTable {
        inv_freq: (0..pairs).map(|i| 10_000f64.powf(-f64::from(i) / f64::from(pairs))).collect(),
        magnitude,
    };
    let case = |spec: AttentionSpec, rope| Case { spec, rope, q_norm: None, k_norm: None };
    let full = AttentionSpec { visibility: Visibility::Bidirectional, ..plain.clone() };
    let mut normed = case(AttentionSpec { head_dim: 40, ..plain.clone() }, rope(20, 1.2));
    normed.q_norm = Some(noise.floats(40));
    normed.k_norm = Some(noise.floats(40));
    let gemma = AttentionSpec {
        values_are_keys: true,
        value_norm: Some(1e-6),
        head_dim: 64,
        heads: 20,
        ..plain.clone()
    };
    let mut gemma = case(gemma, rope(9, 1.0));
    gemma.k_norm = Some(noise.floats(64));
    vec![
        case(plain.clone(), rope(16, 1.0)),
        normed,
        gemma,
        case(AttentionSpec { head_dim: 2, heads: 2, ..plain.clone() }, rope(1, 1.0)),
        case(AttentionSpec { window: Some(70), ..plain.clone() }, rope(16, 1.0)),
        case(AttentionSpec { window: Some(1), ..plain.clone() }, rope(16, 1.0)),
        case(AttentionSpec { softcap: Some(0.7), ..plain }, rope(16, 1.0)),
        case(AttentionSpec { window: Some(5), ..full.clone() }, rope(16, 1.0)),
        case(full, rope(16, 1.0)),
    ]
}

/// The attention in f64, all rows at once from position 0; `block` is the number of rows a pass.
fn naive(case: &Case, qkv: &[f32], block: usize) -> Vec<f64> {
    let AttentionSpec { heads, kv_heads, head_dim, .. } = case.spec;
    let width = case.spec.qkv_width();
    let rows = qkv.len() / width;
    let head = |row: usize, at: usize| -> Vec<f64> {
        qkv[row * width + at * head_dim..][..head_dim].iter().map(|x| f64::from(*x)).collect()
    };
    let normed = |x: Vec<f64>, eps: f64| {
        let square: f64 = x.iter().map(|x| x * x).sum();
        let factor = 1.0 / (square / head_dim as f64 + eps).sqrt();
        x.into_iter().map(|x| x * factor).collect::<Vec<f64>>()
    };
    let turned = |mut x: Vec<f64>, norm: &Option<Vec<f32>>, position: usize| {
        if let Some(norm) = norm {
            x = normed(x, 1e-5).iter().zip(norm).map(|(x, w)| x * f64::from(*w)).collect();
        }
        for (i, f) in case.rope.inv_freq.iter().enumerate() {
            let (sin, cos) = (position as f64 * f).sin_cos();
            let (sin, cos) = (sin * case.rope.magnitude, cos * case.rope.magnitude);
            let (a, b) = (x[i], x[i + head_dim / 2]);
            (x[i], x[i + head_dim / 2]) = (a * cos - b * sin, b * cos + a * sin);
        }
        x
    };
    let mut result = vec![];
    for row in 0..rows {
        let len = (row / block + 1) * block;
        for h in 0..heads {
            let kv = h / (heads / kv_heads);
            let q = turned(head(row, h), &case.q_norm, row);
            let window = case.spec.window.unwrap_or(usize::MAX);
            let sees = |key: usize| match case.spec.visibility {
                Visibility::Causal => key <= row && row - key < window,
                Visibility::Bidirectional => key.abs_diff(row) < window,
            };
            let keys: Vec<usize> = (0..rows.min(len)).filter(|&key| sees(key)).collect();
            let scores: Vec<f64> = keys
                .iter()
                .map(|&key| {
                    let k = turned(head(key, heads + kv), &case.k_norm, key);
                    let score: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                    let score = score * f64::from(case.spec.scale);
                    case.spec
                        .softcap
                        .map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                })
                .collect();
            let largest = scores.iter().fold(f64::MIN, |l, x| l.max(*x));
            let weights: Vec<f64> = scores.iter().map(|x| (x - largest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut mean = vec![0.0; head_dim];
            for (key, weight) in keys.into_iter().zip(weights) {
                let at = if case.spec.values_are_keys { heads } else { heads + kv_heads };
                let mut value = head(key, at + kv);
                if let Some(eps) = case.spec.value_norm {
                    value = normed(value, f64::from(eps));
                }
                mean.iter_mut().zip(value).for_each(|(m, v)| *m += weight / sum * v);
            }
            result.extend(mean);
        }
    }
    result
}

/// The attention of all rows, `block` a pass.
fn attended(cpu: &Cpu, case: &Case, qkv: &[f32], blocks: &[usize]) -> Vec<f32> {
    let norm = |w: &Option<Vec<f32>>| w.clone().map(|w| cpu.norm(w, 1e-5).unwrap());
    let norms = HeadNorms { q: norm(&case.q_norm), k: norm(&case.k_norm) };
    let rope = cpu.rope(&case.rope, 4096).unwrap();
    let mut cache = cpu.cache(&case.spec, 4096).unwrap();
    let width = case.spec.qkv_width();
    let (mut result, mut position) = (vec![], 0);
    for &block in blocks {
        let rows = cpu.upload(&qkv[position * width..][..block * width], width).unwrap();
        let to = cpu.attend(&rows, &case.spec, &norms, &rope, &mut cache, position).unwrap();
        result.extend(cpu.download(&to).unwrap());
        position += block;
    }
    assert_eq!(cpu.cache_len(&cache), position);
    result
}

#[test]
fn attention_is_that_of_f64() {
    let mut noise = Noise(8);
    for case in cases(&mut noise) {
        let qkv = noise.floats(150 * case.spec.qkv_width());
        for kv in [KvType::F32, KvType::F16] {
            let cpu = Cpu::new(2, Quantise::AsStored, kv);
            for block in [150, 30, 3] {
                let wanted = naive(&case, &qkv, block);
                let got = attended(&cpu, &case, &qkv, &vec![block; 150 / block]);
                let bound = if kv == KvType::F32 { 1e-5 } else { 5e-3 };
                for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
                    let difference = (f64::from(*got) - wanted).abs();
                    assert!(difference < bound, "{:?} {block} {i}: {difference}", case.spec);
                }
            }
        }
    }
}

#[test]
fn attention_has_the_same_bits_for_any_number_of_rows_and_any_instructions() {
    let mut noise = Noise(9);
    for case in cases(&mut noise) {
        let rows: usize = ROW_COUNTS.iter().sum();
        let qkv = noise.floats(rows * case.spec.qkv_width());
        for kv in [KvType::F32, KvType::F16] {
            let mut first: Option<Vec<u32>> = None;
            for cpu in cpus(Quantise::AsStored, kv) {
                let blocks = bits(&attended(&cpu, &case, &qkv, &ROW_COUNTS));
                if case.spec.visibility == Visibility::Causal {
                    let singles = bits(&attended(&cpu, &case, &qkv, &vec![1; rows]));
                    assert!(blocks == singles, "{:?}, {}", case.spec, cpu.device_detail());
                }
                let first = first.get_or_insert_with(|| blocks.clone());
                assert!(*first == blocks, "{:?}, {}", case.spec, cpu.device_detail());
            }
        }
    }
}

#[test]
fn a_cache_that_was_cut_is_as_if_it_had_never_been_longer() {
    let mut noise = Noise(10);
    for case in cases(&mut noise) {
        let cpu = Cpu::new(2, Quantise::AsStored, KvType::F16);
        let width = case.spec.qkv_width();
        let norm = |w: &Option<Vec<f32>>| w.clone().map(|w| cpu.norm(w, 1e-5).unwrap());
        let norms = HeadNorms { q: norm(&case.q_norm), k: norm(&case.k_norm) };
        let rope = cpu.rope(&case.rope, 4096).unwrap();
        let prompt = cpu.upload(&noise.floats(93 * width), width).unwrap();
        // What is rejected is as bad as can be.
        let rejected = cpu.upload(&vec![f32::NAN; 40 * width], width).unwrap();
        let next = cpu.upload(&noise.floats(5 * width), width).unwrap();
        let run = |detour: bool| {
            let mut cache = cpu.cache(&case.spec, 200).unwrap();
            let attend = |rows, cache: &mut _, position| {
                cpu.attend(rows, &case.spec, &norms, &rope, cache, position).unwrap()
            };
            attend(&prompt, &mut cache, 0);
            if detour {
                attend(&rejected, &mut cache, 93);
                cpu.truncate(&mut cache, 93);
            }
            let result = attend(&next, &mut cache, 93);
            assert!(cpu.download(&result).unwrap().iter().all(|x| x.is_finite()));
            download(&cpu, &result)
        };
        assert_eq!(run(false), run(true), "{:?}", case.spec);
    }
}

#[test]
fn appended_keys_are_those_of_an_attention() {
    let mut noise = Noise(11);
    for case in cases(&mut noise) {
        let cpu = Cpu::new(2, Quantise::AsStored, KvType::F16);
        let norm = |w: &Option<Vec<f32>>| w.clone().map(|w| cpu.norm(w, 1e-5).unwrap());
        let norms = HeadNorms { q: norm(&case.q_norm), k: norm(&case.k_norm) };
        let rope = cpu.rope(&case.rope, 4096).unwrap();
        let (width, kv_width) = (case.spec.qkv_width(), case.spec.kv_width());
        let qkv = noise.floats(20 * width);
        let kv: Vec<f32> =
            qkv.chunks(width).flat_map(|row| &row[width - kv_width..]).copied().collect();
        let last = cpu.upload(&noise.floats(width), width).unwrap();
        let mut caches = [0, 1].map(|_| cpu.cache(&case.spec, 100).unwrap());
        let [one, two] = &mut caches;
        let rows = cpu.upload(&qkv, width).unwrap();
        cpu.attend(&rows, &case.spec, &norms, &rope, one, 0).unwrap();
        let rows = cpu.upload(&kv, kv_width).unwrap();
        cpu.append(&rows, &case.spec, &norms, &rope, two, 0).unwrap();
        let results = caches.each_mut().map(|cache| {
            download(&cpu, &cpu.attend(&last, &case.spec, &norms, &rope, cache, 20).unwrap())
        });
        assert_eq!(results[0], results[1]);
    }
}

#[test]
fn a_full_cache_and_a_wrong_position_are_errors() {
    let mut noise = Noise(12);
    let case = cases(&mut noise).swap_remove(0);
    let cpu = Cpu::new(1, Quantise::AsStored, KvType::F16);
    let norms = HeadNorms { q: None, k: None };
    let rope = cpu.rope(&case.rope, 100).unwrap();
    let mut cache = cpu.cache(&case.spec, 10).unwrap();
    let rows = cpu.upload(&noise.floats(8 * case.spec.qkv_width()), case.spec.qkv_width()).unwrap();
    assert!(cpu.attend(&rows, &case.spec, &norms, &rope, &mut cache, 1).is_err());
    cpu.attend(&rows, &case.spec, &norms, &rope, &mut cache, 0).unwrap();
    assert!(cpu.attend(&rows, &case.spec, &norms, &rope, &mut cache, 8).is_err());
    assert_eq!(cpu.cache_len(&cache), 8);
    let odd = AttentionSpec { head_dim: 33, ..case.spec };
    assert!(cpu.cache(&odd, 10).is_err());
}
