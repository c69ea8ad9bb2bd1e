//! A list to choose from.

use super::paint::{Canvas, centred};
use crate::text::sanitise_line;
use crate::tui::action::Action;
use crate::tui::app::{App, Picker};
use crate::tui::theme::Role;
use crate::tui::wrap;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_segmentation::UnicodeSegmentation;

/// Draw the open list.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, picker: &Picker) {
    let style = |role| app.dress.theme.style(role);
    let ellipsis = app.dress.glyphs.ellipsis;
    let rows = u16::try_from(picker.entries.len()).unwrap_or(u16::MAX).saturating_add(4);
    let height = rows.min(area.height.saturating_sub(4));
    let width = area.width.saturating_sub(4).min(84);
    let area = centred(area, width, height);
    let mut canvas = Canvas::new(buffer, area).window(picker.title(), app);
    let name = picker.entries.iter().map(|entry| wrap::width(&entry.name)).max().unwrap_or(0);
    let name = name.min(40).min(canvas.width() * 3 / 5);
    let room = canvas.height().saturating_sub(2);
    let first = (picker.chosen + 1).saturating_sub(room);
    for (y, entry) in picker.entries.iter().enumerate().skip(first).take(room) {
        let title = wrap::fit(&entry.name, name, ellipsis);
        let about = wrap::fit(&entry.about, canvas.width().saturating_sub(name + 2), ellipsis);
        let row = y - first;
        if y == picker.chosen {
            let chosen = style(Role::Text).patch(style(Role::Selection));
            canvas.text(0, row, &format!("{title}  {about}"), chosen);
        } else {
            let role = if entry.fits { Role::Key } else { Role::Muted };
            let x = canvas.text(0, row, &title, style(role));
            canvas.text(x + 2, row, &about, style(Role::Muted));
        }
    }
    let last = canvas.height().saturating_sub(1);
    if let Some(title) = picker.naming() {
        let x = canvas.text(0, last, "title: ", style(Role::Key));
        // The end is where one writes.
        let room = canvas.width().saturating_sub(x + 1);
        let (mut start, mut left) = (title.len(), room);
        for (at, grapheme) in title.grapheme_indices(true).rev() {
            let Some(after) = left.checked_sub(wrap::width(grapheme)) else { break };
            (start, left) = (at, after);
        }
        let x = canvas.text(x, last, &sanitise_line(&title[start..]), style(Role::Text));
        canvas.text(x, last, " ", style(Role::Selection));
        return;
    }
    let key = |action| app.keymap.hint(action);
    let help = match picker.query() {
        None => "Enter takes, Esc leaves".to_string(),
        Some(query) => {
            let found = match query {
                "" => "type to search".to_string(),
                query => format!("with \"{}\": {}", sanitise_line(query), picker.entries.len()),
            };
            let [delete, undo, rename] =
                [Action::DeleteForward, Action::Undo, Action::Rename].map(key);
            let keys = format!("{delete} deletes, {undo} brings back, {rename} renames");
            let whole = format!("{found}; {keys}");
            if wrap::width(&whole) > canvas.width() { keys } else { whole }
        }
    };
    canvas.text(0, last, &wrap::truncate(&help, canvas.width(), ellipsis), style(Role::Muted));
}
