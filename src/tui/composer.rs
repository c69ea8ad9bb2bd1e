//! The message that is being written, the ones before it, and the popup of slash commands.

use super::action::Action;
use super::commands::{self, Suggestion};
use super::wrap::{self, Break, Piece};
use crate::text::is_unsafe;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Style;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};
use unicode_segmentation::UnicodeSegmentation;

/// Messages kept for Up.
const HISTORY: usize = 500;
/// A paste of more lines, or more bytes, than these is shown as a mark.
const FOLD: (usize, usize) = (12, 2000);
/// As wide as a tab is at most.
const TAB: &str = "    ";

/// A paste that is large, or that a terminal must not be sent: shown as a mark, sent as it is.
#[derive(Debug, Clone)]
struct Fold {
    mark: String,
    text: String,
}

/// The message in the making.
#[derive(Debug, Clone)]
pub struct Composer {
    /// The text and its cursor.
    pub area: TextArea<'static>,
    /// What was folded; a mark that was deleted may come back with undo.
    folds: Vec<Fold>,
    history: Vec<String>,
    /// Which message of the history is shown, and what was written before it was.
    recalled: Option<(usize, String)>,
    /// Which line of the popup is chosen; `None` while it is closed with Esc.
    chosen: Option<usize>,
    /// What may follow the command that is written.
    offers: Vec<Suggestion>,
}

impl Composer {
    /// Empty, with the messages of earlier sessions, oldest first.
    pub fn new(history: Vec<String>) -> Composer {
        let area = area("");
        let (folds, offers) = (Vec::new(), Vec::new());
        Composer { area, folds, history, recalled: None, chosen: Some(0), offers }
    }

    /// What is written, large pastes in full.
    pub fn text(&self) -> String {
        let shown = self.area.lines().join("\n");
        let mut rest = shown.as_str();
        let mut text = String::new();
        let next = |rest: &str| {
            let found = self.folds.iter().filter_map(|fold| Some((rest.find(&fold.mark)?, fold)));
            found.min_by_key(|(at, _)| *at)
        };
        while let Some((at, fold)) = next(rest) {
            text.push_str(&rest[..at]);
            text.push_str(&fold.text);
            rest = &rest[at + fold.mark.len()..];
        }
        text + rest
    }

    /// Whether nothing but blanks is written.
    pub fn is_blank(&self) -> bool {
        self.area.lines().iter().all(|line| line.trim().is_empty())
    }

    /// Write `text` in the place of all.
    pub fn set(&mut self, text: &str) {
        self.folds.clear();
        let shown = if is_shown(text) { text.to_string() } else { self.fold(text.into()) };
        self.area = area(&shown);
        self.chosen = Some(0);
    }

    /// Put `text` in the place of all, as an edit that can be undone.
    pub fn replace(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n");
        if text != self.text() {
            let shown = if is_shown(&text) { text } else { self.fold(text) };
            self.area.select_all();
            self.area.insert_str(shown);
            self.chosen = Some(0);
        }
    }

    /// Empty the composer and remember what was in it.
    pub fn take(&mut self) -> String {
        let text = self.text();
        self.keep_draft();
        self.remember(&text);
        self.set("");
        text
    }

    /// Add `text` to the history.
    fn remember(&mut self, text: &str) {
        if self.history.last().is_none_or(|last| last != text) && !text.trim().is_empty() {
            self.history.push(text.into());
            let excess = self.history.len().saturating_sub(HISTORY);
            self.history.drain(..excess);
        }
    }

    /// End recalling. What was written before goes into the history: nothing that was typed is
    /// lost to a message that was recalled over it.
    fn keep_draft(&mut self) {
        if let Some((_, draft)) = self.recalled.take() {
            self.remember(&draft);
        }
    }

