//! An engine that plays a recording. It computes nothing, so it needs no model; a front end sees
//! the events that the recorded one saw, at their recorded times, faster, slower or one round at
//! a time (see [`ReplayControl`]). `generate` plays the next recorded answer, whatever is asked.

use super::{CancelToken, Engine, EngineHandle, EventSink, spawn};
use crate::event::{
    EngineCommand, EngineEvent, FinishReason, Level, ModelReady, NetworkInfo, ReplayControl,
    RoundPhase,
};
use crate::record::timeline::{Moment, Timeline};
use crate::record::{Recording, Run};
use crate::stats::RunStats;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Longest wait between two looks at the cancel token.
const MOST_WAIT: Duration = Duration::from_millis(50);

/// What lasts less than this within a round is over before it can be read.
const READABLE: Duration = Duration::from_millis(100);

/// Plays a [`Recording`].
#[derive(Debug)]
pub struct ReplayEngine {
    runs: Vec<Run>,
    /// The answer that plays, or played last.
    current: usize,
    timeline: Timeline,
    /// Whether the front end waits for the end of the answer.
    running: bool,
    /// The round, by its event, and what goes on in it, as it was told.
    phase: Option<(usize, RoundPhase)>,
    /// Until when the timeline has been told of the time that passed.
    told: Instant,
}

/// Play a recording on a thread of its own.
pub fn start(recording: Recording) -> EngineHandle {
    spawn(move |out, _| {
        let engine = ReplayEngine::load(recording, out)?;
        Some(Box::new(engine) as Box<dyn Engine>)
    })
}

impl ReplayEngine {
    /// Tell what was recorded, and be ready to play it; `None` (and an error is told) where no
    /// answer is recorded.
    pub fn load(recording: Recording, out: &mut EventSink) -> Option<ReplayEngine> {
        for warning in &recording.warnings {
            out.notice(Level::Warning, format!("the recording: {warning}"), None);
        }
        let Some(first) = recording.runs.first() else {
            out.error("no answer is recorded", None);
            return None;
        };
        let timeline = Timeline::new(&first.events);
        let ready = recording.ready.unwrap_or_else(unknown_networks);
        let ready = ModelReady { engine: "replay".into(), ..ready };
        out.emit(EngineEvent::ModelReady(Box::new(ready)));
        let told = Instant::now();
        // So that the first answer is the next one.
        let current = recording.runs.len() - 1;
        let (runs, running, phase) = (recording.runs, false, None);
        Some(ReplayEngine { runs, current, timeline, running, phase, told })
    }

    /// Put the next answer at its start; speed and pause stay as the person chose them.
    fn begin_next(&mut self) {
        self.current = (self.current + 1) % self.runs.len();
        let mut timeline = Timeline::new(&self.runs[self.current].events);
        timeline.steer(ReplayControl::Speed(self.timeline.speed()));
        if self.timeline.paused() {
            timeline.steer(ReplayControl::Pause);
        }
        self.timeline = timeline;
        self.running = true;
    }

    fn tell(&mut self, happened: Range<usize>, out: &mut EventSink) {
        if !happened.is_empty() {
            self.running = !self.timeline.finished();
            self.phase = None;
        }
        for event in &self.runs[self.current].events[happened] {
            out.emit(event.clone());
        }
    }

    /// The person stopped it: the answer ends with what was played of it.
    fn stop(&mut self, out: &mut EventSink) {
        let (rounds, _) = self.timeline.rounds();
        let mut stats = RunStats::default();
        self.runs[self.current].rounds().take(rounds).for_each(|round| stats.add(round));
        self.running = false;
        let totals = stats.totals(0, 0, 0);
        out.emit(EngineEvent::RunFinished { reason: FinishReason::Cancelled, totals });
    }

    /// Let the time that passed since the last call pass in the recording.
    fn catch_up(&mut self, out: &mut EventSink) {
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut self.told, now);
        if self.running {
            let happened = self.timeline.advance(passed);
            self.tell(happened, out);
            self.tell_phase(out);
        }
    }

    /// In slow motion, what goes on within the round.
    fn tell_phase(&mut self, out: &mut EventSink) {
        let slow = |moment: &Moment| moment.lasts >= READABLE && !self.timeline.paused();
        let Some(Moment { event, phase, .. }) = self.timeline.moment().filter(slow) else { return };
        if self.phase.replace((event, phase)) != Some((event, phase))
            && let EngineEvent::Round(round) = &self.runs[self.current].events[event]
        {
            out.emit(EngineEvent::Phase { phase, round: round.clone() });
        }
    }
}

impl Engine for ReplayEngine {
    fn handle(&mut self, command: EngineCommand, out: &mut EventSink, _: &CancelToken) {
        self.catch_up(out);
        match command {
            EngineCommand::Generate(_) => self.begin_next(),
            EngineCommand::Replay { control } => {
                let moves = matches!(control, ReplayControl::Step | ReplayControl::Seek(_));
                if moves && !self.timeline.finished() && !self.running {
                    self.begin_next();
                }
                let happened = self.timeline.steer(control);
                self.tell(happened, out);
            }
            EngineCommand::MeasureVerifyCost { .. } => {
                let hint = Some("it can be measured with a model".to_string());
                out.error("a replay computes nothing that could be measured", hint);
            }
            EngineCommand::Forget | EngineCommand::Shutdown => {}
        }
    }

