//! The conversation: what is asked, taken back, opened. All its changes go through
//! [`App::change`], which has them written down.

use super::{App, CROWDED, Phase, Running};
use crate::chat::conversation::{Change, Conversation, Models};
use crate::chat::export;
use crate::event::*;
use crate::text::sanitise_line;
use crate::tui::action::Action;
use crate::tui::effect::Effect;
use crate::tui::transcript::{Answer, Item, Note, Transcript};
use std::path::{Path, PathBuf};

/// A message that was sent in the place of another. What it replaces is kept until an answer to
/// it begins, so that a request that fails before costs nothing.
#[derive(Debug, Clone)]
pub(super) struct Replacement {
    /// The turn whose message it replaces, counted from 0.
    turn: usize,
    text: String,
    /// What the screen showed from that turn on.
    items: Vec<Item>,
}

impl App {
    /// Let `change` happen to the conversation; the effect writes it down.
    pub(super) fn change(&mut self, change: Change) -> Option<Effect> {
        self.conversation.apply(&change).then_some(Effect::Record(change))
    }

    /// Say `text` and ask the engine for an answer. An edited message takes its own place; what
    /// came after it is gone when the answer begins.
    pub(super) fn ask(&mut self, text: String) -> Vec<Effect> {
        self.ask_as(text, self.generate.clone())
    }

    /// The same, answered as `how` says; its prompt is not used.
    pub(super) fn ask_as(&mut self, text: String, how: Generate) -> Vec<Effect> {
        let mut effects = Vec::new();
        match self.editing.take() {
            Some(turn) => {
                let items = self.transcript.cut(turn);
                self.replacement = Some(Replacement { turn, text: text.clone(), items });
            }
            None => effects.extend(self.change(Change::User { text: text.clone() })),
        }
        self.transcript.items.push(Item::User(Note::new(text)));
        effects.extend(self.request(how));
        effects
    }

    /// An answer begins: what the message before it replaces is gone now.
    pub(super) fn replace(&mut self) -> Vec<Effect> {
        let Some(Replacement { turn, text, .. }) = self.replacement.take() else {
            return Vec::new();
        };
        let changes = self.conversation.edit(turn, text);
        changes.into_iter().filter_map(|change| self.change(change)).collect()
    }

    /// The message in the place of another gets no answer: all is as it was, and the message can
    /// be sent again.
    fn put_back(&mut self, replacement: Replacement) {
        let Replacement { turn, text, items } = replacement;
        self.transcript.undo();
        self.transcript.items.extend(items);
        if self.composer.is_blank() {
            self.composer.set(&text);
            self.editing = Some(turn);
        }
    }

    /// Ask for another answer to the last message. The earlier one is gone when this one begins.
    pub(super) fn retry(&mut self) -> Vec<Effect> {
        if self.conversation.turns.is_empty() {
            self.say(Level::Warning, "there is no message to answer again");
            return Vec::new();
        }
        if !self.can_ask() {
            return Vec::new();
        }
        // The same seed would give the same answer.
        let what = if self.generate.sampling.temperature > 0.0 {
            self.generate.seed = self.generate.seed.wrapping_add(1);
            format!("again, with seed {}", self.generate.seed)
        } else {
            "again; without a temperature (/temp T) the text is the same".into()
        };
        self.transcript.take_back_answer();
        let how = self.generate.clone();
        let effect = self.request(how);
        self.say(Level::Info, what);
        effect.into_iter().collect()
    }

    /// What asks `text` outside of the conversation, with its instructions.
    pub(super) fn alone(&self, text: &str) -> Vec<ChatMessage> {
        let system = self.conversation.system.as_ref();
        let system = system.map(|text| ChatMessage::new(Role::System, text.clone()));
        system.into_iter().chain([ChatMessage::new(Role::User, text)]).collect()
    }

