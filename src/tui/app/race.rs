//! A race on the screen: baseline against speculative on one prompt, side by side. The lanes are
//! engines of their own, so that the chat's engine and what it has in its cache stay as they are.

use super::App;
use crate::event::*;
use crate::race::report::{LaneReport, Pace, RaceReport};
use crate::race::{LaneKind, Race, TOKENS, nothing_to_race};
use crate::text::sanitise_line;
use crate::tui::action::Action;
use crate::tui::effect::Effect;
use crate::tui::transcript::Answer;

/// How far a race is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// The lanes load, or answer.
    Running,
    /// They were asked to stop.
    Stopping,
    /// All have ended.
    Over,
    /// A lane failed: what it said.
    Failed(String),
}

/// A race and all its repeats.
#[derive(Debug, Clone)]
pub struct Racing {
    /// What is asked, on one line.
    pub question: String,
    /// How far it is.
    pub stage: Stage,
    /// The run that goes on, or ended last.
    pub race: Race,
    /// What each lane says, to be shown.
    pub answers: Vec<Answer>,
    /// What each lane does before its first token, in words.
    pub waits: Vec<String>,
    /// The networks, once a lane has loaded them.
    pub model: Option<ModelReady>,
    /// How often it is run.
    pub repeats: usize,
    /// What it came to, at its end.
    pub report: Option<RaceReport>,
    /// Rows that the lanes' texts are scrolled up from their ends.
    pub up: usize,
    finished: Vec<Race>,
    pair: String,
    requests: Vec<Generate>,
}

impl Racing {
    /// Both ways of answering `request`, `repeats` times.
    fn new(pair: String, question: &str, request: &Generate, repeats: usize) -> Racing {
        let baseline = LaneKind { mode: Mode::Baseline, block_size: BlockSize::Fixed(1) };
        let speculative = LaneKind { mode: Mode::Speculative, block_size: request.block_size };
        let kinds = [baseline, speculative];
        Racing {
            question: sanitise_line(question),
            stage: Stage::Running,
            race: Race::new(&kinds),
            answers: vec![Answer::default(); kinds.len()],
            waits: vec!["starts".into(); kinds.len()],
            model: None,
            repeats,
            report: None,
            up: 0,
            finished: Vec::new(),
            pair,
            requests: kinds.iter().map(|kind| kind.request(request)).collect(),
        }
    }