    /// Insert pasted text, whose lines end with `\n`, as one edit; much of it, or what no terminal must be sent, as a mark
    /// that stands for it.
    pub fn paste(&mut self, text: &str) {
        self.chosen = Some(0);
        let small = text.lines().count() <= FOLD.0 && text.len() <= FOLD.1;
        let shown = if small && is_shown(text) { text.into() } else { self.fold(text.into()) };
        self.area.insert_str(shown);
    }

    /// A new mark that stands for `text`.
    fn fold(&mut self, text: String) -> String {
        let what = match text.lines().count() {
            1 => format!("{} characters", text.chars().count()),
            lines => format!("{lines} lines"),
        };
        let mark = match self.folds.len() {
            0 => format!("[pasted {what}]"),
            before => format!("[pasted {what}, no. {}]", before + 1),
        };
        self.folds.push(Fold { mark: mark.clone(), text });
        mark
    }

    /// A key that means nothing else: text.
    pub fn key(&mut self, key: KeyEvent) {
        if let KeyCode::Char(c) = key.code
            && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
        {
            self.area.insert_char(c);
            self.chosen = Some(0);
        }
    }

    /// The name of the command that is written, once something may follow it.
    pub fn command(&self) -> Option<&str> {
        let [line] = self.area.lines() else { return None };
        line.strip_prefix('/')?.split_once(char::is_whitespace).map(|(name, _)| name)
    }

    /// Say what may follow the command that is written.
    pub fn offer(&mut self, offers: Vec<Suggestion>) {
        self.offers = offers;
    }

    /// The commands that what is written may become, or what may follow a whole one; none when
    /// the popup is closed.
    pub fn popup(&self) -> Vec<Suggestion> {
        let [line] = self.area.lines() else { return Vec::new() };
        let Some(input) = line.strip_prefix('/').filter(|_| self.chosen.is_some()) else {
            return Vec::new();
        };
        let whole = self.command().is_some();
        let fits = |offer: &&Suggestion| whole && offer.text.starts_with(line.trim_end());
        let offered: Vec<Suggestion> = self.offers.iter().filter(fits).cloned().collect();
        if !offered.is_empty() {
            return offered;
        }
        commands::matching(input).into_iter().map(Suggestion::from).collect()
    }

    /// Which line of the popup is chosen.
    pub fn chosen(&self) -> usize {
        self.chosen.unwrap_or(0).min(self.popup().len().saturating_sub(1))
    }

    /// Close the popup; whether it was open.
    pub fn close_popup(&mut self) -> bool {
        let open = !self.popup().is_empty();
        self.chosen = None;
        open
    }

    /// Write the chosen command out; whether that changed anything.
    pub fn complete(&mut self) -> bool {
        let popup = self.popup();
        let Some(chosen) = popup.get(self.chosen()) else { return false };
        let text = self.text();
        let whole = text.contains(char::is_whitespace);
        if text.trim_end() == chosen.text && whole {
            return false;
        }
        // An argument that nobody knows of is left as it is written.
        if whole && !self.offers.contains(chosen) {
            return false;
        }
        let space = if chosen.args.is_empty() { "" } else { " " };
        let changed = chosen.text != text;
        self.set(&format!("{}{space}", chosen.text));
        changed
    }

    /// Rows that the text takes at `width`, one at least.
    pub fn height(&self, width: usize) -> usize {
        let rows = |line: &String| {
            let line = [Piece::new(line.replace('\t', TAB), Style::new())];
            // One cell is the cursor's, past the end of the text.
            wrap::wrap(&line, width.saturating_sub(1), Break::Words).len()
        };
        self.area.lines().iter().map(rows).sum()
    }

    /// Scroll back where a larger window would leave rows empty below the text.
    pub fn fill(&mut self, width: usize, height: usize) {
        let (top, _) = self.area.scroll_offset();
        let last = self.height(width).saturating_sub(height);
        if usize::from(top) > last {
            self.area.scroll((last as i16 - top as i16, 0));
        }
    }

