//! Markdown into rows, as it streams. The text is cut into its top-level blocks; all but the last
//! are final and keep their rows, so that a new token renders the open block only. An open block
//! is shown as what it is so far: nothing is held back.
//!
//! Every block is rendered by itself, which is why a streamed text and a whole one give the same
//! rows (a test says so); the price is that link references across blocks stay as written.

mod blocks;
mod code;
mod inline;
mod table;

use super::glyphs::Glyphs;
use super::highlight::Highlighter;
use super::theme::{Role, Theme};
use super::wrap::Row;

pub use code::code_blocks;

/// How a text is rendered: what a cached row depends on besides the text.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Cells in a row.
    pub width: usize,
    /// Styles.
    pub theme: &'a Theme,
    /// Marks.
    pub glyphs: &'a Glyphs,
    /// Changes whenever theme or glyphs do.
    pub epoch: u64,
}

/// The rows of one text, kept while it grows.
#[derive(Debug, Clone, Default)]
pub struct Rendered {
    rows: Vec<Row>,
    /// Rows of the blocks that are final, and how far in the text these reach.
    final_rows: usize,
    final_len: usize,
    /// Whether the model is thinking where these end.
    final_thinking: bool,
    /// Text length, width and epoch that `rows` are for.
    key: Option<(usize, usize, u64)>,
    code: Highlighter,
}

impl Rendered {
    /// The rows of `text`, which must start with the text of the call before.
    pub fn rows(&mut self, text: &str, look: Look<'_>) -> &[Row] {
        let key = (text.len(), look.width, look.epoch);
        let same_look = self.key.is_some_and(|(len, width, epoch)| {
            (width, epoch) == (look.width, look.epoch) && len <= text.len()
        });
        if !same_look {
            *self = Rendered::default();
        }
        if self.key == Some(key) {
            return &self.rows;
        }
        self.key = Some(key);
        self.rows.truncate(self.final_rows);
        let tail = text.get(self.final_len..).unwrap_or_default();
        let ranges = blocks::split(tail);
        let open = blocks::first_open(tail, &ranges);
        let start = self.final_len;
        let mut thinking = self.final_thinking;
        for (i, range) in ranges.iter().enumerate() {
            if i == open {
                self.final_rows = self.rows.len();
                self.final_len = start + range.start;
                self.final_thinking = thinking;
            }
            if !self.rows.is_empty() {
                self.rows.push(Row::new());
            }
            let block = &tail[range.clone()];
            thinking |= start + range.start == 0 && block.starts_with("<think>");
            let role = if thinking { Role::Thinking } else { Role::Assistant };
            thinking &= !block.contains("</think>");
            let at = start + range.start;
            self.rows.extend(inline::render(block, at, role, look, &mut self.code));
        }
        &self.rows
    }

