//! Breaking styled lines into rows of cells. One measure of width, [`width`], is used for all
//! that is drawn, so that columns stay straight whatever a text holds.

use ratatui::style::Style;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A stretch of text in one style.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Piece {
    /// What it says; no line breaks.
    pub text: String,
    /// How it looks.
    pub style: Style,
    /// Where its first byte stands in the source, if every byte of it stands there too.
    pub source: Option<usize>,
}

impl Piece {
    /// Text that stands nowhere in a source.
    pub fn new(text: impl Into<String>, style: Style) -> Piece {
        Piece { text: text.into(), style, source: None }
    }
}

/// What is drawn beside each other.
pub type Row = Vec<Piece>;

/// Where a line may be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// After spaces and between wide characters; inside a word only if it is wider than a row.
    Words,
    /// Between any two graphemes, and no space is dropped (code).
    Anywhere,
}

/// `piece` cut into `runs`, each with its style over the piece's own; what no run covers keeps
/// that.
pub fn split(piece: &Piece, runs: &[(std::ops::Range<usize>, Style)]) -> Row {
    let part = |range: std::ops::Range<usize>, style: Style| Piece {
        text: piece.text.get(range.clone()).unwrap_or_default().to_string(),
        style,
        source: piece.source.map(|source| source + range.start),
    };
    let mut row: Row =
        runs.iter().map(|(range, style)| part(range.clone(), piece.style.patch(*style))).collect();
    let end = runs.last().map_or(0, |(range, _)| range.end);
    if end < piece.text.len() {
        row.push(part(end..piece.text.len(), piece.style));
    }
    row
}

/// Cells that `text` takes.
pub fn width(text: &str) -> usize {
    // Most text is of this kind, and graphemes are slow to find.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return text.len();
    }
    text.graphemes(true).map(UnicodeWidthStr::width).sum()
}

/// Cells that `row` takes.
pub fn row_width(row: &[Piece]) -> usize {
    row.iter().map(|piece| width(&piece.text)).sum()
}

/// The longest start of `text` that fits into `cells`, ended by `ellipsis` where it was cut.
pub fn truncate(text: &str, cells: usize, ellipsis: &str) -> String {
    if width(text) <= cells {
        return text.to_string();
    }
    let room = cells.saturating_sub(width(ellipsis));
    let mut used = 0;
    let fits = |grapheme: &&str| {
        used += grapheme.width();
        used <= room
    };
    let mut out: String = text.graphemes(true).take_while(fits).collect();
    if cells >= width(ellipsis) {
        out.push_str(ellipsis);
    }
    out
}

/// `text` cut or filled with spaces to exactly `cells`.
pub fn fit(text: &str, cells: usize, ellipsis: &str) -> String {
    let mut out = truncate(text, cells, ellipsis);
    let used = width(&out);
    out.extend(std::iter::repeat_n(' ', cells.saturating_sub(used)));
    out
}

/// A grapheme of a line: which piece it is in, where, how wide.
struct Cell<'a> {
    piece: usize,
    at: usize,
    text: &'a str,
    width: usize,
}

impl Cell<'_> {
    fn is_space(&self) -> bool {
        self.text.chars().all(char::is_whitespace)
    }
}

/// `line` in rows of at most `cells`; at least one row. With [`Break::Words`] the spaces at a
/// break are dropped.
pub fn wrap(line: &[Piece], cells: usize, at: Break) -> Vec<Row> {
    let limit = cells.max(1);
    let graphemes: Vec<Cell<'_>> = line
        .iter()
        .enumerate()
        .flat_map(|(piece, p)| {
            p.text.grapheme_indices(true).map(move |(at, text)| Cell {
                piece,
                at,
                text,
                width: text.width(),
            })
        })
        .collect();
    let mut rows = Vec::new();
    let mut start = 0;
    let mut breakable = 0;
    let mut used = 0;
    let mut i = 0;
    while i < graphemes.len() {
        let cell = &graphemes[i];
        if used + cell.width <= limit {
            used += cell.width;
            i += 1;
            let wide_pair = cell.width == 2 || graphemes.get(i).is_some_and(|next| next.width == 2);
            if cell.is_space() || wide_pair {
                breakable = i;
            }
            continue;
        }
        let end = match at {
            _ if i == start => {
                // Wider than a whole row: shown as a mark, so that nothing overflows.
                let style = line[cell.piece].style;
                rows.push(vec![Piece::new("…", style)]);
                i += 1;
                start = i;
                breakable = i;
                used = 0;
                continue;
            }
            Break::Words if cell.is_space() => i,
            Break::Words if breakable > start => breakable,
            _ => i,
        };
        rows.push(row(line, &graphemes[start..end]));
        start = end;
        if at == Break::Words {
            while graphemes.get(start).is_some_and(Cell::is_space) {
                start += 1;
            }
        }
        breakable = start;
        i = start;
        used = 0;
    }
    if start < graphemes.len() || rows.is_empty() {
        rows.push(row(line, &graphemes[start.min(graphemes.len())..]));
    }
    rows
}