    /// Whether a lane computes, or will.
    pub fn goes_on(&self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Stopping)
    }

    /// Which run it is, 1 for the first.
    pub fn run(&self) -> usize {
        match self.stage {
            Stage::Over => self.finished.len().max(1),
            _ => self.finished.len() + 1,
        }
    }

    /// Most tokens of an answer.
    pub fn most(&self) -> usize {
        self.requests.first().map_or(TOKENS, |request| request.max_tokens)
    }

    /// Take an event of a lane into account.
    fn take(&mut self, lane: usize, event: EngineEvent) -> Vec<Effect> {
        // What lanes say after the end, both that they were stopped, changes nothing.
        if !self.goes_on() {
            return Vec::new();
        }
        let (Some(answer), Some(waits)) = (self.answers.get_mut(lane), self.waits.get_mut(lane))
        else {
            return Vec::new();
        };
        self.race.add(lane, &event);
        match event {
            EngineEvent::LoadProgress { stage, done, total } => {
                *waits = sanitise_line(&stage);
                if total > 0 {
                    waits.push_str(&format!(" {:.0}%", 100.0 * done as f64 / total as f64));
                }
            }
            EngineEvent::ModelReady(ready) => {
                *waits = "waits for the other lane".into();
                let missing = ready.draft.is_none().then(|| ready.draft_missing.clone());
                self.model = Some(*ready);
                if let Some(why) = missing {
                    return self.fail(&nothing_to_race(why.as_deref()));
                }
            }
            EngineEvent::RunStarted(run) => answer.mode = run.mode,
            EngineEvent::PrefillProgress { done, total } => {
                *waits = format!("reads the prompt: {done} of {total} tokens");
            }
            EngineEvent::PrefillDone { first, text, .. } => answer.first(&first, &text),
            EngineEvent::Round(round) => answer.round(*round),
            EngineEvent::RunFinished { reason, totals } => {
                answer.finished = Some((reason, totals));
                if self.race.finished() {
                    return self.next_run();
                }
            }
            EngineEvent::Error(message) => return self.fail(&message.message),
            EngineEvent::VerifyCost(_) | EngineEvent::Notice(_) | EngineEvent::Phase { .. } => {}
        }
        Vec::new()
    }

    /// All lanes have ended: run it again, or sum it up.
    fn next_run(&mut self) -> Vec<Effect> {
        let stopped = self.stage == Stage::Stopping;
        if !stopped || self.finished.is_empty() {
            self.finished.push(self.race.clone());
        }
        if stopped || self.finished.len() >= self.repeats {
            self.stage = Stage::Over;
            let model = self.model.as_ref();
            self.report = model.and_then(|it| RaceReport::new(&self.question, it, &self.finished));
            return vec![Effect::EndRace];
        }
        let kinds: Vec<LaneKind> = self.race.lanes.iter().map(|lane| lane.kind).collect();
        self.race = Race::new(&kinds);
        self.answers.fill(Answer::default());
        self.waits.fill("waits for the other lane".into());
        self.up = 0;
        vec![self.start()]
    }

    fn start(&self) -> Effect {
        Effect::Race { pair: self.pair.clone(), requests: self.requests.clone() }
    }

    /// A lane cannot go on, so neither can the race. What was stopped is no failure.
    fn fail(&mut self, what: &str) -> Vec<Effect> {
        self.stage = match self.stage {
            Stage::Stopping => Stage::Over,
            _ => Stage::Failed(sanitise_line(what)),
        };
        vec![Effect::EndRace]
    }

    /// The lane that is compared with the first, at the end.
    pub fn result(&self) -> Option<&LaneReport> {
        self.report.as_ref()?.lanes.get(1)
    }
}

impl App {
    /// Race for `prompt` by itself, or for the last question where it is empty.
    pub(super) fn ask_race(&mut self, prompt: String, repeats: usize) -> Vec<Effect> {
        if self.replay.is_some() {
            self.say(Level::Warning, "a recording computes nothing that could race");
            return Vec::new();
        }
        let Some(model) = self.model() else {
            self.say(Level::Warning, "the model is not loaded yet");
            return Vec::new();
        };
        if model.draft.is_none() {
            let what = nothing_to_race(model.draft_missing.as_deref());
            self.say(Level::Warning, what);
            return Vec::new();
        }
        let (question, messages) = match self.conversation.turns.last() {
            _ if !prompt.is_empty() => {
                let messages = self.alone(&prompt);
                (prompt, messages)
            }
            Some(turn) => (turn.user.clone(), self.conversation.messages_for_retry()),
            None => {
                self.say(Level::Warning, "nothing was asked yet; /race PROMPT asks");
                return Vec::new();
            }
        };
        let max_tokens = self.generate.max_tokens.min(TOKENS);
        let how = Generate { max_tokens, ..self.generate.clone() };
        self.race(&question, messages, how, repeats)
    }

    /// Begin a race; `how` says how its lanes answer, but for mode and prompt.
    pub(super) fn race(
        &mut self,
        question: &str,
        messages: Vec<ChatMessage>,
        how: Generate,
        repeats: usize,
    ) -> Vec<Effect> {
        let request = Generate { prompt: Prompt::Messages(messages), ..how };
        let racing = Racing::new(self.asked_pair.clone(), question, &request, repeats);
        let start = racing.start();
        self.notice = None;
        self.walk = None;
        self.race = Some(Box::new(racing));
        vec![start]
    }

    pub(super) fn on_lane(&mut self, lane: usize, event: EngineEvent) -> Vec<Effect> {
        if let EngineEvent::Notice(message) = &event {
            self.say(message.level, message.message.clone());
        }
        self.race.as_mut().map_or_else(Vec::new, |racing| racing.take(lane, event))
    }

