//! From what was asked for to an engine that computes: files, networks, tokenizer, template.

use super::learned::LearnedFile;
use super::worker::Worker;
use super::{CancelToken, Engine, EventSink};
use crate::catalog::download::{Progress, Watch, fetch_all, size};
use crate::catalog::fit::{self, free_memory};
use crate::catalog::{self, DraftPlace, Location, Network, ResolvedPair, Selection, Store};
use crate::chat::template::ChatTemplate;
use crate::decode::block_length::Planner;
use crate::decode::session::Session;
use crate::event::{EngineEvent, Level, ModelReady, NetworkInfo};
use crate::model::config::DecoderConfig;
use crate::model::decoder::Decoder;
use crate::model::draft::Draft;
use crate::model::ops::cpu::Cpu;
use crate::model::ops::device::DeviceOps;
use crate::model::ops::kernels::cache::KvType;
use crate::model::ops::{Ops, Quantise};
use crate::model::pair::Pair;
use crate::model::tokenizer::{GgufVocabulary, Tokenizer, TokenizerFiles};

use crate::model::weights::gguf::GgufFile;
use crate::model::weights::{
    DraftFiles, TargetFiles, open_draft, open_embedded_draft, open_target,
};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::time::Instant;

/// Positions where nothing else is asked for; enough for a long chat, and a cache that fits.
pub const DEFAULT_CONTEXT: usize = 8192;

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// Metal or CUDA where there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU, with this program's kernels.
    Cpu,
    /// Apple's GPUs.
    Metal,
    /// NVIDIA's GPUs.
    Cuda,
    /// The CPU through the GPU code path.
    CandleCpu,
}

/// What to load.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    /// Which networks.
    pub selection: Selection,
    /// Where models are looked for.
    pub store: Store,
    /// Nothing may be fetched.
    pub offline: bool,
    /// Where to compute.
    pub place: Place,
    /// Threads on the CPU.
    pub threads: usize,
    /// How weights are kept.
    pub quantise: Quantise,
    /// Most positions.
    pub context: Option<usize>,
    /// Folder for what is learned of the machine.
    pub cache: PathBuf,
    /// Taps instead of the draft's own.
    pub taps: Option<Vec<usize>>,
}

/// Load an engine, telling progress. A failure is told as an error; then there is no engine.
pub fn load(
    request: &LoadRequest,
    out: &mut EventSink,
    cancel: &CancelToken,
) -> Option<Box<dyn Engine>> {
    match try_load(request, out, cancel) {
        Ok(worker) => Some(Box::new(worker)),
        Err(error) => {
            out.error(format!("{error:#}"), None);
            None
        }
    }
}

