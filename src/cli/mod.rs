//! The command line: one file a subcommand. What can go wrong ends here, as one or two lines
//! and an exit code.

pub mod bench;
pub mod chat;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod models;
pub mod options;
pub mod race;
pub mod replay;
pub mod run;
pub mod watch;

use crate::catalog::CatalogError;
use crate::engine::scripted::{Script, ScriptedEngine};
use crate::engine::{self, CancelToken, Engine, EngineHandle};
use crate::event::Message;
use anyhow::{Context, Result, ensure};
use clap::{CommandFactory, Parser, Subcommand};
use options::Asked;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Chat with a local model, sped up by DFlash drafts, and watch every round.
#[derive(Debug, Parser)]
#[command(name = "dflash-chat", version, about, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    chat: chat::ChatArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One answer, no screen
    Run(Box<run::RunArgs>),
    /// Measure baseline against speculative decoding
    Bench(Box<bench::BenchArgs>),
    /// Baseline against speculative decoding on one prompt, side by side
    Race(Box<race::RaceArgs>),
    /// A playlist that runs by itself, for an audience
    Demo(demo::DemoArgs),
    /// Play a recorded answer; needs no model
    Replay(replay::ReplayArgs),
    /// What can run, and where it comes from
    Models(models::ModelsArgs),
    /// The file with your settings
    Config(config::ConfigArgs),
    /// Whether all is well on this machine
    Doctor(Box<doctor::DoctorArgs>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Run what the command line asks for.
pub fn main(cli: Cli) -> ExitCode {
    let outcome = match cli.command {
        None => done(chat::run(&cli.chat)),
        Some(Command::Run(args)) => done(run::run(&args)),
        Some(Command::Bench(args)) => done(bench::run(&args)),
        Some(Command::Race(args)) => done(race::run(&args)),
        Some(Command::Demo(args)) => done(demo::run(&args)),
        Some(Command::Replay(args)) => done(replay::run(&args)),
        Some(Command::Models(args)) => models::run(args),
        Some(Command::Config(args)) => config::run(args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Completions { shell }) => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "dflash-chat",
                &mut std::io::stdout(),
            );
            Ok(ExitCode::SUCCESS)
        }
    };
    match outcome {
        Ok(code) => code,
        Err(error) if error.is::<Cancelled>() => ExitCode::from(130),
        // The reader of a pipe has gone (`| head`): nobody is there to be told.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let text = crate::text::sanitise(&format!("{error:#}")).into_owned();
            let _ = writeln!(std::io::stderr(), "dflash-chat: {text}");
            // A wrong name is wrong usage, a stopped download is cancelled.
            let code = error.downcast_ref::<CatalogError>().map_or(1, CatalogError::exit_code);
            ExitCode::from(code)
        }
    }
}

fn done(outcome: Result<()>) -> Result<ExitCode> {
    outcome.map(|()| ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        let json =
            cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}

/// The person stopped it: exit code 130.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub struct Cancelled;

/// Whether this terminal can do more than lines.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Refuse where there is no terminal that can show `what`; `instead` needs none.
pub fn needs_screen(what: &str, instead: &str) -> Result<()> {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    ensure!(terminal, "{what} needs a terminal; `{instead}` does not");
    ensure!(
        !is_dumb(),
        "this terminal cannot show {what} (TERM=dumb); `{instead}` needs no screen"
    );
    Ok(())
}

/// Start the engine that was asked for.
pub fn start_engine(asked: &Asked) -> EngineHandle {
    if asked.scripted() {
        return engine::spawn(|out, _| {
            Some(Box::new(ScriptedEngine::load(Script::default(), out)) as Box<dyn Engine>)
        });
    }
    let request = asked.load_request();
    engine::spawn(move |out, cancel| engine::load::load(&request, out, cancel))
}

/// Ctrl-C, SIGTERM: the first cancels the work, a second ends the program at once.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Whether the person interrupted.
    pub fn happened(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Let Ctrl-C and SIGTERM cancel what `cancel` stands for.
pub fn interrupt(cancel: CancelToken) -> Result<Interrupt> {
    let happened = Arc::new(AtomicBool::new(false));
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
    ])
    .context("cannot watch for Ctrl-C")?;
    let seen = happened.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if seen.swap(true, Ordering::AcqRel) {
                    std::process::exit(130);
                }
                cancel.cancel();
            }
        })
        .context("cannot start a thread")?;
    Ok(Interrupt(happened))
}

/// An engine's error as the program's.
pub fn engine_error(message: &Message) -> anyhow::Error {
    match &message.hint {
        Some(hint) => anyhow::anyhow!("{}\n{hint}", message.message),
        None => anyhow::anyhow!("{}", message.message),
    }
}
