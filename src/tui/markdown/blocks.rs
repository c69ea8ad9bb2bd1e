//! Cutting Markdown into its top-level blocks.

use pulldown_cmark::{Event, Options, Parser};
use std::borrow::Cow;
use std::ops::Range;

/// Stands for the colon of `]:` while parsing. Definitions of link references are shown by no
/// event, and reach back to text that is final already; so none is recognised. The text of an
/// answer is sanitised and has no control characters of its own.
const COLON: char = '\u{1}';

/// `text` for the parser, every byte in its place.
pub fn mask(text: &str) -> Cow<'_, str> {
    if text.contains("]:") {
        Cow::Owned(text.replace("]:", &format!("]{COLON}")))
    } else {
        Cow::Borrowed(text)
    }
}

/// What the parser gave back, as it was.
pub fn unmask(text: &str) -> Cow<'_, str> {
    if text.contains(COLON) { Cow::Owned(text.replace(COLON, ":")) } else { Cow::Borrowed(text) }
}

/// What of Markdown is understood.
pub fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// The top-level blocks of `text`, in order, from their line's start. Whatever the parser passes
/// over in silence is a block too, so that it is shown.
pub fn split(text: &str) -> Vec<Range<usize>> {
    let mut depth = 0_usize;
    let mut found: Vec<Range<usize>> = Vec::new();
    for (event, range) in Parser::new_ext(&mask(text), options()).into_offset_iter() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    found.push(range);
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 0 => found.push(range),
            _ => {}
        }
    }
    let mut blocks = Vec::new();
    let mut end = 0;
    for range in found {
        let line = text[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
        let start = line.max(end);
        push_gap(text, end..start, &mut blocks);
        blocks.push(start..range.end.max(start));
        end = range.end.max(start);
    }
    push_gap(text, end..text.len(), &mut blocks);
    blocks
}

fn push_gap(text: &str, gap: Range<usize>, blocks: &mut Vec<Range<usize>>) {
    let between = &text[gap.clone()];
    if between.trim().is_empty() {
        return;
    }
    let skipped = between.len() - between.trim_start_matches('\n').len();
    blocks.push(gap.start + skipped..gap.end);
}

/// The first block that later text may still change: the last one, or the one before while the
/// last has not ended its first line (`2` may become `2. item` of the list above it).
pub fn first_open(text: &str, blocks: &[Range<usize>]) -> usize {
    let Some(last) = blocks.last() else { return 0 };
    let decided = text[last.start..].trim_end_matches(' ').contains('\n');
    blocks.len() - 1 - usize::from(!decided && blocks.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_that_is_not_blank() {
        let text = "# a\n\npara\nmore\n\n[ref]: /url\n\n- x\n- y\n\n```\ncode";
        let parts: Vec<&str> = split(text).into_iter().map(|range| text[range].trim()).collect();
        assert_eq!(parts, ["# a", "para\nmore", "[ref]: /url", "- x\n- y", "```\ncode"]);
    }

    #[test]
    fn an_undecided_first_line_keeps_the_block_before_open() {
        let open = |text: &str| first_open(text, &split(text));
        assert_eq!(open("1. a\n\n2"), 0);
        assert_eq!(open("para\n\nnext\n"), 1);
        assert_eq!(open(""), 0);
    }
}
