//! `dflash-chat replay`: a recorded answer, played or exported. No model is needed.

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{Cancelled, engine_error, interrupt, is_dumb};
use crate::engine::replay;
use crate::event::{
    EngineCommand, EngineEvent, Envelope, FinishReason, ModelReady, ReplayControl, Round,
    RunStarted, Totals,
};
use crate::race::Transcript;
use crate::record::asciicast::{self, heading};
use crate::record::demo::{TRACES, trace};
use crate::record::strip::{Line, lines, render};
use crate::record::timeline::{SPEEDS, Timeline};
use crate::record::{Header, Recording};
use crate::settings::Color;
use crate::text::sanitise;
use crate::tui::{self, Replay, ScreenOptions};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Options of `replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// A recording: a file that `run --record` wrote, or the output of `run --format jsonl`
    #[arg(required_unless_present_any = ["demo", "list"], conflicts_with = "demo")]
    file: Option<PathBuf>,
    /// A recorded run that ships with the program [default: math]
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "math")]
    demo: Option<String>,
    /// List the recorded runs that ship with the program
    #[arg(long)]
    list: bool,
    /// Which answer of the recording
    #[arg(long, value_name = "N", default_value_t = 1)]
    answer: usize,
    /// What to print [default: on a terminal the screen, else text]
    #[arg(long, value_enum)]
    format: Option<ReplayFormat>,
    /// Times the recorded speed, 1/256 (0.004) to 8; where slow enough to be read, draft and verify
    /// are played apart
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speed)]
    speed: f32,
    /// Write a round (1 is the first) as a picture instead
    #[arg(long, num_args = 2, value_names = ["ROUND", "FILE"])]
    svg: Option<Vec<String>>,
    /// The background of the picture
    #[arg(long, value_enum, default_value_t = Background::Dark)]
    background: Background,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplayFormat {
    /// The rounds one after the other; on a terminal at their recorded times
    Text,
    /// One object with the answer and its rounds
    Json,
    /// Every event, one object a line
    Jsonl,
    /// For players of terminal recordings (asciicast v2)
    Asciicast,
}

fn speed(text: &str) -> std::result::Result<f32, String> {
    match text.parse::<f32>() {
        Ok(x) if (SPEEDS.0..=SPEEDS.1).contains(&x) => Ok(x),
        _ => Err(format!("expected a number from {} to {}", SPEEDS.0, SPEEDS.1)),
    }
}

/// Which background a picture has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Background {
    /// As the dark theme
    Dark,
    /// As the light theme
    Light,
}

/// Run the command.
pub fn run(args: &ReplayArgs) -> Result<()> {
    if args.list {
        return list();
    }
    let mut recording = match (&args.file, &args.demo) {
        (Some(path), _) => Recording::open(path)?,
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            let Some(trace) = trace(name) else {
                bail!("no recorded run `{name}` ships with the program; see replay --list")
            };
            trace.recording()
        }
    };
    for warning in &recording.warnings {
        writeln!(std::io::stderr(), "dflash-chat: the recording: {warning}")?;
    }
    let answers = recording.runs.len();
    let Some(run) = args.answer.checked_sub(1).and_then(|i| recording.runs.get(i).cloned()) else {
        bail!("there is no answer {} in the recording; it has {answers}", args.answer)
    };
    recording.runs = vec![run];
    if args.answer > 1
        && let Some(header) = &mut recording.header
    {
        // It knows the first prompt alone.
        header.request = None;
    }
    if let Some([round, path]) = args.svg.as_deref() {
        return picture(&recording, round, Path::new(path), args.background);
    }
    let (model, decode) = (ModelOptions::default(), DecodeOptions::default());
    let asked = Asked::new(&model, &decode, &ConversationOptions::default())?;
    let dumb = is_dumb();
    let terminal = std::io::stdout().is_terminal();
    if args.format.is_none() && terminal && std::io::stdin().is_terminal() && !dumb {
        return screen(recording, args.speed, &asked);
    }
    let mut out = std::io::stdout().lock();
    let no_colour = match asked.settings.values.color {
        Color::Never => true,
        Color::Always => false,
        Color::Auto => std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
    };
    match args.format.unwrap_or(ReplayFormat::Text) {
        ReplayFormat::Text if terminal => {
            drop(out);
            live(recording, args.speed, !no_colour && !dumb)
        }
        ReplayFormat::Text => text(&mut out, &recording),
        ReplayFormat::Json => json(&mut out, &recording),
        ReplayFormat::Jsonl => jsonl(&mut out, &recording),
        ReplayFormat::Asciicast => {
            let header = recording.header.as_ref();
            asciicast::write(&mut out, header, &recording.runs[0], args.speed, !no_colour)
        }
    }
}

fn list() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for trace in &TRACES {
        writeln!(out, "{:6} {}", trace.name, trace.caption)?;
        if let Some(header) = trace.recording().header {
            writeln!(out, "       {} ({})", header.origin, header.date)?;
        }
    }
    Ok(())
}

fn print(out: &mut impl Write, shown: &[Line], colours: bool) -> Result<()> {
    for line in shown {
        writeln!(out, "{}", render(line, colours))?;
    }
    Ok(out.flush()?)
}

fn text(out: &mut impl Write, recording: &Recording) -> Result<()> {
    print(out, &heading(recording.header.as_ref()), false)?;
    for event in &recording.runs[0].events {
        print(out, &lines(event, asciicast::COLUMNS), false)?;
    }
    Ok(writeln!(out, "\n{}", sanitise(&recording.runs[0].text()))?)
}

/// Play on the screen.
fn screen(recording: Recording, speed: f32, asked: &Asked) -> Result<()> {
    let pair = recording.ready.as_ref().map(|ready| ready.pair.clone());
    let options = ScreenOptions {
        pair: pair.unwrap_or_default(),
        replay: Some(Replay {
            prompt: recording.header.as_ref().map_or("", Header::prompt).to_owned(),
            rounds: recording.runs[0].rounds().count(),
            speed,
            paused: false,
        }),
        ..asked.screen()
    };
    tui::run(options, |_| replay::start(recording.clone()))
}

/// Play at the recorded times, through the engine that the screen uses too.
fn live(recording: Recording, speed: f32, colours: bool) -> Result<()> {
    let columns = crossterm::terminal::size().map_or(0, |(columns, _)| usize::from(columns));
    // A terminal that does not know its width says 0.
    let columns = if columns == 0 { 80 } else { columns };
    let text = recording.runs[0].text();
    print(&mut std::io::stdout(), &heading(recording.header.as_ref()), colours)?;
    let mut engine = replay::start(recording);
    let interrupted = interrupt(engine.cancel.clone())?;
    engine.send(EngineCommand::Replay { control: ReplayControl::Speed(speed) });
    engine.send(EngineCommand::Generate(Box::default()));
    while let Some(Envelope { event, .. }) = engine.next_blocking() {
        if !matches!(event, EngineEvent::Notice(_)) {
            print(&mut std::io::stdout(), &lines(&event, columns), colours)?;
        }
        match &event {
            EngineEvent::Error(message) => return Err(engine_error(message)),
            EngineEvent::RunFinished { .. } => break,
            _ => {}
        }
    }
    if interrupted.happened() {
        return Err(Cancelled.into());
    }
    Ok(writeln!(std::io::stdout(), "\n{}", sanitise(&text))?)
}

/// The object that `--format json` prints.
#[derive(serde::Serialize)]
struct Answer<'a> {
    header: Option<&'a Header>,
    text: &'a str,
    ids: &'a [u32],
    reason: Option<&'a FinishReason>,
    model: Option<&'a ModelReady>,
    run: Option<&'a RunStarted>,
    totals: Option<&'a Totals>,
    rounds: Vec<&'a Round>,
    warnings: &'a [String],
}

fn json(out: &mut impl Write, recording: &Recording) -> Result<()> {
    let run = &recording.runs[0];
    let mut transcript = Transcript::default();
    run.events.iter().for_each(|event| transcript.add(event));
    let totals = run.events.iter().find_map(|event| match event {
        EngineEvent::RunFinished { totals, .. } => Some(totals),
        _ => None,
    });
    let answer = Answer {
        header: recording.header.as_ref(),
        text: &transcript.text,
        ids: &transcript.ids,
        reason: transcript.reason.as_ref(),
        model: recording.ready.as_ref(),
        run: transcript.run.as_ref(),
        totals,
        rounds: run.rounds().collect(),
        warnings: &recording.warnings,
    };
    serde_json::to_writer_pretty(&mut *out, &answer)?;
    Ok(writeln!(out)?)
}

/// As `run --format jsonl` prints them, numbered anew, at their times in the answer.
fn jsonl(out: &mut impl Write, recording: &Recording) -> Result<()> {
    let run = &recording.runs[0];
    let timeline = Timeline::new(&run.events);
    let ready = recording.ready.clone().map(|ready| (0, EngineEvent::ModelReady(Box::new(ready))));
    let events = run.events.iter().enumerate().map(|(i, event)| (timeline.due(i), event.clone()));
    for (seq, (t_us, event)) in ready.into_iter().chain(events).enumerate() {
        serde_json::to_writer(&mut *out, &Envelope { seq: seq as u64, t_us, event })?;
        writeln!(out)?;
    }
    Ok(())
}

fn picture(recording: &Recording, number: &str, path: &Path, ground: Background) -> Result<()> {
    let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let Some(index) = index else {
        bail!("there is no round {number}; the answer has {}", recording.runs[0].rounds().count())
    };
    let picture = tui::picture::round(recording, index, ground == Background::Light)?;
    std::fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))
}
