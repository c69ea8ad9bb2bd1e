//! The round beside the transcript: its slots as a table, then the gauges.

use super::gauges::{self, explained};
use super::paint::{Canvas, bar, time};
use super::slots::{self, Fate, Slot};
use crate::event::{PlannedBy, Round};
use crate::stats::RunStats;
use crate::tui::app::App;
use crate::tui::theme::Role;
use crate::tui::transcript::Answer;
use crate::tui::wrap::{self, Break, Piece, Row};

/// Draw the shown round into a tall area.
pub fn draw(canvas: &mut Canvas<'_>, app: &App) {
    let Some((answer, round, live)) = app.shown_round() else {
        return empty(canvas, app);
    };
    let style = |role| app.dress.theme.style(role);
    let mut y = heading(canvas, app, answer, round, live);
    let tall = canvas.height() >= 34;
    let below = gauge_rows(canvas.width(), tall, app, answer, round);
    let slots = slots::slots(round, app);
    let room = canvas.height().saturating_sub(y + 1);
    // The table comes first; gauges take what it leaves, but at least their first section.
    let table_room = (slots.len() + 1).min(room.saturating_sub(below.len().min(4))).max(2);
    y = table(canvas, y, table_room, &slots, app);
    y += 1;
    for row in below.iter().take(canvas.height().saturating_sub(y)) {
        canvas.row(1, y, row);
        y += 1;
    }
    if y < canvas.height() && app.walk.is_some() {
        let last = canvas.height() - 1;
        canvas.text(1, last, "arrows walk, Esc leaves", style(Role::Muted));
    }
}

fn empty(canvas: &mut Canvas<'_>, app: &App) {
    let width = canvas.width().saturating_sub(2);
    let style = |role| app.dress.theme.style(role);
    canvas.text(1, 0, "Round", style(Role::Title));
    let text = "Here each round of the answer is shown: the block of tokens that the draft \
                proposed, what the target would have said in each place, and how much was kept.";
    let line = [Piece::new(text, style(Role::Muted))];
    let mut y = 2;
    for row in wrap::wrap(&line, width, Break::Words) {
        canvas.row(1, y, &row);
        y += 1;
    }
    y += 1;
    let glyphs = app.dress.glyphs;
    let legend = [
        (glyphs.accepted, Role::Accepted, "accepted: the target agrees"),
        (glyphs.rejected, Role::Rejected, "rejected: the target wants another"),
        (glyphs.correction, Role::Correction, "correction: the target's token instead"),
        (glyphs.bonus, Role::Bonus, "bonus: one more, after no rejection"),
        (glyphs.discarded, Role::Discarded, "discarded: after a rejected one"),
    ];
    for (glyph, role, meaning) in legend {
        let x = canvas.text(1, y, glyph, style(role));
        canvas.text(x + 1, y, meaning, style(Role::Muted));
        y += 1;
    }
}

fn heading(
    canvas: &mut Canvas<'_>,
    app: &App,
    answer: &Answer,
    round: &Round,
    live: bool,
) -> usize {
    let style = |role| app.dress.theme.style(role);
    let count = answer.rounds.len();
    let x = canvas.text(1, 0, &format!("Round {}", round.index + 1), style(Role::Title));
    let of = if live { String::new() } else { format!(" of {count}") };
    let planned = match round.planned_by {
        PlannedBy::Fixed => "",
        PlannedBy::Auto => ", chosen as best",
        PlannedBy::Probe => ", to learn",
        PlannedBy::Budget => ", token limit near",
        PlannedBy::Room => ", context nearly full",
    };
    let what = format!("{of}   block of {}{planned}", round.block_size);
    canvas.text(x, 0, &what, style(Role::Muted));
    let committed = round.committed.len();
    let x = canvas.text(1, 1, &slots::in_words(round), style(Role::Text));
    let s = if committed == 1 { "" } else { "s" };
    canvas.text(x, 1, &format!(" = {committed} token{s}"), style(Role::Muted));
    3
}

/// Columns: number, draft, probability, outcome and target.
fn table(canvas: &mut Canvas<'_>, top: usize, room: usize, slots: &[Slot], app: &App) -> usize {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let width = canvas.width().saturating_sub(2);
    let bar_cells = if width >= 60 { 8 } else { 5 };
    let prob = bar_cells + 6;
    let text = (width.saturating_sub(3 + prob + 3)) / 2;
    let columns = [1, 4, 4 + text + 1, 4 + text + 1 + prob];
    canvas.text(columns[1], top, "draft", muted);
    canvas.text(columns[2], top, "its chance", muted);
    canvas.text(columns[3], top, "target", muted);
    let shown = if slots.len() < room { slots.len() } else { room.saturating_sub(2).max(1) };
    let ellipsis = app.dress.glyphs.ellipsis;
    for (i, slot) in slots.iter().take(shown).enumerate() {
        let y = top + 1 + i;
        let paint = style(slot.fate.role());
        if slot.fate != Fate::Unsent {
            canvas.text(columns[0], y, &format!("{i:>2}"), muted);
        }
        if let Some(draft) = &slot.draft {
            canvas.text(columns[1], y, &wrap::truncate(draft, text, ellipsis), paint);
        }
        if let Some(prob) = slot.prob {
            let (full, empty) = bar(f64::from(prob), bar_cells, app);
            let x = canvas.text(columns[2], y, &full, style(Role::Draft));
            let x = canvas.text(x, y, &empty, style(Role::Axis));
            canvas.text(x, y, &format!("{:>4.0}%", prob * 100.0), muted);
        }
        let x = canvas.text(columns[3], y, slot.fate.glyph(app.dress.glyphs), {
            if slot.fate == Fate::Anchor { muted } else { mark_style(slot.fate, app) }
        });
        let rest = width.saturating_sub(x);
        canvas.row(x + 1, y, &target_text(slot, rest, app));
    }
    let mut y = top + 1 + shown;
    if shown < slots.len() {
        canvas.text(columns[1], y, &format!("{} more slots", slots.len() - shown), muted);
        y += 1;
    }
    y
}

