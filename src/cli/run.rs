//! `dflash-chat run`: answers without a screen: one, those to a file of prompts, or the next in a
//! saved conversation.

mod printer;
mod prompts;

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{Cancelled, Interrupt, interrupt, start_engine};
use crate::chat::conversation::{Change, Conversation};
use crate::chat::store::{Saved, Store, StoreError};
use crate::engine::EngineHandle;
use crate::event::{
    ChatMessage, EngineCommand, EngineEvent, Envelope, FinishReason, Message, Prompt, Role,
};
use crate::record::Recorder;
use crate::text::sanitise;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use printer::Printer;
use std::io::Write;
use std::path::PathBuf;

/// Options of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The prompt; `-` reads it from standard input
    #[arg(required_unless_present = "prompts")]
    pub prompt: Option<String>,
    /// Answer each line of a JSONL file (`-` is standard input): {"prompt": "…"}, or
    /// {"turns": ["…", "…"]} for a conversation
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompts: Option<PathBuf>,
    /// Go on with the saved conversation of that name, or begin it
    #[arg(long, value_name = "NAME", conflicts_with = "no_chat_template")]
    pub session: Option<String>,
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
    /// Give the text to the model as it is
    #[arg(long, help_heading = "Conversation")]
    pub no_chat_template: bool,
}

/// What `run` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The answer as it comes; a summary on stderr if that is a terminal
    Text,
    /// One object when the answer is done (one a line for several prompts)
    Json,
    /// Every event, one object a line
    Jsonl,
}

