//! A program on a pseudo-terminal.
#![allow(dead_code)]

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A running child with what it has sent so far.
pub struct Session {
    pub child: Box<dyn Child + Send + Sync>,
    pub master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    sent: Arc<Mutex<Vec<u8>>>,
    size: (u16, u16),
}

impl Session {
    /// Run `command` on a terminal of 100 columns and 30 rows.
    pub fn start(mut command: CommandBuilder) -> Session {
        let size = PtySize { rows: 30, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        let child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let keys = pair.master.take_writer().unwrap();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let sink = sent.clone();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut chunk) {
                sink.lock().unwrap().extend_from_slice(&chunk[..n]);
            }
        });
        Session { child, master: pair.master, keys, sent, size: (30, 100) }
    }

    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }

    /// What a terminal would show now.
    pub fn shown(&self) -> String {
        let mut parser = vt100::Parser::new(self.size.0, self.size.1, 0);
        parser.process(&self.sent.lock().unwrap());
        parser.screen().contents()
    }

    pub fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while !self.shown().contains(text) && !self.raw().contains(text) {
            let shown = self.shown();
            assert!(Instant::now() < deadline, "never saw {text:?} in:\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Wait until `text` is on the screen no more. (What follows an Esc at once would be taken for
    /// a part of the same key.)
    pub fn wait_until_gone(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while self.shown().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} stays in:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn send(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    pub fn paste(&mut self, text: &str) {
        self.send(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Wait for the child's end and check that every mode was left.
    pub fn ended(mut self) -> (bool, String) {
        let deadline = Instant::now() + Duration::from_secs(15);
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    let _ = self.child.kill();
                    panic!("the screen does not end:\n{}", self.shown());
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        std::thread::sleep(Duration::from_millis(50));
        let raw = self.raw();
        let pairs = [
            ("\x1b[?1049h", "\x1b[?1049l"),
            ("\x1b[?2004h", "\x1b[?2004l"),
            ("\x1b[?1000h", "\x1b[?1000l"),
            ("\x1b[?1006h", "\x1b[?1006l"),
            ("\x1b[?25l", "\x1b[?25h"),
            ("\x1b[?2026h", "\x1b[?2026l"),
        ];
        for (enter, leave) in pairs {
            let entered = raw.rfind(enter).unwrap_or_else(|| panic!("{enter:?} was never sent"));
            let left = raw.rfind(leave).unwrap_or_else(|| panic!("{leave:?} was never sent"));
            assert!(left > entered, "{enter:?} is not undone");
        }
        (status.success(), raw)
    }
}
