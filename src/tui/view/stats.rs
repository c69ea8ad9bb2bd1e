//! The figures of the session, an answer a row.

use super::paint::{Canvas, centred, time};
use crate::tui::app::App;
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Break, Piece};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Draw the window.
pub fn draw(buffer: &mut Buffer, area: Rect, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let answers: Vec<_> = app.transcript.answers().filter(|(_, a)| !a.rounds.is_empty()).collect();
    let height = (answers.len() as u16 + 8).min(area.height.saturating_sub(2));
    let width = area.width.saturating_sub(4).min(92);
    let mut canvas = Canvas::new(buffer, centred(area, width, height)).window("this session", app);
    let tau = app.dress.glyphs.tau;
    let head = format!(
        "{:>3}  {:<12} {:>6} {:>7} {:>6} {:>9} {:>9}  speed",
        "#", "mode", "tokens", "tok/s", tau, "accepted", "round"
    );
    canvas.text(0, 0, &head, style(Role::Strong));
    let room = canvas.height().saturating_sub(4);
    let skip = answers.len().saturating_sub(room);
    let mut y = 1;
    for (i, (_, answer)) in answers.iter().enumerate().skip(skip) {
        let stats = &answer.stats;
        let round = stats.total_us() as f64 / stats.rounds.max(1) as f64;
        let line = format!(
            "{:>3}  {:<12} {:>6} {:>7.1} {:>6.2} {:>8.0}% {:>9}",
            i + 1,
            answer.mode.name(),
            answer.ids.len(),
            stats.decode_tok_s(),
            stats.tau(),
            stats.acceptance_rate() * 100.0,
            time(round)
        );
        let x = canvas.text(0, y, &line, style(Role::Text));
        let speed = app.plain_us(answer).and_then(|plain| stats.speedup(plain));
        if let Some(speed) = speed {
            let role = if speed < 0.98 { Role::Loss } else { Role::Gain };
            canvas.text(x + 2, y, &format!("{speed:.2}{}", app.dress.glyphs.times), style(role));
        }
        y += 1;
    }
    if answers.is_empty() {
        canvas.text(0, 1, "no answer yet", muted);
        y += 1;
    }
    let plain = match app.plain.median_us() {
        Some(us) => format!(
            "A plain step takes {} (median of the last {}); an answer's speed is relative to what one \
             took when it ended.",
            time(us),
            app.plain.count()
        ),
        None => "No plain step was seen yet: answer once in baseline mode to compare.".into(),
    };
    let line = [Piece::new(plain, muted)];
    for row in wrap::wrap(&line, canvas.width(), Break::Words) {
        y += 1;
        canvas.row(0, y, &row);
    }
}