    /// Do what `action` asks of the text; whether it is one for the composer.
    pub fn act(&mut self, action: Action) -> bool {
        let area = &mut self.area;
        match action {
            Action::Newline => area.insert_newline(),
            Action::Up => self.up(),
            Action::Down => self.down(),
            Action::Left => self.by_grapheme(CursorMove::Back),
            Action::Right => self.by_grapheme(CursorMove::Forward),
            Action::WordLeft => {
                area.move_cursor(CursorMove::WordBack);
                self.leave_mark(true);
            }
            Action::WordRight => {
                area.move_cursor(CursorMove::WordForward);
                self.leave_mark(false);
            }
            Action::LineStart => area.move_cursor(CursorMove::Head),
            Action::LineEnd => area.move_cursor(CursorMove::End),
            Action::DeleteBack => {
                match self.mark_before() {
                    Some(chars) => self.delete_before(chars),
                    None => (0..self.grapheme_before().max(1)).for_each(|_| {
                        self.area.delete_char();
                    }),
                }
                self.chosen = Some(0);
            }
            Action::DeleteForward => match self.mark_after() {
                Some(chars) => {
                    self.area.delete_str(chars);
                }
                None => (0..self.grapheme_after().max(1)).for_each(|_| {
                    self.area.delete_next_char();
                }),
            },
            Action::DeleteWord => self.delete_word(),
            Action::DeleteToStart => {
                area.delete_line_by_head();
            }
            Action::DeleteToEnd => {
                area.delete_line_by_end();
            }
            Action::Undo => {
                area.undo();
            }
            Action::Redo => {
                area.redo();
            }
            _ => return false,
        }
        true
    }

    fn by_grapheme(&mut self, step: CursorMove) {
        let chars = match step {
            CursorMove::Back => self.mark_before().unwrap_or_else(|| self.grapheme_before()),
            _ => self.mark_after().unwrap_or_else(|| self.grapheme_after()),
        };
        (0..chars.max(1)).for_each(|_| self.area.move_cursor(step));
    }

    /// Characters of the mark that ends at the cursor.
    fn mark_before(&self) -> Option<usize> {
        let (before, _) = self.split_at_cursor();
        let mark = self.folds.iter().find(|fold| before.ends_with(&fold.mark))?;
        Some(mark.mark.chars().count())
    }

    /// Characters of the mark that begins at the cursor.
    fn mark_after(&self) -> Option<usize> {
        let (_, after) = self.split_at_cursor();
        let mark = self.folds.iter().find(|fold| after.starts_with(&fold.mark))?;
        Some(mark.mark.chars().count())
    }

    /// Go out of the mark that the cursor came into, to its start or its end.
    fn leave_mark(&mut self, to_start: bool) {
        let cursor = self.area.cursor();
        let Some(line) = self.area.lines().get(cursor.0) else { return };
        for fold in &self.folds {
            let chars = fold.mark.chars().count();
            for (at, _) in line.match_indices(&fold.mark) {
                let start = line[..at].chars().count();
                if (start + 1..start + chars).contains(&cursor.1) {
                    let column = if to_start { start } else { start + chars };
                    let [row, column] =
                        [cursor.0, column].map(|n| u16::try_from(n).unwrap_or(u16::MAX));
                    return self.area.move_cursor(CursorMove::Jump(row, column));
                }
            }
        }
    }

    /// Delete so many characters before the cursor, as one edit.
    fn delete_before(&mut self, chars: usize) {
        (0..chars).for_each(|_| self.area.move_cursor(CursorMove::Back));
        self.area.delete_str(chars);
    }

