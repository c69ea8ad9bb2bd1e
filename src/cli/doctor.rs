//! `dflash-chat doctor`: what machine this is, and whether all is well on it.
//!
//! Nothing here may fail: what cannot be found out is left out, and what is wrong is told with the
//! rest.

mod folders;
mod machine;
mod operations;
mod report;
mod terminal;

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{Cancelled, interrupt};
use crate::engine::load::{self, Examination, LoadRequest, Place};
use crate::engine::{CancelToken, EventSink};
use crate::event::{EngineEvent, Level};
use crate::model::ops::Quantise;
use crate::model::ops::cpu::Cpu;
use crate::model::ops::kernels::cache::KvType;
use crate::settings::{Color, Paths, config_file};
use crate::text::panic_text;
use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use report::{ModelState, Report};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

const WHEN: &str = "\
Each operation is run on the device and compared with the CPU's kernels. With --pair, --target or
--draft the model is loaded too, and tensors that took a slower path are named. Exit code 0 says
that all is well, 1 that something is not.";

/// Options of `doctor`.
#[derive(Debug, Clone, Args)]
#[command(after_help = WHEN)]
pub struct DoctorArgs {
    /// What to print
    #[arg(long, value_enum, default_value_t = DoctorFormat::Text)]
    format: DoctorFormat,
    /// Model options.
    #[command(flatten)]
    model: ModelOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DoctorFormat {
    /// Lines for a person
    Text,
    /// One JSON object
    Json,
}

/// Look at everything and tell.
///
/// # Errors
/// When the report cannot be written, or the person stops it.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let report = examine(args)?;
    let mut out = std::io::stdout().lock();
    match args.format {
        DoctorFormat::Text => write!(out, "{report}")?,
        DoctorFormat::Json => {
            serde_json::to_writer_pretty(&mut out, &report)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(if report.well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(args: &DoctorArgs) -> Result<Report> {
    let decode = DecodeOptions::default();
    let asked = Asked::new(&args.model, &decode, &ConversationOptions::default());
    let request = asked.as_ref().map(Asked::load_request);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = request.as_ref().map_or(cores, |request| request.threads);
    let color = asked.as_ref().map_or(Color::Auto, |asked| asked.settings.values.color);
    let paths = Paths::from_env();

    let mut problems: Vec<String> = Vec::new();
    let wrong = asked.as_ref().err().map(|why| format!("{why:#}"));
    problems.extend(wrong.iter().flat_map(|why| why.lines()).map(str::to_owned));
    let place = request.as_ref().map_or(Place::Auto, |request| request.place);
    let device = load::device(place).unwrap_or_else(|why| {
        problems.push(format!("the device that is asked for cannot be used: {why:#}"));
        None
    });
    let named = args.model.pair.is_some() || args.model.target.is_some();
    let model = match &request {
        Ok(request) if named => Some(load_model(request)?),
        _ => None,
    };
    let cpu = Cpu::new(threads, Quantise::AsStored, KvType::F32);
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: machine::Machine::this(&cpu),
        devices: machine::devices(),
        operations: operations::operations(device.as_ref(), threads),
        model,
        settings: paths.as_ref().ok().map(config_file),
        folders: paths.as_ref().map(folders::folders).unwrap_or_default(),
        terminal: terminal::Terminal::this(color),
        well: true,
        problems,
    }
    .judged())
}

/// Load the model that is asked for, with progress on a terminal, and drop it again.
fn load_model(request: &LoadRequest) -> Result<ModelState> {
    let cancel = CancelToken::default();
    let interrupted = interrupt(cancel.clone())?;
    let (sink, mut events) = EventSink::channel();
    let request = request.clone();
    let work =
        std::thread::Builder::new().name(crate::engine::ENGINE_THREAD.into()).spawn(move || {
            let mut sink = sink;
            load::examine(&request, &mut sink, &cancel)
        })?;
    let shows = std::io::stderr().is_terminal();
    let mut warnings = Vec::new();
    while let Some(envelope) = events.blocking_recv() {
        match envelope.event {
            EngineEvent::LoadProgress { stage, done, total } if shows => {
                let percent = (done * 100).checked_div(total).unwrap_or(0);
                let stage = crate::text::sanitise_line(&stage);
                write!(std::io::stderr(), "\r\x1b[2K{stage} {percent:3} %")?;
            }
            EngineEvent::Notice(notice) if notice.level != Level::Info => {
                warnings.push(notice.message);
            }
            _ => {}
        }
    }
    if shows {
        write!(std::io::stderr(), "\r\x1b[2K")?;
    }
    let outcome: Result<Examination> = work
        .join()
        .unwrap_or_else(|panic| Err(anyhow!("loading stopped: {}", panic_text(panic.as_ref()))));
    if interrupted.happened() {
        return Err(Cancelled.into());
    }
    Ok(ModelState::new(outcome, warnings))
}
