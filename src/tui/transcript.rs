//! The conversation as the screen has it: messages, and answers whose every token remembers the
//! round, the slot and the outcome that it came from.

use super::markdown::{Look, Rendered};
use super::theme::Role as Paint;
use super::wrap::{self, Break, Piece, Row};
use crate::chat::conversation::{self, Conversation};
use crate::event::*;
use crate::stats::RunStats;
use crate::text::sanitise;

/// One entry of the conversation.
#[derive(Debug, Clone)]
pub enum Item {
    /// What the person said.
    User(Note),
    /// What the model said.
    Answer(Box<Answer>),
    /// What the program has to say, at its place in time.
    Notice(Level, Note),
}

/// A text that does not grow, and its rows.
#[derive(Debug, Clone, Default)]
pub struct Note {
    /// The exact text.
    pub text: String,
    rows: Vec<Row>,
    key: Option<(usize, u64)>,
}

impl Note {
    /// A note that says `text`.
    pub fn new(text: impl Into<String>) -> Note {
        Note { text: text.into(), ..Note::default() }
    }

    fn rows(&mut self, look: Look<'_>, role: Paint) -> &[Row] {
        let key = Some((look.width, look.epoch));
        if self.key != key {
            let style = look.theme.style(role);
            let safe = sanitise(&self.text);
            let line =
                |line: &str| wrap::wrap(&[Piece::new(line, style)], look.width, Break::Words);
            self.rows = safe.split('\n').flat_map(line).collect();
            self.key = key;
        }
        &self.rows
    }
}

/// Where a token of an answer came from. Its text ends at `end` in [`Answer::text`] and starts
/// where the one before it ends; a token that only begins a character is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenSpan {
    /// Where its text ends.
    pub end: usize,
    /// The round that committed it; `None` for the first token, which is prefill's.
    pub round: Option<usize>,
    /// Its place among the round's committed tokens.
    pub slot: usize,
    /// How it got there.
    pub outcome: Outcome,
}

/// An answer, complete or on its way.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The exact text.
    pub content: String,
    /// The text, safe to show.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<TokenSpan>,
    /// Their ids, an end token included.
    pub ids: Vec<u32>,
    /// Its rounds.
    pub rounds: Vec<Round>,
    /// What they add up to.
    pub stats: RunStats,
    /// How it is decoded.
    pub mode: Mode,
    /// The block length that was asked for.
    pub block_size: BlockSize,
    /// Which of the session's models makes it, counted from 1; 0 for one of an earlier session.
    pub model: usize,
    /// Prompt tokens in all, and those that were in the cache already.
    pub prompt_tokens: (usize, usize),
    /// Why it ended, and its sums; `None` on its way.
    pub finished: Option<(FinishReason, Totals)>,
    /// Time of a plain step as it was known at the end, in microseconds: what the answer is
    /// compared with from then on.
    pub plain_us: Option<f64>,
    rendered: Rendered,
}

impl Answer {
    /// An answer from a conversation's file. Which round made a token is not written there; one
    /// that has no end was stopped with the program.
    pub fn of(saved: &conversation::Answer) -> Answer {
        let tokens = saved.ids.len();
        let stopped = || (FinishReason::Cancelled, Totals { tokens, ..Totals::default() });
        Answer {
            content: saved.text.clone(),
            text: sanitise(&saved.text).into_owned(),
            ids: saved.ids.clone(),
            mode: saved.run.mode,
            block_size: saved.run.block_size,
            prompt_tokens: (saved.run.prompt_tokens, saved.run.reused_tokens),
            finished: Some(saved.finished.clone().unwrap_or_else(stopped)),
            ..Answer::default()
        }
    }

    /// The first token, from prefill.
    pub fn first(&mut self, token: &Token, text: &str) {
        self.append(text, std::slice::from_ref(token), |_| (None, Outcome::Plain));
    }

    /// The tokens of one round.
    pub fn round(&mut self, round: Round) {
        let outcomes: Vec<Outcome> = round.outcomes().collect();
        let index = self.rounds.len();
        self.append(&round.text, &round.committed, |slot| (Some(index), outcomes[slot]));
        self.stats.add(&round);
        self.rounds.push(round);
    }

