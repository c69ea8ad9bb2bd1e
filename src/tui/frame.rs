//! When to draw. Pure: told what changed and what time it is, says when the next frame is due.

use std::time::{Duration, Instant};

/// Limits the frames: all that happened since the last one is drawn at once, none when nothing
/// did.
#[derive(Debug, Clone, Default)]
pub struct FrameLimiter {
    last: Option<Instant>,
    dirty: bool,
}

impl FrameLimiter {
    /// Something changed that is seen.
    pub fn request(&mut self) {
        self.dirty = true;
    }

    /// When the next frame is due, with `interval` between frames; `None` while nothing changed.
    pub fn due(&self, interval: Duration) -> Option<Instant> {
        let now = Instant::now;
        self.dirty.then(|| self.last.map_or_else(now, |last| last + interval))
    }

    /// A frame was drawn at `now`.
    pub fn drawn(&mut self, now: Instant) {
        self.last = Some(now);
        self.dirty = false;
    }
}

/// Time between frames: 30 a second, 15 while this machine's CPU computes an answer, since every
/// frame then takes time from it.
pub fn interval(cpu_computes: bool) -> Duration {
    Duration::from_millis(if cpu_computes { 66 } else { 33 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_draws_nothing_and_bursts_draw_once() {
        let start = Instant::now();
        let mut limiter = FrameLimiter::default();
        assert_eq!(limiter.due(interval(false)), None);
        limiter.request();
        assert!(limiter.due(interval(false)).unwrap() >= start);
        limiter.drawn(start);
        assert_eq!(limiter.due(interval(false)), None);
        limiter.request();
        limiter.request();
        assert_eq!(limiter.due(interval(true)), Some(start + Duration::from_millis(66)));
    }
}
