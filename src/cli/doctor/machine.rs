//! What machine this is.

use crate::catalog::fit::free_memory;
use crate::engine::load;
use crate::model::ops::Ops;
use crate::model::ops::cpu::Cpu;
use crate::model::ops::kernels::simd::Isa;
use crate::stats::Spread;
use serde::Serialize;

/// Memory that is read to measure it: more than most caches hold.
const MEASURED: u64 = 256 << 20;
/// Passes over it.
const PASSES: usize = 7;

/// The machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Operating system.
    pub os: &'static str,
    /// Architecture of the processor.
    pub arch: &'static str,
    /// The processor's name, where the system tells.
    pub cpu: Option<String>,
    /// Logical cores that the program may use.
    pub cores: usize,
    /// Threads that compute.
    pub threads: usize,
    /// Bytes of memory, where the system tells.
    pub memory: Option<u64>,
    /// Bytes of memory that are free.
    pub memory_free: Option<u64>,
    /// Instruction sets that the kernels can use here.
    pub instruction_sets: Vec<&'static str>,
    /// The one that they use.
    pub instruction_set: &'static str,
    /// How fast memory is read.
    pub bandwidth: Option<Bandwidth>,
}

/// How fast memory is read by all threads together, in bytes a second.
#[derive(Debug, Serialize)]
pub struct Bandwidth {
    /// Bytes that were read.
    pub bytes: u64,
    /// In the middle of all passes.
    pub median: f64,
    /// The slowest pass.
    pub least: f64,
    /// The fastest.
    pub most: f64,
}

impl Machine {
    /// This one. `cpu` has the threads that compute.
    pub fn this(cpu: &Cpu) -> Machine {
        Machine {
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            cpu: cpu_name(),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            threads: cpu.threads(),
            memory: memory(),
            memory_free: free_memory(),
            instruction_sets: Isa::available().into_iter().map(Isa::name).collect(),
            instruction_set: Isa::best().name(),
            bandwidth: bandwidth(cpu),
        }
    }
}

/// `None` where too little memory is free to see more than the caches.
fn bandwidth(cpu: &Cpu) -> Option<Bandwidth> {
    if free_memory().is_some_and(|free| free / 8 < MEASURED) {
        return None;
    }
    let rates = cpu.bandwidth(usize::try_from(MEASURED).ok()?, PASSES).ok()?;
    let spread = Spread::of(&rates);
    let measured = spread.median.is_finite() && spread.median > 0.0;
    measured.then_some(Bandwidth {
        bytes: MEASURED,
        median: spread.median,
        least: spread.min,
        most: spread.max,
    })
}

/// What `sysctl` says on macOS.
fn sysctl(name: &str) -> Option<String> {
    let out = std::process::Command::new("sysctl").args(["-n", name]).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn cpu_name() -> Option<String> {
    if cfg!(target_os = "macos") {
        return sysctl("machdep.cpu.brand_string");
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let of = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(name, _)| name.trim() == key)?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    // The last two are what ARM's kernels may say.
    ["model name", "Model", "Hardware"].into_iter().find_map(of)
}

fn memory() -> Option<u64> {
    if cfg!(target_os = "macos") {
        return sysctl("hw.memsize")?.parse().ok();
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A device that computes.
#[derive(Debug, Serialize)]
pub struct DeviceState {
    /// `cpu`, `metal`, `cuda`.
    pub name: &'static str,
    /// Whether it can be used.
    pub usable: bool,
    /// Why not, or which one it is.
    pub detail: String,
}

/// The kinds of devices there are, each with its state on this machine.
pub fn devices() -> Vec<DeviceState> {
    let gpus = [("metal", load::metal()), ("cuda", load::cuda())];
    let cpu = DeviceState { name: "cpu", usable: true, detail: Isa::best().name().into() };
    let gpu = |(name, found): (&'static str, anyhow::Result<candle_core::Device>)| match found {
        Ok(device) => {
            DeviceState { name, usable: true, detail: format!("{:?}", device.location()) }
        }
        Err(why) => DeviceState { name, usable: false, detail: format!("{why:#}") },
    };
    std::iter::once(cpu).chain(gpus.into_iter().map(gpu)).collect()
}
