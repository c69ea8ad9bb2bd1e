//! The panel beside the transcript: which one, and its name.

use super::paint::Canvas;
use super::{cost, round, timeline};
use crate::tui::app::{App, Panel};
use crate::tui::theme::Role;
use crate::tui::wrap::{Piece, Row};

/// Draw the chosen panel.
pub fn draw(canvas: &mut Canvas<'_>, app: &App) {
    let cells = canvas.width().saturating_sub(2);
    match app.panel {
        Panel::Round | Panel::Hidden => round::draw(canvas, app),
        Panel::Timeline => {
            titled(canvas, "Timeline", timeline(cells, canvas.height() >= 24, app), app)
        }
        Panel::Cost => titled(canvas, "Cost", cost::rows(cells, app), app),
    }
}

/// The timeline of the answer whose round is shown.
pub fn timeline(cells: usize, tall: bool, app: &App) -> Vec<Row> {
    match app.shown_round() {
        Some((answer, _, _)) => timeline::rows(answer, cells, tall, app),
        None => vec![vec![Piece::new("no round yet", app.dress.theme.style(Role::Muted))]],
    }
}

fn titled(canvas: &mut Canvas<'_>, title: &str, rows: Vec<Row>, app: &App) {
    canvas.text(1, 0, title, app.dress.theme.style(Role::Title));
    for (y, row) in rows.iter().enumerate() {
        canvas.row(1, y + 2, row);
    }
}
