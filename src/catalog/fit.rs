//! Does it fit: the memory that a pair takes against the memory that is free, asked before
//! anything is fetched.

use super::pairs::{Model, Pair, Shape};
use super::progress::size;
use crate::model::ops::{Quantise, kept_positions};

/// Bytes of an activation.
const FLOAT: u64 = 4;
/// Whether the program may find a GPU to compute with.
const MAY_HAVE_GPU: bool = cfg!(target_os = "macos") || cfg!(feature = "cuda");
/// Prompt tokens that pass through the target together.
const CHUNK: u64 = 512;
/// The program itself, its tokenizer and its screen.
const PROGRAM: u64 = 150 << 20;
/// A context shorter than this is no help.
const LEAST_CONTEXT: u64 = 2048;

/// Bits of a weight in the layouts of 4 and of 8 bits, scales included.
const Q4_BITS: f64 = 5.0;
const Q8_BITS: f64 = 8.5;

/// Bits of a weight of which the file has `stored` bits. The layout of 4 bits holds what files
/// have in 4, the one of 8 all other quantised types; most files are Q4_K (4.5 bits) with some
/// Q6_K (6.56).
fn resident_bits(quant: Quantise, stored: f64) -> f64 {
    let as_stored = match stored {
        0.0..4.5 => Q4_BITS,
        4.5..Q8_BITS => {
            let share = (stored - 4.5) / (6.5625 - 4.5);
            (Q4_BITS + share * (Q8_BITS - Q4_BITS)).min(Q8_BITS)
        }
        dense => dense,
    };
    match quant {
        Quantise::AsStored => as_stored,
        Quantise::None => 32.0,
        // What has fewer bits already stays so.
        Quantise::Q8 => Q8_BITS.min(as_stored),
        Quantise::Q4 => Q4_BITS,
    }
}

/// Bytes of a cached number: 16 bits on the CPU, unless the weights are to be exact.
fn cached_bytes(quant: Quantise) -> u64 {
    if MAY_HAVE_GPU || quant == Quantise::None { 4 } else { 2 }
}

/// What decides the memory of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairFacts {
    /// Bytes of the target as it is stored.
    pub target_bytes: u64,
    /// Bytes of the draft as it is stored.
    pub draft_bytes: u64,
    /// Anchor and drafts.
    pub block: u64,
    /// The target's shape.
    pub shape: Shape,
}

impl From<&Pair> for PairFacts {
    fn from(pair: &Pair) -> Self {
        let draft_bytes = match &pair.draft {
            Model::Embedded(name) => {
                super::embedded_draft(name).map_or(0, |draft| draft.file.len() as u64)
            }
            model => model.bytes(),
        };
        PairFacts {
            target_bytes: pair.target.bytes(),
            draft_bytes,
            block: pair.block as u64,
            shape: pair.shape,
        }
    }
}

/// Bytes by what needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Parts {
    /// The target's weights.
    pub weights: u64,
    /// Both caches at the asked context.
    pub cache: u64,
    /// The draft's weights.
    pub draft: u64,
    /// Activations, logits, the program.
    pub work: u64,
}

/// Whether it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// With room to spare.
    Fits,
    /// It takes more than nine tenths of what is free.
    Tight,
    /// It does not fit.
    TooLarge,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// Bytes in all.
    pub needed: u64,
    /// Bytes by what needs them.
    pub parts: Parts,
    /// Against what is free.
    pub verdict: Verdict,
    /// The settings that would make it fit, where it does not and there are some.
    pub suggestion: Option<String>,
}

/// Whether a pair fits into `free` bytes with a context of `ctx` tokens.
pub fn fit(facts: &PairFacts, free: u64, ctx: u64, quant: Quantise) -> Fit {
    let parts = parts(facts, ctx, quant);
    let needed = total(&parts);
    let verdict = match needed {
        n if n > free => Verdict::TooLarge,
        n if n > free / 10 * 9 => Verdict::Tight,
        _ => Verdict::Fits,
    };
    let suggestion =
        (verdict == Verdict::TooLarge).then(|| suggest(facts, free, ctx, quant)).flatten();
    Fit { needed, parts, verdict, suggestion }
}

