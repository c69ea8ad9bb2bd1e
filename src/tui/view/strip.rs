//! The round between transcript and composer, for narrower screens: its slots side by side.

use super::gauges;
use super::paint::{Canvas, column, time};
use super::slots::{glyph, mark, role, shown, words};
use super::{cost, side};
use crate::event::{Outcome, Round};
use crate::slots::{Fate, Slot, drafts_are};
use crate::tui::app::{App, Panel};
use crate::tui::theme::Role;
use crate::tui::transcript::Answer;
use crate::tui::wrap::{self, Break, Piece, Row};

/// Where the slots begin, after the names of the rows.
const LEFT: usize = 9;
/// Most cells of one slot.
const WIDEST: usize = 12;

/// Draw the shown round into a low area; the first row is a rule.
pub fn draw(canvas: &mut Canvas<'_>, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let cells = canvas.width().saturating_sub(2);
    match app.panel {
        Panel::Timeline => return rows(canvas, "Timeline", side::timeline(cells, false, app), app),
        Panel::Cost => return costs(canvas, app),
        Panel::Round | Panel::Hidden => {}
    }
    let Some((answer, round, live)) = app.shown_round() else {
        canvas.rule(0, &[Piece::new("Round", style(Role::Title))], app);
        let text = match canvas.height() {
            0..4 => "What the draft proposes and the target keeps is shown here.",
            _ => {
                "Each round of the answer is shown here: what the draft proposed, what the \
                 target would have said, and how much was kept."
            }
        };
        let line = [Piece::new(text, style(Role::Muted))];
        let width = canvas.width().saturating_sub(2);
        for (y, row) in wrap::wrap(&line, width, Break::Words).iter().enumerate() {
            canvas.row(1, 1 + y, row);
        }
        return;
    };
    let of = if live { String::new() } else { format!(" of {}", answer.rounds.len()) };
    let cost = time(round.total_us() as f64);
    let (did, brought) = words(round, app);
    let title = [
        Piece::new(format!("Round {}{of}", round.index + 1), style(Role::Title)),
        Piece::new(format!("  {did}"), style(Role::Text)),
        Piece::new(format!("{brought}, {cost}"), style(Role::Muted)),
    ];
    canvas.rule(0, &title, app);
    if canvas.height() < 8 {
        marks(canvas, 1, round, app);
        pays(canvas, 2, answer, app);
        return;
    }
    slot_columns(canvas, 1, drafts_are(round), &shown(round, app), app);
    time_row(canvas, 5, round, app);
    pays(canvas, 6, answer, app);
    history(canvas, 7, answer, app);
    if app.explain {
        let text = "The draft guesses a block in one quick pass; the target checks it in one \
                    pass. The longest right beginning is kept, and one token of the target's own \
                    is added. Where the text repeats itself, what followed there is checked \
                    instead (\"repeat\"). A round takes longer than a plain step: beyond the mark on the bar \
                    its extra tokens outweigh that.";
        let line = [Piece::new(text, style(Role::Thinking))];
        let rows = wrap::wrap(&line, canvas.width().saturating_sub(2), Break::Words);
        for (y, row) in rows.iter().enumerate() {
            canvas.row(1, 9 + y, row);
        }
    }
}

fn rows(canvas: &mut Canvas<'_>, title: &str, rows: Vec<Row>, app: &App) {
    canvas.rule(0, &[Piece::new(title, app.dress.theme.style(Role::Title))], app);
    for (y, row) in rows.iter().enumerate() {
        canvas.row(1, y + 1, row);
    }
}

/// What was seen beside what was measured, or only the former where columns are few.
fn costs(canvas: &mut Canvas<'_>, app: &App) {
    let (width, height) = (canvas.width(), canvas.height());
    if width < 80 {
        return rows(canvas, "Cost", cost::seen(width.saturating_sub(2), app), app);
    }
    let left = width * 9 / 16;
    rows(canvas, "Cost", cost::seen(left - 2, app), app);
    let mut right = canvas.part(left, 1, width - left, height.saturating_sub(1));
    for (y, row) in cost::measured(width - left - 2, app).iter().enumerate() {
        right.row(1, y, row);
    }
}

/// Cells of a slot's column.
fn cells(slot: &Slot) -> usize {
    let of = |text: &Option<String>| text.as_deref().map_or(0, wrap::width);
    of(&slot.draft).max(of(&slot.target)).clamp(2, WIDEST)
}

/// Cells that all slots need.
pub fn width(slots: &[Slot]) -> usize {
    LEFT + slots.iter().map(|slot| cells(slot) + 1).sum::<usize>()
}

