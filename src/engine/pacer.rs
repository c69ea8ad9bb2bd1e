//! Turns in a race. The lanes share one machine, so only one computes at a time; each has a
//! clock that runs only while it does, and the lane whose clock is behind gets the next round.
//! So all advance in their true proportion, as if each had the machine for itself.
//!
//! An engine knows nothing of it: its [`EventSink`](super::EventSink) waits after the events
//! that cost time.

use crate::event::EngineEvent;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What an event means to a lane's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The lane has computed for this many microseconds and waits for its next turn.
    Spend(u64),
    /// The lane has nothing more to compute.
    Leave,
}

impl Turn {
    /// What `event` means; `None` for those that cost no time of their own.
    pub fn after(event: &EngineEvent) -> Option<Turn> {
        match event {
            EngineEvent::RunStarted(_) => Some(Turn::Spend(0)),
            EngineEvent::PrefillDone { us, .. } => Some(Turn::Spend(*us)),
            EngineEvent::Round(round) => Some(Turn::Spend(round.total_us())),
            EngineEvent::RunFinished { .. } | EngineEvent::Error(_) => Some(Turn::Leave),
            _ => None,
        }
    }
}

/// Where a lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// It has not come to the start: its engine may still be loading, on all cores.
    Awaited,
    /// In the race; its clock in microseconds.
    Running(u64),
    /// It has nothing more to compute.
    Left,
}

impl Lane {
    /// Where it is after `turn`. What it does first brings it to the start.
    fn after(self, turn: Turn) -> Lane {
        match (self, turn) {
            (Lane::Awaited, Turn::Spend(us)) => Lane::Running(us),
            (Lane::Running(us), Turn::Spend(more)) => Lane::Running(us.saturating_add(more)),
            (Lane::Left, _) | (_, Turn::Leave) => Lane::Left,
        }
    }

    fn clock(self) -> Option<u64> {
        match self {
            Lane::Running(us) => Some(us),
            Lane::Awaited | Lane::Left => None,
        }
    }
}

/// Whose turn it is. Pure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RaceClock {
    lanes: Vec<Lane>,
}

impl RaceClock {
    /// All lanes are awaited.
    pub fn new(lanes: usize) -> RaceClock {
        RaceClock { lanes: vec![Lane::Awaited; lanes] }
    }

    /// Note what a lane has done. A lane that is not in the race, or has left, is ignored.
    pub fn note(&mut self, lane: usize, turn: Turn) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            *lane = lane.after(turn);
        }
    }

    /// The lane that may compute: the one whose clock is least, the first of equals; `None`
    /// while one is awaited, and when all have left.
    pub fn next(&self) -> Option<usize> {
        if self.lanes.contains(&Lane::Awaited) {
            return None;
        }
        let lanes = self.lanes.iter().enumerate();
        let running = lanes.filter_map(|(i, lane)| Some((lane.clock()?, i)));
        running.min().map(|(_, lane)| lane)
    }

    /// Whether `lane` may compute. One that is not in the race, or has left, always may.
    pub fn may_go(&self, lane: usize) -> bool {
        matches!(self.lanes.get(lane), None | Some(Lane::Left)) || self.next() == Some(lane)
    }
}

/// A race's clock, shared by its lanes.
#[derive(Debug, Clone, Default)]
pub struct Track(Arc<(Mutex<RaceClock>, Condvar)>);

impl Track {
    /// Begin a race of so many lanes. Every lane must be asked to answer afterwards, or leave,
    /// since the others wait for it.
    pub fn start(&self, lanes: usize) {
        *self.clock() = RaceClock::new(lanes);
        self.0.1.notify_all();
    }

    /// End the race: nobody waits any more.
    pub fn open(&self) {
        self.start(0);
    }

