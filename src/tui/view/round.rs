//! The round beside the transcript: its slots as a table, then the gauges.

use super::gauges::{self, explained};
use super::paint::{Canvas, bar, time};
use super::slots::{glyph, mark, role, shown, words};
use super::timeline;
use crate::event::{PlannedBy, Round};
use crate::slots::{Fate, Slot, drafts_are};
use crate::stats::RunStats;
use crate::tui::app::App;
use crate::tui::theme::Role;
use crate::tui::transcript::Answer;
use crate::tui::wrap::{self, Break, Piece, Row};

/// Rounds of a momentary figure.
const WINDOW: usize = 16;

/// Draw the shown round into a tall area.
pub fn draw(canvas: &mut Canvas<'_>, app: &App) {
    let Some((answer, round, live)) = app.shown_round() else {
        return empty(canvas, app);
    };
    let style = |role| app.dress.theme.style(role);
    let mut y = heading(canvas, app, answer, round, live);
    let tall = canvas.height() >= 34;
    let below = gauge_rows(canvas.width(), tall, app, answer, round);
    let slots = shown(round, app);
    let room = canvas.height().saturating_sub(y + 1);
    // The table comes first; gauges take what it leaves, but at least their first section.
    let table_room = (slots.len() + 1).min(room.saturating_sub(below.len().min(4))).max(2);
    y = table(canvas, y, table_room, drafts_are(round), &slots, app);
    y += 1;
    let room = canvas.height().saturating_sub(y);
    // A heading without what it heads says nothing.
    let headless = below.get(room.wrapping_sub(2)).is_some_and(Row::is_empty);
    let room = if room < below.len() && headless { room - 1 } else { room };
    for row in below.iter().take(room) {
        canvas.row(1, y, row);
        y += 1;
    }
    // A tall panel has room for the timeline too.
    let cells = canvas.width().saturating_sub(2);
    let timeline = timeline::rows(answer, cells, false, app);
    if y + 1 + timeline.len() + 1 < canvas.height() {
        for row in &timeline {
            y += 1;
            canvas.row(1, y, row);
        }
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
    let expected = match round.expected {
        Some(tokens) if canvas.width() >= 60 => format!(", {tokens:.1} tokens expected"),
        _ => String::new(),
    };
    let what = format!("{of}   block of {}{planned}{expected}", round.block_size);
    canvas.text(x, 0, &what, style(Role::Muted));
    let (did, brought) = words(round, app);
    let x = canvas.text(1, 1, &did, style(Role::Text));
    canvas.text(x, 1, &brought, style(Role::Muted));
    3
}

/// Columns: number, draft, probability, outcome and target.
fn table(
    canvas: &mut Canvas<'_>,
    top: usize,
    room: usize,
    drafts: &str,
    slots: &[Slot],
    app: &App,
) -> usize {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let width = canvas.width().saturating_sub(2);
    let bar_cells = if width >= 60 { 8 } else { 5 };
    let prob = bar_cells + 6;
    let text = (width.saturating_sub(3 + prob + 3)) / 2;
    let columns = [1, 4, 4 + text + 1, 4 + text + 1 + prob];
    canvas.text(columns[1], top, drafts, muted);
    canvas.text(columns[2], top, "its chance", muted);
    canvas.text(columns[3], top, "target", muted);
    let fit = if slots.len() < room { slots.len() } else { room.saturating_sub(2).max(1) };
    let ellipsis = app.dress.glyphs.ellipsis;
    for (i, slot) in slots.iter().take(fit).enumerate() {
        let y = top + 1 + i;
        let paint = style(role(slot.fate));
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
        let x = canvas.text(columns[3], y, glyph(slot.fate, app.dress.glyphs), {
            if slot.fate == Fate::Anchor { muted } else { mark(slot.fate, app) }
        });
        let rest = width.saturating_sub(x);
        canvas.row(x + 1, y, &target_text(slot, rest, app));
    }
    let mut y = top + 1 + fit;
    if fit < slots.len() {
        canvas.text(columns[1], y, &format!("{} more slots", slots.len() - fit), muted);
        y += 1;
    }
    y
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
            Piece::new(format!("{} ", app.dress.glyphs.correction), mark(Fate::Bonus, app)),
            Piece::new(cut(target, 2), style(Role::Correction)),
        ],
        Fate::Discarded => vec![Piece::new(cut(target, 0), style(Role::Discarded))],
        Fate::Unsent => vec![Piece::new(cut("not sent", 0), style(Role::Unsent))],
        Fate::Bonus => vec![Piece::new(cut(target, 0), style(Role::Bonus))],
        Fate::Plain => vec![Piece::new(cut(target, 0), style(Role::Plain))],
        Fate::Open => Row::new(),
    }
}