/// A mark keeps its colour but is never struck through or underlined.
fn mark_style(fate: Fate, app: &App) -> ratatui::style::Style {
    let style = app.dress.theme.style(fate.role());
    ratatui::style::Style { fg: style.fg, ..Default::default() }
}

fn target_text(slot: &Slot, cells: usize, app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    let ellipsis = app.dress.glyphs.ellipsis;
    let target = slot.target.as_deref().unwrap_or_default();
    let cut =
        |text: &str, taken: usize| wrap::truncate(text, cells.saturating_sub(taken), ellipsis);
    match slot.fate {
        Fate::Anchor => vec![Piece::new(cut("anchor", 0), style(Role::Muted))],
        Fate::Accepted => vec![Piece::new(cut(target, 0), style(Role::Accepted))],
        Fate::Rejected => vec![
            Piece::new(format!("{} ", app.dress.glyphs.correction), mark_style(Fate::Bonus, app)),
            Piece::new(cut(target, 2), style(Role::Correction)),
        ],
        Fate::Discarded => vec![Piece::new(cut(target, 0), style(Role::Discarded))],
        Fate::Unsent => vec![Piece::new(cut("not sent", 0), style(Role::Unsent))],
        Fate::Bonus => vec![Piece::new(cut(target, 0), style(Role::Bonus))],
        Fate::Plain => vec![Piece::new(cut(target, 0), style(Role::Plain))],
    }
}

fn gauge_rows(width: usize, tall: bool, app: &App, answer: &Answer, round: &Round) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let cells = width.saturating_sub(2);
    let stats = &answer.stats;
    let most = gauges::most(app, &answer.rounds);
    let tau = app.dress.glyphs.tau;
    let mut rows = vec![
        vec![
            Piece::new("Time of this round", style(Role::Strong)),
            Piece::new(format!("  {}", time(round.total_us() as f64)), muted),
        ],
        gauges::time_bar(round, cells, app),
        gauges::time_legend(round, app),
    ];
    if app.explain {
        rows.extend(explained("The draft guesses a block in one quick pass; the target checks all of it in one pass that costs little more than a single token.", cells, app));
    }
    rows.push(Row::new());
    let mut figures = vec![
        Piece::new(format!("{tau} {:.2}", stats.tau()), style(Role::Tau)),
        Piece::new(" tokens a round", muted),
    ];
    if let Some(even) = gauges::break_even(stats, app) {
        figures
            .push(Piece::new(format!("   {} ", app.dress.glyphs.bar[2]), style(Role::BreakEven)));
        figures.push(Piece::new(format!("pays from {even:.2}"), muted));
    }
    rows.push(vec![Piece::new("Does it pay?", style(Role::Strong))]);
    rows.push(gauges::tau_bar(stats, most, cells, app));
    rows.push(figures);
    rows.push(vec![gauges::verdict(stats, app)]);
    if app.explain {
        rows.extend(explained("A round brings at least one token, at best a whole block. It takes longer than a plain step; beyond the mark the extra tokens outweigh that.", cells, app));
    }
    rows.push(Row::new());
    if !stats.slots.is_empty() {
        rows.push(vec![
            Piece::new("Accepted by slot", style(Role::Strong)),
            Piece::new("  if all before were", muted),
        ]);
        rows.extend(slot_rows(stats, cells, if tall { 3 } else { 1 }, app));
        if app.explain {
            rows.extend(explained("How often the draft is right in each place. It falls with the distance from what is known.", cells, app));
        }
        rows.push(Row::new());
    }
    rows.push(vec![
        Piece::new("Tokens by round", style(Role::Strong)),
        Piece::new("  newest right", muted),
    ]);
    rows.extend(gauges::tau_history(&answer.rounds, most, cells, if tall { 2 } else { 1 }, app));
    rows
}

/// Columns with their percentages below, as many as fit.
fn slot_rows(stats: &RunStats, cells: usize, height: usize, app: &App) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let shares = stats.position_acceptance();
    let shown = shares.len().min(cells / 4);
    let mut rows = gauges::tall_columns(&shares[..shown], height, 2, Role::Accepted, app);
    let percent = |share: &f64| format!("{:<4}", format!("{:.0}", share * 100.0));
    let figures: String = shares[..shown].iter().map(percent).collect();
    rows.push(vec![Piece::new(figures, style(Role::Muted))]);
    rows
}
