//! A conversation: turns of a person and a model, and everything that may happen to them.

use crate::event::{
    BlockSize, ChatMessage, EngineEvent, FinishReason, Mode, Role, RunStarted, Sampling, Totals,
};
use crate::text::sanitise_line;
use serde::{Deserialize, Serialize};

/// Most characters of a title that is made from a message.
const TITLE: usize = 48;
/// How the title of a fork begins.
const FORK: &str = "fork at turn ";

/// Where a conversation comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The conversation that it was copied from.
    pub id: String,
    /// How many of its turns were copied.
    pub turns: usize,
}

/// A conversation. It changes by [`Conversation::apply`] alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// Its name among the saved ones.
    pub id: String,
    /// When it began, in seconds since 1970.
    pub created: u64,
    /// The conversation that it is a fork of.
    pub origin: Option<Origin>,
    /// The title that the person gave it.
    pub renamed: Option<String>,
    /// The instructions; `None` leaves them to the template.
    pub system: Option<String>,
    /// The models that answer now.
    pub models: Models,
    /// What was said, oldest first.
    pub turns: Vec<Turn>,
}

/// Which models answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Models {
    /// Name of the pair.
    pub pair: String,
    /// Name of the target, whose vocabulary an answer's ids belong to.
    pub target: String,
    /// Name of the draft, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
    /// The target in the words of the person who named it apart from the pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_asked: Option<String>,
    /// The draft, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_asked: Option<String>,
}

/// A message and its answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// What the person said.
    pub user: String,
    /// What the model said; `None` before an answer began.
    pub answer: Option<Answer>,
}

/// An answer, complete or not.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// How it was made.
    pub run: Run,
    /// The models that made it.
    pub models: Models,
    /// Its exact text.
    pub text: String,
    /// Its ids, an end token included.
    pub ids: Vec<u32>,
    /// Why it ended, and its sums; `None` if it did not (the program was killed).
    pub finished: Option<(FinishReason, Totals)>,
}

/// The settings and the prompt of an answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Run {
    /// How it was decoded.
    pub mode: Mode,
    /// The block length that was asked for.
    pub block_size: BlockSize,
    /// How tokens were chosen.
    pub sampling: Sampling,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Most tokens that the answer could have.
    pub max_tokens: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that were in the cache already.
    pub reused_tokens: usize,
}

impl From<&RunStarted> for Run {
    fn from(run: &RunStarted) -> Run {
        Run {
            mode: run.mode,
            block_size: run.block_size,
            sampling: run.sampling.clone(),
            seed: run.seed,
            max_tokens: run.max_tokens,
            prompt_tokens: run.prompt_ids.len(),
            reused_tokens: run.reused_tokens,
        }
    }
}

/// Something that happens to a conversation; a line of its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Change {
    /// The person gives it a title; an empty one takes the title back.
    Title {
        /// The title.
        title: String,
    },
    /// Other instructions hold from now on.
    System {
        /// The instructions; `None` leaves them to the template.
        text: Option<String>,
    },
    /// Other models answer from now on.
    Models(Models),
    /// The person says something.
    User {
        /// The message.
        text: String,
    },
    /// An answer to the last message begins; an earlier answer to it is gone.
    Answer(Box<Run>),
    /// The answer goes on.
    Text {
        /// The ids of a round.
        ids: Vec<u32>,
        /// The text that they add.
        text: String,
    },
    /// The answer ends.
    Finished {
        /// Why.
        reason: FinishReason,
        /// Its sums.
        totals: Box<Totals>,
    },
    /// Only the first turns remain (undo; the first half of an edit).
    Cut {
        /// How many.
        turns: usize,
    },
}

