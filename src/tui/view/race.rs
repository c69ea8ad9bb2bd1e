//! A race in the place of the conversation: the lanes side by side, or one below the other on a
//! narrow screen, and what it comes to.

use super::gauges::explained;
use super::paint::{Canvas, bar, dotted};
use super::transcript::draw_row;
use crate::event::FinishReason;
use crate::race::Verdict;
use crate::race::report::Pace;
use crate::tui::app::{App, RaceStage, Racing};
use crate::tui::markdown::Look;
use crate::tui::theme::Role;
use crate::tui::wrap::{self, Break, Piece, Row};

/// Narrower screens have the lanes one below the other.
const SIDE_BY_SIDE: usize = 90;
/// Lines longer than this are hard to read.
const WIDEST: usize = 100;

const EXPLAINED: &str = "Both lanes answer the same question with the same model: one writes a \
                         token a pass, the other has a block drafted and checks it in one pass. \
                         They take turns on this machine. The text has to be the same; what \
                         counts is whose clock shows less.";

/// Draw the race, if there is one.
pub fn draw(canvas: &mut Canvas<'_>, app: &mut App) {
    // Drawing reads the rest of the state, so the race is taken out meanwhile.
    let Some(mut racing) = app.race.take() else { return };
    let width = canvas.width();
    heading(canvas, &racing, app);
    let foot = foot(&racing, width.saturating_sub(2), app);
    let rows = canvas.height().saturating_sub(2 + foot.len());
    let lanes = racing.race.lanes.len();
    let mut above = 0;
    if width >= SIDE_BY_SIDE {
        let lane = (width + 1) / lanes - 1;
        for i in 0..lanes {
            let x = i * (lane + 1);
            if i > 0 {
                canvas.part(x - 1, 1, 1, rows).vertical(app);
            }
            let canvas = &mut canvas.part(x, 1, lane, rows);
            above = above.max(draw_lane(canvas, &mut racing, i, app));
        }
    } else {
        for i in 0..lanes {
            let (top, end) = (i * rows / lanes, (i + 1) * rows / lanes);
            let canvas = &mut canvas.part(0, 1 + top, width, end - top);
            above = above.max(draw_lane(canvas, &mut racing, i, app));
        }
    }
    // Not beyond the beginning of the longer text.
    racing.up = racing.up.min(above);
    canvas.rule(1 + rows, &[], app);
    for (y, row) in foot.iter().enumerate() {
        canvas.row(1, 2 + rows + y, row);
    }
    app.race = Some(racing);
}

fn heading(canvas: &mut Canvas<'_>, racing: &Racing, app: &App) {
    let style = |role| app.dress.theme.style(role);
    let x = canvas.text(1, 0, "Race  ", style(Role::Title));
    let room = canvas.width().saturating_sub(x + 1);
    let question = wrap::truncate(&racing.question, room, app.dress.glyphs.ellipsis);
    canvas.text(x, 0, &question, style(Role::User));
}

/// A lane: its name, how far it is, its clock, its text. Returns how many rows of the text are
/// above the newest that fit.
fn draw_lane(canvas: &mut Canvas<'_>, racing: &mut Racing, lane: usize, app: &App) -> usize {
    let style = |role| app.dress.theme.style(role);
    let (width, height) = (canvas.width(), canvas.height());
    let role = if lane == 0 { Role::Verify } else { Role::Tau };
    let name = Piece::new(racing.race.lanes[lane].kind.to_string(), style(Role::Title));
    canvas.rule(0, &[name], app);
    let figures = figures(racing, lane, app);
    // Bar and figures share a row where rows are few.
    let beside = height < 12;
    let (tokens, share) = progress(racing, lane);
    let counted = Piece::new(format!(" {tokens}"), style(Role::Text));
    let taken = wrap::width(&counted.text) + 2;
    let taken = if beside { taken + wrap::row_width(&figures) + 3 } else { taken };
    let (full, empty) = bar(share, width.saturating_sub(taken).min(60), app);
    let bar = [Piece::new(full, style(role)), Piece::new(empty, style(Role::Axis)), counted];
    let x = canvas.row(1, 1, &bar);
    if beside {
        canvas.row(x + 3, 1, &figures);
    } else {
        canvas.row(1, 2, &figures);
    }
    let top = if beside { 2 } else { 4 };
    let room = height.saturating_sub(top);
    let answer = &mut racing.answers[lane];
    if answer.tokens.is_empty() {
        let waits = format!("{}{}", racing.waits[lane], app.dress.glyphs.ellipsis);
        canvas.text(1, top, &waits, style(Role::Muted));
        return 0;
    }
    let cells = width.saturating_sub(2).clamp(1, WIDEST);
    let dress = &app.dress;
    let look = Look { width: cells, theme: &dress.theme, glyphs: dress.glyphs, epoch: dress.epoch };
    let rows = answer.rows(look).to_vec();
    let above = rows.len().saturating_sub(room);
    let first = above.saturating_sub(racing.up);
    let mut text = canvas.part(1, top, cells, room);
    for (y, row) in rows[first..].iter().take(room).enumerate() {
        draw_row(&mut text, app, usize::MAX, answer, row, y);
    }
    above
}

