//! From what was asked for to an engine that computes: files, networks, tokenizer, template.

use super::learned::LearnedFile;
use super::worker::Worker;
use super::{CancelToken, Engine, EventSink};
use crate::catalog::download::{Progress, Watch, fetch_needed, size};
use crate::catalog::fit::{self, free_on_device};
use crate::catalog::{
    self, CatalogError, DraftPlace, Location, Network, ResolvedPair, Selection, Store,
};
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
use crate::text::panic_text;
use anyhow::{Context, Result, bail, ensure};
use candle_core::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

impl Place {
    /// Whether a GPU may be what computes.
    pub fn may_be_gpu(self) -> bool {
        !matches!(self, Place::Cpu | Place::CandleCpu)
    }
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
    let job = Job::open(request, out, cancel)?;
    match device(request.place)? {
        Some(device) => job.worker(DeviceOps::new(device, request.quantise), out, cancel),
        None => job.worker(cpu(request), out, cancel),
    }
}

/// What there is to say of networks once they are loaded.
#[derive(Debug)]
pub struct Examination {
    /// What they are.
    pub ready: ModelReady,
    /// Whether there should be a draft.
    pub draft_wanted: bool,
    /// Tensors that could not be kept as asked, one a line.
    pub notes: Vec<String>,
    /// Bytes of both caches at the whole context.
    pub cache_bytes: u64,
}

/// Load networks, to see how that goes, and drop them again.
///
/// # Errors
/// As [`load`] tells them.
pub fn examine(
    request: &LoadRequest,
    out: &mut EventSink,
    cancel: &CancelToken,
) -> Result<Examination> {
    let job = Job::open(request, out, cancel)?;
    match device(request.place)? {
        Some(device) => job.examine(&DeviceOps::new(device, request.quantise), out, cancel),
        None => job.examine(&cpu(request), out, cancel),
    }
}

impl<'a> Job<'a> {
    /// Obtain the files and open them.
    fn open(request: &'a LoadRequest, out: &mut EventSink, cancel: &CancelToken) -> Result<Self> {
        let (pair, not_fetched) = obtain(request, out, cancel)?;
        let start = Instant::now();
        let path = pair.target.path();
        let target = open_target(path)
            .with_context(|| format!("cannot open the target {}", path.display()))?;
        for warning in &target.warnings {
            out.notice(Level::Warning, warning.clone(), None);
        }
        let draft = match not_fetched {
            None => open_pairs_draft(&pair.draft, &target.config, request.taps.as_deref()),
            Some(why) => Err(why.into()),
        };
        // A draft that cannot be had or used leaves plain decoding, with the reason in one line.
        let (draft, draft_missing) = match draft {
            Ok(files) => (Some(files), None),
            Err(error) => (None, Some(format!("{error:#}").replace('\n', "; "))),
        };
        for warning in draft.iter().flat_map(|draft| &draft.warnings) {
            out.notice(Level::Warning, warning.clone(), None);
        }
        Ok(Job { request, pair, target, draft, draft_missing, start })
    }
}

/// The operations on the CPU that a request asks for.
fn cpu(request: &LoadRequest) -> Cpu {
    // 16-bit keys and values halve what attention reads; dense f32 weights ask for all.
    let kv = match request.quantise {
        Quantise::None => KvType::F32,
        _ => KvType::F16,
    };
    Cpu::new(request.threads, request.quantise, kv)
}

