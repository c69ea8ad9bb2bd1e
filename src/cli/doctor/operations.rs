//! Each operation on the device against the CPU's kernels, and the kernels' instruction sets
//! against each other.

use crate::model::ops::Quantise;
use crate::model::ops::cpu::Cpu;
use crate::model::ops::device::DeviceOps;
use crate::model::ops::kernels::cache::KvType;
use crate::model::ops::kernels::simd::Isa;
use crate::model::ops::parity::{Agreement, Trial, compare, trial};
use candle_core::Device;
use serde::Serialize;

/// All operations on two implementations.
#[derive(Debug, Serialize)]
pub struct Operations {
    /// What was tried.
    pub tried: String,
    /// What it is compared with.
    pub reference: String,
    /// Operation by operation.
    pub results: Vec<OperationResult>,
    /// Instruction set by instruction set, against the plain one.
    pub instruction_sets: Vec<InstructionSet>,
}

/// One operation.
#[derive(Debug, Serialize)]
pub struct OperationResult {
    /// Which.
    pub operation: String,
    /// Whether the two agree.
    pub agrees: bool,
    /// Largest difference, in parts of the reference's largest number.
    pub largest_error: Option<f32>,
    /// What it may be.
    pub bound: f32,
    /// Why there is no difference to tell.
    pub failure: Option<String>,
}

impl From<Agreement> for OperationResult {
    fn from(agreement: Agreement) -> Self {
        let agrees = agreement.holds();
        let (largest_error, failure) = match agreement.error {
            Ok(error) => (Some(error), None),
            Err(why) => (None, Some(format!("{why:#}"))),
        };
        let Agreement { operation, bound, .. } = agreement;
        OperationResult { operation, agrees, largest_error, bound, failure }
    }
}

/// One instruction set against the plain kernels, which define what is right.
#[derive(Debug, Serialize)]
pub struct InstructionSet {
    /// Which.
    pub name: &'static str,
    /// Operations that were compared.
    pub operations: usize,
    /// Those that gave other bits.
    pub differing: Vec<String>,
}

/// Try everything. Without a `device` the kernels are compared with candle's operations on the
/// CPU, which were written by others.
pub fn operations(device: Option<&Device>, threads: usize) -> Operations {
    let kernels = |isa| trial(&Cpu::with_isa(isa, threads, Quantise::AsStored, KvType::F32));
    let best = kernels(Isa::best());
    let plain = kernels(Isa::plain());
    let candle = trial(&DeviceOps::new(device.cloned().unwrap_or(Device::Cpu), Quantise::AsStored));
    let (tried, reference, agreements) = match device {
        Some(Device::Cpu) => {
            ("candle on the CPU".into(), "the CPU kernels".into(), compare(&best, &candle))
        }
        Some(device) => {
            (format!("{:?}", device.location()), "the CPU kernels".into(), compare(&best, &candle))
        }
        None => ("the CPU kernels".into(), "candle on the CPU".into(), compare(&candle, &best)),
    };
    let vectors = Isa::available().into_iter().filter(|isa| *isa != Isa::plain());
    Operations {
        tried,
        reference,
        results: agreements.into_iter().map(OperationResult::from).collect(),
        instruction_sets: vectors.map(|isa| same_bits(isa, &plain, &kernels(isa))).collect(),
    }
}

fn same_bits(isa: Isa, plain: &[Trial], vector: &[Trial]) -> InstructionSet {
    let differing = compare(plain, vector)
        .into_iter()
        .filter(|agreement| !matches!(agreement.error, Ok(0.0)))
        .map(|agreement| agreement.operation)
        .collect();
    InstructionSet { name: isa.name(), operations: vector.len(), differing }
}
