//! When the events of a recorded answer happen: by the times that the engine measured, so that
//! neither a slow screen nor a pause of the recorded program counts. Pure: told how much time
//! has passed, it tells which events are due. The replay engine and the exports use the same one.

use crate::event::{EngineEvent, ReplayControl, Round, RoundPhase};
use std::ops::Range;
use std::time::Duration;

/// Slowest and fastest replay, as a multiple of the recorded speed. At the slowest, a round of
/// ten milliseconds takes two seconds and a half.
pub const SPEEDS: (f32, f32) = (1.0 / 256.0, 8.0);

/// Slowest replay of what comes before the first round: nothing can be watched there.
const SLOWEST_WAIT: f32 = 0.1;

/// A moment within a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// The event that the round will be.
    pub event: usize,
    /// What happens in it.
    pub phase: RoundPhase,
    /// How long that lasts at the present speed.
    pub lasts: Duration,
}

/// A recorded answer with a place in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// When each event is due, in microseconds of the recorded run; never falls.
    due: Vec<u64>,
    /// The events that are rounds, with what their time is made of.
    rounds: Vec<(usize, Round)>,
    /// Where we are, in microseconds of the recorded run.
    now: f64,
    /// The first event that has not happened.
    next: usize,
    speed: f32,
    paused: bool,
}

impl Timeline {
    /// At the start of a run, playing at the recorded speed.
    pub fn new(events: &[EngineEvent]) -> Timeline {
        let prefill = events.iter().find_map(|event| match event {
            EngineEvent::PrefillDone { us, .. } => Some(*us),
            _ => None,
        });
        let mut now = 0_u64;
        let mut due = Vec::with_capacity(events.len());
        let mut rounds = Vec::new();
        for (i, event) in events.iter().enumerate() {
            let at = match event {
                EngineEvent::PrefillProgress { done, total } => {
                    let share = crate::stats::ratio(*done as f64, *total as f64).min(1.0);
                    (prefill.unwrap_or(0) as f64 * share) as u64
                }
                EngineEvent::PrefillDone { us, .. } => *us,
                EngineEvent::Round(round) => {
                    // Only the times are looked at, so the texts are not copied.
                    let (draft_us, verify_us) = (round.draft_us, round.verify_us);
                    let other_us = round.other_us;
                    rounds.push((i, Round { draft_us, verify_us, other_us, ..Round::default() }));
                    now.saturating_add(round.total_us())
                }
                _ => now,
            };
            now = now.max(at);
            due.push(now);
        }
        Timeline { due, rounds, now: 0.0, next: 0, speed: 1.0, paused: false }
    }

    /// Let `passed` of real time pass. Returns the events that happened.
    pub fn advance(&mut self, passed: Duration) -> Range<usize> {
        if self.paused {
            return self.next..self.next;
        }
        let hurried = self.first_round().filter(|_| self.speed < SLOWEST_WAIT);
        self.now += passed.as_secs_f64() * 1e6 * self.pace();
        // Not on into the first round.
        self.now = self.now.min(hurried.unwrap_or(f64::INFINITY));
        let coming = self.due[self.next..].iter();
        let happened = coming.take_while(|due| **due as f64 <= self.now).count();
        self.play_to(self.next + happened)
    }

    /// Real time until the next event; `None` while nothing moves.
    pub fn wait(&self) -> Option<Duration> {
        let due = *self.due.get(self.next).filter(|_| !self.paused)?;
        let us = (due as f64 - self.now).max(0.0) / self.pace();
        Some(Duration::from_secs_f64(us / 1e6))
    }

    /// When the first round starts, while it has not.
    fn first_round(&self) -> Option<f64> {
        let (event, _) = self.rounds.first()?;
        let start = self.due[event.checked_sub(1)?] as f64;
        (self.now < start).then_some(start)
    }

    /// Microseconds of the recorded run in one of real time.
    fn pace(&self) -> f64 {
        let slowest = self.first_round().map_or(0.0, |_| SLOWEST_WAIT);
        f64::from(self.speed.max(slowest))
    }

