//! Options that every command that runs a model takes.

use crate::engine::load::Place;
use crate::event::{BlockSize, Generate, Mode, Prompt, Sampling};
use crate::model::ops::Quantise;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Which models, and where they run.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Model")]
pub struct ModelOptions {
    /// A pair from `dflash-chat models list` [default: smollm2-135m]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["target", "draft"])]
    pub pair: Option<String>,
    /// The target: a directory with config.json and safetensors, a .gguf file, or a hub
    /// repository (org/name[@revision])
    #[arg(long, value_name = "REF")]
    pub target: Option<String>,
    /// The draft: a directory, a .gguf file, or a hub repository; without it decoding is plain
    #[arg(long, value_name = "REF", requires = "target")]
    pub draft: Option<String>,
    /// Where to compute
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceChoice>,
    /// Threads that compute on the CPU [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// How weights are kept in memory [default: as the file has them]
    #[arg(long, value_name = "KIND")]
    pub quant: Option<QuantChoice>,
    /// Most tokens that prompt and answer may have together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=1_048_576))]
    pub ctx: Option<u32>,
    /// Target layers whose outputs the draft reads, instead of those in its config
    #[arg(long, value_name = "I,J,K", value_delimiter = ',')]
    pub dflash_layers: Option<Vec<usize>>,
    /// Never use the network
    #[arg(long)]
    pub offline: bool,
    /// For tests: an engine that plays a script instead of a model
    #[arg(long, hide = true, value_name = "KIND")]
    pub engine: Option<EngineChoice>,
}

/// How an answer is decoded.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Decoding")]
pub struct DecodeOptions {
    /// Draft and verify, or one token a pass [default: speculative]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<ModeChoice>,
    /// Rows of a block (the anchor included), or `auto`: as long as it pays [default: auto]
    #[arg(long, value_name = "N|auto")]
    pub block_size: Option<BlockSize>,
    /// Most tokens of an answer [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// 0 takes the most likely token [default: 0]
    #[arg(long, value_name = "T", value_parser = number::<0, 100>)]
    pub temperature: Option<f32>,
    /// Sample from the most likely tokens that have this much probability together
    #[arg(long, value_name = "P", value_parser = number::<0, 1>)]
    pub top_p: Option<f32>,
    /// Sample from the K most likely tokens; 0 from all
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Drop tokens less likely than this share of the most likely
    #[arg(long, value_name = "P", value_parser = number::<0, 1>)]
    pub min_p: Option<f32>,
    /// Make tokens that occurred less likely; 1 does nothing
    #[arg(long, value_name = "F", value_parser = number::<0, 100>)]
    pub repetition_penalty: Option<f32>,
    /// Seed of the random numbers [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// End the answer before this text (may be given more than once)
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Let the model think first, where its template can
    #[arg(long)]
    pub thinking: bool,
}

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum DeviceChoice {
    /// Metal or CUDA where the program was built with it and finds one, else the CPU
    #[default]
    Auto,
    /// The CPU, with this program's own kernels
    Cpu,
    /// Apple's GPUs
    Metal,
    /// NVIDIA's GPUs
    Cuda,
    /// The CPU through the GPU code path (for comparison)
    CandleCpu,
}

/// How weights are kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QuantChoice {
    /// Dequantised and dense
    None,
    /// 8 bits
    Q8,
    /// 4 bits
    Q4,
}

/// How an answer is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeChoice {
    /// Draft, verify, commit
    Speculative,
    /// One token a forward pass
    Baseline,
}

/// An engine that is no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// Plays a script
    Scripted,
}

impl From<DeviceChoice> for Place {
    fn from(choice: DeviceChoice) -> Place {
        match choice {
            DeviceChoice::Auto => Place::Auto,
            DeviceChoice::Cpu => Place::Cpu,
            DeviceChoice::Metal => Place::Metal,
            DeviceChoice::Cuda => Place::Cuda,
            DeviceChoice::CandleCpu => Place::CandleCpu,
        }
    }
}

impl From<ModeChoice> for Mode {
    fn from(choice: ModeChoice) -> Mode {
        match choice {
            ModeChoice::Speculative => Mode::Speculative,
            ModeChoice::Baseline => Mode::Baseline,
        }
    }
}

impl From<QuantChoice> for Quantise {
    fn from(choice: QuantChoice) -> Quantise {
        match choice {
            QuantChoice::None => Quantise::None,
            QuantChoice::Q8 => Quantise::Q8,
            QuantChoice::Q4 => Quantise::Q4,
        }
    }
}

/// A finite number between two bounds, both included.
fn number<const LOW: u32, const HIGH: u32>(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x >= LOW as f32 && x <= HIGH as f32 => Ok(x),
        _ => Err(format!("expected a number from {LOW} to {HIGH}")),
    }
}

impl DecodeOptions {
    /// What to ask of the engine, for a prompt.
    pub fn generate(&self, prompt: Prompt) -> Generate {
        let default = Generate::default();
        let sampling = Sampling::default();
        Generate {
            prompt,
            mode: self.mode.map_or(default.mode, Mode::from),
            block_size: self.block_size.unwrap_or(default.block_size),
            sampling: Sampling {
                temperature: self.temperature.unwrap_or(sampling.temperature),
                top_p: self.top_p.unwrap_or(sampling.top_p),
                top_k: self.top_k.unwrap_or(sampling.top_k),
                min_p: self.min_p.unwrap_or(sampling.min_p),
                repetition_penalty: self.repetition_penalty.unwrap_or(sampling.repetition_penalty),
            },
            seed: self.seed.unwrap_or(default.seed),
            max_tokens: self.max_tokens.map_or(default.max_tokens, |n| n as usize),
            stop: self.stop.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
            thinking: self.thinking,
        }
    }
}

/// Conversation options of `run` and the chat.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Conversation")]
pub struct ConversationOptions {
    /// Instructions for the model; an empty text leaves even the template's own out
    #[arg(long, value_name = "TEXT", conflicts_with = "system_file")]
    pub system: Option<String>,
    /// Read the instructions from a file
    #[arg(long, value_name = "FILE")]
    pub system_file: Option<PathBuf>,
    /// Give the text to the model as it is
    #[arg(long)]
    pub no_chat_template: bool,
}