    /// The rows of the last call.
    pub fn drawn(&self) -> &[Row] {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::caps::Depth;
    use crate::tui::glyphs::UNICODE;
    use proptest::prelude::*;

    fn render(rendered: &mut Rendered, text: &str, width: usize) -> Vec<Row> {
        let theme = Theme::built_in("dark", Depth::TrueColor).unwrap();
        rendered.rows(text, Look { width, theme: &theme, glyphs: &UNICODE, epoch: 0 }).to_vec()
    }

    fn plain(rows: &[Row]) -> String {
        let row = |row: &Row| row.iter().map(|piece| piece.text.as_str()).collect::<String>();
        rows.iter().map(|r| row(r).trim_end().to_string()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn blocks_look_like_what_they_are() {
        let source = "# Title\ntext with **bold**, `code` and [a link](http://x.y)\nsecond line\n\n- one\n- two\n  1. inner\n\n> quoted\n\n```rust\nfn main() {}\n```\n\n---\n\n| a | b |\n|---|--:|\n| 1 | 22 |\n";
        let rows = render(&mut Rendered::default(), source, 40);
        insta::assert_snapshot!(plain(&rows));
    }

    /// B51: half-open fences, `a < b`, tables and nested fences lose nothing while they stream.
    #[test]
    fn nothing_is_lost_while_streaming() {
        let source = "if a < b and c > d &lt; e:\n\n````md\n```rust\nlet x = 1 < 2;\n```\n````\n\n| head | two |\n|---|---|\n| cell | <b>bold</b> |\n\n[ref]: http://example.org\n\nlast <div>html</div> *open **bold";
        let words =
            ["<", "```rust", "let", "head", "cell", "<b>", "[ref]:", "<div>", "open", "bold"];
        let mut rendered = Rendered::default();
        for end in (1..=source.len()).filter(|&end| source.is_char_boundary(end)) {
            let shown = plain(&render(&mut rendered, &source[..end], 30));
            for word in words {
                let complete = source[..end].contains(&format!("{word} "));
                assert!(!complete || shown.contains(word), "{word} lost in {shown:?}");
            }
        }
        let shown = plain(&render(&mut rendered, source, 30));
        for word in words {
            assert!(shown.contains(word), "{word} lost in {shown:?}");
        }
    }

    /// What a model thinks before it answers looks different from the answer, while it streams
    /// too.
    #[test]
    fn thinking_is_set_apart() {
        let source = "<think>\n\nfirst **thought**\n\nsecond\n\n</think>\n\nthe answer";
        let theme = Theme::built_in("dark", Depth::TrueColor).unwrap();
        let mut rendered = Rendered::default();
        (1..=source.len()).for_each(|end| drop(render(&mut rendered, &source[..end], 40)));
        for (words, role) in [("second", Role::Thinking), ("the answer", Role::Assistant)] {
            let rows = render(&mut rendered, source, 40);
            let found = rows.iter().flatten().find(|piece| piece.text == words).unwrap();
            assert_eq!(found.style.fg, theme.style(role).fg, "{words}");
        }
    }

    /// A numeric entity must not smuggle in what [`crate::text::sanitise`] took out.
    #[test]
    fn entities_cannot_make_controls() {
        let shown =
            plain(&render(&mut Rendered::default(), "a&#27;[2Jb &#x9b; &#x202e; `&#27;`", 60));
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        assert!(shown.contains("a␛[2Jb"), "{shown:?}");
    }

    /// Pieces know where they stand: the source has the same text there.
    #[test]
    fn pieces_point_at_their_source() {
        let source =
            "# A *b*\n\n- x `code` y\n\n```\nlet a;\n  b\n```\n\n| q | r |\n|---|---|\n| s | t |";
        for row in render(&mut Rendered::default(), source, 40) {
            for piece in row {
                if let Some(at) = piece.source {
                    assert_eq!(&source[at..at + piece.text.len()], piece.text);
                }
            }
        }
    }

    const PARTS: &[&str] = &[
        "word ",
        "two words\n",
        "\n\n",
        "# head\n",
        "- item\n",
        "  - inner\n",
        "1. one\n",
        "2. two\n",
        "```\n",
        "code < x\n",
        "> quote\n",
        "| a | b |\n",
        "|---|---|\n",
        "**bold** ",
        "`x` ",
        "* ",
        "---\n",
        "    indented\n",
        "<div>\n",
        "日本 ",
        "[r]: /u\n",
        "[r] ",
        "&amp; ",
        "2",
        ".",
        "-",
        "=\n",
    ];

    proptest! {
        /// A text that streams, whatever the pieces, ends as the text rendered at once; and no
        /// row is ever too wide.
        #[test]
        fn streamed_is_whole(parts in prop::collection::vec(0..PARTS.len(), 0..24), width in 12_usize..60) {
            let mut streamed = Rendered::default();
            let mut text = String::new();
            for part in parts {
                text.push_str(PARTS[part]);
                for row in render(&mut streamed, &text, width) {
                    prop_assert!(crate::tui::wrap::row_width(&row) <= width);
                }
            }
            let whole = render(&mut Rendered::default(), &text, width);
            prop_assert_eq!(plain(&render(&mut streamed, &text, width)), plain(&whole));
        }
    }
}