    fn idle(&mut self, out: &mut EventSink, cancel: &CancelToken) -> Option<Duration> {
        if self.running && cancel.is_cancelled() {
            self.stop(out);
        }
        self.catch_up(out);
        self.running.then(|| self.timeline.wait().map_or(MOST_WAIT, |wait| wait.min(MOST_WAIT)))
    }
}

/// For the output of `run` that was cut before its `model_ready`.
fn unknown_networks() -> ModelReady {
    ModelReady {
        engine: String::new(),
        pair: "not recorded".into(),
        target: NetworkInfo {
            name: "not recorded".into(),
            architecture: String::new(),
            layers: 0,
            hidden: 0,
            vocabulary: 0,
            quantisation: String::new(),
            bytes: 0,
        },
        draft: None,
        draft_missing: None,
        target_asked: None,
        draft_asked: None,
        device: String::new(),
        device_detail: String::new(),
        threads: 0,
        block_size: 1,
        taps: Vec::new(),
        ctx_limit: 0,
        load_us: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::demo::TRACES;

    fn generate() -> EngineCommand {
        EngineCommand::Generate(Box::default())
    }

    fn steer(control: ReplayControl) -> EngineCommand {
        EngineCommand::Replay { control }
    }

    /// Events up to the next end of an answer, that included.
    fn answer(handle: &mut EngineHandle) -> Vec<EngineEvent> {
        let mut events = Vec::new();
        while let Some(envelope) = handle.next_blocking() {
            let last = matches!(envelope.event, EngineEvent::RunFinished { .. });
            events.push(envelope.event);
            if last {
                break;
            }
        }
        events
    }

    #[test]
    fn it_tells_what_was_recorded() {
        let recording = TRACES[0].recording();
        let recorded = recording.runs[0].events.clone();
        let mut handle = start(recording);
        handle.send(steer(ReplayControl::Speed(8.0)));
        handle.send(generate());
        handle.send(steer(ReplayControl::Seek(usize::MAX)));
        let events = answer(&mut handle);
        let EngineEvent::ModelReady(ready) = &events[0] else { panic!("{:?}", events[0]) };
        assert_eq!(ready.engine, "replay");
        assert_eq!(events[1..], recorded);
        // Back to the start of the last round, which ends the answer once more.
        let last = recorded.iter().filter(|e| matches!(e, EngineEvent::Round(_))).count() - 1;
        handle.send(steer(ReplayControl::Seek(last)));
        assert_eq!(answer(&mut handle), recorded);
    }

    #[test]
    fn a_paused_answer_steps_and_can_be_stopped() {
        let mut handle = start(TRACES[0].recording());
        handle.send(steer(ReplayControl::Pause));
        handle.send(generate());
        handle.send(steer(ReplayControl::Step));
        let mut events = Vec::new();
        while !matches!(events.last(), Some(EngineEvent::Round(_))) {
            events.extend(handle.next_blocking().map(|envelope| envelope.event));
        }
        handle.cancel.cancel();
        let [EngineEvent::RunFinished { reason, totals }] = &answer(&mut handle)[..] else {
            panic!("it went on while paused")
        };
        assert_eq!((reason, totals.rounds), (&FinishReason::Cancelled, 1));
        // The engine lives: another answer can be asked for.
        handle.send(EngineCommand::Generate(Box::default()));
        handle.send(steer(ReplayControl::Seek(usize::MAX)));
        assert!(answer(&mut handle).len() > 10);
    }

    /// Slow motion plays each round's phases apart, and its outcome is what it was.
    #[test]
    fn a_slow_replay_tells_the_phases_of_a_round() {
        let recording = TRACES[0].recording();
        let Some(first) = recording.runs[0].rounds().find(|r| !r.drafted.is_empty()).cloned()
        else {
            panic!("a trace without drafts")
        };
        let mut handle = start(recording);
        // The draft's part of that round takes 120 milliseconds.
        handle.send(steer(ReplayControl::Speed(first.draft_us as f32 / 120_000.0)));
        handle.send(generate());
        handle.send(steer(ReplayControl::Seek(first.index)));
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(EngineEvent::Round(r)) if r.index == first.index) {
            seen.extend(handle.next_blocking().map(|envelope| envelope.event));
        }
        let phases: Vec<RoundPhase> = seen
            .iter()
            .filter_map(|event| match event {
                EngineEvent::Phase { phase, round } if **round == first => Some(*phase),
                _ => None,
            })
            .collect();
        assert_eq!(phases, [RoundPhase::Draft, RoundPhase::Verify]);
    }

    #[test]
    fn nothing_recorded_is_an_error_and_not_a_panic() {
        let mut handle = start(Recording::default());
        let event = handle.next_blocking().map(|envelope| envelope.event);
        assert!(matches!(event, Some(EngineEvent::Error(_))));
        assert!(handle.next_blocking().is_none());
    }
}
