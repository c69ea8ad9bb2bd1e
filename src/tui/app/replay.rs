//! A recording on the screen: while nothing is written, keys steer the engine that plays it.

use super::App;
use crate::event::{EngineCommand, ModelReady, ReplayControl};
use crate::record::timeline::SPEEDS;
use crate::tui::effect::Effect;
use crate::tui::transcript::{Item, Transcript};
use crossterm::event::{KeyCode, KeyEvent};

/// How a recording plays.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// What was asked; empty where it is not known.
    pub prompt: String,
    /// Rounds in all.
    pub rounds: usize,
    /// Times the recorded speed.
    pub speed: f32,
    /// Whether it stands still.
    pub paused: bool,
}

/// The keys, in words.
pub const KEYS: &str =
    "Space plays and pauses, . one round, Left/Right a round back or on, [ ] speed";

impl App {
    /// What `key` means to the recording; `None` for nothing.
    pub(super) fn steer(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let free = self.composer.is_blank() && self.picker.is_none() && self.overlay.is_none();
        if !free || self.walk.is_some() || !key.modifiers.is_empty() {
            return None;
        }
        let ended = self.running.is_none();
        let happened = self.transcript.last_answer().map_or(0, |answer| answer.rounds.len());
        let replay = self.replay.as_mut()?;
        let control = match key.code {
            KeyCode::Char(' ') if ended => return Some(self.play()),
            KeyCode::Char(' ') => {
                replay.paused = !replay.paused;
                if replay.paused { ReplayControl::Pause } else { ReplayControl::Resume }
            }
            KeyCode::Char('.') => {
                replay.paused = true;
                ReplayControl::Step
            }
            KeyCode::Char(c @ ('[' | ']')) => {
                let factor = if c == '[' { 0.5 } else { 2.0 };
                replay.speed = (replay.speed * factor).clamp(SPEEDS.0, SPEEDS.1);
                ReplayControl::Speed(replay.speed)
            }
            // Who goes to a round wants to look at it.
            KeyCode::Left | KeyCode::Right => {
                replay.paused = true;
                let back = key.code == KeyCode::Left;
                let to = if back { happened.saturating_sub(1) } else { happened + 1 };
                return Some(vec![steered(ReplayControl::Pause), steered(ReplayControl::Seek(to))]);
            }
            KeyCode::Enter if ended => return Some(self.play()),
            _ => return None,
        };
        Some(vec![steered(control)])
    }

    /// Play the recording from its start.
    pub(super) fn play(&mut self) -> Vec<Effect> {
        let Some(replay) = &mut self.replay else { return Vec::new() };
        replay.paused = false;
        let generate = EngineCommand::Generate(Box::default());
        vec![
            steered(ReplayControl::Speed(replay.speed)),
            steered(ReplayControl::Resume),
            Effect::Send(Box::new(generate)),
        ]
    }

    /// A model takes the place of the recording, as it does when the person chooses a pair: what
    /// was shown of it goes.
    pub(super) fn end_of_replay(&mut self, ready: &ModelReady) {
        if !ready.is_replay() && self.replay.take().is_some() {
            self.transcript = Transcript::of(&self.conversation);
            self.walk = None;
            self.under_way = None;
        }
    }

    /// The recording starts anew, after a step back too: what was shown of it goes.
    pub(super) fn on_replay_start(&mut self) {
        self.walk = None;
        self.transcript.items.retain(|item| !matches!(item, Item::Answer(_)));
    }
}

pub(super) fn steered(control: ReplayControl) -> Effect {
    Effect::Send(Box::new(EngineCommand::Replay { control }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::demo::TRACES;
    use crate::tui::app::Event;
    use crate::tui::testing::*;
    use crossterm::event::KeyModifiers;

    fn press_key(app: &mut App, code: KeyCode) -> Vec<EngineCommand> {
        let sent = press(app, code, KeyModifiers::NONE).into_iter();
        sent.filter_map(|effect| match effect {
            Effect::Send(command) => Some(*command),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn keys_steer_a_recording() {
        let recording = TRACES[0].recording();
        let rounds = recording.runs[0].rounds().count();
        let mut app = new_app();
        app.replay = Some(Replay { prompt: String::new(), rounds, speed: 1.0, paused: false });
        let engine = "replay".to_owned();
        let ready = ModelReady { engine, ..recording.ready.clone().unwrap() };
        happen(&mut app, Event::Engine(crate::event::EngineEvent::ModelReady(Box::new(ready))));
        let play = |app: &mut App| {
            for event in &recording.runs[0].events {
                happen(app, Event::Engine(event.clone()));
            }
        };
        play(&mut app);
        assert_eq!(app.transcript.last_answer().unwrap().rounds.len(), rounds);
        let control = |control| EngineCommand::Replay { control };
        let back = [ReplayControl::Pause, ReplayControl::Seek(rounds - 1)].map(control);
        assert_eq!(press_key(&mut app, KeyCode::Left), back);
        // The engine plays it anew up to there: nothing is shown twice.
        play(&mut app);
        assert_eq!(app.transcript.answers().count(), 1);
        let faster = control(ReplayControl::Speed(2.0));
        assert_eq!(press_key(&mut app, KeyCode::Char(']')), [faster]);
        assert_eq!(press_key(&mut app, KeyCode::Char('.')), [control(ReplayControl::Step)]);
        assert!(app.replay.as_ref().unwrap().paused);
        // It has ended, so Space plays it again; what is typed is not taken for a key.
        assert!(press_key(&mut app, KeyCode::Char(' ')).len() == 3);
        submit(&mut app, "hello");
        assert!(app.notice.as_ref().unwrap().1.starts_with("this is a recording"));
        assert_eq!(app.composer.text(), "hello");
        assert!(press_key(&mut app, KeyCode::Char('.')).is_empty());
        assert_eq!(app.composer.text(), "hello.");
        // A model takes its place: it is not asked to play, and can be asked.
        let engine = "native".to_owned();
        let model = ModelReady { engine, ..recording.ready.clone().unwrap() };
        let ready = crate::event::EngineEvent::ModelReady(Box::new(model));
        assert!(sent(&happen(&mut app, Event::Engine(ready))).is_none());
        assert!(app.replay.is_none() && app.transcript.last_answer().is_none());
        app.composer.set("");
        assert!(sent(&submit(&mut app, "hello")).is_some());
    }
}