/// Four rows: draft, its chance, target, outcome.
fn slot_columns(canvas: &mut Canvas<'_>, y: usize, drafts: &str, slots: &[Slot], app: &App) {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let ellipsis = app.dress.glyphs.ellipsis;
    for (row, name) in [drafts, "chance", "target", "outcome"].iter().enumerate() {
        canvas.text(1, y + row, name, muted);
    }
    let mut x = LEFT;
    for (i, slot) in slots.iter().enumerate() {
        let cells = cells(slot);
        let left = slots.len() - i;
        let more = if left > 1 { 4 } else { 0 };
        if x + cells + more > canvas.width() {
            canvas.text(x, y, &format!("+{left}"), muted);
            break;
        }
        let cut = |text: &str| wrap::truncate(text, cells, ellipsis);
        if let Some(draft) = &slot.draft {
            canvas.text(x, y, &cut(draft), style(role(slot.fate)));
        }
        if let Some(prob) = slot.prob {
            canvas.text(x, y + 1, &column(f64::from(prob), app).repeat(2), style(Role::Draft));
        }
        if let Some(target) = &slot.target {
            let role = match slot.fate {
                Fate::Rejected => Role::Correction,
                fate => role(fate),
            };
            canvas.text(x, y + 2, &cut(target), style(role));
        }
        let end = canvas.text(x, y + 3, glyph(slot.fate, app.dress.glyphs), mark(slot.fate, app));
        if slot.fate == Fate::Rejected {
            canvas.text(end, y + 3, app.dress.glyphs.correction, mark(Fate::Bonus, app));
        }
        x += cells + 1;
    }
}

/// One row: the marks of the slots, then the tokens that were committed.
fn marks(canvas: &mut Canvas<'_>, y: usize, round: &Round, app: &App) {
    let mut x = 1;
    for slot in shown(round, app) {
        x = canvas.text(x, y, glyph(slot.fate, app.dress.glyphs), mark(slot.fate, app));
        if slot.fate == Fate::Rejected {
            x = canvas.text(x, y, app.dress.glyphs.correction, mark(Fate::Bonus, app));
        }
    }
    x += 1;
    if app.phase().is_some() {
        return;
    }
    for (token, outcome) in round.committed.iter().zip(round.outcomes()) {
        let role = match outcome {
            Outcome::Accepted => Role::Accepted,
            Outcome::Bonus => Role::Bonus,
            Outcome::Correction => Role::Correction,
            Outcome::Plain => Role::Plain,
        };
        x += 1;
        x = canvas.text(x, y, &app.dress.glyphs.visible(&token.text), app.dress.theme.style(role));
    }
}

fn time_row(canvas: &mut Canvas<'_>, y: usize, round: &Round, app: &App) {
    canvas.text(1, y, "time", app.dress.theme.style(Role::Muted));
    let legend = gauges::time_legend(round, app);
    let cells = canvas.width().saturating_sub(LEFT + wrap::row_width(&legend) + 3);
    let x = canvas.row(LEFT, y, &gauges::time_bar(round, cells, app));
    canvas.row(x + 2, y, &legend);
}

/// τ, the mark from which it pays, and the verdict.
fn pays(canvas: &mut Canvas<'_>, y: usize, answer: &Answer, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let tau = app.dress.glyphs.tau;
    canvas.text(1, y, &format!("{tau} {:.2}", answer.stats.tau()), style(Role::Tau));
    let mut words = vec![Piece::new("  ", style(Role::Muted))];
    if let Some(even) = gauges::break_even(answer, app) {
        words.push(Piece::new(app.dress.glyphs.bar[2], style(Role::BreakEven)));
        words.push(Piece::new(format!(" pays from {even:.2}  "), style(Role::Muted)));
    }
    words.push(gauges::verdict(answer, app));
    let most = gauges::most(app, &answer.rounds);
    let cells = canvas.width().saturating_sub(LEFT + wrap::row_width(&words) + 1);
    let x = canvas.row(LEFT, y, &gauges::tau_bar(answer, most, cells.min(40), app));
    canvas.row(x, y, &words);
}

fn history(canvas: &mut Canvas<'_>, y: usize, answer: &Answer, app: &App) {
    let muted = app.dress.theme.style(Role::Muted);
    let most = gauges::most(app, &answer.rounds);
    canvas.text(1, y, "slots", muted);
    let x = canvas.row(LEFT, y, &gauges::slot_columns(&answer.stats, 16, app));
    let x = canvas.text(x + 2, y, "tokens by round ", muted);
    let cells = canvas.width().saturating_sub(x + 1);
    for row in gauges::tau_history(&answer.rounds, most, cells, 1, app) {
        canvas.row(x, y, &row);
    }
}
