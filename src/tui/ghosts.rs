//! Rejected drafts in an answer's text, behind the corrections that replaced them.

use super::app::{App, Dress};
use super::theme::Role;
use super::transcript::Answer;
use super::wrap::{self, Piece, Row};
use crate::event::Outcome;
use std::borrow::Cow;

impl App {
    /// `row` of an answer as it is shown in `width` cells: with its ghosts, if they are asked for.
    pub fn shown_row<'a>(&self, answer: &Answer, row: &'a Row, width: usize) -> Cow<'a, Row> {
        match self.ghosts {
            true => Cow::Owned(with_ghosts(&self.dress, answer, row, width)),
            false => Cow::Borrowed(row),
        }
    }
}

/// `row` with the ghosts that it has room for. What is not of the answer's text has no source.
fn with_ghosts(dress: &Dress, answer: &Answer, row: &Row, width: usize) -> Row {
    let mut room = width.saturating_sub(wrap::row_width(row));
    let mut shown = Row::new();
    for piece in row {
        let part = |text: &str, from| {
            let source = piece.source.map(|source| source + from);
            Piece { text: text.into(), style: piece.style, source }
        };
        let (mut from, mut at) = (0, 0);
        while let Some(source) = piece.source.filter(|_| at < piece.text.len()) {
            let Some((token, end)) = answer.token_in(&piece.text, source, at) else { break };
            at = end;
            // A token that goes on in the next row has its ghost there.
            let whole = source + end == answer.tokens[token].end;
            let ghost = ghost(dress, answer, token).filter(|_| whole);
            if let Some(ghost) = ghost.filter(|ghost| wrap::width(&ghost.text) <= room) {
                room -= wrap::width(&ghost.text);
                shown.extend([part(&piece.text[from..end], from), ghost]);
                from = end;
            }
        }
        if from < piece.text.len() {
            shown.push(part(&piece.text[from..], from));
        }
    }
    shown
}

/// The rejected draft that a correction replaced.
fn ghost(dress: &Dress, answer: &Answer, token: usize) -> Option<Piece> {
    let span = answer.tokens[token];
    let (Outcome::Correction, Some(round)) = (span.outcome, span.round) else { return None };
    let round = answer.rounds.get(round)?;
    let draft = round.drafted.get(round.accepted)?;
    let text = dress.glyphs.visible(&draft.text);
    Some(Piece::new(text, dress.theme.style(Role::Ghost)))
}
