//! What the CPU operations cost: `cargo bench --bench kernels -- [THREADS [DEPTH…]] [products]
//! [scalar|AVX2|…]`.
//!
//! The first table has single products, cold (their weights come from memory, as in a real
//! pass). The second has forward passes of a network of the demo target's shape, with random
//! weights: what a pass over 1 to 16 rows and a prefill cost, at several depths of context.

use candle_core::quantized::GgmlDType;
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::kernels::simd::Isa;
use dflash_chat::model::ops::{
    Activation, AttentionSpec, HeadNorms, Ops, Quantise, RopeTable, Visibility,
};
use dflash_chat::model::weights::RawTensor;
use std::time::Instant;

const ROWS: [usize; 8] = [1, 2, 3, 4, 5, 8, 16, 512];

fn main() {
    // `cargo bench` adds flags of its own.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut numbers = args.iter().filter_map(|arg| arg.parse().ok());
    let threads = numbers.next().unwrap_or(2);
    let depths: Vec<usize> = numbers.collect();
    let everything = depths.is_empty() && !args.iter().any(|arg| arg == "products");
    let named = Isa::available().into_iter().find(|isa| args.iter().any(|arg| arg == isa.name()));
    let isa = named.unwrap_or_else(Isa::best);
    let cpu = Cpu::with_isa(isa, threads, Quantise::AsStored, KvType::F16);
    println!("{}, {} threads", cpu.device_detail(), cpu.threads());
    if everything || args.iter().any(|arg| arg == "products") {
        all_products(&cpu);
    }
    for depth in if everything { vec![128, 1024, 4096] } else { depths } {
        forward_passes(&cpu, depth);
    }
}

fn all_products(cpu: &Cpu) {
    for (name, dtype) in [("4 bits", GgmlDType::Q4_1), ("8 bits", GgmlDType::Q8_0)] {
        for (out, width) in [(960, 576), (3072, 576), (576, 1536), (49152, 576), (9728, 2560)] {
            products(cpu, name, dtype, out, width);
        }
    }
}

/// A reproducible stream of bytes.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.next() as f32 / (1u64 << 30) as f32 - 1.0).collect()
    }

    /// A matrix whose products keep the size of their inputs.
    fn matrix(&mut self, cpu: &Cpu, dtype: GgmlDType, out: usize, width: usize) -> Linear {
        let scale = |steps: f32| half::f16::from_f32(1.7 / (width as f32).sqrt() / steps);
        let mut bytes = vec![];
        for _ in 0..out * width / dtype.block_size() {
            let head: &[f32] = match dtype {
                GgmlDType::Q4_1 => &[2.0 / 15.0, -1.0],
                _ => &[1.0 / 127.0],
            };
            for x in head {
                bytes.extend((half::f16::from_f32(x * scale(1.0).to_f32())).to_le_bytes());
            }
            bytes.extend((4 / 2 * head.len()..dtype.type_size()).map(|_| self.next() as u8));
        }
        let shape = vec![out, width];
        let tensor = RawTensor { name: "noise".into(), shape, dtype, bytes: bytes.into() };
        cpu.linear(&[tensor], None).expect("a matrix of whole blocks")
    }
}

type Linear = <Cpu as Ops>::Linear;
type Norm = <Cpu as Ops>::Norm;

/// The least of `samples` timings in microseconds: other programs only ever add to it.
fn least(samples: usize, mut run: impl FnMut()) -> f64 {
    let times = (0..samples).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e6
    });
    times.fold(f64::INFINITY, f64::min)
}

fn products(cpu: &Cpu, name: &str, dtype: GgmlDType, out: usize, width: usize) {
    let mut noise = Noise(1);
    // Enough copies that none stays in a cache.
    let bytes = out * width * dtype.type_size() / dtype.block_size();
    let copies = (128 << 20) / bytes.max(1) + 1;
    let first = noise.matrix(cpu, dtype, out, width);
    let all: Vec<u32> = (0..out as u32).collect();
    let matrices: Vec<Linear> =
        (0..copies).map(|_| cpu.select_rows(&first, &all).expect("its own rows")).collect();
    print!("{name} {out:5} × {width:4} ");
    let mut one = 0.0;
    for rows in ROWS {
        let x = cpu.upload(&noise.floats(rows * width), width).expect("whole rows");
        let mut next = 0;
        let samples = if rows > 16 { 5 } else { copies.clamp(9, 200) };
        let time = least(samples, || {
            next = (next + 1) % copies;
            cpu.project(&x, None, &matrices[next]).expect("fitting shapes");
        });
        if rows == 1 {
            one = time;
            let speed = cpu.linear_bytes(&first) as f64 / time / 1e3;
            print!("{time:8.1} µs {speed:5.1} GB/s ");
        } else {
            print!(" {rows}: ×{:.2}", time / one);
        }
        if rows == 512 {
            print!(" ({:.0} GMAC/s)", (rows * out * width) as f64 / time / 1e3);
        }
    }
    println!();
}

