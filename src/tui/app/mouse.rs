//! The mouse in the transcript: the wheel scrolls, a click opens the round behind a token, a drag
//! selects text and copies it.

use super::{App, Panel, Walk};
use crate::event::Level;
use crate::tui::effect::Effect;
use crate::tui::wrap::{Row, width};
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};
use std::borrow::Cow;
use unicode_segmentation::UnicodeSegmentation;

/// Rows a notch of the wheel scrolls.
const WHEEL: isize = 3;

/// Where the last frame put the transcript.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its part of the screen.
    pub area: Rect,
    /// Its first row there, counted from the beginning of the conversation.
    pub top: usize,
    /// Where its text begins, in cells from the left.
    pub indent: usize,
    /// Cells that its text may take.
    pub width: usize,
}

/// A place in the transcript: row from its beginning, cell from the left of the text.
pub type Place = (usize, usize);

/// Selected text, from where the button went down to where the mouse is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    from: Place,
    to: Place,
}

impl Selection {
    /// The cells of row `row` that are selected, from and to (excluded).
    pub fn cells(&self, row: usize) -> std::ops::Range<usize> {
        let (first, last) = (self.from.min(self.to), self.from.max(self.to));
        let start = if row == first.0 { first.1 } else { 0 };
        let end = if row == last.0 { last.1 + 1 } else { usize::MAX };
        if (first.0..=last.0).contains(&row) { start..end } else { 0..0 }
    }

    fn rows(&self) -> std::ops::RangeInclusive<usize> {
        self.from.0.min(self.to.0)..=self.from.0.max(self.to.0)
    }
}

impl App {
    pub(super) fn on_mouse(&mut self, mouse: MouseEvent) -> Vec<Effect> {
        // What lies over the transcript hides it from the mouse too.
        let hidden = self.race.is_some() || self.picker.is_some() || self.overlay.is_some();
        let place = self.place(mouse).filter(|_| !hidden);
        match mouse.kind {
            MouseEventKind::ScrollUp => self.scroll_by(-WHEEL),
            MouseEventKind::ScrollDown => self.scroll_by(WHEEL),
            MouseEventKind::Down(MouseButton::Left) => {
                self.selection = place.map(|place| Selection { from: place, to: place });
                if self.selection.is_some() {
                    return vec![Effect::Drag(true)];
                }
            }
            MouseEventKind::Drag(MouseButton::Left) => {
                if let (Some(selection), Some(place)) = (&mut self.selection, place) {
                    selection.to = place;
                }
            }
            MouseEventKind::Up(MouseButton::Left) => {
                let mut effects = vec![Effect::Drag(false)];
                match self.selection {
                    Some(Selection { from, to }) if from == to => {
                        self.selection = None;
                        self.open_token(from);
                    }
                    Some(selection) => effects.extend(self.copy(self.selected_text(selection))),
                    None => {}
                }
                return effects;
            }
            _ => {}
        }
        Vec::new()
    }

    /// Where in the transcript the mouse is.
    fn place(&self, mouse: MouseEvent) -> Option<Place> {
        let shown = self.shown;
        let inside = shown.area.contains(Position::new(mouse.column, mouse.row));
        inside.then(|| {
            let column = usize::from(mouse.column - shown.area.x);
            let row = shown.top + usize::from(mouse.row - shown.area.y);
            (row, column.saturating_sub(shown.indent))
        })
    }

    /// The entry at row `row` of the transcript, and its pieces there as they were drawn.
    fn row_at(&self, row: usize) -> Option<(usize, Cow<'_, Row>)> {
        let (item, row) = self.scroll.entry_at(row)?;
        let row = self.transcript.items.get(item)?.drawn_rows().get(row)?;
        let shown = match self.transcript.answer(item) {
            Some(answer) => self.shown_row(answer, row, self.shown.width),
            None => Cow::Borrowed(row),
        };
        Some((item, shown))
    }

    fn selected_text(&self, selection: Selection) -> String {
        let text = |row: usize| {
            let cells = selection.cells(row);
            let (_, pieces) = self.row_at(row)?;
            let line: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            let mut at = 0;
            let mut out = String::new();
            for grapheme in line.graphemes(true) {
                if cells.contains(&at) {
                    out.push_str(grapheme);
                }
                at += width(grapheme);
            }
            Some(out.trim_end().to_string())
        };
        let lines: Vec<String> =
            selection.rows().map(|row| text(row).unwrap_or_default()).collect();
        lines.join("\n").trim_end().to_string()
    }