    fn clock(&self) -> MutexGuard<'_, RaceClock> {
        // The clock is whole after every statement, so a panic elsewhere leaves it usable.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, lane: usize, turn: Turn) {
        let mut clock = self.clock();
        clock.note(lane, turn);
        self.0.1.notify_all();
        while turn != Turn::Leave && !clock.may_go(lane) {
            clock = self.0.1.wait(clock).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// An engine's place in a race, if it is in one; without a place it never waits.
#[derive(Debug, Clone, Default)]
pub struct Pacer(Arc<Mutex<Option<(Track, usize)>>>);

impl Pacer {
    /// Run as this lane of a race from now on.
    pub fn join(&self, track: &Track, lane: usize) {
        *self.place() = Some((track.clone(), lane));
    }

    /// Leave the race; the others do not wait for this lane any more.
    pub fn leave(&self) {
        self.take(Turn::Leave);
        *self.place() = None;
    }

    /// Do to the lane's clock what an event means, and wait for the next turn if there is one.
    pub(super) fn take(&self, turn: Turn) {
        // Not held while waiting, so that a lane that waits can be taken out of the race.
        let place = self.place().clone();
        if let Some((track, lane)) = place {
            track.take(lane, turn);
        }
    }

    fn place(&self) -> MutexGuard<'_, Option<(Track, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// All lanes have come.
    fn at_the_start(lanes: usize) -> RaceClock {
        let mut clock = RaceClock::new(lanes);
        (0..lanes).for_each(|lane| clock.note(lane, Turn::Spend(0)));
        clock
    }

    #[test]
    fn nobody_goes_before_all_have_come_or_left() {
        let mut clock = RaceClock::new(3);
        clock.note(0, Turn::Spend(0));
        clock.note(2, Turn::Spend(0));
        assert!(clock.next().is_none() && !clock.may_go(0) && !clock.may_go(2));
        let mut left = clock.clone();
        clock.note(1, Turn::Spend(0));
        left.note(1, Turn::Leave);
        assert_eq!((clock.next(), left.next()), (Some(0), Some(0)));
        assert!(left.may_go(1));
    }

    #[test]
    fn who_is_behind_goes_next() {
        let mut clock = at_the_start(2);
        assert_eq!(clock.next(), Some(0));
        clock.note(0, Turn::Spend(30));
        assert_eq!(clock.next(), Some(1));
        clock.note(1, Turn::Spend(20));
        assert!(clock.may_go(1) && !clock.may_go(0));
        clock.note(1, Turn::Spend(20));
        assert_eq!(clock.next(), Some(0));
        clock.note(0, Turn::Leave);
        assert!(clock.may_go(1) && clock.may_go(0) && clock.may_go(7));
        clock.note(1, Turn::Leave);
        assert_eq!(clock.next(), None);
    }

    proptest! {
        /// Clocks never part by more than one round, so neither lane runs ahead.
        #[test]
        fn lanes_stay_together(costs in prop::collection::vec(1_u64..1000, 2..200)) {
            let mut clock = at_the_start(3);
            for cost in costs {
                let lane = clock.next().unwrap_or(0);
                clock.note(lane, Turn::Spend(cost));
                let us: Vec<u64> = clock.lanes.iter().filter_map(|lane| lane.clock()).collect();
                let apart = us.iter().max().unwrap_or(&0) - us.iter().min().unwrap_or(&0);
                prop_assert!(apart <= 1000, "{us:?}");
            }
        }
    }

    /// A race of two, and their places in it.
    fn race_of_two() -> (Track, [Pacer; 2]) {
        let track = Track::default();
        track.start(2);
        let pacers = [Pacer::default(), Pacer::default()];
        for (lane, pacer) in pacers.iter().enumerate() {
            pacer.join(&track, lane);
        }
        (track, pacers)
    }

    #[test]
    fn who_comes_first_waits_for_the_other_or_for_the_end() {
        let happenings: [fn(&Track, &Pacer); 3] = [
            |_, other| other.take(Turn::Spend(9)),
            |_, other| other.leave(),
            |track, _| track.open(),
        ];
        for happens in happenings {
            let (track, [first, other]) = race_of_two();
            let (sender, receiver) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                first.take(Turn::Spend(0));
                let _ = sender.send(());
                // Whoever waits for this lane need not any more.
                first.leave();
            });
            assert!(receiver.recv_timeout(Duration::from_millis(30)).is_err());
            happens(&track, &other);
            assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(()));
            assert!(thread.join().is_ok());
        }
    }

    #[test]
    fn a_lane_waits_until_it_is_behind_or_the_race_is_over() {
        let (_, pacers) = race_of_two();
        let (sender, receiver) = mpsc::channel();
        let waiting = pacers[0].clone();
        let thread = std::thread::spawn(move || {
            for us in [10, 100] {
                waiting.take(Turn::Spend(us));
                let _ = sender.send(us);
            }
        });
        assert!(receiver.recv_timeout(Duration::from_millis(30)).is_err());
        pacers[1].take(Turn::Spend(5));
        assert!(receiver.recv_timeout(Duration::from_millis(30)).is_err());
        // The second lane leaves: the first has nobody to wait for.
        pacers[1].leave();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(10));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)), Ok(100));
        assert!(thread.join().is_ok());
    }
}
