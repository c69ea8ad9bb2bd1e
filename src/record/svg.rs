//! Lines of coloured text as an SVG picture, for slides: every piece stands at its place in a
//! grid of cells, whatever font the viewer has.

use super::strip::{Ink, Line, width};
use std::fmt::Write;

/// Cell width and line height, in pixels.
const CELL: (f64, f64) = (8.4, 20.0);
const MARGIN: f64 = 14.0;

/// Which background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Background {
    /// As the dark theme.
    Dark,
    /// As the light theme.
    Light,
}

impl Background {
    fn colour(self) -> &'static str {
        match self {
            Background::Dark => "#14181D",
            Background::Light => "#FFFFFF",
        }
    }

    fn ink(self, ink: Ink) -> &'static str {
        let (dark, light) = match ink {
            Ink::Plain => ("#D8DEE4", "#24292F"),
            Ink::Title => ("#F4F7FA", "#0B0E11"),
            Ink::Muted => ("#94A0AD", "#57606A"),
            Ink::Anchor => ("#D8DEE4", "#24292F"),
            Ink::Accepted => ("#4FC3A1", "#0B6E57"),
            Ink::Rejected => ("#F0956A", "#B0470F"),
            Ink::Dropped => ("#76828E", "#757D86"),
            Ink::Own => ("#E5C46B", "#7A5200"),
            Ink::Chance => ("#B9A3F0", "#6B3FC0"),
        };
        match self {
            Background::Dark => dark,
            Background::Light => light,
        }
    }
}

/// The picture.
pub fn svg(lines: &[Line], background: Background) -> String {
    let cells = |line: &Line| line.iter().map(|span| width(&span.text)).sum::<usize>();
    let columns = lines.iter().map(cells).max().unwrap_or(0);
    let size = (columns as f64 * CELL.0 + 2.0 * MARGIN, lines.len() as f64 * CELL.1 + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0}\" height=\"{1:.0}\" \
         viewBox=\"0 0 {0:.0} {1:.0}\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" \
         fill=\"{2}\"/>\n<g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', \
         monospace\" font-size=\"14\">\n",
        size.0,
        size.1,
        background.colour()
    );
    for (y, line) in lines.iter().enumerate() {
        let base = MARGIN + y as f64 * CELL.1 + 14.5;
        let mut column = 0;
        for span in line {
            // Viewers differ in what they make of blanks at the ends.
            let text = span.text.trim_matches(' ');
            let before = span.text.len() - span.text.trim_start_matches(' ').len();
            let x = MARGIN + (column + before) as f64 * CELL.0;
            let cells = width(text);
            column += width(&span.text);
            if text.is_empty() {
                continue;
            }
            let more = match span.ink {
                Ink::Rejected => " text-decoration=\"line-through\"",
                Ink::Title | Ink::Own => " font-weight=\"bold\"",
                Ink::Anchor => " text-decoration=\"underline\"",
                _ => "",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{base:.1}\" textLength=\"{:.1}\" fill=\"{}\"{more}>{}</text>",
                cells as f64 * CELL.0,
                background.ink(span.ink),
                escape(text)
            );
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

/// Text between tags. Characters that XML does not allow are shown as the replacement character.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::strip::{Span, line};
    use super::*;

    #[test]
    fn text_is_escaped_and_stands_in_its_cell() {
        let lines = vec![
            vec![
                Span { text: "日本".into(), ink: Ink::Accepted },
                Span { text: "<b>&\u{1b}".into(), ink: Ink::Rejected },
            ],
            line("x", Ink::Plain),
        ];
        let picture = svg(&lines, Background::Dark);
        assert!(picture.contains("&lt;b&gt;&amp;\u{fffd}</text>"), "{picture}");
        // Two wide characters before it: 14 + 4 × 8.4.
        assert!(picture.contains("x=\"47.6\""), "{picture}");
        assert_eq!(picture.matches("<text").count(), 3);
        assert!(svg(&lines, Background::Light).contains("#FFFFFF"));
        assert!(svg(&[], Background::Light).ends_with("</svg>\n"));
    }
}