    /// Do what the person asks. Returns the events that happen by it; a range that begins at 0
    /// plays the run anew (`run_started` is its first event).
    pub fn steer(&mut self, control: ReplayControl) -> Range<usize> {
        match control {
            ReplayControl::Pause => self.paused = true,
            ReplayControl::Resume => self.paused = false,
            ReplayControl::Speed(speed) if speed.is_finite() => {
                self.speed = speed.clamp(SPEEDS.0, SPEEDS.1);
            }
            ReplayControl::Speed(_) => {}
            ReplayControl::Step => {
                self.paused = true;
                let round = self.rounds.iter().find(|(event, _)| *event >= self.next);
                let end = round.map_or(self.due.len(), |(event, _)| event + 1);
                let happened = self.play_to(end);
                self.now = self.due.get(end.wrapping_sub(1)).map_or(0.0, |us| *us as f64);
                return happened;
            }
            ReplayControl::Seek(round) => {
                let end = self.rounds.get(round).map_or(self.due.len(), |(event, _)| *event);
                if end < self.next {
                    self.next = 0;
                }
                let happened = self.play_to(end);
                self.now = self.due.get(end.wrapping_sub(1)).map_or(0.0, |us| *us as f64);
                return happened;
            }
        }
        self.next..self.next
    }

    fn play_to(&mut self, end: usize) -> Range<usize> {
        let happened = self.next..end;
        self.next = end;
        happened
    }

    /// What goes on within a round; `None` outside of rounds, and while what was accepted is
    /// committed.
    pub fn moment(&self) -> Option<Moment> {
        let (event, round) = self.rounds.iter().find(|(event, _)| *event == self.next)?;
        let start = self.due[*event].saturating_sub(round.total_us());
        let passed = (self.now as u64).saturating_sub(start);
        let (phase, us) = match passed.checked_sub(round.draft_us) {
            None => (RoundPhase::Draft, round.draft_us),
            Some(passed) if passed < round.verify_us => (RoundPhase::Verify, round.verify_us),
            Some(_) => return None,
        };
        let lasts = Duration::from_secs_f64(us as f64 / 1e6 / f64::from(self.speed));
        Some(Moment { event: *event, phase, lasts })
    }

    /// When an event is due, in microseconds after the start of the run.
    pub fn due(&self, event: usize) -> u64 {
        self.due.get(event).or(self.due.last()).copied().unwrap_or(0)
    }

    /// Rounds that have happened, and rounds in all.
    pub fn rounds(&self) -> (usize, usize) {
        let before = self.rounds.iter().take_while(|(event, _)| *event < self.next).count();
        (before, self.rounds.len())
    }

    /// Whether every event has happened.
    pub fn finished(&self) -> bool {
        self.next == self.due.len()
    }