    /// Ask for an answer to the last message. While the model is loaded that waits here: an engine
    /// that has it could only be told to leave it by ending the load.
    fn request(&mut self, how: Generate) -> Option<Effect> {
        self.notice = None;
        self.walk = None;
        self.scroll.follow();
        self.transcript.items.push(Item::Answer(Box::default()));
        self.running = Some(Running { phase: Phase::Waiting, stopping: false });
        self.held = Some(Box::new(how));
        self.model()?;
        self.send_held()
    }

    /// Send what waits for the model.
    pub(super) fn send_held(&mut self) -> Option<Effect> {
        let how = self.held.take()?;
        let prompt = Prompt::Messages(self.asked_messages());
        let generate = Generate { prompt, ..*how };
        Some(Effect::Send(Box::new(EngineCommand::Generate(Box::new(generate)))))
    }

    /// The messages up to the one that is asked, without an earlier answer to it. They belong to
    /// the model that is loaded when they are sent.
    fn asked_messages(&self) -> Vec<ChatMessage> {
        let Some(Replacement { turn, text, .. }) = &self.replacement else {
            return self.conversation.messages_for_retry();
        };
        let mut replaced = self.conversation.clone();
        for change in self.conversation.edit(*turn, text.clone()) {
            replaced.apply(&change);
        }
        replaced.messages()
    }

    /// What waits for the model is not asked; the model is loaded all the same.
    pub(super) fn take_back_held(&mut self) -> Vec<Effect> {
        let kept = match self.composer.is_blank() {
            true => String::new(),
            false => format!(", {} recalls the message", self.keymap.hint(Action::Up)),
        };
        let effect = self.give_back_prompt();
        self.say(Level::Info, format!("nothing is asked{kept}; the model is still being loaded"));
        effect.into_iter().collect()
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
        let effect = self.change(change);
        self.measure_context();
        effect.into_iter().collect()
    }

    /// Go on in a copy that ends with this turn (the last one unless given), counted from 1.
    pub(super) fn fork(&mut self, turn: Option<usize>) -> Vec<Effect> {
        let turns = self.conversation.turns.len();
        match turn.unwrap_or(turns) {
            _ if turns == 0 => self.say(Level::Warning, "nothing was said yet"),
            turn if turn > turns => self.say(Level::Warning, count_of_turns(turns)),
            turn => return vec![Effect::Fork(turn)],
        }
        Vec::new()
    }

    /// The same at the answer that is walked.
    pub(super) fn fork_here(&mut self) -> Vec<Effect> {
        if self.running.is_some() {
            let key = self.keymap.hint(Action::Back);
            self.say(Level::Warning, format!("a fork has to wait for the answer; {key} stops it"));
            return Vec::new();
        }
        let turn = self.walk.map(|walk| {
            let before = self.transcript.items.iter().take(walk.item);
            before.filter(|item| matches!(item, Item::User(_))).count()
        });
        self.fork(turn)
    }

    /// Put the message of a turn (the last one unless given, counted from 1) into the composer;
    /// sent, it takes its own place.
    pub(super) fn edit(&mut self, turn: Option<usize>) {
        let turns = self.conversation.turns.len();
        let at = turn.unwrap_or(turns).checked_sub(1);
        let Some(at) = at.filter(|at| *at < turns) else {
            let what = match turns {
                0 => "there is no message to edit".into(),
                turns => count_of_turns(turns),
            };
            return self.say(Level::Warning, what);
        };
        self.editing = Some(at);
        self.composer.set(&self.conversation.turns[at].user.clone());
        let [send, leave] = [Action::Submit, Action::Back].map(|action| self.keymap.hint(action));
        let what = match turns - at - 1 {
            0 => String::new(),
            1 => "; 1 later turn goes".into(),
            later => format!("; {later} later turns go"),
        };
        let what = format!("{send} sends it in its place, {leave} leaves it{what}");
        self.say(Level::Info, what);
    }

    /// An edit is over when nothing of the message is left.
    pub(super) fn watch_edit(&mut self) {
        if self.composer.is_blank() {
            self.leave_edit();
        }
    }

    /// What is written does not take the place of a message any more.
    pub(super) fn leave_edit(&mut self) {
        if let Some(turn) = self.editing.take() {
            let number = turn + 1;
            let what = format!("message {number} stays; what is written now is a new message");
            self.say(Level::Info, what);
        }
    }

