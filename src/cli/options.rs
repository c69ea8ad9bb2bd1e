//! Options that the commands that run a model share.

use super::WrongUsage;
use crate::catalog::{self, DEMO_PAIR, Selection, Store};
use crate::engine::load::{LoadRequest, Place};
use crate::event::{BlockSize, Generate, Mode, Prompt};
use crate::model::ops::Quantise;
use crate::race::TOKENS;
use crate::settings::{
    Color, ContextFull, Device, Glyphs, Origin, Paths, Quant, Settings, Sources,
};
use crate::tui::{ColorChoice, GlyphChoice, ScreenOptions};
use anyhow::{Context, Result};
use clap::{Arg, Args, ValueEnum};
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
    pub device: Option<Device>,
    /// Threads that compute on the CPU [default: the machine's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// How weights are kept in memory [default: as the file has them]
    #[arg(long, value_name = "KIND")]
    pub quant: Option<Quant>,
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
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub mode: Option<Mode>,
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

/// `--max-tokens` of a command that asks by [`Asked::compared`].
pub(super) fn of_compared_answers(max_tokens: Arg) -> Arg {
    max_tokens.help(format!(
        "Most tokens of an answer [default: {TOKENS}, or max_tokens of the settings if that is less]"
    ))
}

/// `--mode` of a command that has a mode for each lane: not in its help, and refused with a
/// reason.
pub(super) fn of_lanes(mode: Arg) -> Arg {
    mode.hide(true)
}

/// Engines beside the usual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// Plays a script
    Scripted,
}

fn mode(text: &str) -> std::result::Result<Mode, String> {
    match text {
        "speculative" => Ok(Mode::Speculative),
        "baseline" => Ok(Mode::Baseline),
        _ => Err("expected `speculative` or `baseline`".into()),
    }
}

/// A finite number between two bounds, both included.
fn number<const LOW: u32, const HIGH: u32>(text: &str) -> std::result::Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if x >= LOW as f32 && x <= HIGH as f32 => Ok(x),
        _ => Err(format!("expected a number from {LOW} to {HIGH}")),
    }
}

/// Conversation options of `run`, `race` and the chat.
#[derive(Debug, Clone, Args, Default)]
#[command(next_help_heading = "Conversation")]
pub struct ConversationOptions {
    /// Instructions for the model; an empty text leaves even the template's own out
    #[arg(long, value_name = "TEXT", conflicts_with = "system_file")]
    pub system: Option<String>,
    /// Read the instructions from a file
    #[arg(long, value_name = "FILE")]
    pub system_file: Option<PathBuf>,
}

/// Everything that was asked for, from the file, the environment and the command line.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The settings that hold for the pair.
    pub settings: Settings,
    sources: Sources,
    /// The program's folders.
    pub paths: Paths,
    /// Stop strings.
    pub stop: Vec<String>,
    engine: Option<EngineChoice>,
    taps: Option<Vec<usize>>,
    /// Another pair than the settings name: that of the conversation which goes on, or one that
    /// the person switched to on the screen.
    selection: Option<Selection>,
}

