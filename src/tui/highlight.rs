//! Colours for code. The lines of a block that streams are coloured once: all but the last are
//! kept, with the state of the parser after them.

use super::caps::Depth;
use super::theme::{Theme, reduce};
use ratatui::style::{Color, Modifier, Style};
use std::ops::Range;
use std::sync::OnceLock;
use syntect::highlighting::{
    FontStyle, HighlightIterator, HighlightState, Highlighter as Painter, Style as Paint, ThemeSet,
};
use syntect::parsing::{ParseState, ScopeStack, SyntaxSet};

/// Longer lines are not coloured: the parser's expressions can take long on them.
const LONGEST: usize = 2_000;

/// A line's stretches and how they look.
pub type Runs = Vec<(Range<usize>, Style)>;

/// The colours of one block of code, kept while it grows.
#[derive(Debug, Clone, Default)]
pub struct Highlighter {
    language: String,
    done: Vec<(String, Runs)>,
    state: Option<(ParseState, HighlightState)>,
}

fn syntaxes() -> &'static SyntaxSet {
    static SYNTAXES: OnceLock<SyntaxSet> = OnceLock::new();
    SYNTAXES.get_or_init(SyntaxSet::load_defaults_newlines)
}

fn paints() -> &'static ThemeSet {
    static PAINTS: OnceLock<ThemeSet> = OnceLock::new();
    PAINTS.get_or_init(ThemeSet::load_defaults)
}

impl Highlighter {
    /// The runs of each of `lines`, in the named language; none of a language that is not known
    /// or where there are too few colours to paint with.
    pub fn runs(&mut self, language: &str, lines: &[&str], theme: &Theme) -> Vec<Runs> {
        let name = language.split([' ', ',', '{']).next().unwrap_or_default();
        let enough = matches!(theme.depth, Depth::TrueColor | Depth::Ansi256);
        if name.is_empty() || !enough {
            return Vec::new();
        }
        let Some(syntax) = syntaxes().find_syntax_by_token(name) else { return Vec::new() };
        let Some(paints) = paints().themes.get(&theme.syntax) else { return Vec::new() };
        let painter = Painter::new(paints);
        let kept = self.done.iter().zip(lines).all(|((done, _), line)| done == line);
        if self.language != name || !kept || self.done.len() > lines.len() {
            *self = Highlighter { language: name.into(), ..Highlighter::default() };
        }
        let start = || (ParseState::new(syntax), HighlightState::new(&painter, ScopeStack::new()));
        let mut state = self.state.take().unwrap_or_else(start);
        let mut last = None;
        for (i, line) in lines.iter().enumerate().skip(self.done.len()) {
            // The last line may still grow: it is coloured, but not kept.
            if i + 1 == lines.len() {
                last = Some(paint(line, &mut state.clone(), &painter, theme.depth));
            } else {
                let runs = paint(line, &mut state, &painter, theme.depth);
                self.done.push(((*line).to_string(), runs));
            }
        }
        self.state = Some(state);
        self.done.iter().map(|(_, runs)| runs.clone()).chain(last).collect()
    }
}

fn paint(
    line: &str,
    (parse, highlight): &mut (ParseState, HighlightState),
    painter: &Painter<'_>,
    depth: Depth,
) -> Runs {
    if line.len() > LONGEST {
        return Vec::new();
    }
    let ended = format!("{line}\n");
    let Ok(ops) = parse.parse_line(&ended, syntaxes()) else { return Vec::new() };
    let mut at = 0;
    let mut runs = Runs::new();
    for (paint, text) in HighlightIterator::new(highlight, &ops, &ended, painter) {
        let end = (at + text.len()).min(line.len());
        if end > at {
            runs.push((at..end, style(paint, depth)));
        }
        at = end;
    }
    runs
}

fn style(paint: Paint, depth: Depth) -> Style {
    let Paint { foreground, font_style, .. } = paint;
    let colour = Color::Rgb(foreground.r, foreground.g, foreground.b);
    let mut style = Style::new().fg(reduce(colour, depth));
    if font_style.contains(FontStyle::BOLD) {
        style = style.add_modifier(Modifier::BOLD);
    }
    if font_style.contains(FontStyle::ITALIC) {
        style = style.add_modifier(Modifier::ITALIC);
    }
    style
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: [&str; 4] = ["/* a comment", "still it */", "fn main() {", "    let x = \"日本\";"];

    fn dark() -> Theme {
        Theme::built_in("dark", Depth::TrueColor).unwrap()
    }

    /// What streams, a character at a time, is coloured as the whole.
    #[test]
    fn streamed_code_is_coloured_as_whole_code() {
        let whole = Highlighter::default().runs("rust", &CODE, &dark());
        let text = CODE.join("\n");
        let mut highlighter = Highlighter::default();
        let mut streamed = Vec::new();
        for end in (1..=text.len()).filter(|&end| text.is_char_boundary(end)) {
            let lines: Vec<&str> = text[..end].split('\n').collect();
            streamed = highlighter.runs("rust", &lines, &dark());
        }
        assert_eq!(streamed, whole);
        assert_ne!(whole[0][0].1, whole[2][0].1, "a comment is no keyword");
    }

    #[test]
    fn runs_cover_their_line() {
        for (line, runs) in CODE.iter().zip(Highlighter::default().runs("rs", &CODE, &dark())) {
            let text: String = runs.iter().map(|(range, _)| &line[range.clone()]).collect();
            assert_eq!(&text, line);
        }
    }

    #[test]
    fn unknown_languages_and_few_colours_are_left_plain() {
        assert!(Highlighter::default().runs("no such", &CODE, &dark()).is_empty());
        let mono = Theme::built_in("dark", Depth::Ansi16).unwrap();
        assert!(Highlighter::default().runs("rust", &CODE, &mono).is_empty());
    }

    #[test]
    fn other_code_starts_anew() {
        let mut highlighter = Highlighter::default();
        highlighter.runs("rust", &CODE, &dark());
        let other = ["let y = 1;", "x"];
        let fresh = Highlighter::default().runs("rust", &other, &dark());
        assert_eq!(highlighter.runs("rust", &other, &dark()), fresh);
    }
}
