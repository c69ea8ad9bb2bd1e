//! The rounds of an answer over time, a column each: where the time went, how fast it was, how
//! long the blocks were and why.

use super::gauges::{self, explained};
use super::paint::time;
use crate::event::{DraftSource, PlannedBy, Round};
use crate::stats::ratio;
use crate::tui::app::App;
use crate::tui::theme::Role;
use crate::tui::transcript::Answer;
use crate::tui::wrap::{Piece, Row};

/// Rounds over which a momentary figure is taken.
const WINDOW: usize = 8;

/// The panel in `cells` columns; with few rows at hand its bars are lower.
pub fn rows(answer: &Answer, cells: usize, tall: bool, app: &App) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let from = answer.rounds.len().saturating_sub(cells);
    let rounds = &answer.rounds[from..];
    let heading = |title: &str, rest: String| {
        vec![Piece::new(title, style(Role::Strong)), Piece::new(rest, muted)]
    };
    let longest = rounds.iter().map(Round::total_us).max().unwrap_or(0);
    let mut rows =
        vec![heading("Time by round", format!("  up to {}, newest right", time(longest as f64)))];
    rows.extend(stacked(rounds, longest, if tall { 6 } else { 2 }, app));
    if tall {
        rows.push(legend(app));
    }
    if app.explain {
        rows.extend(explained("A column is a round: the draft's pass below, the target's pass above it. Where the blocks are longer, the columns are higher.", cells, app));
    }
    if tall {
        rows.push(Row::new());
    }
    let rates = rates(rounds);
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    let now = rates.last().copied().unwrap_or(0.0);
    rows.push(heading("Tokens a second", format!("  now {now:.0}, at best {fastest:.0}")));
    let shares: Vec<f64> = rates.iter().map(|rate| ratio(*rate, fastest)).collect();
    rows.extend(gauges::tall_columns(&shares, if tall { 3 } else { 1 }, 1, Role::Tau, app));
    if tall {
        rows.push(Row::new());
    }
    let most = gauges::most(app, &answer.rounds);
    rows.push(heading("Block length", why(rounds)));
    let lengths: Vec<f64> =
        rounds.iter().map(|round| round.block_size as f64 / most as f64).collect();
    rows.extend(gauges::tall_columns(&lengths, if tall { 2 } else { 1 }, 1, Role::Draft, app));
    if tall {
        let marks: String = rounds.iter().map(mark).collect();
        rows.push(vec![Piece::new(marks, muted)]);
    }
    if app.explain {
        rows.extend(explained("The length is chosen before each round: the one that should bring most tokens a second, from what passes cost here and how often drafts were right.", cells, app));
    }
    rows.push(Row::new());
    rows.push(expected(answer, app));
    rows
}

/// Each round's draft, verify and other time, on top of each other.
fn stacked(rounds: &[Round], longest: u64, height: usize, app: &App) -> Vec<Row> {
    let roles = [Role::Draft, Role::Verify, Role::Other];
    let scale = |us: u64| (ratio(us as f64, longest as f64) * height as f64).round() as usize;
    let column = |round: &Round| {
        let draft = scale(round.draft_us);
        let verify = draft + scale(round.verify_us).max(usize::from(draft == 0));
        let top = scale(round.total_us()).max(verify).min(height);
        [draft.min(height), verify.min(height), top]
    };
    let columns: Vec<[usize; 3]> = rounds.iter().map(column).collect();
    (0..height)
        .rev()
        .map(|level| {
            let cell = |ends: &[usize; 3]| match ends.iter().position(|end| level < *end) {
                Some(part) => {
                    Piece::new(app.dress.glyphs.fills[part], app.dress.theme.style(roles[part]))
                }
                None => Piece::new(" ", app.dress.theme.style(Role::Text)),
            };
            columns.iter().map(cell).collect()
        })
        .collect()
}

