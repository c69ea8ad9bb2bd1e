//! The demo: a playlist that runs by itself, each item on a fresh page, until a key is pressed.
//! Pure like all of [`App`]: it says when it wants to be woken.

use super::{App, EngineState, RaceStage, Replay};
use crate::chat::conversation::Conversation;
use crate::event::*;
use crate::record::demo::{Item as Show, Playlist, What, trace};
use crate::tui::effect::Effect;
use crate::tui::transcript::{Item, Note, Transcript};
use std::time::{Duration, Instant};

/// How far the item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// The model is being loaded for it.
    Loading,
    /// It plays.
    Playing,
    /// It stands still until then.
    Resting(Instant),
}

/// A playlist on the screen.
#[derive(Debug, Clone)]
pub struct Demo {
    playlist: Playlist,
    /// Which item is shown.
    item: usize,
    act: Act,
    /// Why no model can be had, once one was tried; what is recorded is played then.
    no_model: Option<String>,
    /// Items in a row that could not be shown.
    skipped: usize,
}

impl Demo {
    /// Before its first item.
    pub fn new(playlist: Playlist) -> Demo {
        Demo { playlist, item: 0, act: Act::Loading, no_model: None, skipped: 0 }
    }

    /// What it is about.
    pub fn title(&self) -> &str {
        &self.playlist.title
    }

    /// The sentence for the audience.
    pub fn caption(&self) -> &str {
        self.shown().map_or("", |item| &item.caption)
    }

    /// Which item is shown, 1 for the first, and how many there are.
    pub fn place(&self) -> (usize, usize) {
        (self.item + 1, self.playlist.item.len())
    }

    fn shown(&self) -> Option<&Show> {
        self.playlist.item.get(self.item)
    }
}

impl App {
    /// What is to be done before anything happens.
    pub fn begin(&mut self) -> Vec<Effect> {
        match self.demo {
            Some(_) => self.show_item(),
            None => vec![Effect::StartEngine(self.asked_pair.clone())],
        }
    }

    /// When something is to happen by itself.
    pub fn due(&self) -> Option<Instant> {
        match self.demo.as_ref()?.act {
            Act::Resting(until) => Some(until),
            Act::Loading | Act::Playing => None,
        }
    }

    /// Let the demo go on, where it is time to.
    pub(super) fn direct(&mut self, now: Instant) -> Vec<Effect> {
        let Some(demo) = &self.demo else { return Vec::new() };
        let loaded = self.has_live_model();
        match demo.act {
            Act::Resting(until) if now >= until => self.next_item(),
            Act::Resting(_) => Vec::new(),
            Act::Loading if loaded => self.ask_item(),
            Act::Loading if self.engine == EngineState::Ended => self.without_model(),
            Act::Loading => Vec::new(),
            Act::Playing => self.rest_or_go_on(now),
        }
    }

    /// Stand still when the item has ended.
    fn rest_or_go_on(&mut self, now: Instant) -> Vec<Effect> {
        let ended = match &self.race {
            // Its engines could not be loaded.
            Some(racing) if racing.model.is_none() && !racing.goes_on() => {
                return self.without_model();
            }
            Some(racing) => !racing.goes_on(),
            None => {
                let answer = self.transcript.last_answer();
                let finished = answer.is_none_or(|answer| answer.finished.is_some());
                self.running.is_none() && finished && (answer.is_some() || self.replay.is_none())
            }
        };
        if let Some(demo) = self.demo.as_mut().filter(|_| ended) {
            let rest = demo.shown().map_or(0.0, |item| item.rest);
            demo.act = Act::Resting(now + Duration::try_from_secs_f32(rest).unwrap_or_default());
        }
        Vec::new()
    }

    fn next_item(&mut self) -> Vec<Effect> {
        if let Some(demo) = &mut self.demo {
            demo.item = (demo.item + 1) % demo.playlist.item.len().max(1);
        }
        self.show_item()
    }

    /// Whether a model is loaded that computes.
    fn has_live_model(&self) -> bool {
        self.model().is_some_and(|model| !model.is_replay())
    }

