//! The message that is being written, and the popup of commands above it.

use super::paint::Canvas;
use crate::tui::app::{App, REPLAY_KEYS};
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Piece, Row};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::Widget;

/// Cells left of the text: the prompt.
const LEFT: u16 = 3;
/// Cells of a command's name and arguments in the popup.
const NAME: usize = 29;

/// Draw the composer; returns where the terminal's cursor belongs.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &mut App) -> Position {
    let style = |role| app.dress.theme.style(role);
    let mut canvas = Canvas::new(buffer, area);
    let editing = app.editing.map(|turn| format!("editing message {}", turn + 1));
    let title: Row = editing.map(|text| Piece::new(text, style(Role::Title))).into_iter().collect();
    canvas.rule(0, &title, app);
    let prompt = if app.busy() { Role::Muted } else { Role::User };
    canvas.text(1, 1, app.dress.glyphs.prompt, style(prompt));
    if app.composer.area.is_empty() {
        let hint = if app.replay.is_some() {
            REPLAY_KEYS
        } else if app.busy() {
            "you can write the next message meanwhile"
        } else {
            "write a message, or / for commands"
        };
        canvas.text(usize::from(LEFT), 1, hint, style(Role::Muted));
        return Position::new(area.x + LEFT, area.y + 1);
    }
    let inner = Rect {
        x: area.x + LEFT,
        y: area.y + 1,
        width: area.width.saturating_sub(LEFT + 2),
        height: area.height.saturating_sub(1),
    }
    .intersection(buffer.area);
    app.composer.fill(usize::from(inner.width), usize::from(inner.height));
    app.composer.area.render(inner, buffer);
    buffer.set_style(inner, app.dress.theme.style(Role::Text));
    let cursor = app.composer.area.screen_cursor();
    let (top, left) = app.composer.area.scroll_offset();
    let x = (cursor.col.saturating_sub(usize::from(left))).min(usize::from(inner.width)) as u16;
    let y = (cursor.row.saturating_sub(usize::from(top))) as u16;
    Position::new(inner.x + x, inner.y + y.min(inner.height.saturating_sub(1)))
}

/// The commands that what is written may become, above the composer.
pub fn popup(buffer: &mut Buffer, composer: Rect, app: &App) {
    let all = app.composer.popup();
    if all.is_empty() {
        return;
    }
    let style = |role| app.dress.theme.style(role);
    let room = usize::from(composer.y.saturating_sub(3)).min(10);
    let chosen = app.composer.chosen();
    let first = (chosen + 1).saturating_sub(room);
    let shown = &all[first..all.len().min(first + room)];
    let height = shown.len() as u16 + 2;
    let area = Rect {
        x: composer.x + 1,
        y: composer.y.saturating_sub(height),
        width: composer.width.saturating_sub(2).min(78),
        height,
    };
    let mut canvas = Canvas::new(buffer, area).window("commands", app);
    let width = canvas.width();
    let ellipsis = app.dress.glyphs.ellipsis;
    for (y, line) in shown.iter().enumerate() {
        let name = format!("{} {}", line.text, line.args);
        let help = &line.help;
        let line =
            wrap::fit(&format!("{} {help}", wrap::fit(&name, NAME, ellipsis)), width, ellipsis);
        let base = style(Role::Text);
        if first + y == chosen {
            canvas.text(0, y, &line, base.patch(style(Role::Selection)));
        } else {
            let x = canvas.text(0, y, &wrap::fit(&name, NAME, ellipsis), style(Role::Key));
            let help = wrap::truncate(help, width.saturating_sub(x + 1), ellipsis);
            canvas.text(x + 1, y, &help, style(Role::Muted));
        }
    }
}