    /// Walk from the token at `place`, where there is one.
    fn open_token(&mut self, (row, column): Place) {
        let Some((item, pieces)) = self.row_at(row) else { return };
        let mut at = 0;
        for piece in pieces.iter() {
            let end = at + width(&piece.text);
            if column < end {
                let before: usize = piece
                    .text
                    .grapheme_indices(true)
                    .scan(at, |x, (offset, grapheme)| {
                        *x += width(grapheme);
                        Some((*x, offset))
                    })
                    .find(|(x, _)| column < *x)
                    .map_or(0, |(_, offset)| offset);
                let source = piece.source.map(|source| source + before);
                let answer = self.transcript.answer(item);
                if let Some(token) = source.and_then(|at| answer?.token_at(at)) {
                    self.walk = Some(Walk { item, token });
                    self.panel = Panel::Round;
                }
                return;
            }
            at = end;
        }
    }

    /// Put `text` on the clipboard, if it is not too much for a terminal.
    pub(super) fn copy(&mut self, text: String) -> Option<Effect> {
        /// Most bytes: beyond it terminals drop the sequence.
        const MOST: usize = 56_000;
        if text.len() > MOST {
            let (size, most) = (text.len() / 1000, MOST / 1000);
            let what = format!("{size} kB are too much for a terminal's clipboard ({most} kB)");
            self.say(Level::Warning, what);
            return None;
        }
        let count = text.chars().count();
        let s = if count == 1 { "" } else { "s" };
        self.say(Level::Info, format!("{count} character{s} sent to the terminal's clipboard"));
        (!text.is_empty()).then_some(Effect::Copy(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::app::Event;
    use crate::tui::events::Input;
    use crate::tui::testing::*;
    use crossterm::event::KeyModifiers;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn mouse(app: &mut App, kind: MouseEventKind, column: u16, row: u16) -> Vec<Effect> {
        let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        happen(app, Event::Input(Input::Mouse(event)))
    }

    fn drawn_app() -> App {
        let mut app = ready_app();
        ask(&mut app, "日本 question");
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| crate::tui::view::draw(frame, &mut app)).unwrap();
        app
    }

    #[test]
    fn a_drag_copies_what_it_covers() {
        let mut app = drawn_app();
        let left = MouseButton::Left;
        mouse(&mut app, MouseEventKind::Down(left), 5, 1);
        mouse(&mut app, MouseEventKind::Drag(left), 7, 3);
        let effects = mouse(&mut app, MouseEventKind::Up(left), 7, 3);
        assert_eq!(effects, [Effect::Drag(false), Effect::Copy("本 question\n\nParis".into())]);
    }

    #[test]
    fn a_click_opens_the_round_behind_a_token() {
        let mut app = drawn_app();
        let left = MouseButton::Left;
        mouse(&mut app, MouseEventKind::Down(left), 30, 3);
        mouse(&mut app, MouseEventKind::Up(left), 30, 3);
        let walk = app.walk.expect("a token is there");
        let answer = app.transcript.answer(walk.item).unwrap();
        assert!(answer.token_range(walk.token).contains(&27));
    }

    /// Rejected drafts that are shown move what stands behind them; they open nothing.
    #[test]
    fn a_click_behind_a_ghost_opens_the_token_that_is_there() {
        let mut app = drawn_app();
        let rows = |app: &App| {
            (0..12)
                .filter_map(|row| Some((row, app.row_at(row)?.1.into_owned())))
                .collect::<Vec<(usize, Row)>>()
        };
        let before = rows(&app);
        app.ghosts = true;
        let after = rows(&app);
        let ghosts = |row: &Row| row.iter().filter(|piece| piece.source.is_none()).count();
        let (row, shown) = after
            .iter()
            .zip(&before)
            .find(|(after, before)| ghosts(&after.1) > ghosts(&before.1))
            .map(|(after, _)| after)
            .expect("a draft was rejected");
        let mut column = 0;
        for piece in shown {
            app.walk = None;
            app.open_token((*row, column));
            let opened = app.walk.map(|walk| {
                let answer = app.transcript.answer(walk.item).unwrap();
                answer.token_range(walk.token).contains(&piece.source.unwrap())
            });
            assert_eq!(opened, piece.source.map(|_| true), "{piece:?}");
            column += width(&piece.text);
        }
    }

    /// B42: the mouse at the edge, outside, and before anything was drawn.
    #[test]
    fn the_mouse_is_harmless_anywhere() {
        let mut fresh = new_app();
        let mut app = drawn_app();
        let left = MouseButton::Left;
        for (column, row) in [(0, 0), (79, 23), (79, 1), (500, 500), (u16::MAX, u16::MAX), (0, 9)] {
            for kind in [
                MouseEventKind::Down(left),
                MouseEventKind::Drag(left),
                MouseEventKind::Up(left),
                MouseEventKind::ScrollUp,
                MouseEventKind::Moved,
            ] {
                mouse(&mut app, kind, column, row);
                mouse(&mut fresh, kind, column, row);
            }
        }
    }
}