fn legend(app: &App) -> Row {
    let parts = [("draft", Role::Draft), ("verify", Role::Verify), ("other", Role::Other)];
    let muted = app.dress.theme.style(Role::Muted);
    let mut row = Row::new();
    for (i, (name, role)) in parts.into_iter().enumerate() {
        row.push(Piece::new(app.dress.glyphs.fills[i], app.dress.theme.style(role)));
        row.push(Piece::new(format!(" {name}  "), muted));
    }
    row
}

/// Tokens a second at each round, over it and the few before.
fn rates(rounds: &[Round]) -> Vec<f64> {
    (0..rounds.len())
        .map(|i| {
            let window = &rounds[(i + 1).saturating_sub(WINDOW)..=i];
            let tokens: usize = window.iter().map(|round| round.committed.len()).sum();
            let us: u64 = window.iter().map(Round::total_us).sum();
            ratio(tokens as f64 * 1e6, us as f64)
        })
        .collect()
}

/// The marks of the reasons, and those that were seen in words.
fn mark(round: &Round) -> &'static str {
    if round.source == DraftSource::Ngram {
        return "r";
    }
    match round.planned_by {
        PlannedBy::Fixed => " ",
        PlannedBy::Auto => "a",
        PlannedBy::Probe => "p",
        PlannedBy::Budget => "t",
        PlannedBy::Room => "c",
    }
}

fn why(rounds: &[Round]) -> String {
    let words = [
        (PlannedBy::Auto, "a as best"),
        (PlannedBy::Probe, "p to learn"),
        (PlannedBy::Budget, "t token limit"),
        (PlannedBy::Room, "c context"),
    ];
    let seen = |by: &PlannedBy| rounds.iter().any(|round| round.planned_by == *by);
    let mut seen: Vec<&str> =
        words.iter().filter(|(by, _)| seen(by)).map(|(_, word)| *word).collect();
    if rounds.iter().any(|round| round.source == DraftSource::Ngram) {
        seen.push("r repeats");
    }
    if seen.is_empty() { "  as asked".into() } else { format!("  {}", seen.join(", ")) }
}

/// What the planner expected, and what came.
fn expected(answer: &Answer, app: &App) -> Row {
    let muted = app.dress.theme.style(Role::Muted);
    let planned: Vec<(f32, usize)> = answer
        .rounds
        .iter()
        .filter_map(|round| Some((round.expected?, round.committed.len())))
        .collect();
    if planned.is_empty() {
        return vec![Piece::new("no expectation was made", muted)];
    }
    let n = planned.len() as f64;
    let wish = planned.iter().map(|(wish, _)| f64::from(*wish)).sum::<f64>() / n;
    let came = planned.iter().map(|(_, came)| *came as f64).sum::<f64>() / n;
    let text = format!("planned rounds: {wish:.2} tokens expected, {came:.2} came");
    vec![Piece::new(text, muted)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::testing::ready_app;
    use crate::tui::wrap::row_width;

    #[test]
    fn a_column_is_never_higher_than_its_panel() {
        let app = ready_app();
        let round = |draft_us, verify_us, other_us| Round {
            draft_us,
            verify_us,
            other_us,
            ..Round::default()
        };
        let rounds = [round(0, 0, 0), round(5, 90, 5), round(50, 50, 0), round(0, 100, 0)];
        for height in [1, 2, 6] {
            let rows = stacked(&rounds, 100, height, &app);
            assert_eq!(rows.len(), height);
            assert!(rows.iter().all(|row| row_width(row) == rounds.len()));
        }
        let rows = stacked(&rounds, 100, 4, &app);
        let column = |x: usize| rows.iter().map(|row| row[x].text.as_str()).collect::<String>();
        assert_eq!([column(2), column(3)], ["██▒▒", "████"]);
    }

    #[test]
    fn rates_are_over_a_window() {
        let round = Round {
            committed: vec![Default::default(); 2],
            verify_us: 1_000_000,
            ..Round::default()
        };
        assert_eq!(rates(&vec![round; 20]), vec![2.0; 20]);
        assert_eq!(rates(&[Round::default()]), [0.0]);
    }
}