fn gauge_rows(width: usize, tall: bool, app: &App, answer: &Answer, round: &Round) -> Vec<Row> {
    let cells = width.saturating_sub(2);
    let stats = &answer.stats;
    let mut rows = Vec::new();
    if app.explain {
        rows.extend(explained(SLOTS, cells, app));
        rows.push(Row::new());
    }
    rows.extend(time_section(round, cells, app));
    rows.push(Row::new());
    rows.extend(pays_section(answer, cells, app));
    rows.push(Row::new());
    if !stats.slots.is_empty() {
        rows.push(titled("Accepted by slot", "if all before were", app));
        rows.extend(slot_rows(stats, cells, if tall { 3 } else { 1 }, app));
        if app.explain {
            rows.extend(explained(BY_SLOT, cells, app));
        }
        rows.push(Row::new());
    }
    rows.push(titled("Tokens by round", "newest right", app));
    let most = gauges::most(app, &answer.rounds);
    rows.extend(gauges::tau_history(&answer.rounds, most, cells, if tall { 2 } else { 1 }, app));
    rows
}

const SLOTS: &str = "The draft guessed all of the left column in one quick pass. The target, in \
                     one pass too, says what it would have written in each place. The guesses \
                     are kept up to the first wrong one; there the target's own token is taken.";
const TIME: &str = "Guessing is quick. Checking the whole block takes one pass of the large model, \
                    little longer than a single token would.";
const PAYS: &str = "A round brings at least one token, at best a whole block, but takes longer \
                    than a plain step. Beyond the mark the extra tokens outweigh that. The text \
                    is the same either way.";
const BY_SLOT: &str = "How often the guess is right in each place: less, the further it is from \
                       what is known.";

fn titled(title: &str, rest: &str, app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    vec![
        Piece::new(title, style(Role::Strong)),
        Piece::new(format!("  {rest}"), style(Role::Muted)),
    ]
}

fn time_section(round: &Round, cells: usize, app: &App) -> Vec<Row> {
    let mut rows = vec![
        titled("Time of this round", &time(round.total_us() as f64), app),
        gauges::time_bar(round, cells, app),
        gauges::time_legend(round, app),
    ];
    if app.explain {
        rows.extend(explained(TIME, cells, app));
    }
    rows
}

fn pays_section(answer: &Answer, cells: usize, app: &App) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let stats = &answer.stats;
    let tau = app.dress.glyphs.tau;
    let mut figures = vec![
        Piece::new(format!("{tau} {:.2}", stats.tau()), style(Role::Tau)),
        Piece::new(" tokens a round", muted),
    ];
    if answer.rounds.len() > WINDOW {
        let mut last = RunStats::default();
        answer.rounds.iter().rev().take(WINDOW).for_each(|round| last.add(round));
        figures.push(Piece::new(format!(", {:.2} in the last {WINDOW}", last.tau()), muted));
    }
    let mut verdict = vec![gauges::verdict(answer, app)];
    if let Some(even) = gauges::break_even(answer, app) {
        let mark = format!("  {} ", app.dress.glyphs.bar[2]);
        verdict.push(Piece::new(mark, style(Role::BreakEven)));
        verdict.push(Piece::new(format!("pays from {even:.2}"), muted));
    }
    let most = gauges::most(app, &answer.rounds);
    let mut rows = vec![
        vec![Piece::new("Does it pay?", style(Role::Strong))],
        gauges::tau_bar(answer, most, cells, app),
        figures,
        verdict,
    ];
    if app.explain {
        rows.extend(explained(PAYS, cells, app));
    }
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
