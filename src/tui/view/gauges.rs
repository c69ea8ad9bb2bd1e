//! Figures as bars: where the time of a round goes, how many tokens a round brings, whether that
//! pays.

use super::paint::{bar, column};
use crate::event::Round;
use crate::stats::RunStats;
use crate::tui::app::App;
use crate::tui::theme::Role;
use crate::tui::transcript::Answer;
use crate::tui::wrap::{self, Break, Piece, Row};

/// One round's time in `cells`: draft, verify, other, each with its own fill.
pub fn time_bar(round: &Round, cells: usize, app: &App) -> Row {
    let total = round.total_us().max(1) as f64;
    let parts = [round.draft_us, round.verify_us, round.other_us];
    let roles = [Role::Draft, Role::Verify, Role::Other];
    let mut left = cells;
    let mut row = Row::new();
    for (i, (us, role)) in parts.into_iter().zip(roles).enumerate() {
        let share = (us as f64 / total * cells as f64).round() as usize;
        let share = if i == 2 { left } else { share.min(left) };
        left -= share;
        let fill = app.dress.glyphs.fills[i].repeat(share);
        row.push(Piece::new(fill, app.dress.theme.style(role)));
    }
    row
}

/// What the fills of [`time_bar`] mean, with the times.
pub fn time_legend(round: &Round, app: &App) -> Row {
    let entries = [
        ("draft", round.draft_us, Role::Draft),
        ("verify", round.verify_us, Role::Verify),
        ("other", round.other_us, Role::Other),
    ];
    let muted = app.dress.theme.style(Role::Muted);
    let mut row = Row::new();
    for (i, (name, us, role)) in entries.into_iter().enumerate() {
        let gap = if i == 0 { "" } else { "  " };
        let mark = app.dress.glyphs.fills[i];
        row.push(Piece::new(format!("{gap}{mark} "), app.dress.theme.style(role)));
        row.push(Piece::new(format!("{name} "), muted));
        let unit = if i == 2 { " ms" } else { "" };
        let ms = format!("{:.1}{unit}", us as f64 / 1e3);
        row.push(Piece::new(ms, app.dress.theme.style(Role::Text)));
    }
    row
}

/// τ of a run on a scale from 0 to `most`, with a mark where drafting starts to pay.
pub fn tau_bar(answer: &Answer, most: usize, cells: usize, app: &App) -> Row {
    let scale = most.max(2) as f64;
    let (full, empty) = bar(answer.stats.tau() / scale, cells, app);
    let filled = full.chars().count();
    let mut symbols: Vec<(String, Role)> = full
        .chars()
        .map(|c| (c.to_string(), Role::Tau))
        .chain(empty.chars().map(|c| (c.to_string(), Role::Axis)))
        .collect();
    debug_assert_eq!(symbols.len(), cells.max(filled));
    if let Some(even) = break_even(answer, app) {
        let at = (even / scale * cells as f64).round() as usize;
        if let Some(symbol) = symbols.get_mut(at) {
            *symbol = (app.dress.glyphs.bar[2].to_string(), Role::BreakEven);
        }
    }
    symbols.into_iter().map(|(text, role)| Piece::new(text, app.dress.theme.style(role))).collect()
}

/// τ at which drafting pays, where a plain step's time is known.
pub fn break_even(answer: &Answer, app: &App) -> Option<f64> {
    answer.stats.break_even_tau(app.plain_us(answer)?)
}

/// Whether it pays, in words.
pub fn verdict(answer: &Answer, app: &App) -> Piece {
    let stats = &answer.stats;
    let style = |role| app.dress.theme.style(role);
    let times = app.dress.glyphs.times;
    if stats.speculative.0 == 0 {
        return Piece::new("plain decoding: one token a round", style(Role::Muted));
    }
    let Some(speedup) = app.plain_us(answer).and_then(|plain| stats.speedup(plain)) else {
        return Piece::new("no plain step seen yet to compare with", style(Role::Muted));
    };
    match speedup {
        s if s >= 1.02 => Piece::new(format!("{s:.2}{times} as fast as plain"), style(Role::Gain)),
        s if s > 0.98 => Piece::new(format!("{s:.2}{times}: as fast as plain"), style(Role::Text)),
        s => Piece::new(format!("{s:.2}{times}: slower than plain"), style(Role::Loss)),
    }
}

/// How often each slot was accepted, of the rounds that came to it: a column each.
pub fn slot_columns(stats: &RunStats, cells: usize, app: &App) -> Row {
    let style = app.dress.theme.style(Role::Accepted);
    let shares = stats.position_acceptance();
    let text: String = shares.iter().take(cells).map(|share| column(*share, app)).collect();
    vec![Piece::new(text, style)]
}

/// Shares as columns `rows` high and `thick` wide, a gap between them where they are thicker than
/// one cell. The top row first.
pub fn tall_columns(shares: &[f64], rows: usize, thick: usize, role: Role, app: &App) -> Vec<Row> {
    let style = app.dress.theme.style(role);
    let gap = " ".repeat(if thick > 1 { 4 - thick.min(3) } else { 0 });
    let level = |row: usize, share: f64| {
        let left = share * rows as f64 - row as f64;
        if left > 0.0 || row == 0 { column(left, app).repeat(thick) } else { " ".repeat(thick) }
    };
    (0..rows)
        .rev()
        .map(|row| {
            let text: String = shares.iter().map(|share| level(row, *share) + &gap).collect();
            vec![Piece::new(text, style)]
        })
        .collect()
}

/// Tokens of the last rounds, a column each, the newest right.
pub fn tau_history(
    rounds: &[Round],
    most: usize,
    cells: usize,
    height: usize,
    app: &App,
) -> Vec<Row> {
    let from = rounds.len().saturating_sub(cells);
    let share = |round: &Round| round.committed.len() as f64 / most.max(1) as f64;
    let shares: Vec<f64> = rounds[from..].iter().map(share).collect();
    tall_columns(&shares, height, 1, Role::Tau, app)
}

/// A sentence for those who see this for the first time.
pub fn explained(text: &str, cells: usize, app: &App) -> Vec<Row> {
    let line = [Piece::new(text, app.dress.theme.style(Role::Thinking))];
    wrap::wrap(&line, cells, Break::Words)
}

/// The longest block of the pair, or of the rounds seen.
pub fn most(app: &App, rounds: &[Round]) -> usize {
    let seen = rounds.iter().map(|round| round.block_size).max().unwrap_or(1);
    app.model().map_or(1, |model| model.block_size).max(seen)
}
