//! What a block length costs and brings, as seen in this session, and as measured on request.

use super::gauges::explained;
use super::paint::{bar, time};
use crate::event::{CostPoint, Round};
use crate::stats::ratio;
use crate::tui::app::App;
use crate::tui::theme::Role;
use crate::tui::wrap::{Piece, Row};

/// The rounds of one block length, summed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Length {
    rounds: usize,
    committed: usize,
    verify_us: u64,
    us: u64,
}

impl Length {
    fn tok_s(&self) -> f64 {
        ratio(self.committed as f64 * 1e6, self.us as f64)
    }
}

/// The panel in `cells` columns.
pub fn rows(cells: usize, app: &App) -> Vec<Row> {
    let mut rows = seen(cells, app);
    rows.push(Row::new());
    rows.extend(measured(cells, app));
    rows
}

/// What the blocks of this session cost and brought; those of a model that is not in use any more
/// are left out.
pub fn seen(cells: usize, app: &App) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let answers = app.transcript.answers().filter(|(_, answer)| answer.model == app.models);
    let rounds = answers.flat_map(|(_, answer)| &answer.rounds);
    let lengths = by_length(rounds);
    let mut rows = vec![vec![
        Piece::new("By block length", style(Role::Strong)),
        Piece::new("  in this session", muted),
    ]];
    rows.push(vec![Piece::new(
        format!("{:>5} {:>6} {:>8} {:>6}  tok/s", "block", "rounds", "verify", "tokens"),
        muted,
    )]);
    let best = lengths.iter().map(|(_, length)| length.tok_s()).fold(0.0, f64::max);
    for (size, length) in &lengths {
        rows.push(length_row(*size, length, best, cells, app));
    }
    if lengths.is_empty() {
        rows.push(vec![Piece::new("no round yet", muted)]);
    }
    if app.explain {
        rows.extend(explained("A longer block costs more to verify and brings more tokens, but each further draft is less likely to be right. The best length is where tokens a second are highest; block 1 is a plain step.", cells, app));
    }
    rows
}

fn by_length<'a>(rounds: impl Iterator<Item = &'a Round>) -> Vec<(usize, Length)> {
    let mut lengths: Vec<(usize, Length)> = Vec::new();
    for round in rounds {
        let at = match lengths.binary_search_by_key(&round.block_size, |(size, _)| *size) {
            Ok(at) => at,
            Err(at) => {
                lengths.insert(at, (round.block_size, Length::default()));
                at
            }
        };
        let length = &mut lengths[at].1;
        length.rounds += 1;
        length.committed += round.committed.len();
        length.verify_us += round.verify_us;
        length.us += round.total_us();
    }
    lengths
}

fn length_row(size: usize, length: &Length, best: f64, cells: usize, app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    let rate = length.tok_s();
    let n = length.rounds as f64;
    let figures = format!(
        "{size:>5} {:>6} {:>8} {:>6.2}  ",
        length.rounds,
        time(ratio(length.verify_us as f64, n)),
        ratio(length.committed as f64, n)
    );
    let room = cells.saturating_sub(figures.len() + 6);
    let (full, _) = bar(ratio(rate, best), room, app);
    let role = if rate == best { Role::Gain } else { Role::Verify };
    vec![
        Piece::new(figures, style(Role::Text)),
        Piece::new(full, style(role)),
        Piece::new(format!(" {rate:.0}"), style(role)),
    ]
}

/// The curve that `/cost` measures.
pub fn measured(cells: usize, app: &App) -> Vec<Row> {
    let style = |role| app.dress.theme.style(role);
    let muted = style(Role::Muted);
    let Some(cost) = &app.verify_cost else {
        let text = if app.measuring { "is being measured" } else { "/cost measures it" };
        return vec![vec![
            Piece::new("A verify pass", style(Role::Strong)),
            Piece::new(format!("  {text}"), muted),
        ]];
    };
    let mut rows = vec![vec![
        Piece::new("A verify pass", style(Role::Strong)),
        Piece::new(format!("  after {} tokens", cost.context), muted),
    ]];
    let one = cost.one_row_us().unwrap_or(0.0);
    let most = cost.points.iter().map(|point| point.verify_us).fold(0.0, f64::max);
    let times = app.dress.glyphs.times;
    for CostPoint { rows: size, verify_us, .. } in &cost.points {
        let s = if *size == 1 { " " } else { "s" };
        let figures = format!("{size:>5} row{s} {:>8}  ", time(*verify_us));
        let room = cells.saturating_sub(figures.len() + 8);
        let (full, _) = bar(ratio(*verify_us, most), room, app);
        let factor = ratio(*verify_us, one);
        rows.push(vec![
            Piece::new(figures, style(Role::Text)),
            Piece::new(full, style(Role::Verify)),
            Piece::new(format!(" {factor:.2}{times}"), muted),
        ]);
    }
    if let Some((rate, share)) = cost.weight_rate() {
        rows.push(Row::new());
        rows.push(vec![Piece::new("Memory", style(Role::Strong))]);
        if let Some(share) = share {
            rows.push(share_row(share, cells, app));
        }
        let of = cost.memory_rate.map_or(String::new(), |most| format!(" of {:.1}", most / 1e9));
        let text = format!("one row reads {:.1}{of} GB/s", rate / 1e9);
        rows.push(vec![Piece::new(text, muted)]);
    }
    if app.explain {
        rows.extend(explained("A pass over one token spends its time reading the weights: at best it is as fast as memory is. More rows use the same weights, so they cost little until arithmetic becomes the limit.", cells, app));
    }
    rows
}

/// How much of what memory gives a pass of one row uses.
fn share_row(share: f64, cells: usize, app: &App) -> Row {
    let style = |role| app.dress.theme.style(role);
    let (full, empty) = bar(share, cells.saturating_sub(6).min(24), app);
    vec![
        Piece::new(full, style(Role::Verify)),
        Piece::new(empty, style(Role::Axis)),
        Piece::new(format!(" {:.0}%", 100.0 * share), style(Role::Text)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::app::Event;
    use crate::tui::testing::*;

    #[test]
    fn rounds_are_summed_by_length() {
        let round = |block_size, committed, verify_us| Round {
            block_size,
            committed: vec![Default::default(); committed],
            verify_us,
            ..Round::default()
        };
        let rounds = [round(4, 2, 30), round(1, 1, 10), round(4, 4, 10)];
        let lengths = by_length(rounds.iter());
        assert_eq!(lengths.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [1, 4]);
        let four = lengths[1].1;
        assert_eq!((four.rounds, four.committed, four.us), (2, 6, 40));
        assert_eq!(four.tok_s(), 150_000.0);
    }

    /// Passes of one model say nothing of another's.
    #[test]
    fn rounds_of_the_model_before_are_left_out() {
        let mut app = ready_app();
        ask(&mut app, "show me some code");
        assert!(seen(60, &app).len() > 3);
        submit(&mut app, "/pair other");
        for event in play(None) {
            happen(&mut app, Event::Engine(event));
        }
        assert_eq!(seen(60, &app).last().unwrap()[0].text, "no round yet");
        submit(&mut app, "/mode baseline");
        ask(&mut app, "hello");
        let rows = seen(60, &app);
        assert!(rows.len() == 3 && rows[2][0].text.starts_with("    1 "), "{rows:?}");
    }
}
