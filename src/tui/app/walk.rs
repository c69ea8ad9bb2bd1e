//! Walking the tokens of an answer: the panel shows the round behind each.

use super::{App, Panel};
use crate::tui::action::Action;
use crate::tui::transcript::Answer;

/// The token that is looked at. An answer of an earlier session has none; it is walked as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// Its answer's place in the transcript.
    pub item: usize,
    /// Its place in the answer.
    pub token: usize,
}

impl App {
    /// Begin at the end of the last answer, or stop walking.
    pub(super) fn toggle_walk(&mut self) {
        let last = self.transcript.answers().next_back();
        self.walk = match (self.walk, last) {
            (None, Some((item, answer))) => Some(Walk { item, token: last_of(answer) }),
            _ => None,
        };
        if self.walk.is_some() {
            self.panel = Panel::Round;
        }
    }

    /// Whether `action` moved the walk.
    pub(super) fn walk_by(&mut self, action: Action) -> bool {
        let Some(walk) = self.walk else { return false };
        let Some(answer) = self.transcript.answer(walk.item) else {
            self.walk = None;
            return false;
        };
        let tokens = answer.tokens.len();
        let round = |token: usize| answer.tokens.get(token).and_then(|token| token.round);
        let token = match action {
            Action::Left => walk.token.saturating_sub(1),
            Action::Right => (walk.token + 1).min(tokens.saturating_sub(1)),
            // By rounds: to the first token of this round or the one before; of the next.
            Action::WordLeft => {
                let before = walk.token.saturating_sub(1);
                (0..=before).rev().take_while(|&t| round(t) == round(before)).last().unwrap_or(0)
            }
            Action::WordRight => (walk.token..tokens)
                .find(|&t| round(t) != round(walk.token))
                .unwrap_or(tokens.saturating_sub(1)),
            Action::LineStart => 0,
            Action::LineEnd => tokens.saturating_sub(1),
            Action::Up | Action::Down => return self.walk_answers(walk, action == Action::Up),
            _ => return false,
        };
        self.walk = Some(Walk { token, ..walk });
        true
    }

    fn walk_answers(&mut self, walk: Walk, up: bool) -> bool {
        let mut answers = self.transcript.answers();
        let next = if up {
            answers.rfind(|(item, _)| *item < walk.item)
        } else {
            answers.find(|(item, _)| *item > walk.item)
        };
        if let Some((item, answer)) = next {
            self.walk = Some(Walk { item, token: if up { last_of(answer) } else { 0 } });
        }
        true
    }
}

/// The place of an answer's last token.
fn last_of(answer: &Answer) -> usize {
    answer.tokens.len().saturating_sub(1)
}
