//! `dflash-chat demo`: a playlist on the screen, by itself.

use super::options::{Asked, ConversationOptions, DecodeOptions, ModelOptions};
use super::{needs_screen, start_engine};
use crate::record::demo::{PLAYLISTS, Playlist};
use crate::tui;
use anyhow::Result;
use clap::Args;
use std::io::Write;

/// Options of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// A playlist that ships with the program, or a playlist's file
    #[arg(default_value = "tour", value_name = "NAME|FILE")]
    playlist: String,
    /// List the playlists that ship with the program
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    model: ModelOptions,
}

/// Run the command.
pub fn run(args: &DemoArgs) -> Result<()> {
    if args.list {
        return list();
    }
    let playlist = Playlist::open(&args.playlist)?;
    needs_screen("the demo", "dflash-chat replay --demo")?;
    let (decode, conversation) = (DecodeOptions::default(), ConversationOptions::default());
    let asked = Asked::new(&args.model, &decode, &conversation)?;
    let options = tui::ScreenOptions { demo: Some(playlist), ..asked.screen() };
    tui::run(options, |request| start_engine(&asked.with_pair(&request.pair)))
}

fn list() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for (name, _) in PLAYLISTS {
        let playlist = Playlist::open(name)?;
        writeln!(out, "{name:6} {}: {} items", playlist.title, playlist.item.len())?;
    }
    Ok(())
}
