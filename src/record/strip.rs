//! Events as lines of coloured text, for people without the screen: `replay` prints them, and
//! the exports are made of them.

use crate::event::{EngineEvent, Round};
use crate::slots::{Fate, in_words, slots};
use crate::text::{blanks_shown, sanitise_line};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// What a piece of a line is; how that looks is for the output to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Text.
    Plain,
    /// Text beside the point.
    Muted,
    /// A heading.
    Title,
    /// The last committed token, from which a block starts.
    Anchor,
    /// A draft that the target agreed with.
    Accepted,
    /// The first draft that it did not agree with.
    Rejected,
    /// A draft after that, never judged, or one that was not sent.
    Dropped,
    /// The target's own token.
    Own,
    /// How sure the draft was.
    Chance,
}

impl Ink {
    /// The parameters of the terminal's SGR sequence.
    fn sgr(self) -> &'static str {
        match self {
            Ink::Plain => "0",
            Ink::Muted | Ink::Dropped => "2",
            Ink::Title => "1",
            Ink::Anchor => "7",
            Ink::Accepted => "32",
            Ink::Rejected => "31;9",
            Ink::Own => "1;33",
            Ink::Chance => "35",
        }
    }
}

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Safe for a terminal.
    pub text: String,
    /// What it is.
    pub ink: Ink,
}

/// A line of text.
pub type Line = Vec<Span>;

fn span(text: impl Into<String>, ink: Ink) -> Span {
    Span { text: text.into(), ink }
}

/// A line that is all of one kind.
pub fn line(text: &str, ink: Ink) -> Line {
    vec![span(sanitise_line(text), ink)]
}

/// Cells that a text takes.
pub fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// A line as a terminal or a file gets it.
pub fn render(line: &Line, colours: bool) -> String {
    let mut out = String::new();
    for Span { text, ink } in line {
        if colours && *ink != Ink::Plain && !text.is_empty() {
            out.push_str(&format!("\x1b[{}m{text}\x1b[0m", ink.sgr()));
        } else {
            out.push_str(text);
        }
    }
    if colours { out } else { out.trim_end().to_owned() }
}

/// What an event tells, in lines; a round's slots take at most `columns` cells.
pub fn lines(event: &EngineEvent, columns: usize) -> Vec<Line> {
    match event {
        EngineEvent::RunStarted(run) => {
            let reused = match run.reused_tokens {
                0 => String::new(),
                n => format!(", {n} of them known already"),
            };
            vec![line(
                &format!(
                    "prompt of {} tokens{reused}; {} decoding, block size {}",
                    run.prompt_ids.len(),
                    run.mode.name(),
                    run.block_size
                ),
                Ink::Muted,
            )]
        }
        EngineEvent::PrefillDone { us, first, .. } => vec![
            vec![
                span(format!("prompt read in {}; the first token is ", ms(*us)), Ink::Muted),
                span(visible(&first.text), Ink::Own),
            ],
            Vec::new(),
        ],
        EngineEvent::Round(round) => {
            let mut lines = strip(round, columns);
            lines.push(Vec::new());
            lines
        }
        EngineEvent::RunFinished { reason, totals } => vec![line(
            &format!(
                "{} tokens in {} rounds: τ {:.2}, {:.0} % of the drafts kept, {:.1} tokens a \
                 second ({})",
                totals.tokens,
                totals.rounds,
                totals.tau,
                100.0 * totals.acceptance_rate,
                totals.decode_tok_s,
                reason.name()
            ),
            Ink::Title,
        )],
        EngineEvent::Notice(message) | EngineEvent::Error(message) => {
            vec![line(&message.message, Ink::Plain)]
        }
        _ => Vec::new(),
    }
}

fn ms(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}

/// The mark of what became of a slot, and how the slot looks.
fn mark(fate: Fate) -> (&'static str, Ink) {
    match fate {
        Fate::Anchor => ("▸", Ink::Anchor),
        Fate::Accepted => ("✓", Ink::Accepted),
        Fate::Rejected => ("✗→", Ink::Rejected),
        Fate::Discarded => ("·", Ink::Dropped),
        Fate::Unsent => ("–", Ink::Dropped),
        Fate::Bonus | Fate::Plain => ("+", Ink::Own),
        Fate::Open => ("?", Ink::Muted),
    }
}

