//! `dflash-chat`: the chat.

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{needs_screen, start_engine};
use crate::catalog::fit::{self, free_memory};
use crate::catalog::{self, Store};
use crate::engine::load::DEFAULT_CONTEXT;
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
    let options = ScreenOptions {
        pairs: choices(&asked),
        sessions: Some(asked.paths.sessions()),
        resume: args.resume,
        history: Some(asked.paths.data.join("prompts.jsonl")),
        ..asked.screen()
    };
    tui::run(options, |request| start_engine(&asked.with_pair(&request.pair)))
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