/// Run the command. Returns an error that `main` turns into an exit code.
pub fn run(args: &RunArgs) -> Result<()> {
    let asks = match (&args.prompts, &args.prompt) {
        (Some(file), _) => prompts::from_file(file)?,
        (None, prompt) => vec![prompts::single(prompt.as_deref().unwrap_or("-"))?],
    };
    let asked = Asked::new(&args.model, &args.decode, &args.conversation)?;
    asked.check()?;
    let several = args.prompts.is_some();
    let mut talk = match &args.session {
        Some(name) => {
            let opened = Store::new(asked.paths.sessions()).open_or_begin(name)?;
            for notice in &opened.notices {
                warn(notice)?;
            }
            Talk::Saved(Box::new(opened.saved))
        }
        None => Talk::Unsaved(Box::default()),
    };
    let first = || Prompt::Text(asks[0].turns[0].clone());
    let recorder =
        |path: &PathBuf| Recorder::create(path, Some(asked.generate(first())), &args.origin);
    let recorder = args.record.as_ref().map(recorder).transpose()?;
    let mut engine = start_engine(&asked);
    let interrupted = interrupt(engine.cancel.clone())?;
    let printer = Printer::new(args.format);
    let plain = args.no_chat_template;
    let mut runner = Runner { asked, plain, interrupted, printer, recorder };
    let ready = runner.wait_until_ready(&mut engine)?;

    let mut failed = 0;
    let of = asks.len();
    for ask in asks {
        runner.printer.line = several.then_some(ask.line);
        if args.session.is_none() {
            talk = Talk::Unsaved(Box::default());
        }
        talk.happens(&ready)?;
        // A conversation keeps its instructions unless the person gives others.
        let given = runner.asked.settings.values.system.is_some();
        if given || talk.conversation().turns.is_empty() {
            talk.happens(&Change::System { text: runner.asked.system() })?;
        }
        let outcome =
            ask.turns.into_iter().try_for_each(|text| runner.answer(&mut engine, &mut talk, text));
        match outcome {
            Err(error) if several && !error.is::<Cancelled>() => {
                failed += 1;
                warn(&format!("line {}: {error:#}", ask.line))?;
            }
            outcome => outcome?,
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {of} prompts failed"),
    }
}

/// The conversation that begins with `text`.
pub(super) fn first_prompt(text: String, system: Option<String>, plain: bool) -> Prompt {
    if plain {
        return Prompt::Text(text);
    }
    let system = system.map(|system| ChatMessage::new(Role::System, system));
    let user = ChatMessage::new(Role::User, text);
    Prompt::Messages(system.into_iter().chain([user]).collect())
}

/// The prompt of the command line, or standard input for `-`.
pub(super) fn read_prompt(prompt: &str) -> Result<String> {
    Ok(prompts::single(prompt)?.turns.concat())
}

fn warn(text: &str) -> Result<()> {
    writeln!(std::io::stderr(), "{}", sanitise(text))?;
    Ok(())
}

/// The conversation that prompts belong to.
enum Talk {
    Unsaved(Box<Conversation>),
    Saved(Box<Saved>),
}

impl Talk {
    fn conversation(&self) -> &Conversation {
        match self {
            Talk::Unsaved(conversation) => conversation,
            Talk::Saved(saved) => saved.conversation(),
        }
    }

    fn happens(&mut self, change: &Change) -> Result<(), StoreError> {
        match self {
            Talk::Unsaved(conversation) => {
                conversation.apply(change);
                Ok(())
            }
            Talk::Saved(saved) => saved.record(change),
        }
    }
}

/// Asks the engine and prints what it says.
struct Runner {
    asked: Asked,
    plain: bool,
    interrupted: Interrupt,
    printer: Printer,
    recorder: Option<Recorder>,
}

impl Runner {
    /// Wait for the models, whose names say whether a conversation's ids are theirs.
    fn wait_until_ready(&mut self, engine: &mut EngineHandle) -> Result<Change> {
        let mut failure = None;
        while let Some(envelope) = engine.next_blocking() {
            self.tell(&envelope)?;
            match &envelope.event {
                EngineEvent::ModelReady(_) => {
                    if let Some(change) = Change::of(&envelope.event) {
                        return Ok(change);
                    }
                }
                EngineEvent::Error(message) => failure = Some(message.clone()),
                _ => {}
            }
        }
        self.printer.end()?;
        Err(self.why(failure))
    }

    /// Say `text`, and print the answer.
    fn answer(&mut self, engine: &mut EngineHandle, talk: &mut Talk, text: String) -> Result<()> {
        if self.interrupted.happened() {
            return Err(Cancelled.into());
        }
        talk.happens(&Change::User { text: text.clone() })?;
        let prompt = match self.plain {
            true => Prompt::Text(text),
            false => Prompt::Messages(talk.conversation().messages()),
        };
        engine.send(EngineCommand::Generate(Box::new(self.asked.generate(prompt))));

        let mut saved = Ok(());
        let (mut failure, mut finished, mut begun) = (None, None, false);
        while let Some(envelope) = engine.next_blocking() {
            // First on the disk, then on the screen: what was seen is never lost.
            if let Some(change) = Change::of(&envelope.event) {
                saved = saved.and(talk.happens(&change));
            }
            self.tell(&envelope)?;
            match envelope.event {
                EngineEvent::PrefillDone { .. } => begun = true,
                // An answer that has begun is always finished, one that has not never is.
                EngineEvent::Error(message) => failure = Some(message),
                EngineEvent::RunFinished { reason, .. } => finished = Some(reason),
                _ => {}
            }
            if finished.is_some() || (failure.is_some() && !begun) {
                break;
            }
        }
        self.printer.end()?;
        if !begun && let Some((undo, _)) = talk.conversation().undo() {
            saved = saved.and(talk.happens(&undo));
        }
        if self.interrupted.happened() || finished == Some(FinishReason::Cancelled) {
            return Err(Cancelled.into());
        }
        if failure.is_some() || finished.is_none() {
            return Err(self.why(failure));
        }
        Ok(saved?)
    }

    fn tell(&mut self, envelope: &Envelope) -> Result<()> {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(envelope)?;
        }
        self.printer.print(envelope)
    }

    /// Why there is no answer.
    fn why(&self, failure: Option<Message>) -> anyhow::Error {
        match failure {
            _ if self.interrupted.happened() => Cancelled.into(),
            Some(message) => super::engine_error(&message),
            None => anyhow::anyhow!("the engine ended without an answer"),
        }
    }
}