/// A round in five lines: what it did; the drafts, how sure the draft was of each, what the
/// target wanted there, and what became of them. Slots that `columns` cells do not hold are
/// counted at the end.
pub fn strip(round: &Round, columns: usize) -> Vec<Line> {
    const WIDEST: usize = 12;
    let n = round.committed.len();
    let s = if n == 1 { "" } else { "s" };
    let title = vec![
        span(format!("round {}", round.index.saturating_add(1)), Ink::Title),
        span(format!("  {} = {n} token{s}", in_words(round)), Ink::Plain),
        span(
            format!(
                "  {} = draft {:.1} + verify {:.1} + other {:.1}",
                ms(round.total_us()),
                round.draft_us as f64 / 1e3,
                round.verify_us as f64 / 1e3,
                round.other_us as f64 / 1e3
            ),
            Ink::Muted,
        ),
    ];
    let mut rows: Vec<Line> = ["draft   ", "chance  ", "target  ", "outcome "]
        .iter()
        .map(|name| vec![span(*name, Ink::Muted)])
        .collect();
    let slots = slots(round, visible);
    let mut used = 8;
    for (i, slot) in slots.iter().enumerate() {
        let (mark, ink) = mark(slot.fate);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (draft, target) = (text(&slot.draft), text(&slot.target));
        let cells = width(&draft).max(width(&target)).clamp(2, WIDEST);
        let more = if i + 1 < slots.len() { 4 } else { 0 };
        if used + cells + 1 + more > columns {
            rows[0].push(span(format!("+{}", slots.len() - i), Ink::Muted));
            break;
        }
        used += cells + 1;
        // A mark is not struck through with the draft that it judges.
        let (wished, judged) = match ink {
            Ink::Rejected => (Ink::Own, Ink::Own),
            Ink::Anchor => (Ink::Anchor, Ink::Muted),
            ink => (ink, ink),
        };
        let texts = [
            (draft.as_str(), ink),
            (bar(slot.prob), Ink::Chance),
            (target.as_str(), wished),
            (mark, judged),
        ];
        for (row, (text, ink)) in rows.iter_mut().zip(texts) {
            let text = fit(text, cells);
            let rest = " ".repeat(cells + 1 - width(&text).min(cells));
            row.extend([span(text, ink), span(rest, Ink::Plain)]);
        }
    }
    rows.insert(0, title);
    rows
}

/// A probability as a small column.
fn bar(chance: Option<f32>) -> &'static str {
    const BARS: [&str; 8] = ["▁▁", "▂▂", "▃▃", "▄▄", "▅▅", "▆▆", "▇▇", "██"];
    chance.map_or("", |chance| BARS[((chance.clamp(0.0, 1.0) * 8.0) as usize).min(7)])
}

/// A token's text with the blanks at its start visible.
fn visible(text: &str) -> String {
    blanks_shown(text, "␣")
}

/// `text` in at most `cells` cells, cut between graphemes.
fn fit(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let mut out = String::new();
    for grapheme in text.graphemes(true) {
        if width(&out) + width(grapheme) + 1 > cells {
            break;
        }
        out.push_str(grapheme);
    }
    out + "…"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{DraftedToken, Token};
    use proptest::prelude::*;

    fn token(text: &str) -> Token {
        Token { id: 1, text: text.into() }
    }

    fn drafted(text: &str, prob: f32) -> DraftedToken {
        DraftedToken { id: 1, text: text.into(), prob }
    }

    fn round() -> Round {
        Round {
            index: 11,
            block_size: 4,
            anchor: token("The"),
            drafted: vec![drafted(" capital", 0.9), drafted(" in", 0.3), drafted(" 東京", 0.1)],
            unsent: vec![drafted(",", 0.05)],
            target: vec![token(" capital"), token(" of"), token(" is"), token("\n")],
            accepted: 1,
            committed: vec![token(" capital"), token(" of")],
            draft_us: 2100,
            verify_us: 9000,
            other_us: 50,
            ..Round::default()
        }
    }

    fn text(round: &Round, columns: usize) -> String {
        let lines = strip(round, columns);
        lines.iter().map(|line| render(line, false) + "\n").collect()
    }

    #[test]
    fn a_round_shows_drafts_wishes_and_outcomes() {
        insta::assert_snapshot!(text(&round(), 80), @r"
        round 12  kept 1 of 3, +1 correction = 2 tokens  11.2 ms = draft 2.1 + verify 9.0 + other 0.1
        draft   The ␣capital ␣in ␣東京 ,
        chance      ██       ▃▃  ▁▁    ▁▁
        target      ␣capital ␣of ␣is
        outcome ▸   ✓        ✗→  ·     –
        ");
        let rest = text(&round(), 25);
        assert!(rest.contains("+3"), "{rest}");
    }

    #[test]
    fn colours_are_only_there_when_asked_for() {
        let lines = strip(&round(), 80);
        assert!(render(&lines[1], true).contains("\x1b[31;9m␣in\x1b[0m"));
        assert!(lines.iter().all(|line| !render(line, false).contains('\x1b')));
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_asked_and_nothing_drives_the_terminal(
            texts in prop::collection::vec("\\PC{0,9}|[\\x00-\\x1f]{0,3}", 0..12),
            accepted in 0_usize..14,
            columns in 0_usize..120,
        ) {
            let drafted: Vec<_> = texts.iter().map(|text| drafted(text, f32::NAN)).collect();
            let target = texts.iter().rev().map(|text| token(text)).collect();
            let round = Round { drafted, target, accepted, ..Round::default() };
            let lines = strip(&round, columns);
            for line in &lines[1..] {
                let cells: usize = line.iter().map(|span| width(&span.text)).sum();
                prop_assert!(cells <= columns.max(12), "{cells} of {columns}");
                prop_assert!(!render(line, false).chars().any(char::is_control));
            }
        }
    }
}
