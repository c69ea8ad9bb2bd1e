//! Engines that race. Each lane is an engine with weights of its own; they take turns on the
//! machine (see [`pacer`](super::pacer)), so that each computes as if it were alone.

use super::EngineHandle;
use super::pacer::Track;
use crate::event::{EngineCommand, Envelope, Generate};
use futures_util::FutureExt;
use std::task::Poll;

/// The lanes of a race.
#[derive(Debug)]
pub struct Lanes {
    engines: Vec<EngineHandle>,
    track: Track,
    /// The lane that is looked at first for the next event, so that none hides the others'.
    first: usize,
}

impl Lanes {
    /// Make engines the lanes of a race. They may still be loading: in a race that starts meanwhile
    /// nobody computes until all are there.
    pub fn new(engines: Vec<EngineHandle>) -> Lanes {
        let track = Track::default();
        for (lane, engine) in engines.iter().enumerate() {
            engine.pacer.join(&track, lane);
        }
        Lanes { engines, track, first: 0 }
    }

    /// Start a race: every lane answers its request, from an empty cache. All lanes of the race
    /// before must have ended.
    pub fn start(&self, requests: Vec<Generate>) {
        self.track.start(requests.len().min(self.engines.len()));
        for (engine, request) in self.engines.iter().zip(requests) {
            engine.send(EngineCommand::Forget);
            engine.send(EngineCommand::Generate(Box::new(request)));
        }
    }

    /// The next event of any lane, with the lane; `None` when all engines have ended.
    pub async fn next(&mut self) -> Option<(usize, Envelope)> {
        std::future::poll_fn(|context| {
            let mut open = false;
            let lanes = self.engines.len();
            for lane in (self.first..lanes).chain(0..self.first) {
                match self.engines[lane].events.poll_recv(context) {
                    Poll::Ready(Some(envelope)) => {
                        self.first = (lane + 1) % lanes;
                        return Poll::Ready(Some((lane, envelope)));
                    }
                    Poll::Ready(None) => {}
                    Poll::Pending => open = true,
                }
            }
            if open { Poll::Pending } else { Poll::Ready(None) }
        })
        .await
    }

    /// An event that is there already.
    pub fn try_next(&mut self) -> Option<(usize, Envelope)> {
        self.next().now_or_never().flatten()
    }

    /// Stop all lanes; each still tells that it ended.
    pub fn cancel(&self) {
        self.engines.iter().for_each(|engine| engine.cancel.cancel());
        self.track.open();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scripted::{Script, ScriptedEngine};
    use crate::engine::{Engine, spawn};
    use crate::event::{BlockSize, EngineEvent, FinishReason, Mode, Prompt};
    use crate::race::{LaneKind, Race, Verdict};

    fn engine() -> EngineHandle {
        spawn(|out, _| {
            let script = Script { pace: 0.0, ..Script::default() };
            Some(Box::new(ScriptedEngine::load(script, out)) as Box<dyn Engine>)
        })
    }

    fn lanes() -> Lanes {
        Lanes::new(vec![engine(), engine()])
    }

    fn kinds() -> [LaneKind; 2] {
        [Mode::Baseline, Mode::Speculative]
            .map(|mode| LaneKind { mode, block_size: BlockSize::Fixed(8) })
    }

    fn start(lanes: &Lanes, prompt: &str) {
        let request = Generate { prompt: Prompt::Text(prompt.into()), ..Generate::default() };
        lanes.start(kinds().map(|kind| kind.request(&request)).into());
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn lanes_say_the_same_race_after_race() {
        let mut lanes = lanes();
        for _ in 0..2 {
            let mut race = Race::new(&kinds());
            start(&lanes, "code");
            while !race.finished() {
                let (lane, envelope) = wait(lanes.next()).unwrap();
                race.add(lane, &envelope.event);
            }
            assert!(matches!(race.verdict(1, true), Some(Verdict::Identical { .. })));
            assert!(race.speedup(1).is_some_and(|x| x > 1.0));
        }
    }

    #[test]
    fn a_lane_that_fails_or_panics_does_not_hold_up_the_other() {
        for prompt in ["fail", "panic"] {
            let mut lanes = lanes();
            start(&lanes, prompt);
            let mut errors = 0;
            while errors < 2 {
                let (_, envelope) = wait(lanes.next()).unwrap();
                errors += usize::from(matches!(envelope.event, EngineEvent::Error(_)));
            }
        }
    }

    #[test]
    fn an_engine_that_could_not_load_does_not_hold_up_the_other() {
        for waits in [true, false] {
            let mut broken = spawn(|out, _| {
                out.error("no such file", None);
                None
            });
            // Before the race begins, or about then.
            while waits && broken.next_blocking().is_some() {}
            let mut lanes = Lanes::new(vec![engine(), broken]);
            start(&lanes, "code");
            let mut finished = false;
            while !finished {
                let (_, envelope) = wait(lanes.next()).unwrap();
                finished = matches!(envelope.event, EngineEvent::RunFinished { .. });
            }
        }
    }

    #[test]
    fn a_stopped_race_ends_in_every_lane() {
        let mut lanes = lanes();
        start(&lanes, "long");
        let mut race = Race::new(&kinds());
        while !race.finished() {
            let (lane, envelope) = wait(lanes.next()).unwrap();
            race.add(lane, &envelope.event);
            if race.lanes[1].stats.rounds == 1 {
                lanes.cancel();
            }
        }
        let cancelled =
            |lane: &crate::race::Lane| lane.transcript.reason == Some(FinishReason::Cancelled);
        assert!(race.lanes.iter().any(cancelled));
    }
}
