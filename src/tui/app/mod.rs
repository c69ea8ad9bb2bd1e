//! All state of the screen, and the one function that changes it: [`update`] takes what happened
//! and returns what is to be done. It knows no terminal, no thread and no clock of its own.

mod demo;
mod engine;
mod input;
mod mouse;
mod offers;
mod pair;
mod picker;
mod race;
mod replay;
mod talk;
mod walk;

pub use demo::Demo;
pub use mouse::{Selection, Shown};
pub use pair::OwnSettings;
pub use picker::{PairChoice, Picker};
pub use race::{Racing, Stage as RaceStage};
pub use replay::{KEYS as REPLAY_KEYS, Replay};
pub use walk::Walk;

use super::caps::{Caps, Depth};
use super::composer::Composer;
use super::effect::Effect;
use super::events::Input;
use super::glyphs::{ASCII, Glyphs, UNICODE};
use super::keymap::Keymap;
use super::scroll::Scroll;
use super::theme::Theme;
use super::transcript::{Answer, Item, Note, Transcript};
use crate::chat::conversation::Conversation;
use crate::chat::store::Listing;
use crate::event::*;
use crate::record::demo::Playlist;
use crate::stats::Spread;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The person did something.
    Input(Input),
    /// The engine said something.
    Engine(EngineEvent),
    /// The engine has ended and will say no more.
    EngineEnded,
    /// A lane of the race said something.
    Lane(usize, EngineEvent),
    /// The lanes have ended and will say no more.
    LanesEnded,
    /// It is the time that the screen waits for.
    Due,
    /// Something outside failed or is worth saying.
    Notice(Level, String),
    /// The same, to stay readable in the transcript.
    Told(Level, String),
    /// Another conversation is open, and what is to be said of it.
    Opened(Box<Conversation>, Vec<String>),
    /// The conversations that can be opened.
    Listed(Listing),
    /// The person has left the editor: the message, or why it is as it was.
    Edited(Result<String, String>),
}

/// How far the engine is.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineState {
    /// It is being loaded: what is done, and how far.
    Loading {
        /// In words.
        stage: String,
        /// Units done.
        done: u64,
        /// Units in all, 0 when not known.
        total: u64,
    },
    /// It can answer.
    Ready(Box<ModelReady>),
    /// It has ended.
    Ended,
}

/// How far the answer in progress is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Asked, nothing heard yet.
    Waiting,
    /// The prompt passes through the target: tokens done, in all.
    Prefill(usize, usize),
    /// Rounds.
    Decoding,
}

/// The answer in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// How far it is.
    pub phase: Phase,
    /// Whether it was asked to stop.
    pub stopping: bool,
}

/// What lies over the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlay {
    /// Keys and commands, scrolled down by so many rows.
    Help(usize),
    /// The figures of the session.
    Stats,
}

/// What the panel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Panel {
    /// One round.
    #[default]
    Round,
    /// All rounds of an answer over time.
    Timeline,
    /// What block lengths cost and bring.
    Cost,
    /// Nothing: the transcript has the room.
    Hidden,
}

/// How the tokens of an answer are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colouring {
    /// As Markdown says.
    Plain,
    /// By how each token got there.
    #[default]
    Outcome,
    /// Rounds alternate.
    Rounds,
}

/// Colours and marks in use.
#[derive(Debug, Clone)]
pub struct Dress {
    /// Styles.
    pub theme: Theme,
    /// Marks.
    pub glyphs: &'static Glyphs,
    /// Changes whenever one of them does.
    pub epoch: u64,
    /// Colours that the terminal has.
    pub depth: Depth,
}

/// Plain steps of the session, the measure of every speed-up: the last ones, since the machine
/// may have been busy before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlainSteps(VecDeque<u64>);

impl PlainSteps {
    /// Steps that are remembered.
    const MOST: usize = 64;

    /// One more took `us`.
    pub fn add(&mut self, us: u64) {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(us);
    }

    /// How many are remembered.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The median of their times, which a few slow ones do not move.
    pub fn median_us(&self) -> Option<f64> {
        let times: Vec<f64> = self.0.iter().map(|us| *us as f64).collect();
        (!times.is_empty()).then(|| Spread::of(&times).median)
    }
}

/// The share of the context from which on the person is warned.
pub const CROWDED: f64 = 0.8;