/// The pieces that `cells` came from, cut to them.
fn row(line: &[Piece], cells: &[Cell<'_>]) -> Row {
    let mut out: Row = Vec::new();
    let mut last = None;
    for cell in cells {
        if last != Some(cell.piece) {
            let from = &line[cell.piece];
            let source = from.source.map(|source| source + cell.at);
            out.push(Piece { text: String::new(), style: from.style, source });
            last = Some(cell.piece);
        }
        if let Some(piece) = out.last_mut() {
            piece.text.push_str(cell.text);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(text: &str, cells: usize, at: Break) -> Vec<String> {
        let line = [Piece { text: text.into(), style: Style::new(), source: Some(0) }];
        wrap(&line, cells, at)
            .iter()
            .map(|row| row.iter().map(|piece| piece.text.as_str()).collect())
            .collect()
    }

    #[test]
    fn words_stay_whole_where_they_can() {
        assert_eq!(rows("one two three", 8, Break::Words), ["one two ", "three"]);
        assert_eq!(rows("one two  three", 7, Break::Words), ["one two", "three"]);
        assert_eq!(rows("abcdefgh ij", 4, Break::Words), ["abcd", "efgh", "ij"]);
        assert_eq!(rows("", 4, Break::Words), [""]);
        assert_eq!(rows("  a b", 3, Break::Anywhere), ["  a", " b"]);
    }

    #[test]
    fn wide_text_breaks_between_characters() {
        assert_eq!(rows("日本語です", 4, Break::Words), ["日本", "語で", "す"]);
        assert_eq!(rows("a日本", 2, Break::Words), ["a", "日", "本"]);
        assert_eq!(rows("日", 1, Break::Words), ["…"]);
        assert_eq!(rows("👩‍👩‍👧‍👦x", 2, Break::Words), ["👩‍👩‍👧‍👦", "x"]);
    }

    #[test]
    fn a_row_knows_where_it_stands_in_the_source() {
        let line = [
            Piece { text: "héllo ".into(), style: Style::new(), source: Some(10) },
            Piece { text: "world".into(), style: Style::new(), source: Some(30) },
        ];
        let rows = wrap(&line, 8, Break::Words);
        assert_eq!(rows[0][0].source, Some(10));
        assert_eq!((rows[1][0].text.as_str(), rows[1][0].source), ("world", Some(30)));
    }

    #[test]
    fn cut_text_fits() {
        assert_eq!(truncate("日本語", 5, "…"), "日本…");
        assert_eq!(truncate("abc", 3, "…"), "abc");
        assert_eq!(fit("日本語", 4, "…"), "日… ");
        assert_eq!(truncate("abc", 0, "…"), "");
    }

    proptest! {
        /// B44: no row is wider than asked, and nothing but spaces at breaks is lost.
        #[test]
        fn rows_fit_and_lose_nothing(text in "([a-z]{1,9}|[日本語한국]|👍🏽|e\u{301}|1\u{fe0f}\u{20e3}| ){0,40}", cells in 2_usize..30) {
            for at in [Break::Words, Break::Anywhere] {
                let rows = rows(&text, cells, at);
                for row in &rows {
                    prop_assert!(width(row) <= cells);
                }
                let bare = |text: &str| text.replace(' ', "");
                if at == Break::Anywhere {
                    prop_assert_eq!(rows.concat(), text.clone());
                } else {
                    prop_assert_eq!(bare(&rows.concat()), bare(&text));
                }
            }
        }

        #[test]
        fn fitted_text_has_exactly_the_width(text in "\\PC{0,30}", cells in 0_usize..20) {
            prop_assert_eq!(width(&fit(&text, cells, "…")), cells);
        }
    }
}