    /// Put the item on a fresh page.
    fn show_item(&mut self) -> Vec<Effect> {
        let Some(demo) = &mut self.demo else { return Vec::new() };
        let Some(item) = demo.shown().cloned() else { return Vec::new() };
        let recorded = item.trace.as_deref().and_then(trace);
        let recorded = recorded.filter(|_| item.pace != 1.0 || demo.no_model.is_some());
        if recorded.is_none() && demo.no_model.is_some() {
            return self.skip_item();
        }
        demo.skipped = 0;
        demo.act = Act::Playing;
        self.transcript = Transcript::default();
        let system = self.conversation.system.take();
        self.conversation = Conversation { system, ..Conversation::default() };
        self.composer.set("");
        self.walk = None;
        self.notice = None;
        self.running = None;
        self.replay = None;
        self.under_way = None;
        self.race = None;
        self.scroll.follow();
        let loaded = self.has_live_model();
        if let Some(recorded) = recorded {
            let recording = recorded.recording();
            let rounds = recording.runs.first().map_or(0, |run| run.rounds().count());
            let (speed, prompt) = (item.pace, item.prompt.clone());
            self.replay = Some(Replay { prompt, rounds, speed, paused: false });
            self.transcript.items.push(Item::User(Note::new(item.prompt)));
            // It was made elsewhere: what was measured here says nothing of it.
            self.plain = super::PlainSteps::default();
            self.verify_cost = None;
            self.measure_context();
            self.engine = EngineState::Loading { stage: "a recording".into(), done: 0, total: 0 };
            return vec![Effect::PlayTrace(recorded.name)];
        }
        match item.show {
            What::Race => self.ask_item(),
            What::Single if loaded => self.ask_item(),
            What::Single => {
                if let Some(demo) = &mut self.demo {
                    demo.act = Act::Loading;
                }
                self.load_pair(self.asked_pair.clone())
            }
        }
    }

    /// Ask what the item asks: its model is there, or its lanes load their own.
    fn ask_item(&mut self) -> Vec<Effect> {
        let Some(demo) = &mut self.demo else { return Vec::new() };
        demo.act = Act::Playing;
        let Some(item) = demo.shown().cloned() else { return Vec::new() };
        let asked = Generate { max_tokens: item.max_tokens, ..self.generate.clone() };
        match item.show {
            What::Race => {
                let messages = self.alone(&item.prompt);
                self.race(&item.prompt, messages, asked, 1)
            }
            What::Single => self.ask_as(item.prompt, asked),
        }
    }

    /// No model can be had: what is recorded is played instead, and the rest left out.
    fn without_model(&mut self) -> Vec<Effect> {
        let failed = self.race.take().and_then(|racing| match racing.stage {
            RaceStage::Failed(what) => Some(what),
            _ => None,
        });
        let told = || self.notice.as_ref().map(|(_, text)| text.clone());
        let why = failed.or_else(told).unwrap_or_else(|| "no model could be loaded".into());
        if let Some(demo) = &mut self.demo {
            demo.no_model = Some(why);
        }
        self.show_item()
    }

    /// Go on with the next item; where none can be shown the demo ends and says why.
    fn skip_item(&mut self) -> Vec<Effect> {
        let Some(demo) = &mut self.demo else { return Vec::new() };
        demo.skipped += 1;
        if demo.skipped < demo.playlist.item.len() {
            return self.next_item();
        }
        let why = self.demo.take().and_then(|demo| demo.no_model).unwrap_or_default();
        self.engine = EngineState::Ended;
        self.tell(Level::Error, format!("this demo needs a model: {why}"));
        Vec::new()
    }