    /// Take over what was written in the editor.
    pub(super) fn on_edited(&mut self, outcome: Result<String, String>) -> Vec<Effect> {
        match outcome {
            Ok(text) => self.composer.replace(&text),
            Err(why) => self.say(Level::Error, why),
        }
        // The editor may have had the mouse.
        vec![Effect::Mouse(self.mouse)]
    }

    /// Count what the conversation takes of the context, where no answer is being made.
    pub(super) fn measure_context(&mut self) {
        self.context_used = self.conversation.context_tokens();
        self.crowded = self.context_share().is_some_and(|share| share >= CROWDED) && self.crowded;
    }

    /// Warn, once, when little of the context is left.
    pub(super) fn watch_context(&mut self) {
        let Some((share, model)) = self.context_share().zip(self.model()) else { return };
        let (used, limit) = (self.context_used, model.ctx_limit);
        let crowded = share >= CROWDED;
        if crowded && !self.crowded {
            let then = match self.generate.drop_oldest {
                true => "The oldest turns are left out when it is full.",
                false => "Answers end when it is full. /new or /fork TURN makes room.",
            };
            let percent = (100.0 * share).floor();
            let what = format!("{percent:.0} % of the context is used, {used} of {limit} tokens");
            self.tell(Level::Warning, format!("{what}\n{then}"));
        }
        self.crowded = crowded;
    }

    /// Begin to write another title: as a command, which can be left.
    pub(super) fn begin_renaming(&mut self) {
        if self.composer.is_blank() {
            let given = self.conversation.renamed.clone();
            let title = given.unwrap_or_else(|| self.conversation.title());
            self.composer.set(&format!("/title {}", sanitise_line(&title)));
        } else {
            self.say(Level::Warning, "a message is being written; /title TEXT gives a title");
        }
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
        let made_by = self.conversation.models.clone();
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
        self.editing = None;
        self.crowded = false;
        self.measure_context();
        self.scroll.follow();
        match self.conversation.turns.len() {
            0 => self.notice = None,
            turns => {
                let s = if turns == 1 { "" } else { "s" };
                let title = self.conversation.title();
                self.say(Level::Info, format!("{title}: {turns} turn{s}"));
            }
        }
        // One is said; what would hide another, or what is said of, stays readable.
        let stays = notices.len() > 1 || !self.transcript.items.is_empty();
        for notice in notices {
            match stays {
                true => self.tell(Level::Warning, notice),
                false => self.say(Level::Info, notice),
            }
        }
        if self.model().is_some() {
            self.tell_of_other_models(&made_by);
        }
        self.watch_context();
        effects
    }

    /// Say so where another target goes on with a conversation than the one that made it.
    pub(super) fn tell_of_other_models(&mut self, made_by: &Models) {
        let now = &self.conversation.models;
        let known = !self.conversation.turns.is_empty() && !made_by.target.is_empty();
        if !known || made_by.target == now.target {
            return;
        }
        // Two files may go by one name.
        let names = match made_by.pair == now.pair {
            true => [&made_by.target, &now.target],
            false => [&made_by.pair, &now.pair],
        };
        let [made_by, now] = names.map(|name| sanitise_line(name));
        let what = format!("this conversation was made with {made_by}; {now} goes on with it");
        self.tell(Level::Warning, what);
    }

    /// What was asked failed, or is taken back. An answer that has begun stays, marked; an earlier
    /// answer, or turns, that this one did not replace yet come back; else the message goes back
    /// into the composer, so that nothing typed is lost.
    pub(super) fn give_back_prompt(&mut self) -> Option<Effect> {
        self.running.take()?;
        self.held = None;
        if let Some(replacement) = self.replacement.take() {
            self.put_back(replacement);
            return None;
        }
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

fn count_of_turns(turns: usize) -> String {
    match turns {
        1 => "there is one turn".into(),
        turns => format!("there are {turns} turns"),
    }
}