    /// No lane will say any more.
    pub(super) fn on_lanes_end(&mut self) {
        if let Some(racing) = self.race.as_mut().filter(|racing| racing.goes_on()) {
            racing.fail("the engines ended in the middle of the race");
        }
    }

    /// What `action` means while a race is shown; `None` for what it means elsewhere too.
    pub(super) fn act_on_race(&mut self, action: Action) -> Option<Vec<Effect>> {
        let goes_on = self.race.as_ref()?.goes_on();
        match action {
            Action::Back if goes_on => return Some(self.stop_race()),
            Action::Submit if goes_on => {}
            Action::Back | Action::Submit => self.leave_race(),
            Action::ScrollUp | Action::Up => self.scroll_by(-1),
            Action::ScrollDown | Action::Down => self.scroll_by(1),
            Action::PageUp => self.scroll_by(-10),
            Action::PageDown => self.scroll_by(10),
            Action::Interrupt
            | Action::Quit
            | Action::Help
            | Action::Explain
            | Action::NextTheme
            | Action::Colouring
            | Action::Ghosts
            | Action::Picture
            | Action::Mouse => return None,
            _ => {}
        }
        Some(Vec::new())
    }

    pub(super) fn stop_race(&mut self) -> Vec<Effect> {
        match self.race.as_mut().filter(|racing| racing.stage == Stage::Running) {
            Some(racing) => {
                racing.stage = Stage::Stopping;
                vec![Effect::StopRace]
            }
            None => Vec::new(),
        }
    }

