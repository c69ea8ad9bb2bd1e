//! Downloads as a terminal shows them: one line redrawn on stderr, or a line every 10 % where
//! stderr is a file or a pipe.

use crate::catalog::download::{Progress, Watch, size};
use crate::text::sanitise_line;
use signal_hook::{SigId, flag};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Shows progress on stderr; Ctrl-C asks the work to stop, a second Ctrl-C ends the program.
#[derive(Debug)]
pub struct StderrWatch {
    interrupted: Arc<AtomicBool>,
    handlers: [SigId; 2],
    redraws: bool,
    drawn: bool,
    told: Option<(String, u64)>,
}

impl StderrWatch {
    /// Begin to listen for Ctrl-C.
    ///
    /// # Errors
    /// The system refuses a signal handler.
    pub fn new() -> io::Result<StderrWatch> {
        let interrupted = Arc::new(AtomicBool::new(false));
        let signal = signal_hook::consts::SIGINT;
        // In this order: the first Ctrl-C finds the flag unset and sets it.
        let handlers = [
            flag::register_conditional_shutdown(signal, 130, interrupted.clone())?,
            flag::register(signal, interrupted.clone())?,
        ];
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let redraws = io::stderr().is_terminal() && !dumb;
        Ok(StderrWatch { interrupted, handlers, redraws, drawn: false, told: None })
    }

    /// Remove the line that is being redrawn, before something else is printed.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Watch for StderrWatch {
    fn progress(&mut self, progress: &Progress<'_>) {
        let line = sanitise_line(&describe(progress));
        if self.redraws {
            // A terminal that does not know its width says 0.
            let columns =
                crossterm::terminal::size().map_or(0, |(columns, _)| usize::from(columns));
            let width = if columns == 0 { 80 } else { columns };
            let line: String = line.chars().take(width - 1).collect();
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
            self.drawn = true;
        } else if let Some(tenth) = tenth(progress) {
            let now = (progress.what.to_string(), tenth);
            if self.told.as_ref() != Some(&now) {
                let _ = writeln!(io::stderr(), "{line}");
                self.told = Some(now);
            }
        }
    }

    fn say(&mut self, line: &str) {
        self.clear();
        let _ = writeln!(io::stderr(), "{}", sanitise_line(line));
    }

    fn cancelled(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Drop for StderrWatch {
    fn drop(&mut self) {
        self.clear();
        for handler in self.handlers {
            signal_hook::low_level::unregister(handler);
        }
    }
}

fn tenth(progress: &Progress<'_>) -> Option<u64> {
    progress.total.filter(|total| *total > 0).map(|total| progress.done.min(total) * 10 / total)
}

/// `model.gguf  45.2 MB of 98.4 MB  46 %  12.3 MB/s  0:04 left`
fn describe(progress: &Progress<'_>) -> String {
    let mut line = format!("{}  {}", progress.what, size(progress.done));
    if let Some(total) = progress.total.filter(|total| *total > 0) {
        let percent = progress.done.min(total) * 100 / total;
        line += &format!(" of {}  {percent} %", size(total));
    }
    if progress.rate >= 1.0 {
        line += &format!("  {}/s", size(progress.rate as u64));
    }
    if let Some(eta) = progress.eta.filter(|_| progress.total != Some(progress.done)) {
        line += &format!("  {} left", clock(eta));
    }
    line
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_bytes_rate_and_time_left() {
        let mut progress = Progress {
            what: "m.gguf",
            done: 45_200_000,
            total: Some(98_362_432),
            rate: 12_300_000.0,
            eta: Some(Duration::from_secs(4)),
        };
        assert_eq!(describe(&progress), "m.gguf  45.2 MB of 98.4 MB  45 %  12.3 MB/s  0:04 left");
        progress.total = Some(0);
        progress.eta = Some(Duration::from_secs(3700));
        assert_eq!(describe(&progress), "m.gguf  45.2 MB  12.3 MB/s  1:01:40 left");
        progress.total = Some(1);
        assert_eq!(tenth(&progress), Some(10));
    }
}
