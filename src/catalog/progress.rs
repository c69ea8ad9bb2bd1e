//! How a long work tells how far it is, and hears that it should stop.

use std::time::{Duration, Instant};

/// How far a download is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress<'a> {
    /// The file.
    pub what: &'a str,
    /// Bytes there.
    pub done: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
    /// Bytes a second, lately.
    pub rate: f64,
    /// Time left at that rate.
    pub eta: Option<Duration>,
}

/// Whoever started the work.
pub trait Watch {
    /// Called at most ten times a second, and at the end.
    fn progress(&mut self, progress: &Progress<'_>);
    /// A line that a person should see.
    fn say(&mut self, line: &str);
    /// Asked several times a second.
    fn cancelled(&self) -> bool;
}

const TICK: Duration = Duration::from_millis(100);

/// Counts bytes and tells a [`Watch`] of them.
pub(super) struct Meter<'a> {
    pub watch: &'a mut dyn Watch,
    pub what: String,
    pub total: Option<u64>,
    done: u64,
    rate: f64,
    told: (Instant, u64),
}

impl<'a> Meter<'a> {
    pub fn new(watch: &'a mut dyn Watch, what: impl Into<String>, total: Option<u64>) -> Self {
        Meter { watch, what: what.into(), total, done: 0, rate: 0.0, told: (Instant::now(), 0) }
    }

    /// So many bytes are there now. What was there before the clock started counts for the
    /// progress, not for the rate: see [`Meter::start_at`].
    pub fn at(&mut self, done: u64) {
        self.done = done;
        let (when, before) = self.told;
        let passed = when.elapsed();
        if passed < TICK {
            return;
        }
        let now = done.saturating_sub(before) as f64 / passed.as_secs_f64();
        self.rate = if self.rate == 0.0 { now } else { 0.85 * self.rate + 0.15 * now };
        self.told = (Instant::now(), done);
        self.tell();
    }

    /// Go on from `done` bytes.
    pub fn start_at(&mut self, done: u64) {
        self.done = done;
        self.told = (Instant::now(), done);
    }

    /// Tell the last state, whatever the clock says.
    pub fn tell(&mut self) {
        let left = self.total.map(|total| total.saturating_sub(self.done));
        let eta = match left {
            Some(left) if self.rate > 1.0 => {
                Duration::try_from_secs_f64(left as f64 / self.rate).ok()
            }
            _ => None,
        };
        self.watch.progress(&Progress {
            what: &self.what,
            done: self.done,
            total: self.total,
            rate: self.rate,
            eta,
        });
    }
}

/// `98.4 MB`: decimal units, as downloads are measured.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size(999), "999 bytes");
        assert_eq!(size(98_362_432), "98.4 MB");
        assert_eq!(size(8_060_000_000), "8.06 GB");
    }
}
