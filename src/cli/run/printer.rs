//! What `run` prints.

use super::Format;
use crate::event::{
    EngineEvent, Envelope, FinishReason, Level, Message, ModelReady, RunStarted, Totals,
};
use crate::text::sanitise;
use anyhow::Result;
use std::io::{IsTerminal, Write};

/// The object that `--format json` prints.
#[derive(serde::Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    text: &'a str,
    ids: &'a [u32],
    reason: &'a FinishReason,
    model: Option<&'a ModelReady>,
    run: Option<&'a RunStarted>,
    totals: &'a Totals,
}

/// Prints events in one of the formats.
pub(super) struct Printer {
    format: Format,
    /// The line of the file that asked, where there are several prompts: objects on one line
    /// each, a blank line between texts.
    pub(super) line: Option<usize>,
    answers: usize,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    text: String,
    ids: Vec<u32>,
    model: Option<ModelReady>,
    run: Option<RunStarted>,
    progress_shown: bool,
}

impl Printer {
    pub(super) fn new(format: Format) -> Self {
        Printer {
            format,
            line: None,
            answers: 0,
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            text: String::new(),
            ids: Vec::new(),
            model: None,
            run: None,
            progress_shown: false,
        }
    }

    pub(super) fn print(&mut self, envelope: &Envelope) -> Result<()> {
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
            EngineEvent::RunStarted(run) => {
                self.text.clear();
                self.ids.clear();
                self.run = Some((**run).clone());
                if self.line.is_some() && self.answers > 0 && self.format == Format::Text {
                    std::io::stdout().lock().write_all(b"\n")?;
                }
                self.answers += 1;
            }
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
                    line: self.line,
                    text: &self.text,
                    ids: &self.ids,
                    reason,
                    model: self.model.as_ref(),
                    run: self.run.as_ref(),
                    totals,
                };
                let mut out = std::io::stdout().lock();
                match self.line.is_some() {
                    true => serde_json::to_writer(&mut out, &answer)?,
                    false => serde_json::to_writer_pretty(&mut out, &answer)?,
                }
                out.write_all(b"\n")?;
                out.flush()?;
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

    pub(super) fn end(&mut self) -> Result<()> {
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
