//! The conversation: what is asked, taken back, opened. All its changes go through
//! [`App::change`], which has them written down.

use super::{App, Phase, Running};
use crate::chat::conversation::{Change, Conversation};
use crate::chat::export;
use crate::event::*;
use crate::tui::effect::Effect;
use crate::tui::transcript::{Answer, Item, Note, Transcript};
use std::path::{Path, PathBuf};

impl App {
    /// Let `change` happen to the conversation; the effect writes it down.
    pub(super) fn change(&mut self, change: Change) -> Option<Effect> {
        self.conversation.apply(&change).then_some(Effect::Record(change))
    }

    /// Say `text` and ask the engine for an answer. An edited message takes the place of the
    /// last one.
    pub(super) fn ask(&mut self, text: String) -> Vec<Effect> {
        self.ask_as(text, self.generate.clone())
    }

    /// The same, answered as `how` says; its prompt is not used.
    pub(super) fn ask_as(&mut self, text: String, how: Generate) -> Vec<Effect> {
        let changes = if std::mem::take(&mut self.editing) {
            self.transcript.undo();
            self.conversation.edit(self.conversation.turns.len().saturating_sub(1), text.clone())
        } else {
            vec![Change::User { text: text.clone() }]
        };
        let mut effects: Vec<Effect> =
            changes.into_iter().filter_map(|change| self.change(change)).collect();
        self.transcript.items.push(Item::User(Note::new(text)));
        effects.push(self.request(self.conversation.messages(), how));
        effects
    }

    /// Ask for another answer to the last message. The earlier one is gone when this one begins.
    pub(super) fn retry(&mut self) -> Vec<Effect> {
        if self.conversation.turns.is_empty() {
            self.say(Level::Warning, "there is no message to answer again");
            return Vec::new();
        }
        self.transcript.take_back_answer();
        vec![self.request(self.conversation.messages_for_retry(), self.generate.clone())]
    }

    /// What asks `text` outside of the conversation, with its instructions.
    pub(super) fn alone(&self, text: &str) -> Vec<ChatMessage> {
        let system = self.conversation.system.as_ref();
        let system = system.map(|text| ChatMessage::new(Role::System, text.clone()));
        system.into_iter().chain([ChatMessage::new(Role::User, text)]).collect()
    }

    fn request(&mut self, messages: Vec<ChatMessage>, how: Generate) -> Effect {
        self.notice = None;
        self.walk = None;
        self.scroll.follow();
        self.transcript.items.push(Item::Answer(Box::default()));
        self.running = Some(Running { phase: Phase::Waiting, stopping: false });
        let prompt = Prompt::Messages(messages);
        let generate = Generate { prompt, ..how };
        Effect::Send(Box::new(EngineCommand::Generate(Box::new(generate))))
    }

    /// Take back the last message and its answer; the message goes into the composer.
    pub(super) fn undo(&mut self) -> Vec<Effect> {
        let Some((change, text)) = self.conversation.undo() else {
            self.say(Level::Warning, "there is no message to take back");
            return Vec::new();
        };
        self.walk = None;
        self.transcript.undo();
        self.composer.set(&text);
        self.change(change).into_iter().collect()
    }

    /// Put the last message into the composer; sent, it takes its own place.
    pub(super) fn edit(&mut self) {
        let Some((_, text)) = self.conversation.undo() else {
            return self.say(Level::Warning, "there is no message to edit");
        };
        self.editing = true;
        self.composer.set(&text);
        use crate::tui::action::Action;
        let [send, leave] = [Action::Submit, Action::Back].map(|action| self.keymap.hint(action));
        let what = format!("{send} sends it in the place of the last message, {leave} leaves it");
        self.say(Level::Info, what);
    }

    /// Give the conversation a title.
    pub(super) fn rename(&mut self, title: String) -> Vec<Effect> {
        let effect = self.change(Change::Title { title });
        let title = self.conversation.title();
        self.say(Level::Info, format!("title: {title}"));
        effect.into_iter().collect()
    }

    /// The conversation as a document, for a file: JSON where its name ends so, else Markdown.
    pub(super) fn export(&mut self, name: &str) -> Vec<Effect> {
        let conversation = &self.conversation;
        if conversation.turns.is_empty() {
            self.say(Level::Warning, "nothing was said yet");
            return Vec::new();
        }
        let path = match name {
            "" if conversation.id.is_empty() => PathBuf::from("conversation.md"),
            "" => PathBuf::from(format!("{}.md", conversation.id)),
            name => PathBuf::from(name),
        };
        let ending = Path::extension(&path).unwrap_or_default();
        let text = match ending.eq_ignore_ascii_case("json") {
            true => format!("{:#}\n", export::json(conversation)),
            false => export::markdown(conversation),
        };
        vec![Effect::Export(path, text)]
    }

    /// Another conversation is open now. A new one keeps the instructions; the loaded models
    /// answer from now on. A last message that never got an answer goes into the composer.
    pub(super) fn on_opened(&mut self, next: Conversation, notices: Vec<String>) -> Vec<Effect> {
        let before = std::mem::replace(&mut self.conversation, next);
        let mut effects = Vec::new();
        if self.conversation.turns.is_empty() {
            effects.extend(self.change(Change::System { text: before.system }));
        }
        if self.model().is_some() {
            effects.extend(self.change(Change::Models(before.models)));
        }
        let unanswered = self.conversation.turns.last().is_some_and(|turn| turn.answer.is_none());
        if let Some((change, text)) = self.conversation.undo().filter(|_| unanswered) {
            effects.extend(self.change(change));
            if self.composer.is_blank() {
                self.composer.set(&text);
            }
        }
        self.transcript = Transcript::of(&self.conversation);
        self.walk = None;
        self.selection = None;
        self.editing = false;
        self.context_used = 0;
        self.scroll.follow();
        match self.conversation.turns.len() {
            0 => self.notice = None,
            turns => {
                let s = if turns == 1 { "" } else { "s" };
                let title = self.conversation.title();
                self.say(Level::Info, format!("{title}: {turns} turn{s}"));
            }
        }
        for notice in notices {
            self.say(Level::Info, notice.clone());
            if !self.transcript.items.is_empty() {
                self.tell(Level::Warning, notice);
            }
        }
        effects
    }

    /// What was asked failed. An answer that has begun stays, marked; an earlier answer that
    /// this one did not replace yet comes back; else the message goes back into the composer,
    /// so that nothing typed is lost.
    pub(super) fn give_back_prompt(&mut self) -> Option<Effect> {
        self.running.take()?;
        let answer = self.transcript.last_answer_mut().filter(|it| it.finished.is_none())?;
        if !answer.ids.is_empty() {
            let (reason, totals) = (FinishReason::Failed, answer.stats.totals(0, 0, 0));
            answer.finished = Some((reason.clone(), totals.clone()));
            return self.change(Change::Finished { reason, totals: Box::new(totals) });
        }
        let earlier = self.conversation.turns.last().and_then(|turn| turn.answer.as_ref());
        if let Some(earlier) = earlier.filter(|earlier| !earlier.ids.is_empty()) {
            *answer = Answer::of(earlier);
            return None;
        }
        let message = self.transcript.undo();
        if let Some(message) = message.filter(|_| self.composer.is_blank()) {
            self.composer.set(&message);
        }
        let (change, _) = self.conversation.undo()?;
        self.change(change)
    }
}
