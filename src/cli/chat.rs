//! `dflash-chat`: the chat.

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{needs_screen, start_engine};
use crate::catalog::fit::{self, free_on_device};
use crate::catalog::{self, Store};
use crate::chat::store::Store as Conversations;
use crate::engine::load::{DEFAULT_CONTEXT, LoadRequest};
use crate::event::Prompt;
use crate::text::sanitise_line;
use crate::tui::{self, OwnSettings, PairChoice, ScreenOptions};
use anyhow::Result;
use clap::Args;
use std::collections::BTreeMap;

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
    let mut asked = Asked::new(&args.model, &args.decode, &args.conversation)?;
    let mut notices = vec![];
    if args.resume {
        match as_before(&asked) {
            Ok(before) => asked = before.unwrap_or(asked),
            Err(notice) => notices.push(notice),
        }
    }
    let options = ScreenOptions {
        notices,
        pairs: choices(&asked),
        own: own_settings(&asked),
        sessions: Some(asked.paths.sessions()),
        resume: args.resume,
        history: Some(asked.paths.data.join("prompts.jsonl")),
        ..asked.screen()
    };
    tui::run(options, |request| start_engine(&asked.with_pair(&request.pair)))
}

/// What to ask for so that the last conversation goes on with the models that made it; `None`
/// where the settings name them, or the person asks for others now (the screen says so then).
/// An error says why they cannot be had.
fn as_before(asked: &Asked) -> Result<Option<Asked>, String> {
    let last = Conversations::new(asked.paths.sessions()).latest();
    let Some(models) = last.map(|last| last.models).filter(|models| !models.pair.is_empty()) else {
        return Ok(None);
    };
    let pair = &models.pair;
    let LoadRequest { selection: named, store, .. } = asked.load_request();
    // A pair's name is known of its files too, so it is compared as it is found.
    let same = named.target == models.target_asked
        && named.draft == models.draft_asked
        && catalog::resolve(&named, &store).is_ok_and(|found| found.name == *pair);
    if same || asked.pair_is_asked_for() || asked.scripted() {
        return Ok(None);
    }
    let (target, draft) = (models.target_asked.as_deref(), models.draft_asked.as_deref());
    let before = asked.with_models(pair, target, draft);
    let request = before.load_request();
    let why = match catalog::resolve(&request.selection, &request.store) {
        Ok(found) if found.missing.is_empty() => return Ok(Some(before)),
        Ok(_) => format!("is not on this machine (`dflash-chat models pull {pair}` fetches it)"),
        Err(error) => format!("cannot be had: {error}"),
    };
    Err(sanitise_line(&format!("{pair}, which made this conversation, {why}")))
}

/// The pairs that `/pair` offers, with what a person wants to know before choosing.
fn choices(asked: &Asked) -> Vec<PairChoice> {
    let store = Store::from_env(&asked.paths);
    let request = asked.load_request();
    let free = free_on_device(request.place.may_be_gpu());
    let context = asked.settings.values.ctx.unwrap_or(DEFAULT_CONTEXT) as u64;
    let quantise = request.quantise;
    catalog::pairs()
        .iter()
        .map(|pair| PairChoice {
            name: pair.name.clone(),
            about: format!("{}, {} ({})", pair.title, pair.licence, store.state(pair).name()),
            fits: free.is_none_or(|free| fit::warning(pair, free, context, quantise).is_none()),
        })
        .collect()
}

/// The settings that come with each pair.
fn own_settings(asked: &Asked) -> BTreeMap<String, OwnSettings> {
    let names = catalog::pairs().iter().map(|pair| pair.name.clone());
    names
        .chain([asked.pair()])
        .map(|name| {
            let with = asked.with_pair(&name);
            let generate = with.generate(Prompt::Messages(Vec::new()));
            (name, OwnSettings { generate, system: with.system() })
        })
        .collect()
}
