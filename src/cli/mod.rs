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
use crate::event::{EngineEvent, Message, ModelReady};
use crate::text::sanitise;
use anyhow::{Context, Result, bail, ensure};
use clap::{CommandFactory, Parser, Subcommand};
use options::Asked;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
        Some(Command::Completions { shell }) => done(completions(shell)),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if error.is::<Cancelled>() => ExitCode::from(130),
        // The reader of a pipe has gone (`| head`): nobody is there to be told.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let text = sanitise(&format!("{error:#}")).into_owned();
            let _ = writeln!(std::io::stderr(), "dflash-chat: {text}");
            ExitCode::from(exit_code(&error))
        }
    }
}

/// A wrong name is wrong usage too, a stopped download is cancelled.
fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<WrongUsage>() {
        return 2;
    }
    error.downcast_ref::<CatalogError>().map_or(1, CatalogError::exit_code)
}

/// Print the completion script. It is made in memory, since what makes it panics where its writer
/// fails, as the writer to a pipe does whose reader has gone.
fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dflash-chat", &mut script);
    Ok(std::io::stdout().write_all(&script)?)
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

/// The command line asks for what cannot be, which the parser cannot see: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);

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

/// Wait until an engine has loaded; its notices meanwhile go to stderr if `tell` says so.
pub fn wait_until_ready(
    engine: &mut EngineHandle,
    interrupted: &Interrupt,
    tell: bool,
) -> Result<ModelReady> {
    loop {
        let event = engine.next_blocking().map(|envelope| envelope.event);
        if interrupted.happened() {
            return Err(Cancelled.into());
        }
        match event {
            Some(EngineEvent::ModelReady(ready)) => return Ok(*ready),
            Some(EngineEvent::Error(message)) => return Err(engine_error(&message)),
            Some(EngineEvent::Notice(message)) if tell => {
                writeln!(std::io::stderr(), "{}", sanitise(&message.message))?;
            }
            Some(_) => {}
            None => bail!("the engine ended while loading"),
        }
    }
}

/// Ctrl-C, SIGTERM: the first cancels the work, a second ends the program at once.
#[derive(Debug, Clone)]
pub struct Interrupt {
    happened: Arc<AtomicBool>,
    work: Arc<Mutex<Vec<CancelToken>>>,
}

impl Interrupt {
    /// One that has not happened yet, and cancels `work` when it does.
    fn of(work: CancelToken) -> Interrupt {
        Interrupt { happened: Arc::default(), work: Arc::new(Mutex::new(vec![work])) }
    }

    /// Whether the person interrupted.
    pub fn happened(&self) -> bool {
        self.happened.load(Ordering::Acquire)
    }

    /// Let it cancel this work too: at once, if it has happened already.
    pub fn also_cancels(&self, work: CancelToken) {
        let mut all = self.work();
        if self.happened() {
            work.cancel();
        }
        all.push(work);
    }

    /// The person interrupts. Returns whether they did before.
    fn happens(&self) -> bool {
        let again = self.happened.swap(true, Ordering::AcqRel);
        if !again {
            self.work().iter().for_each(CancelToken::cancel);
        }
        again
    }

    fn work(&self) -> MutexGuard<'_, Vec<CancelToken>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Let Ctrl-C and SIGTERM cancel what `cancel` stands for.
pub fn interrupt(cancel: CancelToken) -> Result<Interrupt> {
    let interrupt = Interrupt::of(cancel);
    let mut signals = signal_hook::iterator::Signals::new([
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
    ])
    .context("cannot watch for Ctrl-C")?;
    let seen = interrupt.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if seen.happens() {
                    std::process::exit(130);
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(interrupt)
}

/// An engine's error as the program's.
pub fn engine_error(message: &Message) -> anyhow::Error {
    match &message.hint {
        Some(hint) => anyhow::anyhow!("{}\n{hint}", message.message),
        None => anyhow::anyhow!("{}", message.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::TOKENS;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["dflash-chat"][..], arguments].concat())
    }

    /// How the parser refuses these arguments, and with which exit code.
    fn refused(arguments: &[&str]) -> (i32, String) {
        let error = parse(arguments).unwrap_err();
        (error.exit_code(), error.to_string())
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_a_command_would_ignore_it_refuses() {
        for (arguments, says) in [
            (&["--no-chat-template"][..], "--no-chat-template"),
            (&["bench", "--no-chat-template"], "--no-chat-template"),
            (&["bench", "--threads", "1", "verify-cost"], "verify-cost"),
            (&["race", "x", "--block-sizes", "2,4", "--block-size", "8"], "--block-size"),
        ] {
            let (code, text) = refused(arguments);
            assert!(code == 2 && text.contains(says), "{arguments:?}: {text}");
        }
        for arguments in [
            &["run", "x", "--no-chat-template", "--mode", "baseline"][..],
            &["race", "x", "--no-chat-template", "--block-size", "8"],
            &["bench", "verify-cost", "--threads", "1"],
            &["--mode", "baseline", "--offline"],
        ] {
            let parsed = parse(arguments);
            assert!(parsed.is_ok(), "{parsed:?}");
        }
    }

    #[test]
    fn help_tells_the_defaults_of_the_command() {
        let compared = format!("[default: {TOKENS}");
        for (command, default, has_mode) in [
            ("run", "[default: 1024]", true),
            ("race", compared.as_str(), false),
            ("bench", compared.as_str(), false),
        ] {
            let (code, help) = refused(&[command, "--help"]);
            let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
            let tokens = words.split_once("--max-tokens <N> ").unwrap().1;
            assert!(tokens.starts_with(&format!("Most tokens of an answer {default}")), "{help}");
            assert_eq!((code, words.contains("--mode <MODE>")), (0, has_mode), "{help}");
        }
    }

    #[test]
    fn an_interrupt_cancels_what_began_before_it_and_after() {
        let tokens = [CancelToken::default(), CancelToken::default(), CancelToken::default()];
        let [first, second, late] = &tokens;
        let interrupted = Interrupt::of(first.clone());
        interrupted.also_cancels(second.clone());
        assert!(tokens.iter().all(|token| !token.is_cancelled()) && !interrupted.happened());
        assert!(!interrupted.happens());
        interrupted.also_cancels(late.clone());
        assert!(tokens.iter().all(CancelToken::is_cancelled) && interrupted.happened());
        assert!(interrupted.happens());
    }

    #[test]
    fn an_engine_that_is_stopped_while_it_loads_has_not_failed() {
        let failing = || {
            engine::spawn(|out, _| {
                out.error("no such thing", None);
                None
            })
        };
        let interrupted = Interrupt::of(CancelToken::default());
        let failed = wait_until_ready(&mut failing(), &interrupted, false).unwrap_err();
        assert_eq!((exit_code(&failed), failed.to_string().as_str()), (1, "no such thing"));
        interrupted.happens();
        let stopped = wait_until_ready(&mut failing(), &interrupted, false).unwrap_err();
        assert!(stopped.is::<Cancelled>());
    }
}