/// What to tell a person before a pair that does not fit is fetched or loaded.
pub fn warning(pair: &Pair, free: u64, ctx: u64, quant: Quantise) -> Option<String> {
    let fit = fit(&pair.into(), free, ctx, quant);
    if fit.verdict != Verdict::TooLarge {
        return None;
    }
    let way = match fit.suggestion {
        Some(settings) => format!("{settings} makes it fit"),
        None => "no setting makes it fit".into(),
    };
    Some(format!(
        "{} needs {} of memory with {ctx} tokens, {} are free; {way}",
        pair.title,
        size(fit.needed),
        size(free)
    ))
}

fn parts(facts: &PairFacts, ctx: u64, quant: Quantise) -> Parts {
    let shape = &facts.shape;
    let resident = |parameters: u64, stored: u64| {
        let parameters = parameters as f64;
        let stored = stored as f64 * 8.0 / parameters.max(1.0);
        (parameters * resident_bits(quant, stored) / 8.0) as u64
    };
    let windowed = match usize::try_from(shape.window) {
        Ok(window @ 1..) => ctx.min(kept_positions(Some(window), 0) as u64),
        _ => 0,
    };
    let cached = shape
        .kv_full
        .saturating_add(shape.draft_kv)
        .saturating_mul(ctx)
        .saturating_add(shape.kv_window.saturating_mul(windowed));
    let rows = CHUNK.saturating_mul(shape.hidden).saturating_mul(12 * FLOAT);
    let logits = (2 * facts.block).saturating_mul(shape.vocab).saturating_mul(FLOAT);
    Parts {
        weights: resident(shape.weights, facts.target_bytes),
        cache: cached.saturating_mul(cached_bytes(quant)),
        // Drafts come as 16-bit numbers.
        draft: resident(facts.draft_bytes / 2, facts.draft_bytes),
        work: PROGRAM.saturating_add(rows).saturating_add(logits),
    }
}

fn total(parts: &Parts) -> u64 {
    [parts.weights, parts.cache, parts.draft, parts.work].into_iter().fold(0, u64::saturating_add)
}

/// The mildest change that fits: coarser weights first, then a shorter context, then both.
fn suggest(facts: &PairFacts, free: u64, ctx: u64, quant: Quantise) -> Option<String> {
    let fits = |ctx, quant| total(&parts(facts, ctx, quant)) <= free;
    let coarser = [Quantise::Q8, Quantise::Q4]
        .into_iter()
        .filter(|q| parts(facts, ctx, *q).weights < parts(facts, ctx, quant).weights);
    let word = |q: Quantise| if q == Quantise::Q8 { "--quant q8" } else { "--quant q4" };
    let contexts = || {
        std::iter::successors(Some(ctx / 2), |c| Some(c / 2)).take_while(|c| *c >= LEAST_CONTEXT)
    };
    if let Some(q) = coarser.clone().find(|q| fits(ctx, *q)) {
        return Some(word(q).into());
    }
    if let Some(c) = contexts().find(|c| fits(*c, quant)) {
        return Some(format!("--ctx {c}"));
    }
    coarser
        .flat_map(|q| contexts().map(move |c| (q, c)))
        .find(|(q, c)| fits(*c, *q))
        .map(|(q, c)| format!("{} --ctx {c}", word(q)))
}

