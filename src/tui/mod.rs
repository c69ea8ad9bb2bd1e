//! The screen: keys become actions, actions and engine events change [`app::App`], and
//! [`view::draw`] shows it. [`run`] wires that to a terminal and an engine; [`run_loop`] is the
//! same loop for any backend and any source of input, which is how the tests run it.

pub mod action;
pub mod app;
pub mod caps;
pub mod commands;
mod composer;
mod editor;
mod effect;
mod events;
mod frame;
mod ghosts;
pub mod glyphs;
mod highlight;
mod history;
pub mod keymap;
mod markdown;
pub mod picture;
mod run;
mod scroll;
mod shelf;
mod terminal;
#[cfg(test)]
mod testing;
pub mod theme;
mod transcript;
mod view;
mod wrap;

pub use app::{OwnSettings, PairChoice, Replay};
pub use caps::{Caps, ColorChoice, Depth, GlyphChoice};
pub use events::EventSource;
pub use run::{EngineRequest, ScreenOptions, new_app, run, run_loop};
pub use shelf::Shelf;
pub use terminal::ScreenBackend;
pub use view::LEAST;
