//! `dflash-chat run`: one answer, no screen.

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{Cancelled, interrupt, start_engine};
use crate::event::{
    ChatMessage, EngineCommand, EngineEvent, Envelope, FinishReason, Level, Message, ModelReady,
    Prompt, Role, RunStarted, Totals,
};
use crate::record::Recorder;
use crate::text::sanitise;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

/// Options of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The prompt; `-` reads it from standard input
    pub prompt: String,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Also record every event in a new file, for `dflash-chat replay`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Where a recording comes from, in words, for its header
    #[arg(long, value_name = "TEXT", requires = "record", default_value = "dflash-chat run")]
    pub origin: String,
    /// Model options.
    #[command(flatten)]
    pub model: ModelOptions,
    /// Decoding options.
    #[command(flatten)]
    pub decode: DecodeOptions,
    /// Conversation options.
    #[command(flatten)]
    pub conversation: ConversationOptions,
}

/// What `run` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The answer as it comes; a summary on stderr if that is a terminal
    Text,
    /// One object when the answer is done
    Json,
    /// Every event, one object a line
    Jsonl,
}

/// The object that `--format json` prints.
#[derive(serde::Serialize)]
struct Answer<'a> {
    text: &'a str,
    ids: &'a [u32],
    reason: &'a FinishReason,
    model: Option<&'a ModelReady>,
    run: Option<&'a RunStarted>,
    totals: &'a Totals,
}

/// The conversation that begins with `text`.
pub(super) fn first_prompt(text: String, system: Option<String>, plain: bool) -> Prompt {
    if plain {
        return Prompt::Text(text);
    }
    let mut messages = Vec::new();
    messages.extend(system.map(|system| ChatMessage::new(Role::System, system)));
    messages.push(ChatMessage::new(Role::User, text));
    Prompt::Messages(messages)
}

/// Run the command. Returns an error that `main` turns into an exit code.
pub fn run(args: &RunArgs) -> Result<()> {
    let text = read_prompt(&args.prompt)?;
    let asked = Asked::new(&args.model, &args.decode, &args.conversation)?;
    let prompt = first_prompt(text, asked.system(), args.conversation.no_chat_template);
    let request = asked.generate(prompt);
    let recorder = |path: &PathBuf| Recorder::create(path, Some(request.clone()), &args.origin);
    let mut recorder = args.record.as_ref().map(recorder).transpose()?;
    let mut engine = start_engine(&asked);
    let interrupted = interrupt(engine.cancel.clone())?;
    engine.send(EngineCommand::Generate(Box::new(request)));

    let mut printer = Printer::new(args.format);
    let mut failure = None;
    let mut finished = None;
    while let Some(envelope) = engine.next_blocking() {
        if let Some(recorder) = &mut recorder {
            recorder.record(&envelope)?;
        }
        printer.print(&envelope)?;
        match envelope.event {
            EngineEvent::Error(message) => failure = Some(message),
            EngineEvent::RunFinished { reason, .. } => {
                finished = Some(reason);
                break;
            }
            _ => {}
        }
        if failure.is_some() {
            break;
        }
    }
    printer.end()?;
    if interrupted.happened() || finished == Some(FinishReason::Cancelled) {
        return Err(Cancelled.into());
    }
    match (failure, finished) {
        (Some(message), _) => Err(super::engine_error(&message)),
        (None, Some(_)) => Ok(()),
        (None, None) => bail!("the engine ended without an answer"),
    }
}