    /// A key stops the demo: what plays stands still, and the screen is the person's.
    pub(super) fn stop_demo(&mut self) -> Vec<Effect> {
        let Some(demo) = self.demo.take() else { return Vec::new() };
        let quit = self.keymap.hint(crate::tui::action::Action::Quit);
        let (effects, how) = match (&mut self.replay, &self.race) {
            (Some(_), _) if self.running.is_none() => (Vec::new(), "Space plays this again"),
            (Some(replay), _) => {
                replay.paused = true;
                (vec![super::replay::steered(ReplayControl::Pause)], "Space goes on")
            }
            (None, Some(_)) => (self.stop_race(), "Esc closes the race"),
            (None, None) => (self.stop(), "this is the chat now"),
        };
        // A playlist of races loads no model for a chat, and a recording is none.
        let live = self.has_live_model();
        if demo.act != Act::Loading && !live && self.replay.is_none() {
            self.engine = EngineState::Ended;
        }
        self.say(Level::Info, format!("the demo has stopped: {how}, {quit} quits"));
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ModelReady;
    use crate::tui::app::{Event, update};
    use crate::tui::testing::*;
    use crossterm::event::{KeyCode, KeyModifiers};

    const THREE: &str = r#"
        title = "three"
        [[item]]
        caption = "slowly"
        prompt = "one"
        pace = 0.5
        rest = 2
        trace = "math"
        [[item]]
        caption = "live"
        prompt = "two"
        max_tokens = 9
        [[item]]
        caption = "race"
        prompt = "three"
        show = "race"
        max_tokens = 8
    "#;

    fn demo_app(playlist: &str) -> App {
        let mut app = new_app();
        app.demo = Some(Demo::new(Playlist::parse(playlist).unwrap()));
        app
    }

    /// Play the recorded run of that name up to its end.
    fn play_trace(app: &mut App, name: &str) {
        let recording = trace(name).unwrap().recording();
        let mut ready = recording.ready.unwrap();
        ready.engine = "replay".into();
        happen(app, Event::Engine(EngineEvent::ModelReady(Box::new(ready))));
        for event in recording.runs[0].events.clone() {
            happen(app, Event::Engine(event));
        }
    }

    /// Let the rest after an item pass.
    fn rest(app: &mut App) -> Vec<Effect> {
        let due = app.due().expect("it rests");
        update(app, Event::Due, due)
    }

    #[test]
    fn items_follow_each_other_and_begin_again() {
        let mut app = demo_app(THREE);
        assert_eq!(app.begin(), [Effect::PlayTrace("math")]);
        assert!(app.due().is_none());
        play_trace(&mut app, "math");
        let replay = app.replay.as_ref().unwrap();
        assert_eq!((replay.speed, replay.prompt.as_str()), (0.5, "one"));
        // Not before its time.
        let early = app.due().unwrap() - Duration::from_millis(1);
        assert!(update(&mut app, Event::Due, early).is_empty());
        assert_eq!(rest(&mut app), [Effect::StartEngine("demo".into())]);
        let mut asked = Vec::new();
        for event in play(None) {
            asked.extend(happen(&mut app, Event::Engine(event)));
        }
        let Some(EngineCommand::Generate(generate)) = sent(&asked) else { panic!("{asked:?}") };
        assert_eq!(generate.max_tokens, 9);
        assert_eq!(generate.prompt, Prompt::Messages(vec![ChatMessage::new(Role::User, "two")]));
        for event in play(Some(EngineCommand::Generate(generate))) {
            happen(&mut app, Event::Engine(event));
        }
        assert_eq!(app.demo.as_ref().unwrap().place(), (2, 3));
        let [Effect::Race { requests, .. }] = &rest(&mut app)[..] else { panic!("no race") };
        assert_eq!(requests[0].max_tokens, 8);
        let requests = requests.clone();
        run_lanes(&mut app, &requests, usize::MAX);
        assert_eq!(rest(&mut app), [Effect::PlayTrace("math")]);
        assert!(app.race.is_none());
    }

    /// Without a model what is recorded plays, and what is not is left out.
    #[test]
    fn without_a_model_recordings_play() {
        let mut app = demo_app(
            "title = 't'\n[[item]]\ncaption = 'c'\nprompt = 'p'\ntrace = 'code'\n\
             [[item]]\ncaption = 'r'\nprompt = 'q'\nshow = 'race'\n",
        );
        assert_eq!(app.begin(), [Effect::StartEngine("demo".into())]);
        let message = Message { level: Level::Error, message: "no net".into(), hint: None };
        happen(&mut app, Event::Engine(EngineEvent::Error(message)));
        assert_eq!(happen(&mut app, Event::EngineEnded), [Effect::PlayTrace("code")]);
        play_trace(&mut app, "code");
        // The race is left out.
        assert_eq!(rest(&mut app), [Effect::PlayTrace("code")]);
    }

    #[test]
    fn a_demo_that_can_show_nothing_says_why() {
        let mut app =
            demo_app("title = 't'\n[[item]]\ncaption = 'r'\nprompt = 'q'\nshow = 'race'\n");
        assert!(matches!(app.begin()[..], [Effect::Race { .. }]));
        let message = Message { level: Level::Error, message: "no net".into(), hint: None };
        happen(&mut app, Event::Lane(0, EngineEvent::Error(message)));
        assert!(app.demo.is_none() && app.race.is_none());
        assert_eq!(app.notice.as_ref().unwrap().1, "this demo needs a model: no net");
        assert_eq!(app.engine, EngineState::Ended);
    }

    #[test]
    fn any_key_stops_it() {
        let mut app = demo_app(THREE);
        app.begin();
        let recording = trace("math").unwrap().recording();
        let engine = "replay".to_owned();
        let ready = Box::new(ModelReady { engine, ..recording.ready.unwrap() });
        happen(&mut app, Event::Engine(EngineEvent::ModelReady(ready)));
        for event in recording.runs[0].events.iter().take(9) {
            happen(&mut app, Event::Engine(event.clone()));
        }
        let pause = EngineCommand::Replay { control: ReplayControl::Pause };
        let effects = press(&mut app, KeyCode::Char('x'), KeyModifiers::NONE);
        assert_eq!(sent(&effects), Some(pause));
        assert!(app.demo.is_none() && app.composer.is_blank());
        assert!(app.due().is_none());
        let mut app = demo_app(THREE);
        app.begin();
        let quit = press(&mut app, KeyCode::Char('q'), KeyModifiers::CONTROL);
        assert_eq!(quit, [Effect::Quit]);
    }
}
