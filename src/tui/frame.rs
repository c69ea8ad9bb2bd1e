//! When to draw. Pure: told what changed and what time it is, says when the next frame is due.

use std::time::{Duration, Instant};

/// Time between frames: 30 a second.
const INTERVAL: Duration = Duration::from_millis(33);

/// Time between frames while this machine's CPU computes an answer, since every frame then takes
/// time from it: 15 a second, and fewer where a frame takes long, for frames may have a sixtieth
/// of the time; but no fewer than six.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(66), Duration::from_millis(160));
const SHARE: u32 = 60;

/// Limits the frames: all that happened since the last one is drawn at once, none when nothing
/// did.
#[derive(Debug, Clone, Default)]
pub struct FrameLimiter {
    /// When the last frame began, and how long it took.
    last: Option<(Instant, Duration)>,
    dirty: bool,
}

impl FrameLimiter {
    /// Something changed that is seen.
    pub fn request(&mut self) {
        self.dirty = true;
    }

    /// When the next frame is due; `None` while nothing changed.
    pub fn due(&self, cpu_computes: bool) -> Option<Instant> {
        let after = |(last, took): (Instant, Duration)| {
            last + match cpu_computes {
                true => (took * SHARE).clamp(INTERVALS.0, INTERVALS.1),
                false => INTERVAL,
            }
        };
        self.dirty.then(|| self.last.map_or_else(Instant::now, after))
    }

    /// A frame was drawn from `start` to `end`.
    pub fn drawn(&mut self, start: Instant, end: Instant) {
        self.last = Some((start, end.saturating_duration_since(start)));
        self.dirty = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn idle_draws_nothing_and_bursts_draw_once() {
        let start = Instant::now();
        let mut limiter = FrameLimiter::default();
        assert_eq!(limiter.due(false), None);
        limiter.request();
        assert!(limiter.due(false).unwrap() >= start);
        limiter.drawn(start, start + MS);
        assert_eq!(limiter.due(false), None);
        limiter.request();
        limiter.request();
        assert_eq!(limiter.due(false), Some(start + 33 * MS));
        assert_eq!(limiter.due(true), Some(start + 66 * MS));
    }

    #[test]
    fn slow_frames_come_less_often_while_the_cpu_computes() {
        let start = Instant::now();
        let mut limiter = FrameLimiter::default();
        for (took, interval) in [(2, 120), (9, 160)] {
            limiter.drawn(start, start + took * MS);
            limiter.request();
            assert_eq!(limiter.due(true), Some(start + interval * MS));
            assert_eq!(limiter.due(false), Some(start + 33 * MS));
        }
    }
}