/// The pair, its files fetched where they are missing; and why the draft's could not be.
fn obtain(
    request: &LoadRequest,
    out: &mut EventSink,
    cancel: &CancelToken,
) -> Result<(ResolvedPair, Option<CatalogError>)> {
    let pair = catalog::resolve(&request.selection, &request.store)?;
    let network = Network::from_env(request.offline, request.store.hub.as_ref());
    if let Some(known) = pair.known
        && let Some(free) = free_on_device(request.place.may_be_gpu())
    {
        let context = request.context.unwrap_or(DEFAULT_CONTEXT) as u64;
        if let Some(warning) = fit::warning(known, free, context, request.quantise) {
            out.notice(Level::Warning, warning, None);
        }
    }
    let not_fetched = fetch_needed(&pair, &request.store, &network, &mut Told { out, cancel })?;
    Ok((pair, not_fetched))
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

fn open_pairs_draft(
    place: &DraftPlace,
    target: &DecoderConfig,
    taps: Option<&[usize]>,
) -> Result<DraftFiles> {
    match place {
        DraftPlace::At(location) => open_draft(location.path(), target, taps),
        DraftPlace::Embedded(draft) => open_embedded_draft(draft.file, target, taps),
        DraftPlace::None(why) => bail!("{why}"),
    }
}

/// The first device of a kind. CUDA's bindings panic where the system has no such library.
fn first(make: fn(usize) -> candle_core::Result<Device>) -> Result<Device> {
    match catch_unwind(AssertUnwindSafe(|| make(0))) {
        Ok(device) => Ok(device?),
        Err(panic) => bail!("{}", panic_text(panic.as_ref())),
    }
}

/// The first Metal device.
///
/// # Errors
/// When there is none, or the program was built without Metal.
pub fn metal() -> Result<Device> {
    ensure!(candle_core::utils::metal_is_available(), "not in this build (it is on macOS)");
    first(Device::new_metal)
}

/// The first CUDA device.
///
/// # Errors
/// When there is none, or the program was built without CUDA.
pub fn cuda() -> Result<Device> {
    ensure!(candle_core::utils::cuda_is_available(), "not in this build (--features cuda)");
    first(Device::new_cuda)
}

/// The device of a place; `None` is the CPU with our kernels.
///
/// # Errors
/// When a device that was asked for by name cannot be used.
pub fn device(place: Place) -> Result<Option<Device>> {
    match place {
        Place::Cpu => Ok(None),
        Place::CandleCpu => Ok(Some(Device::Cpu)),
        Place::Metal => Ok(Some(metal().context("no Metal device can be used; try --device cpu")?)),
        Place::Cuda => Ok(Some(cuda().context("no CUDA device can be used; try --device cpu")?)),
        Place::Auto => Ok(metal().or_else(|_| cuda()).ok()),
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

/// Networks in the form that `O` computes with.
struct Networks<O: Ops> {
    target: Decoder<O>,
    draft: Option<Draft<O>>,
    /// Most positions.
    context: usize,
}

impl Job<'_> {
    fn networks<O: Ops>(
        &self,
        ops: &O,
        out: &mut EventSink,
        cancel: &CancelToken,
    ) -> Result<Networks<O>> {
        let context = self.context(out);
        let mut told = |stage: &str, done: usize, total: usize| {
            out.emit(EngineEvent::LoadProgress {
                stage: stage.into(),
                done: done as u64,
                total: total as u64,
            });
            ensure!(!cancel.is_cancelled(), "stopped while loading");
            Ok(())
        };
        let target = Decoder::load(ops, &self.target, context, &mut |done, total| {
            told("loading the target", done, total)
        })?;
        let draft = match &self.draft {
            Some(files) => {
                // Beside quantised weights a draft's need not be more exact; `--quant none`
                // asks for the numbers as they were trained, and `q8` and `q4` are kept to
                // anyhow.
                let wish = self.request.quantise;
                let compress = wish == Quantise::AsStored && self.target.is_quantised();
                Some(Draft::load(ops, files, &target, context, compress, &mut |done, total| {
                    told("loading the draft", done, total)
                })?)
            }
            None => None,
        };
        Ok(Networks { target, draft, context })
    }

    /// Most positions: what is asked for, less where a network was not made for so many. Says
    /// which one that is.
    fn context(&self, out: &mut EventSink) -> usize {
        let most = self.target.config.max_positions;
        if let Some(asked) = self.request.context.filter(|asked| *asked > most) {
            let cut = format!("--ctx {asked} is more than the target's {most} positions");
            out.notice(Level::Warning, cut, None);
        }
        let context = self.request.context.unwrap_or(DEFAULT_CONTEXT).min(most);
        let Some(draft) = &self.draft else { return context };
        let most = draft.config.max_positions;
        if context > most {
            let cut = format!(
                "the draft {} was made for {most} positions; the context has no more, though the \
                 target could have {context}",
                self.draft_name()
            );
            out.notice(Level::Warning, cut, None);
        }
        context.min(most)
    }

    fn draft_name(&self) -> String {
        match &self.pair.draft {
            DraftPlace::At(location) => name(location),
            DraftPlace::Embedded(draft) => draft.name.to_owned(),
            DraftPlace::None(_) => String::new(),
        }
    }

    fn examine<O: Ops>(
        self,
        ops: &O,
        out: &mut EventSink,
        cancel: &CancelToken,
    ) -> Result<Examination> {
        let Networks { target, draft, context } = self.networks(ops, out, cancel)?;
        let layers = target.config().layers.iter();
        let layers = layers.chain(draft.iter().flat_map(|draft| &draft.config().layers));
        Ok(Examination {
            ready: self.ready(ops, &target, draft.as_ref(), context),
            draft_wanted: !matches!(self.pair.draft, DraftPlace::None(_)),
            notes: ops.notes(),
            cache_bytes: layers.map(|layer| ops.cache_bytes(&layer.attention, context)).sum(),
        })
    }

    fn worker<O: Ops>(self, ops: O, out: &mut EventSink, cancel: &CancelToken) -> Result<Worker> {
        let tokenizer = tokenizer(&self.target).context("the target's tokenizer")?;
        for warning in tokenizer.warnings() {
            out.notice(Level::Warning, warning.clone(), None);
        }
        let (template, fallback) = ChatTemplate::of(&tokenizer)?;
        if let Some(fallback) = fallback {
            out.notice(Level::Warning, fallback, None);
        }
        let Networks { target, draft, context } = self.networks(&ops, out, cancel)?;
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
                name: self.draft_name(),
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
            target_asked: self.request.selection.target.clone(),
            draft_asked: self.request.selection.draft.clone(),
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

/// What a network is called: its file or folder.
fn name(location: &Location) -> String {
    let path = location.path();
    let last = path.file_name().map(|name| name.to_string_lossy().into_owned());
    last.unwrap_or_else(|| path.display().to_string())
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

#[cfg(test)]
mod tests;
