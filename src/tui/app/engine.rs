//! What the engine says, taken into the state.

use super::{App, EngineState, Phase, Running};
use crate::chat::conversation::Change;
use crate::event::*;
use crate::text::sanitise;
use crate::tui::effect::Effect;
use crate::tui::transcript::{Answer, Item};

impl App {
    pub(super) fn on_engine(&mut self, event: EngineEvent) -> Vec<Effect> {
        // Of an answer that nobody waits for, only the models that are loaded matter.
        let change = Change::of(&event)
            .filter(|change| self.running.is_some() || matches!(change, Change::Models(_)));
        let made_by = self.conversation.models.clone();
        let mut effects = match event {
            EngineEvent::RunStarted(_) => self.replace(),
            _ => Vec::new(),
        };
        effects.extend(change.and_then(|change| self.change(change)));
        match event {
            EngineEvent::LoadProgress { stage, done, total } => {
                let stage = sanitise(&stage).replace('\n', " ");
                self.engine = EngineState::Loading { stage, done, total };
            }
            EngineEvent::ModelReady(ready) => {
                self.end_of_replay(&ready);
                self.on_ready(*ready);
                self.tell_of_other_models(&made_by);
                self.watch_context();
                effects.extend(self.play());
                effects.extend(self.send_held());
            }
            EngineEvent::RunStarted(run) => {
                self.under_way = None;
                if self.replay.is_some() {
                    self.on_replay_start();
                }
                let model = self.models;
                if let Some(answer) = self.open_answer() {
                    answer.model = model;
                    answer.mode = run.mode;
                    answer.block_size = run.block_size;
                    answer.prompt_tokens = (run.prompt_ids.len(), run.reused_tokens);
                }
                self.context_used = run.prompt_ids.len();
            }
            EngineEvent::PrefillProgress { done, total } => {
                self.set_phase(Phase::Prefill(done, total));
            }
            EngineEvent::PrefillDone { first, text, .. } => {
                self.set_phase(Phase::Decoding);
                self.context_used += 1;
                if let Some(answer) = self.open_answer() {
                    answer.first(&first, &text);
                }
            }
            EngineEvent::Phase { phase, round } => self.under_way = Some((phase, round)),
            EngineEvent::Round(round) => self.on_round(*round),
            EngineEvent::RunFinished { reason, totals } => {
                self.under_way = None;
                // After an error there is nothing left to finish.
                let open = self.running.take().and_then(|_| self.transcript.last_answer_mut());
                if let Some(answer) = open.filter(|answer| answer.finished.is_none()) {
                    answer.finished = Some((reason, totals));
                }
                self.compare_with_plain();
                self.watch_context();
            }
            EngineEvent::VerifyCost(cost) => {
                self.measuring = false;
                self.notice = None;
                self.verify_cost = Some(cost);
            }
            EngineEvent::Notice(message) => self.tell(message.level, in_words(&message)),
            EngineEvent::Error(message) => {
                // What was stopped is no failure.
                let stopped = std::mem::take(&mut self.measuring) && self.measuring_stops;
                effects.extend(self.give_back_prompt());
                self.measure_context();
                match stopped {
                    true => self.say(Level::Info, "the measurement was stopped"),
                    false => self.tell(Level::Error, in_words(&message)),
                }
            }
        }
        effects
    }

    /// The engine has ended by itself: what was in progress is over, what was said stays.
    pub(super) fn on_engine_end(&mut self) -> Vec<Effect> {
        let effect = self.give_back_prompt();
        self.measure_context();
        self.measuring = false;
        self.under_way = None;
        self.engine = EngineState::Ended;
        effect.into_iter().collect()
    }

    fn on_ready(&mut self, ready: ModelReady) {
        self.models += 1;
        self.pair = sanitise(&ready.pair).into_owned();
        if let Some(why) = &ready.draft_missing {
            self.tell(Level::Warning, format!("no draft, so no speculation: {why}"));
        }
        self.engine = EngineState::Ready(Box::new(ready));
    }

    /// Answers that are over are compared with the plain steps that are known by then, for good:
    /// what the machine does later, or another model, says nothing of them.
    fn compare_with_plain(&mut self) {
        let (model, plain_us) = (self.models, self.plain.median_us());
        let over = |answer: &&mut Answer| answer.model == model && answer.finished.is_some();
        for answer in self.transcript.answers_mut().filter(over) {
            answer.plain_us = answer.plain_us.or(plain_us);
        }
    }

    fn on_round(&mut self, round: Round) {
        self.under_way = None;
        if round.drafted.is_empty() {
            self.plain.add(round.total_us());
        }
        self.context_used = round.kv_len + 1;
        self.set_phase(Phase::Decoding);
        if let Some(answer) = self.open_answer() {
            answer.round(round);
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(running) = &mut self.running {
            running.phase = phase;
        }
    }

    /// The answer in progress; one is begun where there is none (a replay asks nothing).
    fn open_answer(&mut self) -> Option<&mut Answer> {
        let open = self.transcript.last_answer().is_some_and(|answer| answer.finished.is_none());
        if !open {
            self.transcript.items.push(Item::Answer(Box::default()));
            self.running.get_or_insert(Running { phase: Phase::Waiting, stopping: false });
        }
        self.transcript.last_answer_mut()
    }
}

fn in_words(message: &Message) -> String {
    match &message.hint {
        Some(hint) => format!("{}\n{hint}", message.message),
        None => message.message.clone(),
    }
}