impl Change {
    /// What an engine's event changes, if it changes anything.
    pub fn of(event: &EngineEvent) -> Option<Change> {
        Some(match event {
            EngineEvent::ModelReady(ready) => Change::Models(Models {
                pair: ready.pair.clone(),
                target: ready.target.name.clone(),
                draft: ready.draft.as_ref().map(|draft| draft.name.clone()),
                target_asked: ready.target_asked.clone(),
                draft_asked: ready.draft_asked.clone(),
            }),
            EngineEvent::RunStarted(run) => Change::Answer(Box::new(Run::from(run.as_ref()))),
            EngineEvent::PrefillDone { first, text, .. } => {
                Change::Text { ids: vec![first.id], text: text.clone() }
            }
            EngineEvent::Round(round) => Change::Text {
                ids: round.committed.iter().map(|token| token.id).collect(),
                text: round.text.clone(),
            },
            EngineEvent::RunFinished { reason, totals } => {
                Change::Finished { reason: reason.clone(), totals: Box::new(totals.clone()) }
            }
            _ => return None,
        })
    }
}

impl Conversation {
    /// An empty conversation.
    pub fn new(id: impl Into<String>, created: u64) -> Conversation {
        Conversation { id: id.into(), created, ..Conversation::default() }
    }

    /// Let `change` happen. Returns false where it changes nothing: a text without an answer,
    /// the same title again.
    pub fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Title { title } => {
                let title = Some(title.trim().to_owned()).filter(|title| !title.is_empty());
                replace(&mut self.renamed, title)
            }
            Change::System { text } => replace(&mut self.system, text.clone()),
            Change::Models(models) => replace(&mut self.models, models.clone()),
            Change::User { text } => {
                self.turns.push(Turn { user: text.clone(), answer: None });
                true
            }
            Change::Answer(run) => {
                let Some(turn) = self.turns.last_mut() else { return false };
                let (run, models) = ((**run).clone(), self.models.clone());
                turn.answer = Some(Answer { run, models, ..Answer::default() });
                true
            }
            Change::Text { ids, text } => {
                let Some(answer) = self.open_answer() else { return false };
                answer.ids.extend(ids);
                answer.text.push_str(text);
                true
            }
            Change::Finished { reason, totals } => {
                let Some(answer) = self.open_answer() else { return false };
                answer.finished = Some((reason.clone(), (**totals).clone()));
                true
            }
            Change::Cut { turns } => {
                let before = self.turns.len();
                self.turns.truncate(*turns);
                self.turns.len() < before
            }
        }
    }

    fn open_answer(&mut self) -> Option<&mut Answer> {
        let answer = self.turns.last_mut()?.answer.as_mut()?;
        answer.finished.is_none().then_some(answer)
    }

    /// The changes that make this conversation from an empty one.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        changes.extend(self.renamed.clone().map(|title| Change::Title { title }));
        changes.extend(self.system.clone().map(|text| Change::System { text: Some(text) }));
        let mut models = Models::default();
        let mut switch = |changes: &mut Vec<Change>, to: &Models| {
            if models != *to {
                models = to.clone();
                changes.push(Change::Models(to.clone()));
            }
        };
        for turn in &self.turns {
            changes.push(Change::User { text: turn.user.clone() });
            let Some(answer) = &turn.answer else { continue };
            switch(&mut changes, &answer.models);
            changes.push(Change::Answer(Box::new(answer.run.clone())));
            if !answer.ids.is_empty() || !answer.text.is_empty() {
                let (ids, text) = (answer.ids.clone(), answer.text.clone());
                changes.push(Change::Text { ids, text });
            }
            if let Some((reason, totals)) = &answer.finished {
                let (reason, totals) = (reason.clone(), Box::new(totals.clone()));
                changes.push(Change::Finished { reason, totals });
            }
        }
        switch(&mut changes, &self.models);
        changes
    }

    /// Take back the last message and its answer: the change, and the message for the composer.
    pub fn undo(&self) -> Option<(Change, String)> {
        let last = self.turns.last()?;
        Some((Change::Cut { turns: self.turns.len() - 1 }, last.user.clone()))
    }

    /// Say something else at turn `at`; what came after is gone. Turns count from 0.
    pub fn edit(&self, at: usize, text: impl Into<String>) -> Vec<Change> {
        vec![Change::Cut { turns: at }, Change::User { text: text.into() }]
    }

    /// A copy of the first `turns` turns under another name, whose title says so. `self` stays
    /// as it is.
    pub fn fork(&self, turns: usize, id: impl Into<String>, created: u64) -> Conversation {
        let turns = turns.min(self.turns.len());
        let mut fork = self.clone();
        let title = self.title();
        let own = title.strip_prefix(FORK).and_then(|rest| rest.split_once(": "));
        let own = own.map_or(title.as_str(), |(_, own)| own);
        fork.renamed = Some(format!("{FORK}{turns}: {own}"));
        fork.turns.truncate(turns);
        fork.origin = Some(Origin { id: std::mem::replace(&mut fork.id, id.into()), turns });
        fork.created = created;
        fork
    }

    /// Tokens of the prompt and the answer that came last: about what the next prompt begins
    /// with. 0 before the first answer.
    pub fn context_tokens(&self) -> usize {
        let mut answers = self.turns.iter().rev().filter_map(|turn| turn.answer.as_ref());
        answers.next().map_or(0, |answer| answer.run.prompt_tokens + answer.ids.len())
    }

    /// The messages for the engine. Answers of the same target bring their ids, so that they
    /// are never tokenised again, unless a stop string cut their text; turns without an answer
    /// are left out, except the last.
    pub fn messages(&self) -> Vec<ChatMessage> {
        let mut messages = Vec::new();
        messages.extend(self.system.as_ref().map(|text| ChatMessage::new(Role::System, text)));
        for (i, turn) in self.turns.iter().enumerate() {
            let answer = turn.answer.as_ref().filter(|answer| !answer.ids.is_empty());
            if answer.is_none() && i + 1 < self.turns.len() {
                continue;
            }
            messages.push(ChatMessage::new(Role::User, turn.user.clone()));
            messages.extend(answer.map(|answer| answer.message(&self.models.target)));
        }
        messages
    }

    /// The messages that ask for another answer to the last one.
    pub fn messages_for_retry(&self) -> Vec<ChatMessage> {
        let mut messages = self.messages();
        messages.pop_if(|last| last.role == Role::Assistant);
        messages
    }

    /// The title that the person gave it, else the first words of the first message; on one
    /// line, safe to show.
    pub fn title(&self) -> String {
        let first = || self.turns.first().map(|turn| turn.user.as_str());
        let text = self.renamed.as_deref().or_else(first).unwrap_or("(empty)");
        sanitise_line(&shortened(text, TITLE))
    }
}

