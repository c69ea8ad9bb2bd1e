//! A list to choose from.

use super::paint::{Canvas, centred};
use crate::tui::app::{App, Picker};
use crate::tui::theme::Role;
use crate::tui::wrap;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Draw the open list.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App, picker: &Picker) {
    let style = |role| app.dress.theme.style(role);
    let ellipsis = app.dress.glyphs.ellipsis;
    let rows = u16::try_from(picker.entries.len()).unwrap_or(u16::MAX).saturating_add(4);
    let height = rows.min(area.height.saturating_sub(4));
    let width = area.width.saturating_sub(8).min(84);
    let area = centred(area, width, height);
    let mut canvas = Canvas::new(buffer, area).window(picker.title(), app);
    let name = picker.entries.iter().map(|entry| wrap::width(&entry.name)).max().unwrap_or(0);
    let name = name.min(40);
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
    let help = "Enter takes, Esc leaves";
    let help = match picker.query() {
        None => help.to_string(),
        Some("") => format!("type to search; {help}"),
        Some(query) => format!("with \"{query}\": {}; {help}", picker.entries.len()),
    };
    canvas.text(0, last, &help, style(Role::Muted));
}