/// The prompt of the command line, or standard input for `-`.
pub(super) fn read_prompt(prompt: &str) -> Result<String> {
    if prompt != "-" {
        return Ok(prompt.to_owned());
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    let text = String::from_utf8(bytes).context("the prompt on standard input is not UTF-8")?;
    if text.trim().is_empty() {
        bail!("standard input was empty; give the prompt there or as an argument");
    }
    Ok(text)
}

/// Prints events in one of the formats.
struct Printer {
    format: Format,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    text: String,
    ids: Vec<u32>,
    model: Option<ModelReady>,
    run: Option<RunStarted>,
    progress_shown: bool,
}

impl Printer {
    fn new(format: Format) -> Self {
        Printer {
            format,
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            text: String::new(),
            ids: Vec::new(),
            model: None,
            run: None,
            progress_shown: false,
        }
    }

    fn print(&mut self, envelope: &Envelope) -> Result<()> {
        if self.format == Format::Jsonl {
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, envelope)?;
            out.write_all(b"\n")?;
            out.flush()?;
            return Ok(());
        }
        match &envelope.event {
            EngineEvent::LoadProgress { stage, done, total } => {
                self.progress(stage, *done, *total)?
            }
            EngineEvent::ModelReady(ready) => {
                self.clear_progress()?;
                if let Some(why) = &ready.draft_missing {
                    self.notice(&Message {
                        level: Level::Warning,
                        message: format!("plain decoding: {why}"),
                        hint: None,
                    })?;
                }
                self.model = Some((**ready).clone());
            }
            EngineEvent::RunStarted(run) => self.run = Some((**run).clone()),
            EngineEvent::PrefillDone { first, text, .. } => {
                self.ids.push(first.id);
                self.text(text)?;
            }
            EngineEvent::Round(round) => {
                self.ids.extend(round.committed.iter().map(|token| token.id));
                self.text(&round.text)?;
            }
            EngineEvent::RunFinished { reason, totals } => self.finished(reason, totals)?,
            EngineEvent::Notice(message) => {
                self.clear_progress()?;
                self.notice(message)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.text.push_str(text);
        if self.format == Format::Text {
            let mut out = std::io::stdout().lock();
            // What drives a terminal is made visible on one, and is data in a pipe.
            let shown = if self.stdout_is_terminal { sanitise(text) } else { text.into() };
            out.write_all(shown.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    fn finished(&mut self, reason: &FinishReason, totals: &Totals) -> Result<()> {
        match self.format {
            Format::Json => {
                let answer = Answer {
                    text: &self.text,
                    ids: &self.ids,
                    reason,
                    model: self.model.as_ref(),
                    run: self.run.as_ref(),
                    totals,
                };
                let mut out = std::io::stdout().lock();
                serde_json::to_writer_pretty(&mut out, &answer)?;
                out.write_all(b"\n")?;
            }
            Format::Text => {
                let mut out = std::io::stdout().lock();
                if !self.text.ends_with('\n') {
                    out.write_all(b"\n")?;
                }
                out.flush()?;
                if self.stderr_is_terminal {
                    writeln!(std::io::stderr(), "{}", summary(self.run.as_ref(), reason, totals))?;
                }
            }
            Format::Jsonl => {}
        }
        Ok(())
    }

    fn progress(&mut self, stage: &str, done: u64, total: u64) -> Result<()> {
        if self.stderr_is_terminal {
            let percent = (done * 100).checked_div(total);
            let percent = percent.map(|p| format!(" {p:3} %")).unwrap_or_default();
            write!(std::io::stderr(), "\r\x1b[2K{}{percent}", sanitise(stage))?;
            std::io::stderr().flush()?;
            self.progress_shown = true;
        }
        Ok(())
    }

    fn clear_progress(&mut self) -> Result<()> {
        if std::mem::take(&mut self.progress_shown) {
            write!(std::io::stderr(), "\r\x1b[2K")?;
        }
        Ok(())
    }

    fn notice(&self, message: &Message) -> Result<()> {
        let hint = message.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        writeln!(std::io::stderr(), "{}{}", sanitise(&message.message), sanitise(&hint))?;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.clear_progress()
    }
}

/// The line after an answer.
fn summary(run: Option<&RunStarted>, reason: &FinishReason, totals: &Totals) -> String {
    let mode = run.map_or("", |run| run.mode.name());
    let tau = match totals.drafted {
        0 => String::new(),
        _ => format!(
            " · τ {:.2} · {:.0} % of drafts accepted",
            totals.tau,
            100.0 * totals.acceptance_rate
        ),
    };
    format!(
        "[{} tokens · {:.1} tok/s {mode}{tau} · first token after {:.0} ms · {}]",
        totals.tokens,
        totals.decode_tok_s,
        totals.ttft_us as f64 / 1e3,
        reason.name()
    )
}
