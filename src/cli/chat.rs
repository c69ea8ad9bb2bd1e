//! `dflash-chat`: the chat.

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{needs_screen, start_engine};
use crate::catalog::fit::{self, free_memory};
use crate::catalog::{self, Store};
use crate::chat::store::Store as Conversations;
use crate::engine::load::DEFAULT_CONTEXT;
use crate::text::sanitise_line;
use crate::tui::{self, PairChoice, ScreenOptions};
use anyhow::Result;
use clap::Args;

/// Options of the chat.
#[derive(Debug, Clone, Args)]
pub struct ChatArgs {
    /// Go on with the last conversation
    #[arg(long = "continue", conflicts_with_all = ["system", "system_file"])]
    pub resume: bool,
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

/// Open the chat.
pub fn run(args: &ChatArgs) -> Result<()> {
    needs_screen("the chat", "dflash-chat run PROMPT")?;
    let asked = Asked::new(&args.model, &args.decode, &args.conversation)?;
    let resumed = if args.resume { pair_to_resume(&asked) } else { Resumed::default() };
    let options = ScreenOptions {
        pair: resumed.pair.unwrap_or_else(|| asked.pair()),
        notices: resumed.notice.into_iter().collect(),
        pairs: choices(&asked),
        sessions: Some(asked.paths.sessions()),
        resume: args.resume,
        history: Some(asked.paths.data.join("prompts.jsonl")),
        ..asked.screen()
    };
    tui::run(options, |request| start_engine(&asked.with_pair(&request.pair)))
}

/// What a conversation that goes on has to say about the pair.
#[derive(Debug, Default)]
struct Resumed {
    /// The pair to start with, where it is not the one that the settings name.
    pair: Option<String>,
    /// What the person should know of that.
    notice: Option<String>,
}

/// The last conversation goes on with the pair that made it, unless the person asks for another
/// one now (the screen says so then), or it is not on this machine.
fn pair_to_resume(asked: &Asked) -> Resumed {
    let last = Conversations::new(asked.paths.sessions()).latest();
    let pair = last.map(|last| last.models.pair).unwrap_or_default();
    if pair.is_empty() || pair == asked.pair() || asked.pair_is_asked_for() || asked.scripted() {
        return Resumed::default();
    }
    let request = asked.with_pair(&pair).load_request();
    let why = match catalog::resolve(&request.selection, &request.store) {
        Ok(found) if found.missing.is_empty() => {
            return Resumed { pair: Some(pair), notice: None };
        }
        Ok(_) => format!("is not on this machine (`dflash-chat models pull {pair}` fetches it)"),
        Err(error) => format!("cannot be had: {error}"),
    };
    let notice = format!("{pair}, which made this conversation, {why}");
    Resumed { pair: None, notice: Some(sanitise_line(&notice)) }
}

/// The pairs that `/pair` offers, with what a person wants to know before choosing.
fn choices(asked: &Asked) -> Vec<PairChoice> {
    let store = Store::from_env(&asked.paths);
    let free = free_memory();
    let context = asked.settings.values.ctx.unwrap_or(DEFAULT_CONTEXT) as u64;
    let quantise = asked.load_request().quantise;
    catalog::pairs()
        .iter()
        .map(|pair| PairChoice {
            name: pair.name.clone(),
            about: format!("{}, {} ({})", pair.title, pair.licence, store.state(pair).name()),
            fits: free.is_none_or(|free| fit::warning(pair, free, context, quantise).is_none()),
        })
        .collect()
}