fn try_load(request: &LoadRequest, out: &mut EventSink, cancel: &CancelToken) -> Result<Worker> {
    let pair = obtain(request, out, cancel)?;
    let start = Instant::now();
    let path = pair.target.path();
    let target =
        open_target(path).with_context(|| format!("cannot open the target {}", path.display()))?;
    for warning in &target.warnings {
        out.notice(Level::Warning, warning.clone(), None);
    }
    // A draft that cannot be used leaves plain decoding, with the reason.
    let (draft, draft_missing) = match open(&pair.draft, &target.config, request.taps.as_deref()) {
        Ok(files) => (Some(files), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    for warning in draft.iter().flat_map(|draft| &draft.warnings) {
        out.notice(Level::Warning, warning.clone(), None);
    }
    let job = Job { request, pair, target, draft, draft_missing, start };
    match device(request.place)? {
        Some(device) => job.run(DeviceOps::new(device, request.quantise), out, cancel),
        None => {
            // 16-bit keys and values halve what attention reads; dense f32 weights ask for all.
            let kv = match request.quantise {
                Quantise::None => KvType::F32,
                _ => KvType::F16,
            };
            job.run(Cpu::new(request.threads, request.quantise, kv), out, cancel)
        }
    }
}

/// The pair's files, fetched where they are missing.
fn obtain(
    request: &LoadRequest,
    out: &mut EventSink,
    cancel: &CancelToken,
) -> Result<ResolvedPair> {
    let pair = catalog::resolve(&request.selection, &request.store)?;
    let network = Network::from_env(request.offline, request.store.hub.as_ref());
    if let (Some(known), Some(free)) = (pair.known, free_memory()) {
        let context = request.context.unwrap_or(DEFAULT_CONTEXT) as u64;
        if let Some(warning) = fit::warning(known, free, context, request.quantise) {
            out.notice(Level::Warning, warning, None);
        }
    }
    fetch_all(&pair, &request.store, &network, &mut Told { out, cancel })?;
    Ok(pair)
}

/// Tells of a download by events.
struct Told<'a> {
    out: &'a mut EventSink,
    cancel: &'a CancelToken,
}

impl Watch for Told<'_> {
    fn progress(&mut self, progress: &Progress<'_>) {
        let left = match progress.eta {
            Some(eta) => format!(", {} s left", eta.as_secs()),
            None => String::new(),
        };
        let of = progress.total.map(|total| format!(" of {}", size(total))).unwrap_or_default();
        self.out.emit(EngineEvent::LoadProgress {
            stage: format!(
                "fetching {}: {}{of}, {}/s{left}",
                progress.what,
                size(progress.done),
                size(progress.rate as u64)
            ),
            done: progress.done,
            total: progress.total.unwrap_or(0),
        });
    }

    fn say(&mut self, line: &str) {
        self.out.notice(Level::Info, line, None);
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}

fn open(place: &DraftPlace, target: &DecoderConfig, taps: Option<&[usize]>) -> Result<DraftFiles> {
    match place {
        DraftPlace::At(location) => open_draft(location.path(), target, taps),
        DraftPlace::Embedded(draft) => open_embedded_draft(draft.file, target, taps),
        DraftPlace::None(why) => bail!("{why}"),
    }
}

/// The GPU to use; `None` is the CPU with our kernels.
fn device(place: Place) -> Result<Option<candle_core::Device>> {
    use candle_core::Device;
    let metal = || Device::new_metal(0);
    let cuda = || Device::new_cuda(0);
    match place {
        Place::Cpu => Ok(None),
        Place::CandleCpu => Ok(Some(Device::Cpu)),
        Place::Metal => Ok(Some(metal().context("no Metal device can be used; try --device cpu")?)),
        Place::Cuda => Ok(Some(cuda().context("no CUDA device can be used; try --device cpu")?)),
        Place::Auto if candle_core::utils::metal_is_available() => Ok(metal().ok()),
        Place::Auto if candle_core::utils::cuda_is_available() => Ok(cuda().ok()),
        Place::Auto => Ok(None),
    }
}

/// Files that are opened, to be read into networks.
struct Job<'a> {
    request: &'a LoadRequest,
    pair: ResolvedPair,
    target: TargetFiles,
    draft: Option<DraftFiles>,
    draft_missing: Option<String>,
    start: Instant,
}