    fn append(
        &mut self,
        text: &str,
        tokens: &[Token],
        origin: impl Fn(usize) -> (Option<usize>, Outcome),
    ) {
        let base = self.text.len();
        let safe = sanitise(text);
        let pieces: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
        for (slot, end) in align(&safe, &pieces).into_iter().enumerate() {
            let (round, outcome) = origin(slot);
            self.tokens.push(TokenSpan { end: base + end, round, slot, outcome });
        }
        self.ids.extend(tokens.iter().map(|token| token.id));
        self.text.push_str(&safe);
        self.content.push_str(text);
    }

    /// The bytes of token `index` in [`Answer::text`].
    pub fn token_range(&self, index: usize) -> std::ops::Range<usize> {
        let start = index.checked_sub(1).and_then(|i| self.tokens.get(i)).map_or(0, |t| t.end);
        let end = self.tokens.get(index).map_or(start, |t| t.end);
        start..end
    }

    /// The token whose text covers byte `at`.
    pub fn token_at(&self, at: usize) -> Option<usize> {
        let index = self.tokens.partition_point(|token| token.end <= at);
        (index < self.tokens.len()).then_some(index)
    }

    /// The token that byte `at` of a piece of its text belongs to, and where in the piece its own
    /// text ends. The piece stands at byte `source`.
    pub fn token_in(&self, piece: &str, source: usize, at: usize) -> Option<(usize, usize)> {
        let token = self.token_at(source + at)?;
        let end = (self.tokens[token].end - source).clamp(at + 1, piece.len());
        let end = (end..=piece.len()).find(|&i| piece.is_char_boundary(i));
        Some((token, end.unwrap_or(piece.len())))
    }

    /// Its text's rows.
    pub fn rows(&mut self, look: Look<'_>) -> &[Row] {
        self.rendered.rows(&self.text, look)
    }
}

/// Where each of `pieces` ends in `text`. A piece is for display and may not be in the text as
/// it is (half a character, an end token): then it is empty, and what lies between pieces goes
/// to the one before.
fn align(text: &str, pieces: &[&str]) -> Vec<usize> {
    /// How far a piece may be from where it is expected before it counts as not there.
    const NEAR: usize = 16;
    let mut ends: Vec<usize> = Vec::with_capacity(pieces.len());
    let mut at = 0;
    let mut last_shown = None;
    for (i, piece) in pieces.iter().enumerate() {
        let shown = piece.replace('⏎', "\n");
        let trimmed = shown.trim_start();
        let rest = &text[at..];
        let found = [shown.as_str(), trimmed]
            .into_iter()
            .filter(|p| !p.is_empty())
            .find_map(|p| rest.find(p).filter(|skip| *skip <= NEAR).map(|skip| (skip, p.len())));
        if let Some((skip, len)) = found {
            if let Some(before) = ends.last_mut().filter(|_| skip > 0) {
                *before = at + skip;
            }
            at += skip + len;
            last_shown = Some(i);
        }
        ends.push(at);
    }
    let from = last_shown.unwrap_or(pieces.len().saturating_sub(1));
    ends.iter_mut().skip(from).for_each(|end| *end = text.len());
    ends
}

/// The conversation.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// Its entries, oldest first.
    pub items: Vec<Item>,
}

impl Transcript {
    /// A saved conversation, to be shown.
    pub fn of(conversation: &Conversation) -> Transcript {
        let turn = |turn: &conversation::Turn| {
            let answer = turn.answer.as_ref().map(|it| Item::Answer(Box::new(Answer::of(it))));
            [Some(Item::User(Note::new(turn.user.clone()))), answer]
        };
        Transcript { items: conversation.turns.iter().flat_map(turn).flatten().collect() }
    }

    /// The answer on its way, or the last one.
    pub fn last_answer_mut(&mut self) -> Option<&mut Answer> {
        self.answers_mut().next_back()
    }

    /// All answers.
    pub fn answers_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Answer> {
        self.items.iter_mut().filter_map(|item| match item {
            Item::Answer(answer) => Some(answer.as_mut()),
            _ => None,
        })
    }

    /// The last answer.
    pub fn last_answer(&self) -> Option<&Answer> {
        self.answers().next_back().map(|(_, answer)| answer)
    }

    /// All answers with their place in the list.
    pub fn answers(&self) -> impl DoubleEndedIterator<Item = (usize, &Answer)> {
        self.items.iter().enumerate().filter_map(|(i, item)| match item {
            Item::Answer(answer) => Some((i, answer.as_ref())),
            _ => None,
        })
    }

    /// The answer at place `index`.
    pub fn answer(&self, index: usize) -> Option<&Answer> {
        match self.items.get(index)? {
            Item::Answer(answer) => Some(answer),
            _ => None,
        }
    }

