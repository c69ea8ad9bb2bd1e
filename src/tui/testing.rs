//! What the tests of the screen share: an app with a scripted engine that plays at once.

use super::action::Action;
use super::app::{App, Event, Start, update};
use super::caps::{Caps, ColorChoice, Depth};
use super::effect::Effect;
use super::events::Input;
use super::keymap::Keymap;
use super::theme::Theme;
use crate::engine::scripted::{Script, ScriptedEngine};
use crate::engine::{CancelToken, Engine, EventSink};
use crate::event::{EngineCommand, EngineEvent, Generate};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::BTreeMap;
use std::time::Instant;

/// An app whose engine has not said anything yet.
pub fn new_app() -> App {
    App::new(Start {
        pair: "demo".into(),
        generate: Generate::default(),
        system: None,
        theme: Theme::built_in("dark", Depth::TrueColor).expect("built in"),
        ascii: false,
        caps: Caps::from_env(ColorChoice::Auto, |_| None),
        keymap: Keymap::built_in(),
        history: Vec::new(),
        pairs: Vec::new(),
        own: BTreeMap::new(),
        replay: None,
        demo: None,
    })
}

/// An app whose scripted engine is ready.
pub fn ready_app() -> App {
    let mut app = new_app();
    for event in play(None) {
        happen(&mut app, Event::Engine(event));
    }
    app
}

/// The events of a scripted engine: those of loading, or those of one command after it.
pub fn play(command: Option<EngineCommand>) -> Vec<EngineEvent> {
    let (mut sink, mut events) = EventSink::channel();
    let script = Script { pace: 0.0, ..Script::default() };
    let mut engine = ScriptedEngine::load(script, &mut sink);
    let mut drain = || std::iter::from_fn(|| events.try_recv().ok()).map(|e| e.event).collect();
    let loading: Vec<EngineEvent> = drain();
    let Some(command) = command else { return loading };
    engine.handle(command, &mut sink, &CancelToken::default());
    drain()
}

/// Let `event` happen now.
pub fn happen(app: &mut App, event: Event) -> Vec<Effect> {
    update(app, event, Instant::now())
}

/// Press a key.
pub fn press(app: &mut App, code: KeyCode, modifiers: KeyModifiers) -> Vec<Effect> {
    happen(app, Event::Input(Input::Key(KeyEvent::new(code, modifiers))))
}

/// Press the first key of `action`.
pub fn act(app: &mut App, action: Action) -> Vec<Effect> {
    let chord = app.keymap.keys(action)[0];
    happen(app, Event::Input(Input::Key(chord.event())))
}

/// Write `text` and send it.
pub fn submit(app: &mut App, text: &str) -> Vec<Effect> {
    happen(app, Event::Input(Input::Paste(text.into())));
    act(app, Action::Submit)
}

/// The command that `effects` send to the engine.
pub fn sent(effects: &[Effect]) -> Option<EngineCommand> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send(command) => Some((**command).clone()),
        _ => None,
    })
}

/// Ask `text` and let the first `events` events of the answer happen.
pub fn ask_partly(app: &mut App, text: &str, events: usize) {
    let command = sent(&submit(app, text)).expect("a command is sent");
    for event in play(Some(command)).into_iter().take(events) {
        happen(app, Event::Engine(event));
    }
}

/// Let the first `events` events of both lanes of a race happen, in turn; returns what the last
/// one asked for.
pub fn run_lanes(app: &mut App, requests: &[Generate], events: usize) -> Vec<Effect> {
    let lane = |request: &Generate| {
        let command = EngineCommand::Generate(Box::new(request.clone()));
        play(None).into_iter().rev().take(1).chain(play(Some(command)))
    };
    let mut lanes: Vec<_> = requests.iter().map(lane).collect();
    let mut effects = Vec::new();
    for _ in 0..events {
        let mut said = false;
        for (i, lane) in lanes.iter_mut().enumerate() {
            if let Some(event) = lane.next() {
                effects = happen(app, Event::Lane(i, event));
                said = true;
            }
        }
        if !said {
            break;
        }
    }
    effects
}

/// Ask `text` and let the whole answer happen.
pub fn ask(app: &mut App, text: &str) {
    ask_partly(app, text, usize::MAX);
}
