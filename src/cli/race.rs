//! `dflash-chat race`: one prompt, decoded two or more ways side by side.

use super::options::{
    Asked, ConversationOptions, DecodeOptions, ModelOptions, of_compared_answers, of_lanes,
};
use super::run::{first_prompt, read_prompt};
use super::{
    Cancelled, Interrupt, WrongUsage, engine_error, interrupt, is_dumb, start_engine,
    wait_until_ready,
};
use crate::engine::EngineHandle;
use crate::engine::lanes::Lanes;
use crate::event::{BlockSize, EngineEvent, Generate, Mode, ModelReady};
use crate::race::report::RaceReport;
use crate::race::{LaneKind, Race, nothing_to_race};
use crate::stats::ratio;
use crate::text::sanitise_line;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, Write};

/// Options of `race`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("max_tokens", of_compared_answers), mut_arg("mode", of_lanes))]
pub struct RaceArgs {
    /// The prompt; `-` reads it from standard input
    pub prompt: String,
    /// The modes that race; the others are compared with the first
    ///
    /// Lanes share the machine: each has a clock that runs only while it computes, and the one
    /// whose clock is behind gets the next round. Each holds weights of its own.
    #[arg(long, value_name = "MODE,MODE", value_delimiter = ',', default_values = ["baseline", "speculative"])]
    lanes: Vec<RaceMode>,
    /// Speculative lanes with these block sizes instead
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with_all = ["lanes", "block_size"])]
    block_sizes: Vec<BlockSize>,
    /// How often to run it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    repeat: u16,
    /// What to print
    #[arg(long, value_enum, default_value_t = RaceFormat::Text)]
    format: RaceFormat,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    decode: DecodeOptions,
    #[command(flatten)]
    conversation: ConversationOptions,
    /// Give the text to the model as it is
    #[arg(long, help_heading = "Conversation")]
    no_chat_template: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RaceMode {
    /// One token a pass
    Baseline,
    /// Draft and verify
    Speculative,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RaceFormat {
    /// Bars meanwhile on a terminal, then both texts and the verdict
    Text,
    /// One JSON object
    Json,
}

/// Run the command.
pub fn run(args: &RaceArgs) -> Result<()> {
    ensure!(
        args.decode.mode.is_none(),
        WrongUsage("a race has no --mode; --lanes says which modes race".into())
    );
    let asked = Asked::new(&args.model, &args.decode, &args.conversation)?;
    let kinds = kinds(args, asked.settings.values.block_size)?;
    let text = read_prompt(&args.prompt)?;
    let prompt = first_prompt(text.clone(), asked.system(), args.no_chat_template);
    let request = asked.compared(prompt);

    let (engines, ready, interrupted) = load(&asked, kinds.len())?;
    let mut lanes = Lanes::new(engines);
    let bars = args.format == RaceFormat::Text && std::io::stderr().is_terminal() && !is_dumb();
    let mut bars = bars.then(Bars::default);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut races = Vec::new();
    for _ in 0..args.repeat {
        let race = one_race(&mut lanes, &kinds, &request, &interrupted, &mut bars);
        races.push(runtime.block_on(race)?);
    }
    if let Some(bars) = &mut bars {
        bars.clear()?;
    }
    let report = RaceReport::new(&text, &ready, &races).context("nothing was run")?;
    let mut out = std::io::stdout().lock();
    match args.format {
        RaceFormat::Text => write!(out, "{report}")?,
        RaceFormat::Json => {
            serde_json::to_writer_pretty(&mut out, &report)?;
            out.write_all(b"\n")?;
        }
    }
    ensure!(report.mismatches() == 0, "the lanes' answers differ where they must not");
    Ok(())
}

fn kinds(args: &RaceArgs, block_size: BlockSize) -> Result<Vec<LaneKind>> {
    let mode = |mode: &RaceMode| match mode {
        RaceMode::Baseline => LaneKind { mode: Mode::Baseline, block_size: BlockSize::Fixed(1) },
        RaceMode::Speculative => LaneKind { mode: Mode::Speculative, block_size },
    };
    let block = |size: &BlockSize| LaneKind { mode: Mode::Speculative, block_size: *size };
    let kinds: Vec<_> = match &args.block_sizes[..] {
        [] => args.lanes.iter().map(mode).collect(),
        sizes => sizes.iter().map(block).collect(),
    };
    let lanes = kinds.len();
    ensure!((2..=4).contains(&lanes), WrongUsage(format!("a race has 2 to 4 lanes, not {lanes}")));
    Ok(kinds)
}

/// Load an engine for each lane, one after the other.
fn load(asked: &Asked, lanes: usize) -> Result<(Vec<EngineHandle>, ModelReady, Interrupt)> {
    asked.check()?;
    let mut first = start_engine(asked);
    let interrupted = interrupt(first.cancel.clone())?;
    let mut ready = wait_until_ready(&mut first, &interrupted, true)?;
    let why = ready.draft_missing.as_deref().map(sanitise_line);
    ensure!(ready.draft.is_some(), nothing_to_race(why.as_deref()));
    let mut engines = vec![first];
    while engines.len() < lanes {
        let mut engine = start_engine(asked);
        interrupted.also_cancels(engine.cancel.clone());
        // What the first told holds for all.
        ready = wait_until_ready(&mut engine, &interrupted, false)?;
        engines.push(engine);
    }
    Ok((engines, ready, interrupted))
}

async fn one_race(
    lanes: &mut Lanes,
    kinds: &[LaneKind],
    request: &Generate,
    interrupted: &Interrupt,
    bars: &mut Option<Bars>,
) -> Result<Race> {
    let mut race = Race::new(kinds);
    lanes.start(kinds.iter().map(|kind| kind.request(request)).collect());
    while !race.finished() {
        let Some((lane, envelope)) = lanes.next().await else {
            bail!("the engines ended in the middle of the race")
        };
        if interrupted.happened() {
            lanes.cancel();
            return Err(Cancelled.into());
        }
        if let EngineEvent::Error(message) = &envelope.event {
            lanes.cancel();
            return Err(engine_error(message));
        }
        race.add(lane, &envelope.event);
        if let Some(bars) = bars {
            bars.draw(&race, request.max_tokens)?;
        }
    }
    Ok(race)
}

/// The lanes as bars on stderr, drawn over again.
#[derive(Debug, Default)]
struct Bars {
    drawn: usize,
}

impl Bars {
    fn draw(&mut self, race: &Race, most: usize) -> Result<()> {
        let mut out = String::new();
        for lane in &race.lanes {
            let tokens = lane.transcript.ids.len();
            let cells = (30 * tokens).div_ceil(most.max(1)).min(30);
            let seconds = lane.clock_us as f64 / 1e6;
            out += &format!(
                "\r\x1b[2K{:24} {}{} {tokens:5} tokens {seconds:6.2} s {:6.1} tok/s\n",
                lane.kind,
                "█".repeat(cells),
                "░".repeat(30 - cells),
                ratio(tokens as f64, seconds)
            );
        }
        self.up()?;
        self.drawn = race.lanes.len();
        let mut err = std::io::stderr();
        err.write_all(out.as_bytes())?;
        Ok(err.flush()?)
    }

    fn up(&self) -> Result<()> {
        if self.drawn > 0 {
            write!(std::io::stderr(), "\x1b[{}A", self.drawn)?;
        }
        Ok(())
    }

    /// Make room for the report, which tells all that the bars told.
    fn clear(&mut self) -> Result<()> {
        self.up()?;
        self.drawn = 0;
        Ok(write!(std::io::stderr(), "\r\x1b[J")?)
    }
}
