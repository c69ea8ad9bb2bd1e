//! How the slots of a block look: both layouts of the round are made from this.

use crate::event::Round;
use crate::slots::{self, Fate, Slot};
use crate::tui::app::App;
use crate::tui::glyphs::Glyphs;
use crate::tui::theme::Role;
use ratatui::style::Style;

/// How what became of a slot looks.
pub fn role(fate: Fate) -> Role {
    match fate {
        Fate::Anchor => Role::Anchor,
        Fate::Accepted => Role::Accepted,
        Fate::Rejected => Role::Rejected,
        Fate::Discarded => Role::Discarded,
        Fate::Unsent => Role::Unsent,
        Fate::Bonus => Role::Bonus,
        Fate::Plain => Role::Plain,
        Fate::Open => Role::Draft,
    }
}

/// The mark of what became of a slot.
pub fn glyph(fate: Fate, glyphs: &Glyphs) -> &'static str {
    match fate {
        Fate::Anchor => glyphs.anchor,
        Fate::Accepted => glyphs.accepted,
        Fate::Rejected => glyphs.rejected,
        Fate::Discarded => glyphs.discarded,
        Fate::Unsent => glyphs.unsent,
        Fate::Bonus | Fate::Plain => glyphs.bonus,
        Fate::Open => "?",
    }
}

/// A mark keeps its colour but is never struck through or underlined.
pub fn mark(fate: Fate, app: &App) -> Style {
    let fg = app.dress.theme.style(role(fate)).fg;
    Style { fg, ..Style::default() }
}

/// The slots of the shown round, the anchor first. What is not known yet of a round that is
/// under way is a blank to be filled.
pub fn shown(round: &Round, app: &App) -> Vec<Slot> {
    let show = |text: &str| app.dress.glyphs.visible(text);
    let Some(phase) = app.phase() else { return slots::slots(round, show) };
    let mut slots = slots::slots_in(round, phase, show);
    let blank = app.dress.glyphs.bar[1].repeat(3);
    for slot in slots.iter_mut().filter(|slot| slot.fate == Fate::Open && slot.draft.is_none()) {
        slot.draft = Some(blank.clone());
    }
    slots
}

/// What the shown round did or does, and what that brought.
pub fn words(round: &Round, app: &App) -> (String, String) {
    if let Some(phase) = app.phase() {
        return (slots::doing_in_words(round, phase), String::new());
    }
    let committed = round.committed.len();
    let s = if committed == 1 { "" } else { "s" };
    (slots::in_words(round), format!(" = {committed} token{s}"))
}
