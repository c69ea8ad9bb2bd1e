//! Marks: what carries meaning where colour does not.

use crate::text::blanks_shown;

/// The marks of a screen. All are one cell wide in the terminals that the set is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // Named by what they mark.
pub struct Glyphs {
    pub accepted: &'static str,
    pub rejected: &'static str,
    pub discarded: &'static str,
    pub unsent: &'static str,
    pub bonus: &'static str,
    pub correction: &'static str,
    pub anchor: &'static str,
    pub prompt: &'static str,
    pub user: &'static str,
    pub bullet: &'static str,
    pub quote: &'static str,
    pub vertical: &'static str,
    pub horizontal: &'static str,
    pub cross: &'static str,
    pub ellipsis: &'static str,
    pub down: &'static str,
    pub dot: &'static str,
    pub newline: &'static str,
    pub tau: &'static str,
    pub times: &'static str,
    /// Fill patterns of the draft's, the target's and all other time.
    pub fills: [&'static str; 3],
    /// A bar's full cell, its empty cell, and a mark on it.
    pub bar: [&'static str; 3],
    /// Eight heights of a column.
    pub columns: [&'static str; 8],
}

impl Glyphs {
    /// A token's text with the blanks at its start visible, and on one line.
    pub fn visible(&self, text: &str) -> String {
        let blank = if self.horizontal == "-" { "_" } else { "␣" };
        blanks_shown(text, blank).replace('⏎', self.newline)
    }
}

/// Marks for terminals with Unicode.
pub const UNICODE: Glyphs = Glyphs {
    accepted: "✓",
    rejected: "✗",
    discarded: "·",
    unsent: "-",
    bonus: "+",
    correction: "→",
    anchor: "▸",
    prompt: "❯",
    user: "▌",
    bullet: "•",
    quote: "▎",
    vertical: "│",
    horizontal: "─",
    cross: "┼",
    ellipsis: "…",
    down: "↓",
    dot: "·",
    newline: "⏎",
    tau: "τ",
    times: "×",
    fills: ["▒", "█", "░"],
    bar: ["█", "░", "┃"],
    columns: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
};

/// Marks for all others, and for those whose width of ambiguous characters is two.
pub const ASCII: Glyphs = Glyphs {
    accepted: "=",
    rejected: "x",
    discarded: ".",
    unsent: "-",
    bonus: "+",
    correction: ">",
    anchor: "@",
    prompt: ">",
    user: "|",
    bullet: "*",
    quote: "|",
    vertical: "|",
    horizontal: "-",
    cross: "+",
    ellipsis: "~",
    down: "v",
    dot: "-",
    newline: "\\",
    tau: "tau",
    times: "x",
    fills: ["d", "V", "."],
    bar: ["#", ".", "|"],
    columns: ["_", ".", ",", ":", "-", "=", "+", "#"],
};