/// Bytes of memory that a program may take now; `None` where it cannot be told.
pub fn free_memory() -> Option<u64> {
    if cfg!(target_os = "macos") {
        // The free pages say little there. Three quarters of the memory are what Metal may use.
        let out = std::process::Command::new("sysctl").args(["-n", "hw.memsize"]).output().ok()?;
        let bytes: u64 = String::from_utf8(out.stdout).ok()?.trim().parse().ok()?;
        return Some(bytes / 4 * 3);
    }
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Bytes that weights and caches may take now where they are put: with `gpu` in the memory of a
/// CUDA device, if this build can use one and its driver tells; else in the machine's own, which
/// Metal shares.
pub fn free_on_device(gpu: bool) -> Option<u64> {
    let cuda = || {
        let mut command = std::process::Command::new("nvidia-smi");
        command.args(["--query-gpu=memory.free", "--format=csv,noheader,nounits"]);
        // The program computes on the first device that it may see.
        let seen = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        if let Some(first) = seen.split(',').next().filter(|first| !first.is_empty()) {
            command.args(["--id", first]);
        }
        let out = command.output().ok()?;
        cuda_free(&String::from_utf8(out.stdout).ok()?)
    };
    let cuda = if gpu && cfg!(feature = "cuda") { cuda() } else { None };
    cuda.or_else(free_memory)
}

/// Of the first device that is told of; `told` in MiB, a line a device.
fn cuda_free(told: &str) -> Option<u64> {
    let mib: u64 = told.lines().next()?.trim().parse().ok()?;
    mib.checked_mul(1 << 20)
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::super::pairs;
    use super::*;

    #[test]
    fn meminfo_is_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 * 1024));
        for bad in
            ["", "MemAvailable: x kB", "MemAvailable: 1", "MemAvailable: 99999999999999999999 kB"]
        {
            assert_eq!(available(bad), None);
        }
    }

    #[test]
    fn a_drivers_word_is_read() {
        assert_eq!(cuda_free("24210\n11000\n"), Some(24210 << 20));
        for bad in ["", "No devices were found\n", "[N/A]\n", "-1\n", "99999999999999999\n"] {
            assert_eq!(cuda_free(bad), None, "{bad}");
        }
        // Without such a device the question is the machine's memory.
        assert_eq!(free_on_device(true).is_some(), free_memory().is_some());
    }

    #[test]
    fn the_sum_is_the_parts_and_grows_with_the_context() {
        for pair in pairs() {
            let facts = PairFacts::from(pair);
            let at = |ctx| fit(&facts, u64::MAX, ctx, Quantise::AsStored);
            let (short, long) = (at(2048), at(32768));
            assert_eq!(short.needed, total(&short.parts));
            assert!(short.needed < long.needed, "{}", pair.name);
            assert_eq!(long.verdict, Verdict::Fits);
            assert_eq!(fit(&facts, 0, u64::MAX, Quantise::None).verdict, Verdict::TooLarge);
        }
    }

    #[test]
    fn a_warning_says_what_would_help() {
        let pair = super::super::find("qwen3-4b").unwrap();
        let at = |free| warning(pair, free, 8192, Quantise::AsStored);
        assert_eq!(at(64 << 30), None);
        let text = at(8 << 30).unwrap();
        assert!(text.ends_with("8.59 GB are free; --quant q8 makes it fit"), "{text}");
        assert!(at(1 << 30).unwrap().ends_with("no setting makes it fit"));
    }

    /// The answers for each pair at 8, 16, 24, 48 GB and 8192 tokens, weights as stored.
    #[cfg(not(any(target_os = "macos", feature = "cuda")))]
    #[test]
    fn answers_for_common_machines() {
        let mut table = String::new();
        for pair in pairs() {
            table += &format!("{:13}", pair.name);
            for gigabytes in [8, 16, 24, 48] {
                let fit = fit(&pair.into(), gigabytes << 30, 8192, Quantise::AsStored);
                let answer = match (fit.verdict, fit.suggestion) {
                    (Verdict::Fits, _) => "fits".into(),
                    (Verdict::Tight, _) => "tight".into(),
                    (Verdict::TooLarge, Some(how)) => how,
                    (Verdict::TooLarge, None) => "no".into(),
                };
                table += &format!(" | {answer:22}");
            }
            table = table.trim_end().to_string() + "\n";
        }
        insta::assert_snapshot!(table, @r"
smollm2-135m  | fits                   | fits                   | fits                   | fits
qwen3-4b      | --quant q8             | fits                   | fits                   | fits
qwen3-4b-q4   | fits                   | fits                   | fits                   | fits
qwen3-8b      | --quant q4             | --quant q8             | fits                   | fits
qwen3-8b-q4   | --quant q4             | fits                   | fits                   | fits
llama-3.1-8b  | --quant q4             | --quant q8             | fits                   | fits
gemma4-12b    | no                     | --quant q8             | --quant q8             | fits
gemma4-31b    | no                     | no                     | --quant q4             | --quant q8
");
    }
}