    /// Back to the chat, which keeps a line of what the race came to.
    fn leave_race(&mut self) {
        let Some(racing) = self.race.take() else { return };
        self.notice = None;
        let stopped = |lane: &LaneReport| lane.reason == Some(FinishReason::Cancelled);
        let Some(report) = racing.report.filter(|it| !it.lanes.iter().any(stopped)) else { return };
        let [first, lane] = &report.lanes[..] else { return };
        let (speed, times) = (lane.speedup.median, self.dress.glyphs.times);
        // Answers of one token have no rounds to compare.
        if speed == 0.0 {
            return;
        }
        let (pace, prompt) = (Pace::of(speed), racing.question);
        self.tell(
            Level::Info,
            format!(
                "Race: {prompt}\n{} against {}: {speed:.2}{times}, {pace}; {}",
                lane.kind, first.kind, lane.verdict
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Verdict;
    use crate::tui::app::Event;
    use crate::tui::testing::*;
    use crossterm::event::{KeyCode, KeyModifiers};

    fn lane(app: &mut App, lane: usize, event: EngineEvent) -> Vec<Effect> {
        happen(app, Event::Lane(lane, event))
    }

    /// The lanes' requests among `effects`.
    fn requests(effects: &[Effect]) -> Vec<Generate> {
        let found = effects.iter().find_map(|effect| match effect {
            Effect::Race { requests, .. } => Some(requests.clone()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    #[test]
    fn a_race_runs_as_often_as_asked_and_says_what_it_came_to() {
        let mut app = ready_app();
        let effects = submit(&mut app, "/race the capital? --repeat 2");
        let asked = requests(&effects);
        assert_eq!(
            asked.iter().map(|it| it.mode).collect::<Vec<_>>(),
            [Mode::Baseline, Mode::Speculative]
        );
        assert!(asked.iter().all(|it| it.max_tokens == TOKENS));
        let system_and_user = Prompt::Messages(vec![ChatMessage::new(Role::User, "the capital?")]);
        assert_eq!(asked[0].prompt, system_and_user);
        let again = run_lanes(&mut app, &asked, usize::MAX);
        assert_eq!(requests(&again), asked);
        assert_eq!(app.race.as_ref().unwrap().run(), 2);
        assert_eq!(run_lanes(&mut app, &asked, usize::MAX), [Effect::EndRace]);
        let racing = app.race.as_ref().unwrap();
        let result = racing.result().unwrap();
        assert_eq!(racing.stage, Stage::Over);
        assert!(matches!(result.verdict, Verdict::Identical { .. }), "{}", result.verdict);
        assert!(result.speedup.median > 1.0);
        assert_eq!(racing.report.as_ref().unwrap().repeats, 2);
        act(&mut app, Action::Back);
        assert!(app.race.is_none());
        let Some(crate::tui::transcript::Item::Notice(Level::Info, note)) =
            app.transcript.items.last()
        else {
            panic!("nothing is kept of it")
        };
        assert!(note.text.contains("faster; identical for"), "{}", note.text);
    }

    /// The chat is as if there had been no race: what is sent next is the same.
    #[test]
    fn a_race_leaves_the_conversation_alone() {
        let mut app = ready_app();
        ask(&mut app, "one");
        let mut undisturbed = app.clone();
        let asked = requests(&submit(&mut app, "/race"));
        let Prompt::Messages(messages) = &asked[1].prompt else { panic!("no messages") };
        assert_eq!(messages, &[ChatMessage::new(Role::User, "one")]);
        run_lanes(&mut app, &asked, 9);
        assert_eq!(act(&mut app, Action::Back), [Effect::StopRace]);
        assert!(act(&mut app, Action::Back).is_empty());
        for i in 0..2 {
            let reason = FinishReason::Cancelled;
            lane(&mut app, i, EngineEvent::RunFinished { reason, totals: Totals::default() });
        }
        let verdict = &app.race.as_ref().unwrap().result().unwrap().verdict;
        assert_eq!(verdict.to_string(), "not comparable: a run was stopped");
        press(&mut app, KeyCode::Char('x'), KeyModifiers::NONE);
        act(&mut app, Action::Back);
        assert!(app.composer.is_blank() && app.race.is_none());
        assert_eq!(app.context_used, undisturbed.context_used);
        let next = |app: &mut App| sent(&submit(app, "two"));
        assert_eq!(next(&mut app), next(&mut undisturbed));
    }

    #[test]
    fn a_lane_that_fails_ends_the_race_and_says_why() {
        let mut app = ready_app();
        submit(&mut app, "/race x");
        let message = Message { level: Level::Error, message: "no memory".into(), hint: None };
        assert_eq!(lane(&mut app, 1, EngineEvent::Error(message.clone())), [Effect::EndRace]);
        assert_eq!(app.race.as_ref().unwrap().stage, Stage::Failed("no memory".into()));
        // Stopped while it loads: no failure.
        act(&mut app, Action::Back);
        submit(&mut app, "/race x");
        act(&mut app, Action::Back);
        lane(&mut app, 0, EngineEvent::Error(message.clone()));
        assert_eq!(app.race.as_ref().unwrap().stage, Stage::Over);
        // The other lane says the same.
        assert!(lane(&mut app, 1, EngineEvent::Error(message)).is_empty());
        assert_eq!(app.race.as_ref().unwrap().stage, Stage::Over);
        act(&mut app, Action::Back);
        submit(&mut app, "/race x");
        happen(&mut app, Event::LanesEnded);
        assert!(matches!(app.race.as_ref().unwrap().stage, Stage::Failed(_)));
    }

    #[test]
    fn what_cannot_race_is_said() {
        let mut app = new_app();
        assert!(submit(&mut app, "/race x").is_empty());
        let mut app = ready_app();
        assert!(submit(&mut app, "/race").is_empty());
        assert!(app.notice.as_ref().unwrap().1.starts_with("nothing was asked yet"));
        app.measuring = true;
        assert!(submit(&mut app, "/race x").is_empty());
        assert!(app.notice.as_ref().unwrap().1.starts_with("/race has to wait"));
        app.measuring = false;
        app.composer.set("");
        let mut ready = app.model().unwrap().clone();
        ready.draft = None;
        happen(&mut app, Event::Engine(EngineEvent::ModelReady(Box::new(ready))));
        assert!(submit(&mut app, "/race x").is_empty());
        assert!(app.notice.as_ref().unwrap().1.starts_with("there is no draft"));
    }
}