    /// Take back all that follows the last message of the person.
    pub fn take_back_answer(&mut self) {
        let user = self.items.iter().rposition(|item| matches!(item, Item::User(_)));
        self.items.truncate(user.map_or(0, |at| at + 1));
    }

    /// Take back message `turn` of the person (counted from 0) and all after it; returns them.
    pub fn cut(&mut self, turn: usize) -> Vec<Item> {
        let users = self.items.iter().enumerate().filter(|(_, it)| matches!(it, Item::User(_)));
        let at = users.map(|(at, _)| at).nth(turn);
        self.items.split_off(at.unwrap_or(self.items.len()))
    }

    /// Take back the last message of the person and all after it; returns the message.
    pub fn undo(&mut self) -> Option<String> {
        let at = self.items.iter().rposition(|item| matches!(item, Item::User(_)))?;
        match self.items.drain(at..).next() {
            Some(Item::User(note)) => Some(note.text),
            _ => None,
        }
    }
}

impl Item {
    /// Its text's rows, without what the view puts around them.
    pub fn rows(&mut self, look: Look<'_>) -> &[Row] {
        match self {
            Item::User(note) => note.rows(look, Paint::User),
            Item::Answer(answer) => answer.rows(look),
            Item::Notice(level, note) => note.rows(look, level_role(*level)),
        }
    }
}

impl Item {
    /// Its text's rows as they were drawn last.
    pub fn drawn_rows(&self) -> &[Row] {
        match self {
            Item::User(note) | Item::Notice(_, note) => &note.rows,
            Item::Answer(answer) => answer.rendered.drawn(),
        }
    }
}

/// How a message of that level looks.
pub fn level_role(level: Level) -> Paint {
    match level {
        Level::Info => Paint::Info,
        Level::Warning => Paint::Warning,
        Level::Error => Paint::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(text: &str) -> Token {
        Token { id: 1, text: text.into() }
    }

    #[test]
    fn tokens_find_their_text() {
        assert_eq!(align("fn main", &["fn", " main"]), [2, 7]);
        assert_eq!(align("Paris\nx", &[" Paris", "⏎", "x"]), [5, 6, 7]);
        // Half characters: the emoji belongs to the token that began it, nothing is lost.
        assert_eq!(align("😀 x", &["<F0><9F>", "<98><80>", " x"]), [0, 4, 6]);
        assert_eq!(align("end", &["end", "<|im_end|>"]), [3, 3]);
        assert_eq!(align("", &["<F0>"]), [0]);
    }

    #[test]
    fn every_token_remembers_where_it_came_from() {
        let mut answer = Answer::default();
        answer.first(&token("a"), "a");
        answer.round(Round {
            drafted: vec![DraftedToken::default(); 3],
            accepted: 1,
            committed: vec![token(" b"), token(" c")],
            text: " b c".into(),
            ..Round::default()
        });
        assert_eq!(answer.text, "a b c");
        let origin = |at| {
            let token = answer.tokens[answer.token_at(at).unwrap()];
            (token.round, token.slot, token.outcome)
        };
        assert_eq!(origin(0), (None, 0, Outcome::Plain));
        assert_eq!(origin(2), (Some(0), 0, Outcome::Accepted));
        assert_eq!(origin(4), (Some(0), 1, Outcome::Correction));
        assert_eq!(answer.token_range(2), 3..5);
        assert_eq!(answer.token_at(5), None);
    }

    #[test]
    fn undo_gives_the_message_back() {
        let mut transcript = Transcript::default();
        assert_eq!(transcript.undo(), None);
        transcript.items.push(Item::User(Note::new("one")));
        transcript.items.push(Item::Answer(Box::default()));
        transcript.items.push(Item::Notice(Level::Info, Note::new("n")));
        assert_eq!(transcript.undo().as_deref(), Some("one"));
        assert!(transcript.items.is_empty());
    }

    proptest! {
        #[test]
        fn spans_cover_the_text_in_order(pieces in prop::collection::vec("[a ⏎日<]{0,3}", 1..12), text in "[a \n日<]{0,20}") {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let ends = align(&text, &pieces);
            prop_assert!(ends.is_sorted());
            prop_assert_eq!(*ends.last().unwrap(), text.len());
            prop_assert!(ends.iter().all(|&end| text.is_char_boundary(end)));
        }
    }
}