/// Everything the screen knows.
#[derive(Debug, Clone)]
pub struct App {
    /// Name of the pair.
    pub pair: String,
    /// The pair as it was asked for, which starts its engine again.
    pub asked_pair: String,
    /// How the next answer is made; its prompt is not used.
    pub generate: Generate,
    /// What was said, and to whom; what is sent is made from it.
    pub conversation: Conversation,
    /// The turn whose message the composer has, to be said otherwise; counted from 0.
    pub editing: Option<usize>,
    /// The message that was sent in the place of another, until its answer begins.
    replacement: Option<talk::Replacement>,
    /// How the message that waits for the model is to be answered.
    held: Option<Box<Generate>>,
    /// How far the engine is.
    pub engine: EngineState,
    /// Models that were loaded in this session: only what the last one did says how fast it is.
    pub models: usize,
    /// The conversation as it is shown.
    pub transcript: Transcript,
    /// The answer in progress.
    pub running: Option<Running>,
    /// The round of a slow replay that is not over, and what goes on in it.
    pub under_way: Option<(RoundPhase, Box<Round>)>,
    /// What is being written.
    pub composer: Composer,
    /// Where the reader is.
    pub scroll: Scroll,
    /// The last word of the program.
    pub notice: Option<(Level, String)>,
    /// What lies over the screen.
    pub overlay: Option<Overlay>,
    /// The list that is open.
    pub picker: Option<Picker>,
    /// The pairs that can be chosen.
    pub pairs: Vec<PairChoice>,
    /// The settings that come with a pair, by its name.
    pub own: BTreeMap<String, OwnSettings>,
    /// The recording, where one plays in the place of a model.
    pub replay: Option<Replay>,
    /// The race that is shown in the place of the conversation.
    pub race: Option<Box<Racing>>,
    /// The playlist that runs.
    pub demo: Option<Demo>,
    /// What the panel shows.
    pub panel: Panel,
    /// Cells that the panel beside the transcript is wider than usual.
    pub panel_extra: i16,
    /// Whether the figures are explained.
    pub explain: bool,
    /// Whether rejected drafts are shown in the answer.
    pub ghosts: bool,
    /// How tokens are coloured.
    pub colouring: Colouring,
    /// The token that is looked at.
    pub walk: Option<Walk>,
    /// Whether the mouse is heard.
    pub mouse: bool,
    /// What is selected with it.
    pub selection: Option<Selection>,
    /// Where the last frame put the transcript.
    pub shown: Shown,
    /// Colours and marks.
    pub dress: Dress,
    /// Keys.
    pub keymap: Keymap,
    /// Plain steps seen in this session.
    pub plain: PlainSteps,
    /// Tokens of the conversation: its prompt, and the answer so far.
    pub context_used: usize,
    /// Whether the person knows that little of the context is left.
    crowded: bool,
    /// What a verify pass costs, measured.
    pub verify_cost: Option<VerifyCost>,
    /// Whether that is being measured.
    pub measuring: bool,
    /// Whether the measurement was asked to stop.
    measuring_stops: bool,
    /// When Ctrl+C was pressed last.
    interrupted: Option<Instant>,
}

/// What an [`App`] starts from.
#[derive(Debug, Clone)]
pub struct Start {
    /// Name of the pair.
    pub pair: String,
    /// How answers are made.
    pub generate: Generate,
    /// The instructions.
    pub system: Option<String>,
    /// Colours.
    pub theme: Theme,
    /// Whether marks are ASCII.
    pub ascii: bool,
    /// What the terminal can do.
    pub caps: Caps,
    /// Keys.
    pub keymap: Keymap,
    /// Messages of earlier sessions.
    pub history: Vec<String>,
    /// The pairs that can be chosen.
    pub pairs: Vec<PairChoice>,
    /// The settings that come with a pair, by its name.
    pub own: BTreeMap<String, OwnSettings>,
    /// A recording to play.
    pub replay: Option<Replay>,
    /// A playlist to run.
    pub demo: Option<Playlist>,
}

impl App {
    /// A screen before its engine.
    pub fn new(start: Start) -> App {
        let glyphs = if start.ascii { &ASCII } else { &UNICODE };
        let mut transcript = Transcript::default();
        let asked = start.replay.as_ref().map(|replay| replay.prompt.clone());
        let asked = asked.filter(|prompt| !prompt.is_empty());
        transcript.items.extend(asked.map(|prompt| Item::User(Note::new(prompt))));
        App {
            asked_pair: start.pair.clone(),
            pair: start.pair,
            generate: start.generate,
            conversation: Conversation { system: start.system, ..Conversation::default() },
            editing: None,
            replacement: None,
            held: None,
            engine: EngineState::Loading { stage: "starting".into(), done: 0, total: 0 },
            models: 0,
            transcript,
            running: None,
            composer: Composer::new(start.history),
            scroll: Scroll::default(),
            notice: None,
            overlay: None,
            picker: None,
            pairs: start.pairs,
            own: start.own,
            replay: start.replay,
            race: None,
            demo: start.demo.map(Demo::new),
            panel: Panel::default(),
            panel_extra: 0,
            explain: false,
            ghosts: false,
            colouring: Colouring::default(),
            walk: None,
            mouse: true,
            selection: None,
            shown: Shown::default(),
            dress: Dress { theme: start.theme, glyphs, epoch: 0, depth: start.caps.depth },
            keymap: start.keymap,
            plain: PlainSteps::default(),
            context_used: 0,
            crowded: false,
            verify_cost: None,
            under_way: None,
            measuring: false,
            measuring_stops: false,
            interrupted: None,
        }
    }

