//! The caption of a demo, in the place of the composer.

use super::paint::Canvas;
use crate::tui::app::{App, Demo};
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Break, Piece, Row};
use ratatui::layout::Rect;

/// Lines longer than this are hard to read.
const WIDEST: u16 = 100;

/// Rows that the caption takes, the rule above it included.
pub fn height(demo: &Demo, area: Rect, app: &App) -> u16 {
    let rows = rows(demo, area.width, app).len() as u16 + 1;
    rows.min(area.height / 3)
}

/// Draw the caption.
pub fn draw(canvas: &mut Canvas<'_>, demo: &Demo, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let (item, items) = demo.place();
    let title = [
        Piece::new(demo.title(), style(Role::Title)),
        Piece::new(format!("  {item} of {items}"), style(Role::Muted)),
    ];
    canvas.rule(0, &title, app);
    for (y, row) in rows(demo, canvas.area().width, app).iter().enumerate() {
        canvas.row(1, 1 + y, row);
    }
}

fn rows(demo: &Demo, width: u16, app: &App) -> Vec<Row> {
    let caption = crate::text::sanitise_line(demo.caption());
    let line = [Piece::new(caption, app.dress.theme.style(Role::Strong))];
    wrap::wrap(&line, usize::from(width.saturating_sub(2).min(WIDEST)), Break::Words)
}