    /// Whether it stands still.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// Times the recorded speed.
    pub fn speed(&self) -> f32 {
        self.speed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{FinishReason, RunStarted, Token, Totals};
    use proptest::prelude::*;

    fn run(rounds: usize) -> Vec<EngineEvent> {
        let started = RunStarted {
            mode: Default::default(),
            block_size: Default::default(),
            prompt_ids: Vec::new(),
            reused_tokens: 0,
            sampling: Default::default(),
            seed: 0,
            ctx_limit: 0,
            max_tokens: 0,
        };
        let first = Token::default();
        let mut events = vec![
            EngineEvent::RunStarted(Box::new(started)),
            EngineEvent::PrefillProgress { done: 1, total: 2 },
            EngineEvent::PrefillDone { tokens: 2, us: 1000, first, text: String::new() },
        ];
        let round = Round { draft_us: 20, verify_us: 70, other_us: 10, ..Round::default() };
        events.extend((0..rounds).map(|_| EngineEvent::Round(Box::new(round.clone()))));
        let (reason, totals) = (FinishReason::Eos, Totals::default());
        events.push(EngineEvent::RunFinished { reason, totals });
        events
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn events_happen_at_their_recorded_times() {
        let mut timeline = Timeline::new(&run(2));
        assert_eq!(timeline.advance(us(0)), 0..1);
        assert_eq!(timeline.wait(), Some(us(500)));
        assert_eq!(timeline.advance(us(499)), 1..1);
        assert_eq!(timeline.advance(us(501)), 1..3);
        assert_eq!(timeline.rounds(), (0, 2));
        timeline.steer(ReplayControl::Speed(0.5));
        assert_eq!(timeline.wait(), Some(us(200)));
        assert_eq!(timeline.advance(us(199)), 3..3);
        assert_eq!(timeline.advance(us(1)), 3..4);
        // The last round ends the answer too.
        assert_eq!(timeline.advance(us(200)), 4..6);
        assert!(timeline.finished() && timeline.wait().is_none());
    }

    #[test]
    fn slow_motion_shows_the_phases_of_a_round() {
        let mut timeline = Timeline::new(&run(1));
        timeline.steer(ReplayControl::Speed(0.01));
        // The prompt is not read as slowly.
        assert_eq!(timeline.advance(us(5_000)), 0..2);
        timeline.steer(ReplayControl::Speed(0.1));
        timeline.advance(us(5_000));
        let at = |timeline: &Timeline| timeline.moment().map(|m| (m.event, m.phase, m.lasts));
        let (draft, verify) = (RoundPhase::Draft, RoundPhase::Verify);
        assert_eq!(at(&timeline), Some((3, draft, us(200))));
        timeline.advance(us(100));
        assert_eq!(at(&timeline), Some((3, draft, us(200))));
        timeline.advance(us(450));
        assert_eq!(at(&timeline), Some((3, verify, us(700))));
        timeline.advance(us(400));
        assert_eq!(at(&timeline), None);
    }

    #[test]
    fn a_pause_holds_and_steps_go_round_by_round() {
        let mut timeline = Timeline::new(&run(3));
        timeline.steer(ReplayControl::Pause);
        assert_eq!((timeline.advance(us(9999)), timeline.wait()), (0..0, None));
        assert_eq!(timeline.steer(ReplayControl::Step), 0..4);
        assert_eq!(timeline.steer(ReplayControl::Step), 4..5);
        timeline.steer(ReplayControl::Resume);
        assert_eq!(timeline.wait(), Some(us(100)));
        assert_eq!(timeline.steer(ReplayControl::Step), 5..6);
        assert_eq!(timeline.steer(ReplayControl::Step), 6..7);
        assert_eq!(timeline.steer(ReplayControl::Step), 7..7);
    }

    #[test]
    fn seeking_back_plays_the_run_anew() {
        let mut timeline = Timeline::new(&run(3));
        assert_eq!(timeline.steer(ReplayControl::Seek(2)), 0..5);
        assert_eq!((timeline.rounds(), timeline.wait()), ((2, 3), Some(us(100))));
        assert_eq!(timeline.steer(ReplayControl::Seek(1)), 0..4);
        assert_eq!(timeline.steer(ReplayControl::Seek(1)), 4..4);
        assert_eq!(timeline.steer(ReplayControl::Seek(usize::MAX)), 4..7);
        assert_eq!(timeline.steer(ReplayControl::Seek(0)), 0..3);
    }

    proptest! {
        /// Whatever is done, the events come in order, none twice but after a return to the
        /// start, and a finished run has played them all.
        #[test]
        fn events_come_in_order(acts in prop::collection::vec((0..6, 0_u64..300), 1..60)) {
            let events = run(4);
            let mut timeline = Timeline::new(&events);
            let mut played = 0;
            for (act, n) in acts {
                let range = match act {
                    0 => timeline.advance(us(n)),
                    1 => timeline.steer(ReplayControl::Pause),
                    2 => timeline.steer(ReplayControl::Resume),
                    3 => timeline.steer(ReplayControl::Step),
                    4 => timeline.steer(ReplayControl::Seek(n as usize % 6)),
                    _ => timeline.steer(ReplayControl::Speed(n as f32 / 30.0 - 1.0)),
                };
                prop_assert!(range.start == played || range.start == 0);
                prop_assert!(range.start <= range.end && range.end <= events.len());
                played = range.end;
                prop_assert_eq!(timeline.finished(), played == events.len());
                let round = |m: Moment| matches!(events[m.event], EngineEvent::Round(_));
                prop_assert!(timeline.moment().is_none_or(round));
            }
        }
    }
}