    /// Delete the word before the cursor: a mark is one, and nothing reaches into it.
    fn delete_word(&mut self) {
        let (before, _) = self.split_at_cursor();
        let ends = self.folds.iter().filter_map(|fold| {
            let at = before.rfind(&fold.mark)?;
            Some((at + fold.mark.len(), fold.mark.chars().count()))
        });
        let Some((end, mark)) = ends.max() else {
            self.area.delete_word();
            return;
        };
        let rest = before[end..].chars().count();
        let start = before.chars().count() - rest;
        let mut word = self.area.clone();
        word.move_cursor(CursorMove::WordBack);
        if rest == 0 {
            self.delete_before(mark);
        } else if word.cursor().1 < start {
            self.delete_before(rest);
        } else {
            self.area.delete_word();
        }
    }

    /// Characters of the grapheme before the cursor; 0 at the start of a line.
    fn grapheme_before(&self) -> usize {
        let (before, _) = self.split_at_cursor();
        before.graphemes(true).next_back().map_or(0, |g| g.chars().count())
    }

    /// Characters of the grapheme after the cursor; 0 at the end of a line.
    fn grapheme_after(&self) -> usize {
        let (_, after) = self.split_at_cursor();
        after.graphemes(true).next().map_or(0, |g| g.chars().count())
    }

    fn split_at_cursor(&self) -> (String, String) {
        let cursor = self.area.cursor();
        let line = self.area.lines().get(cursor.0).map_or("", String::as_str);
        (line.chars().take(cursor.1).collect(), line.chars().skip(cursor.1).collect())
    }

    fn up(&mut self) {
        if let Some(chosen) = self.popup_move(|chosen, len| (chosen + len - 1) % len) {
            self.chosen = Some(chosen);
        } else if self.area.screen_cursor().row > 0 {
            self.area.move_cursor(CursorMove::Up);
            self.leave_mark(true);
        } else {
            let (at, draft) = self.recalled();
            if let Some(text) = at.checked_sub(1).and_then(|at| self.history.get(at)).cloned() {
                self.set(&text);
                self.chosen = None;
                self.recalled = Some((at - 1, draft));
            }
        }
    }

    /// Which message is recalled (the end of the history for none), and what was written before.
    /// A recalled message that was changed since is what is written.
    fn recalled(&mut self) -> (usize, String) {
        let text = self.text();
        let same = self.recalled.clone().filter(|(at, _)| self.history.get(*at) == Some(&text));
        same.unwrap_or_else(|| {
            self.keep_draft();
            (self.history.len(), text)
        })
    }

    /// Recall the last message, before the one that is recalled, that contains what was written,
    /// in any case; whether there is one, and what was looked for.
    pub fn search(&mut self) -> (bool, String) {
        let (at, draft) = self.recalled();
        let word = draft.to_lowercase();
        let has = |message: &String| message.to_lowercase().contains(&word);
        let found = self.history[..at].iter().rposition(has);
        if let Some(found) = found {
            let text = self.history[found].clone();
            self.set(&text);
            self.chosen = None;
            self.recalled = Some((found, draft.clone()));
        }
        (found.is_some(), draft)
    }

    fn down(&mut self) {
        if let Some(chosen) = self.popup_move(|chosen, len| (chosen + 1) % len) {
            self.chosen = Some(chosen);
            return;
        }
        let before = self.area.screen_cursor().row;
        self.area.move_cursor(CursorMove::Down);
        self.leave_mark(false);
        if self.area.screen_cursor().row != before {
            return;
        }
        let (at, draft) = self.recalled();
        if self.recalled.take().is_some() && at < self.history.len() {
            match self.history.get(at + 1).cloned() {
                Some(text) => {
                    self.set(&text);
                    self.recalled = Some((at + 1, draft));
                }
                None => self.set(&draft),
            }
            self.chosen = None;
        }
    }

    fn popup_move(&self, step: impl Fn(usize, usize) -> usize) -> Option<usize> {
        let len = self.popup().len();
        (len > 1).then(|| step(self.chosen(), len))
    }
}

/// Whether `text` may stand in the composer as it is.
fn is_shown(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || !is_unsafe(c))
}