impl Job<'_> {
    fn run<O: Ops>(self, ops: O, out: &mut EventSink, cancel: &CancelToken) -> Result<Worker> {
        let config = &self.target.config;
        // Neither network is asked about positions that it was not made for.
        let known = self.draft.as_ref().map_or(usize::MAX, |draft| draft.config.max_positions);
        let context = self.request.context.unwrap_or(DEFAULT_CONTEXT);
        let context = context.min(config.max_positions).min(known);
        if let Some(asked) = self.request.context.filter(|asked| *asked > config.max_positions) {
            out.notice(
                Level::Warning,
                format!(
                    "--ctx {asked} is more than the target's {} positions",
                    config.max_positions
                ),
                None,
            );
        }
        let stage = |stage: &str, done: usize, total: usize| EngineEvent::LoadProgress {
            stage: stage.into(),
            done: done as u64,
            total: total as u64,
        };
        let tokenizer = tokenizer(&self.target).context("the target's tokenizer")?;
        for warning in tokenizer.warnings() {
            out.notice(Level::Warning, warning.clone(), None);
        }
        let (template, fallback) = ChatTemplate::of(&tokenizer)?;
        if let Some(fallback) = fallback {
            out.notice(Level::Warning, fallback, None);
        }
        let mut stopped = false;
        let target = Decoder::load(&ops, &self.target, context, &mut |done, total| {
            out.emit(stage("loading the target", done, total));
            stopped |= cancel.is_cancelled();
        })?;
        if stopped {
            bail!("stopped while loading");
        }
        out.emit(stage("loading the draft", 0, 1));
        let draft = match &self.draft {
            Some(files) => {
                // Beside quantised weights a draft's need not be more exact; `--quant none`
                // asks for the numbers as they were trained.
                let exact = self.request.quantise == Quantise::None;
                let compress = !exact && self.target.is_quantised();
                Some(Draft::load(&ops, files, &target, context, compress)?)
            }
            None => None,
        };
        let mut end_tokens = self.target.end_tokens()?;
        end_tokens.extend(tokenizer.end_tokens());
        end_tokens.sort_unstable();
        end_tokens.dedup();

        let ready = self.ready(&ops, &target, draft.as_ref(), context);
        let notes = ops.notes();
        if let Some(first) = notes.first() {
            let others = match notes.len() - 1 {
                0 => String::new(),
                n => format!(", and {n} more tensors likewise"),
            };
            out.notice(Level::Info, format!("{first}{others}"), None);
        }
        let pair = Pair::new(ops, target, draft, context);
        let learned = LearnedFile::new(&self.request.cache, &ready, self.request.quantise);
        let planner = Planner::new(learned.read());
        out.emit(EngineEvent::ModelReady(Box::new(ready)));
        Ok(Worker {
            session: Session::new(Box::new(pair), planner),
            tokenizer,
            template,
            end_tokens,
            ctx_limit: context,
            learned: Some(learned),
        })
    }

    fn ready<O: Ops>(
        &self,
        ops: &O,
        target: &Decoder<O>,
        draft: Option<&Draft<O>>,
        ctx_limit: usize,
    ) -> ModelReady {
        let config = target.config();
        let name = |location: &Location| {
            let path = location.path();
            let last = path.file_name().map(|name| name.to_string_lossy().into_owned());
            last.unwrap_or_else(|| path.display().to_string())
        };
        let draft_name = match &self.pair.draft {
            DraftPlace::At(location) => name(location),
            DraftPlace::Embedded(draft) => draft.name.to_owned(),
            DraftPlace::None(_) => String::new(),
        };
        ModelReady {
            engine: "native".into(),
            pair: self.pair.name.clone(),
            target: NetworkInfo {
                name: name(&self.pair.target),
                architecture: config.architecture.clone(),
                layers: config.layers.len(),
                hidden: config.hidden,
                vocabulary: config.vocab,
                quantisation: self.target.source.kinds(),
                bytes: target.bytes(ops),
            },
            draft: draft.zip(self.draft.as_ref()).map(|(draft, files)| NetworkInfo {
                name: draft_name,
                architecture: draft.config().architecture.clone(),
                layers: draft.config().layers.len(),
                hidden: draft.config().hidden,
                vocabulary: draft
                    .config()
                    .vocabulary
                    .as_ref()
                    .map_or(draft.config().vocab, Vec::len),
                quantisation: files.source.kinds(),
                bytes: draft.bytes(ops),
            }),
            draft_missing: self.draft_missing.clone(),
            device: ops.device().into(),
            device_detail: ops.device_detail(),
            threads: ops.threads(),
            block_size: draft.map_or(1, |draft| draft.config().block_size),
            taps: draft.map_or(Vec::new(), |draft| draft.config().taps.clone()),
            ctx_limit,
            load_us: self.start.elapsed().as_micros() as u64,
        }
    }
}

/// The tokenizer of a target's files.
///
/// # Errors
/// When the files describe none that is known.
pub fn tokenizer(files: &TargetFiles) -> Result<Tokenizer> {
    match files.source.gguf() {
        Some(file) => Tokenizer::from_gguf(vocabulary(file)?),
        None => Tokenizer::from_files(&TokenizerFiles::read(&files.path)?),
    }
}

/// The tokenizer's tables in a GGUF file.
fn vocabulary(file: &GgufFile) -> Result<GgufVocabulary> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let strings = |name: &str| -> Result<Vec<String>> {
        let list = file.strings(&key(name))?.unwrap_or_default();
        Ok(list.into_iter().map(str::to_owned).collect())
    };
    let text = |name: &str| -> Result<String> {
        Ok(file.text(&key(name))?.unwrap_or_default().to_owned())
    };
    let types = file.integers(&key("token_type"))?.unwrap_or_default();
    Ok(GgufVocabulary {
        model: text("model")?,
        pre: text("pre")?,
        tokens: strings("tokens")?,
        merges: strings("merges")?,
        token_types: types.into_iter().map(|kind| i32::try_from(kind).unwrap_or(0)).collect(),
        scores: file.floats(&key("scores"))?.unwrap_or_default(),
        bos: file.id(&key("bos_token_id"))?,
        eos: file.id(&key("eos_token_id"))?,
        eot: file.id(&key("eot_token_id"))?,
        unk: file.id(&key("unknown_token_id"))?,
        pad: file.id(&key("padding_token_id"))?,
        add_bos: file.flag(&key("add_bos_token"))?,
        add_space_prefix: file.flag(&key("add_space_prefix"))?,
        chat_template: file.text("tokenizer.chat_template")?.map(str::to_owned),
    })
}