    /// What is loaded, where something is.
    pub fn model(&self) -> Option<&ModelReady> {
        match &self.engine {
            EngineState::Ready(ready) => Some(ready),
            _ => None,
        }
    }

    /// Whether an answer is being made, or the cost measured: what else the engine could do waits.
    pub fn busy(&self) -> bool {
        self.running.is_some() || self.measuring
    }

    /// Whether a message waits for the model to be loaded.
    pub fn waits_for_model(&self) -> bool {
        self.held.is_some()
    }

    /// How answers are made, and in blocks of which length; of a recording, how the answer that it
    /// plays was made, once that has begun.
    pub fn decoding(&self) -> Option<(Mode, BlockSize)> {
        match self.replay {
            Some(_) => self.transcript.last_answer().map(|it| (it.mode, it.block_size)),
            None => Some((self.generate.mode, self.generate.block_size)),
        }
    }

    /// Time of a plain step that `answer` is to be compared with, where one is known: the one of
    /// its time, in microseconds.
    pub fn plain_us(&self, answer: &Answer) -> Option<f64> {
        match answer.finished {
            Some(_) => answer.plain_us,
            None => self.plain.median_us(),
        }
    }

    /// Whether this machine's CPU is busy with an answer, a measurement or a race.
    pub fn cpu_computes(&self) -> bool {
        let races = self.race.as_ref().is_some_and(|racing| racing.goes_on());
        let on_cpu = self.model().is_none_or(ModelReady::is_on_cpu);
        (self.busy() || races) && on_cpu
    }

    /// What goes on within the round that the panel shows; `None` if it is over.
    pub fn phase(&self) -> Option<RoundPhase> {
        let (phase, _) = self.under_way.as_ref().filter(|_| self.walk.is_none())?;
        Some(*phase)
    }

    /// The round that the panel shows, its answer, and whether it is the newest one.
    pub fn shown_round(&self) -> Option<(&Answer, &Round, bool)> {
        if let Some(walk) = self.walk {
            let answer = self.transcript.answer(walk.item)?;
            let round = answer.tokens.get(walk.token)?.round?;
            return Some((answer, answer.rounds.get(round)?, false));
        }
        if let Some((_, round)) = &self.under_way {
            return Some((self.transcript.last_answer()?, round, true));
        }
        let (_, answer) =
            self.transcript.answers().rev().find(|(_, answer)| !answer.rounds.is_empty())?;
        Some((answer, answer.rounds.last()?, true))
    }

    /// The share of the context that is used; `None` while no limit is known, as in a recording
    /// that does not tell it.
    pub fn context_share(&self) -> Option<f64> {
        let limit = self.model().map(|model| model.ctx_limit).filter(|limit| *limit > 0)?;
        Some(self.context_used as f64 / limit as f64)
    }

    fn say(&mut self, level: Level, text: impl Into<String>) {
        self.notice = Some((level, text.into()));
    }

    /// Say something that should stay readable: in the transcript.
    fn tell(&mut self, level: Level, text: impl Into<String>) {
        let text = text.into();
        self.notice = Some((level, text.lines().next().unwrap_or_default().to_string()));
        self.transcript.items.push(Item::Notice(level, Note::new(text)));
    }

    fn dress_in(&mut self, theme: Theme) {
        self.dress.theme = theme;
        self.dress.epoch += 1;
    }
}

/// Take in what happened at `now`; the state after it is in `app`, and what is to be done comes
/// back.
pub fn update(app: &mut App, event: Event, now: Instant) -> Vec<Effect> {
    let mut effects = match event {
        Event::Input(input) => app.on_input(input, now),
        Event::Engine(event) => app.on_engine(event),
        Event::EngineEnded => app.on_engine_end(),
        Event::Lane(lane, event) => app.on_lane(lane, event),
        Event::Due => Vec::new(),
        Event::LanesEnded => {
            app.on_lanes_end();
            Vec::new()
        }
        Event::Opened(conversation, notices) => app.on_opened(*conversation, notices),
        Event::Listed(listing) => {
            app.pick_conversation(listing);
            Vec::new()
        }
        Event::Told(level, text) => {
            app.tell(level, text);
            Vec::new()
        }
        Event::Notice(level, text) => {
            app.say(level, text);
            Vec::new()
        }
        Event::Edited(outcome) => app.on_edited(outcome),
    };
    app.watch_edit();
    app.offer();
    effects.extend(app.direct(now));
    effects
}

#[cfg(test)]
mod tests;