impl Answer {
    /// The answer as a message, with its ids if they are ids of `target`.
    fn message(&self, target: &str) -> ChatMessage {
        let reason = self.finished.as_ref().map(|(reason, _)| reason);
        let message = ChatMessage::answer(&self.text, &self.ids, reason);
        let ids = message.ids.filter(|_| self.models.target == target);
        ChatMessage { ids, ..message }
    }
}

/// Leave the oldest turn (a message and what follows up to the next message) out of a prompt.
/// Returns the first words of what was left out; `None` if only the last message is left.
pub fn drop_oldest_turn(messages: &mut Vec<ChatMessage>) -> Option<String> {
    let mut users = messages.iter().enumerate().filter(|(_, m)| m.role == Role::User);
    let (first, second) = (users.next()?.0, users.next()?.0);
    let dropped: Vec<ChatMessage> = messages.drain(first..second).collect();
    dropped.first().map(|message| sanitise_line(&shortened(&message.content, TITLE)))
}

/// The first words of `text`, at most `most` characters of them.
fn shortened(text: &str, most: usize) -> String {
    let mut short = String::new();
    for word in text.split_whitespace() {
        let space = if short.is_empty() { "" } else { " " };
        if short.chars().count() + space.len() + word.chars().count() >= most {
            let left = most.saturating_sub(short.chars().count() + space.len() + 1);
            if short.is_empty() {
                short.extend(word.chars().take(left));
            }
            return short + "…";
        }
        short.push_str(space);
        short.push_str(word);
    }
    short
}

/// Put `value` in the place of `old`; returns whether they differ.
fn replace<T: PartialEq>(old: &mut T, value: T) -> bool {
    let differs = *old != value;
    *old = value;
    differs
}

#[cfg(test)]
mod tests;