struct Layer {
    norm: Norm,
    qkv: Linear,
    output: Linear,
    gate_up: Linear,
    down: Linear,
    cache: <Cpu as Ops>::Cache,
}

fn forward_passes(cpu: &Cpu, depth: usize) {
    const HIDDEN: usize = 576;
    const FFN: usize = 1536;
    let mut noise = Noise(2);
    let spec = AttentionSpec {
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        scale: 0.125,
        window: None,
        visibility: Visibility::Causal,
        softcap: None,
        values_are_keys: false,
        value_norm: None,
    };
    let inv_freq = (0..32).map(|i| 10_000f64.powf(-f64::from(i) / 32.0)).collect();
    let rope = cpu.rope(&RopeTable { inv_freq, magnitude: 1.0 }, 8192).expect("a table");
    let norms = HeadNorms { q: None, k: None };
    let norm = || cpu.norm(vec![1.0; HIDDEN], 1e-5).expect("a norm");
    let mut layers: Vec<Layer> = (0..30)
        .map(|_| Layer {
            norm: norm(),
            qkv: noise.matrix(cpu, GgmlDType::Q4_1, spec.qkv_width(), HIDDEN),
            output: noise.matrix(cpu, GgmlDType::Q4_1, HIDDEN, HIDDEN),
            gate_up: noise.matrix(cpu, GgmlDType::Q4_1, 2 * FFN, HIDDEN),
            down: noise.matrix(cpu, GgmlDType::Q4_1, HIDDEN, FFN),
            cache: cpu.cache(&spec, depth + 512).expect("a cache"),
        })
        .collect();
    let head = noise.matrix(cpu, GgmlDType::Q8_0, 49152, HIDDEN);
    let last = norm();
    let mut pass = |rows: usize, position: usize, logits: bool, part: &mut [f64; 6]| {
        let ids: Vec<u32> = (0..rows as u32).map(|i| i * 977 % 49152).collect();
        let mut clock = Instant::now();
        let mut lap = |i: usize| {
            part[i] += clock.elapsed().as_secs_f64() * 1e6;
            clock = Instant::now();
        };
        let mut x = cpu.embed(&head, &ids, 1.0).expect("known ids");
        for layer in &mut layers {
            cpu.truncate(&mut layer.cache, position);
            let cache = &mut layer.cache;
            let qkv = cpu.project(&x, Some(&layer.norm), &layer.qkv).expect("qkv");
            lap(0);
            let a = cpu.attend(&qkv, &spec, &norms, &rope, cache, position).expect("attention");
            lap(1);
            cpu.project_add(&mut x, &a, &layer.output, None).expect("output");
            lap(2);
            let h =
                cpu.gated(&x, Some(&layer.norm), &layer.gate_up, Activation::Silu).expect("gated");
            lap(3);
            cpu.project_add(&mut x, &h, &layer.down, None).expect("down");
            lap(4);
        }
        if logits {
            let logits = cpu.project(&x, Some(&last), &head).expect("logits");
            std::hint::black_box(cpu.choose(&logits, false).expect("a choice"));
        }
        lap(5);
    };
    for position in (0..depth).step_by(512) {
        pass(512.min(depth - position), position, false, &mut [0.0; 6]);
    }
    print!("30 layers, context {depth:4}: ");
    let mut one = 0.0;
    for rows in ROWS.into_iter().filter(|&rows| rows < 512) {
        let time = least(21, || pass(rows, depth, true, &mut [0.0; 6]));
        if rows == 1 {
            one = time;
            print!("{:6.2} ms ", time / 1e3);
        } else {
            print!(" {rows}: ×{:.2}", time / one);
        }
    }
    let time = least(3, || pass(512, depth, false, &mut [0.0; 6]));
    println!("  prefill {:.0} tok/s", 512.0 / time * 1e6);
    for rows in [1, 2, 3, 4, 8, 16, 512] {
        let mut part = [0.0; 6];
        let times = if rows > 16 { 2 } else { 20 };
        (0..times).for_each(|_| pass(rows, depth, true, &mut part));
        print!("   {rows:3} rows, ms:");
        for (name, time) in ["qkv", "attention", "output", "gated", "down", "head"].iter().zip(part)
        {
            print!("  {name} {:.2}", time / 1e3 / f64::from(times));
        }
        println!();
    }
}