/// Tokens of a lane in words, and their share of the whole answer.
fn progress(racing: &Racing, lane: usize) -> (String, f64) {
    let tokens = racing.race.lanes[lane].transcript.ids.len();
    let (of, most) = match racing.race.length() {
        Some(length) => (format!("{length}"), length),
        None => (format!("at most {}", racing.most()), racing.most()),
    };
    (format!("{tokens} of {of}"), tokens as f64 / most.max(1) as f64)
}

/// Clock, speed and τ of a lane; why it ended, if not by itself.
fn figures(racing: &Racing, index: usize, app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    let lane = &racing.race.lanes[index];
    let text = |text: String| Piece::new(text, style(Role::Text));
    let mut parts = vec![
        Piece::new(format!("{:.2} s", lane.clock_us as f64 / 1e6), style(Role::Strong)),
        text(format!("{:.1} tok/s", lane.stats.decode_tok_s())),
        text(format!("{} {:.2}", app.dress.glyphs.tau, lane.stats.tau())),
    ];
    if let Some(reason) = lane.transcript.reason.as_ref().filter(|it| **it != FinishReason::Eos) {
        parts.push(Piece::new(reason.name(), style(Role::Muted)));
    }
    dotted(parts, app)
}

/// What it comes to, or how it stands.
fn foot(racing: &Racing, cells: usize, app: &App) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let names = || {
        let name = |lane: usize| racing.race.lanes.get(lane).map(|it| it.kind.to_string());
        (name(1).unwrap_or_default(), name(0).unwrap_or_default())
    };
    let mut lines: Vec<Row> = match (&racing.stage, racing.result()) {
        (RaceStage::Failed(what), _) => vec![vec![Piece::new(what.clone(), style(Role::Error))]],
        (RaceStage::Over, None) => vec![vec![Piece::new("stopped", style(Role::Warning))]],
        (RaceStage::Over, Some(result)) => {
            let (name, first) = names();
            let speed = speed(result.speedup.median, &first, app);
            let mut lines = Vec::new();
            // One that was stopped at once has no speed.
            if result.speedup.median > 0.0 {
                lines.push(vec![Piece::new(format!("{name}: "), style(Role::Text)), speed]);
            }
            if let Some(runs) = racing.report.as_ref().map(|it| it.repeats).filter(|n| *n > 1) {
                let (min, max) = (result.speedup.min, result.speedup.max);
                let spread = format!("from {min:.2} to {max:.2} in {runs} runs");
                lines.push(vec![Piece::new(spread, muted)]);
            }
            lines.push(verdict(&result.verdict, app));
            lines
        }
        (RaceStage::Running | RaceStage::Stopping, _) => {
            let so_far = racing.race.speedup(1).map(|speedup| {
                let (name, first) = names();
                vec![Piece::new(format!("{name}, so far: "), muted), speed(speedup, &first, app)]
            });
            let none_yet = || {
                let (name, first) = names();
                vec![Piece::new(format!("{name}, against {first}"), muted)]
            };
            let turns = "a clock runs only while its lane computes";
            vec![so_far.unwrap_or_else(none_yet), vec![Piece::new(turns, muted)]]
        }
    };
    lines = lines.iter().flat_map(|line| wrap::wrap(line, cells, Break::Words)).collect();
    if app.explain {
        lines.extend(explained(EXPLAINED, cells.min(WIDEST), app));
    }
    lines
}

/// How many times as fast as `first`; a loss is said in words.
fn speed(speedup: f64, first: &str, app: &App) -> Piece {
    let (role, words) = match Pace::of(speedup) {
        Pace::Faster => (Role::Gain, " as fast as"),
        Pace::Same => (Role::Text, ": as fast as"),
        Pace::Slower => (Role::Loss, ": slower than"),
    };
    let times = app.dress.glyphs.times;
    Piece::new(format!("{speedup:.2}{times}{words} {first}"), app.dress.theme.style(role))
}

fn verdict(verdict: &Verdict, app: &App) -> Row {
    let glyphs = app.dress.glyphs;
    let (mark, role) = match verdict {
        Verdict::Identical { .. } => (glyphs.accepted, Role::Ok),
        Verdict::NearTie { .. } | Verdict::NotComparable { .. } => ("!", Role::Warning),
        Verdict::Mismatch { .. } => (glyphs.rejected, Role::Error),
    };
    vec![Piece::new(format!("{mark} the texts: {verdict}"), app.dress.theme.style(role))]
}