fn area(text: &str) -> TextArea<'static> {
    let mut area = TextArea::new(text.split('\n').map(str::to_string).collect());
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    area.set_cursor_line_style(Style::new());
    // The terminal's own cursor is put on the caret, so that input methods find it.
    area.set_cursor_style(Style::new());
    area.move_cursor(CursorMove::Bottom);
    area.move_cursor(CursorMove::End);
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composer(text: &str) -> Composer {
        let mut composer = Composer::new(vec!["first".into(), "second".into()]);
        composer.set(text);
        composer
    }

    /// B44: a grapheme is one step and one deletion, however many characters it has.
    #[test]
    fn the_cursor_moves_by_grapheme() {
        let mut composer = composer("a👩‍👩‍👧‍👦e\u{301}1\u{fe0f}\u{20e3}");
        for expected in ["a👩‍👩‍👧‍👦e\u{301}", "a👩‍👩‍👧‍👦", "a", ""]
        {
            composer.act(Action::DeleteBack);
            assert_eq!(composer.text(), expected);
        }
        composer.set("👩‍👩‍👧‍👦b");
        composer.act(Action::LineStart);
        composer.act(Action::Right);
        composer.act(Action::DeleteForward);
        assert_eq!(composer.text(), "👩‍👩‍👧‍👦");
    }

    #[test]
    fn up_recalls_and_down_comes_back_to_the_draft() {
        let mut composer = composer("draft");
        composer.act(Action::Up);
        composer.act(Action::Up);
        assert_eq!(composer.text(), "first");
        composer.act(Action::Up);
        assert_eq!(composer.text(), "first");
        composer.act(Action::Down);
        composer.act(Action::Down);
        assert_eq!(composer.text(), "draft");
    }

    #[test]
    fn a_search_goes_back_through_what_matches() {
        let mut composer = Composer::new(["red cat", "dog", "cat"].map(String::from).into());
        composer.set("CAT");
        for (expected, found) in [("cat", true), ("red cat", true), ("red cat", false)] {
            assert_eq!(composer.search(), (found, "CAT".into()));
            assert_eq!(composer.text(), expected);
        }
        composer.act(Action::Down);
        assert_eq!(composer.text(), "dog");
        // Another word, written in the place of what was found, is looked for from the end.
        composer.set("red");
        assert_eq!(composer.search(), (true, "red".into()));
        assert_eq!(composer.text(), "red cat");
    }

    #[test]
    fn a_recalled_message_that_was_changed_is_not_lost() {
        let mut composer = composer("draft");
        composer.act(Action::Up);
        composer.paste(" thoughts");
        composer.act(Action::Up);
        assert_eq!(composer.text(), "draft");
        composer.act(Action::Up);
        assert_eq!(composer.text(), "second");
        composer.act(Action::Down);
        composer.act(Action::Down);
        assert_eq!(composer.text(), "second thoughts");
        composer.act(Action::Down);
        assert_eq!(composer.text(), "second thoughts");
    }

    #[test]
    fn the_popup_follows_what_is_written() {
        let mut composer = composer("/th");
        assert_eq!(composer.popup().len(), 2);
        composer.act(Action::Down);
        assert!(composer.complete());
        assert_eq!(composer.text(), "/theme ");
        assert!(!composer.complete());
        assert!(composer.close_popup());
        assert!(composer.popup().is_empty());
        composer.set("/fork 1");
        let offer = |text: &str| Suggestion { text: text.into(), args: "", help: "".into() };
        composer.offer(["/fork", "/fork 1", "/fork 12"].map(offer).into());
        assert_eq!(composer.popup().len(), 2);
        assert!(!composer.complete(), "what is written is one of them");
        composer.act(Action::Down);
        assert!(composer.complete());
        assert_eq!(composer.text(), "/fork 12");
        composer.set("/fork 7");
        assert_eq!(composer.popup()[0].text, "/fork", "what the command is for");
        assert!(!composer.complete());
        composer.set("no command /th");
        assert!(composer.popup().is_empty());
    }

    #[test]
    fn what_replaces_a_text_is_safe_and_can_be_undone() {
        let mut composer = composer("one");
        composer.replace("two\nlines\x1b");
        assert_eq!(composer.area.lines(), ["[pasted 2 lines]"]);
        assert_eq!(composer.text(), "two\nlines\x1b");
        composer.act(Action::Undo);
        composer.act(Action::Undo);
        assert_eq!(composer.text(), "one");
        composer.replace("");
        assert!(composer.is_blank());
    }

    fn lines(count: usize) -> String {
        (0..count).map(|i| format!("line {i}\x1b[2J")).collect::<Vec<_>>().join("\n")
    }

    /// B40 and B45: many lines are one draft, and none of it drives the terminal. It is sent as it
    /// was all the same.
    #[test]
    fn a_paste_is_one_edit_and_safe() {
        let mut composer = composer("");
        for (text, shown) in [
            ("all:\n\tcc -o x \\\n\t\tx.c", &["all:", "\tcc -o x \\", "\t\tx.c"][..]),
            (&lines(10), &["[pasted 10 lines]"]),
            ("\u{200f}שלום", &["[pasted 5 characters, no. 2]"]),
        ] {
            composer.paste(text);
            assert_eq!(composer.area.lines(), shown);
            assert_eq!(composer.text(), text);
            composer.act(Action::Undo);
            assert!(composer.is_blank());
        }
    }

    /// What was written before a message was recalled is not lost to a change of that message.
    #[test]
    fn a_draft_survives_a_recalled_message_that_is_changed() {
        let mut composer = Composer::new(vec!["old".into()]);
        composer.set("a draft");
        composer.act(Action::Up);
        assert_eq!(composer.text(), "old");
        composer.paste("er");
        assert_eq!(composer.take(), "older");
        composer.act(Action::Up);
        assert_eq!(composer.text(), "older");
        composer.act(Action::Up);
        assert_eq!(composer.text(), "a draft");
    }

    /// A large paste is a mark on the screen and whole in the message.
    #[test]
    fn a_large_paste_is_folded_and_sent_whole() {
        let mut composer = composer("see: ");
        composer.paste(&lines(50));
        composer.paste(&"x".repeat(3000));
        assert_eq!(
            composer.area.lines(),
            ["see: [pasted 50 lines][pasted 3000 characters, no. 2]"]
        );
        composer.act(Action::Newline);
        composer.paste("end");
        assert_eq!(composer.take(), format!("see: {}{}\nend", lines(50), "x".repeat(3000)));
        assert!(composer.is_blank());
        // It comes back whole too.
        composer.act(Action::Up);
        assert!(composer.text().starts_with("see: line 0"));
    }

    /// The cursor never stands in a mark, and what deletes a part of it deletes all.
    #[test]
    fn a_mark_is_one_character() {
        let mut composer = composer("a ");
        composer.paste(&lines(50));
        let column = |composer: &Composer| composer.area.cursor().1;
        let end = column(&composer);
        for (there, back) in [(Action::Left, Action::Right), (Action::WordLeft, Action::WordRight)]
        {
            composer.act(there);
            assert_eq!(column(&composer), 2);
            composer.act(back);
            assert_eq!(column(&composer), end);
        }
        composer.paste(". ");
        composer.act(Action::DeleteWord);
        assert_eq!(composer.area.lines(), ["a [pasted 50 lines]"]);
        for delete in [Action::DeleteWord, Action::DeleteBack] {
            composer.act(delete);
            assert_eq!(composer.text(), "a ");
            composer.act(Action::Undo);
            assert!(composer.text().contains("line 49"));
            composer.act(Action::LineEnd);
        }
        composer.act(Action::Left);
        composer.act(Action::DeleteForward);
        assert_eq!(composer.text(), "a ");
    }
}
