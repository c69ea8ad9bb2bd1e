//! The help: made from the keymap and the table of commands, so that it is always true.

use super::paint::{Canvas, centred};
use crate::tui::action::Action;
use crate::tui::app::App;
use crate::tui::commands::COMMANDS;
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Break, Piece, Row};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// What the figures mean.
const WORDS: &[(&str, &str)] = &[
    (
        "round",
        "the draft proposes a block, the target verifies it in one pass, the right beginning is kept and one token of the target's own is added",
    ),
    (
        "tau",
        "tokens a round brings on average, the target's own included (the prompt's first token is not counted)",
    ),
    (
        "pays from",
        "the tokens a round must bring to be as fast as plain steps: a round's mean time over a plain step's",
    ),
    ("by slot", "how often draft i was accepted, of the rounds in which all drafts before it were"),
    (
        "race",
        "two engines answer one prompt and take turns: the one whose clock is behind gets the next round",
    ),
    ("tok/s", "tokens a second while decoding; reading the prompt is not counted"),
];

/// Draw the help, scrolled down by `top` rows.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, top: usize) {
    let width = area.width.saturating_sub(4).min(84);
    let height = area.height.saturating_sub(2).min(60);
    let mut canvas = Canvas::new(buffer, centred(area, width, height)).window("help", app);
    let rows = rows(app, canvas.width());
    // Where not all fits, the last row says how much is left.
    let fits = rows.len() <= canvas.height();
    let room = canvas.height().saturating_sub(usize::from(!fits));
    let top = top.min(rows.len().saturating_sub(room));
    for (y, row) in rows.iter().skip(top).take(room).enumerate() {
        canvas.row(0, y, row);
    }
    if !fits {
        let text = match rows.len().saturating_sub(top + room) {
            0 => "end".into(),
            more => format!("{more} more {}", app.dress.glyphs.down),
        };
        canvas.right(room, &[Piece::new(text, app.dress.theme.style(Role::Muted))]);
    }
}

fn rows(app: &App, width: usize) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let heading = |text: &str| vec![Piece::new(text, style(Role::Strong))];
    let left = 30.min(width / 2);
    let entry = |name: String, text: &str, role| {
        let name = wrap::fit(&name, left, app.dress.glyphs.ellipsis);
        let line = [Piece::new(text, style(Role::Muted))];
        let rest = wrap::wrap(&line, width.saturating_sub(left + 1), Break::Words);
        rest.into_iter()
            .enumerate()
            .map(|(i, row)| {
                let name = if i == 0 { name.clone() } else { " ".repeat(left) };
                std::iter::once(Piece::new(name + " ", style(role))).chain(row).collect()
            })
            .collect::<Vec<Row>>()
    };
    let mut rows = vec![heading("Keys")];
    for action in Action::ALL {
        let keys = app.keymap.keys(*action).iter().map(ToString::to_string);
        let keys = keys.collect::<Vec<_>>().join(", ");
        if !keys.is_empty() {
            rows.extend(entry(keys, action.help(), Role::Key));
        }
    }
    rows.push(Row::new());
    rows.push(heading("Commands"));
    for spec in COMMANDS {
        rows.extend(entry(format!("/{} {}", spec.name, spec.args), spec.help, Role::Key));
    }
    rows.push(Row::new());
    rows.push(heading("Words"));
    for (word, meaning) in WORDS {
        rows.extend(entry((*word).to_string(), meaning, Role::Text));
    }
    rows.push(Row::new());
    let mouse = "To select text with the mouse, hold Shift (Option on a Mac), or give the mouse \
                 back to the terminal first.";
    let line = [Piece::new(mouse, style(Role::Muted))];
    rows.extend(wrap::wrap(&line, width, Break::Words));
    rows
}