impl Asked {
    /// Put the options over what the file and the environment say.
    pub fn new(
        model: &ModelOptions,
        decode: &DecodeOptions,
        conversation: &ConversationOptions,
    ) -> Result<Asked> {
        let paths = Paths::from_env()?;
        let mut sources = Sources::load(&paths)?;
        let mut set = |name: &str, value: Option<String>| match value {
            Some(value) => sources.set(name, value).map_err(|why| WrongUsage(why.to_string())),
            None => Ok(()),
        };
        fn text<T: ToString>(value: &Option<T>) -> Option<String> {
            value.as_ref().map(T::to_string)
        }
        fn word<T: ValueEnum>(value: Option<T>) -> Option<String> {
            Some(value?.to_possible_value()?.get_name().to_owned())
        }
        let yes = |flag: bool| flag.then(|| "true".to_owned());
        set("pair", model.pair.clone())?;
        set("target", model.target.clone())?;
        set("draft", model.draft.clone())?;
        set("device", word(model.device))?;
        set("threads", text(&model.threads))?;
        set("quant", word(model.quant))?;
        set("ctx", text(&model.ctx))?;
        set("offline", yes(model.offline))?;
        set("mode", decode.mode.map(|mode| mode.name().to_owned()))?;
        set("block_size", text(&decode.block_size))?;
        set("max_tokens", text(&decode.max_tokens))?;
        set("temperature", text(&decode.temperature))?;
        set("top_p", text(&decode.top_p))?;
        set("top_k", text(&decode.top_k))?;
        set("min_p", text(&decode.min_p))?;
        set("repetition_penalty", text(&decode.repetition_penalty))?;
        set("seed", text(&decode.seed))?;
        set("thinking", yes(decode.thinking))?;
        let system = match &conversation.system_file {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the system prompt {}", path.display()))?,
            ),
            None => conversation.system.clone(),
        };
        set("system", system)?;
        Ok(Asked {
            settings: sources.settings(None),
            sources,
            paths,
            stop: decode.stop.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
            engine: model.engine,
            taps: model.dflash_layers.clone(),
            selection: None,
        })
    }

    /// The name of the pair, or of the target, that the settings name.
    pub fn pair(&self) -> String {
        let selection = self.selection();
        selection.target.or(selection.pair).unwrap_or_else(|| DEMO_PAIR.to_owned())
    }

    fn selection(&self) -> Selection {
        self.selection.clone().unwrap_or_else(|| self.settings.selection())
    }

    /// Whether the person asks for that pair now, rather than always.
    pub fn pair_is_asked_for(&self) -> bool {
        let now = |key| matches!(self.settings.origin(key), Origin::Flag | Origin::Environment);
        now("pair") || now("target") || now("draft")
    }

    /// The same with another pair: a name in the catalogue, or a target.
    pub fn with_pair(&self, pair: &str) -> Asked {
        if self.pair() == pair { self.clone() } else { self.with_models(pair, None, None) }
    }

    /// The same with this pair, or target, but for a target and a draft that are named apart; with
    /// the pair come its own settings.
    pub fn with_models(&self, pair: &str, target: Option<&str>, draft: Option<&str>) -> Asked {
        let known = catalog::find(pair).is_some();
        let selection = Selection {
            pair: known.then(|| pair.to_owned()),
            target: target.or((!known).then_some(pair)).map(str::to_owned),
            draft: draft.map(str::to_owned),
        };
        let settings = self.sources.settings(Some(pair));
        Asked { settings, selection: Some(selection), ..self.clone() }
    }

    /// Refuse a pair that nobody knows and a reference that means nothing, before anything is
    /// loaded. (The screen starts all the same, and explains.)
    pub fn check(&self) -> Result<()> {
        if !self.scripted() {
            let request = self.load_request();
            catalog::resolve(&request.selection, &request.store)?;
        }
        Ok(())
    }

    /// Whether someone gave a setting a value.
    pub fn chosen(&self, key: &str) -> bool {
        self.settings.origin(key) != Origin::Default
    }

    /// Whether a script is to be played.
    pub fn scripted(&self) -> bool {
        self.engine == Some(EngineChoice::Scripted)
    }

    /// The instructions: the person's, else those that suit the pair.
    pub fn system(&self) -> Option<String> {
        let given = self.settings.values.system.clone();
        given.or_else(|| {
            let selection = self.selection();
            let name = match (&selection.pair, &selection.target) {
                (Some(pair), _) => pair,
                (None, Some(_)) => return None,
                (None, None) => DEMO_PAIR,
            };
            catalog::find(name)?.system.clone()
        })
    }

    /// What to ask of the engine, for a prompt.
    pub fn generate(&self, prompt: Prompt) -> Generate {
        let values = &self.settings.values;
        Generate {
            prompt,
            mode: values.mode,
            block_size: values.block_size,
            sampling: values.sampling.clone(),
            seed: values.seed,
            max_tokens: values.max_tokens,
            stop: self.stop.clone(),
            thinking: values.thinking,
            drop_oldest: values.context_full == ContextFull::DropOldest,
        }
    }

    /// The same for an answer that is compared with others of the prompt: such answers are short,
    /// unless the command line says otherwise.
    pub fn compared(&self, prompt: Prompt) -> Generate {
        let most = match self.settings.origin("max_tokens") {
            Origin::Flag => usize::MAX,
            _ => TOKENS,
        };
        let asked = self.generate(prompt);
        Generate { max_tokens: asked.max_tokens.min(most), ..asked }
    }

    /// How the screen looks, and what it asks for.
    pub fn screen(&self) -> ScreenOptions {
        let values = &self.settings.values;
        ScreenOptions {
            pair: self.pair(),
            generate: self.generate(Prompt::Messages(Vec::new())),
            system: self.system(),
            theme: self.chosen("theme").then(|| values.theme.clone()),
            color: match values.color {
                Color::Auto => ColorChoice::Auto,
                Color::Always => ColorChoice::Always,
                Color::Never => ColorChoice::Never,
            },
            glyphs: match values.glyphs {
                Glyphs::Auto => GlyphChoice::Auto,
                Glyphs::Unicode => GlyphChoice::Unicode,
                Glyphs::Ascii => GlyphChoice::Ascii,
            },
            keys: self.settings.keys.clone(),
            ..ScreenOptions::default()
        }
    }

    /// What the engine is to load.
    pub fn load_request(&self) -> LoadRequest {
        let values = &self.settings.values;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        LoadRequest {
            selection: self.selection(),
            store: Store::from_env(&self.paths),
            offline: values.offline,
            place: match values.device {
                Device::Auto => Place::Auto,
                Device::Cpu => Place::Cpu,
                Device::Metal => Place::Metal,
                Device::Cuda => Place::Cuda,
                Device::CandleCpu => Place::CandleCpu,
            },
            threads: values.threads.unwrap_or(cores),
            quantise: match values.quant {
                Quant::Stored => Quantise::AsStored,
                Quant::None => Quantise::None,
                Quant::Q8 => Quantise::Q8,
                Quant::Q4 => Quantise::Q4,
            },
            context: values.ctx,
            cache: self.paths.cache.clone(),
            taps: self.taps.clone(),
        }
    }
}
