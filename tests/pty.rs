//! The screen on a real pseudo-terminal: what it sends to enter its modes it also undoes,
//! whatever ends it. The test runs itself as the program: [`screen`] is the child.

#![cfg(unix)]

use dflash_chat::engine::scripted::{Script, ScriptedEngine};
use dflash_chat::engine::spawn;
use dflash_chat::record::demo::Playlist;
use dflash_chat::tui::{ColorChoice, GlyphChoice, ScreenOptions, run};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CHILD: &str = "DFLASH_CHAT_PTY_CHILD";

/// Not a test: the program that the tests below drive.
#[test]
fn screen() {
    let Ok(how) = std::env::var(CHILD) else { return };
    let options = ScreenOptions {
        pair: "demo".into(),
        color: ColorChoice::Auto,
        glyphs: GlyphChoice::Unicode,
        demo: (how == "demo").then(|| Playlist::open("tour").unwrap()),
        ..ScreenOptions::default()
    };
    let result = run(options, |_| {
        if how == "panic" {
            panic!("injected panic");
        }
        let script = Script { pace: 0.3, ..Script::default() };
        spawn(move |out, _| Some(Box::new(ScriptedEngine::load(script, out))))
    });
    result.expect("the screen ends well");
}

/// A running child with what it has sent so far.
struct Session {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    sent: Arc<Mutex<Vec<u8>>>,
    size: (u16, u16),
}

impl Session {
    fn start(how: &str, environment: &[(&str, &str)]) -> Session {
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.args(["--exact", "screen", "--nocapture", "--test-threads=1"]);
        command.env(CHILD, how);
        Session::of(command, environment)
    }

    fn of(mut command: CommandBuilder, environment: &[(&str, &str)]) -> Session {
        let size = PtySize { rows: 30, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        for (name, value) in environment {
            command.env(name, value);
        }
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

    fn raw(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }

    /// What a terminal would show now.
    fn shown(&self) -> String {
        let mut parser = vt100::Parser::new(self.size.0, self.size.1, 0);
        parser.process(&self.sent.lock().unwrap());
        parser.screen().contents()
    }

    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while !self.shown().contains(text) && !self.raw().contains(text) {
            let shown = self.shown();
            assert!(Instant::now() < deadline, "never saw {text:?} in:\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Wait until `text` is on the screen no more. (What follows an Esc at once would be taken for
    /// a part of the same key.)
    fn wait_until_gone(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(15);
        while self.shown().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} stays in:\n{}", self.shown());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn send(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn paste(&mut self, text: &str) {
        self.send(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Wait for the child's end and check that every mode was left.
    fn ended(mut self) -> (bool, String) {
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

#[test]
fn a_chat_then_ctrl_q() {
    let mut session = Session::start("chat", &[]);
    session.wait_for("ready");
    session.paste("What is the capital of France?");
    session.send("\r");
    session.wait_for("Paris is the capital of France.");
    session.wait_for("tokens ·");
    session.send("\x11");
    assert!(session.ended().0);
}

/// B40: fifty pasted lines are one message in the making, not fifty sent.
#[test]
fn fifty_pasted_lines_stay_in_the_composer() {
    let mut session = Session::start("chat", &[]);
    session.wait_for("ready");
    let lines: Vec<String> = (0..50).map(|i| format!("line {i}")).collect();
    session.paste(&lines.join("\r\n"));
    session.wait_for("[pasted 50 lines]");
    let shown = session.shown();
    assert!(shown.contains("ready") && !shown.contains("Paris"), "{shown}");
    session.send("\x11");
    assert!(session.ended().0);
}

/// A race, stopped and then run to its end; the chat goes on afterwards.
#[test]
fn a_race_then_the_chat() {
    let mut session = Session::start("chat", &[]);
    session.wait_for("ready");
    session.paste("/race a long answer");
    session.send("\r");
    session.wait_for("so far");
    session.send("\x1b");
    session.wait_for("a run was stopped");
    session.send("\x1b");
    session.wait_until_gone("the race is over");
    session.paste("/race capital");
    session.send("\r");
    session.wait_for("the race is over");
    session.wait_for("as fast as baseline");
    session.wait_for("identical for");
    session.send("\x1b");
    session.wait_until_gone("the race is over");
    session.paste("hello");
    session.send("\r");
    session.wait_for("tokens ·");
    session.send("\x11");
    assert!(session.ended().0);
}

/// A demo plays a recording by itself; a key stops it, and the keys of a recording steer it.
#[test]
fn a_demo_until_a_key() {
    let mut session = Session::start("demo", &[]);
    session.wait_for("any key stops");
    session.wait_for("Slowly first.");
    session.wait_for("playing");
    session.send("x");
    session.wait_for("the demo has stopped");
    session.wait_for("paused");
    session.send(".");
    session.wait_for("Space plays and pauses");
    session.send("\x11");
    assert!(session.ended().0);
}

/// B42: the window changes its size all the time while an answer streams.
#[test]
fn a_storm_of_resizes_while_streaming() {
    let mut session = Session::start("chat", &[]);
    session.wait_for("ready");
    session.paste("a long answer");
    session.send("\r");
    session.wait_for("answering");
    for i in 0..40_u16 {
        let (rows, cols) = (1 + i * 7 % 60, 1 + i * 31 % 240);
        session.master.resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    session
        .master
        .resize(PtySize { rows: 30, cols: 100, pixel_width: 0, pixel_height: 0 })
        .unwrap();
    session.send("\x1b");
    session.wait_for("stopped");
    session.send("\x11");
    assert!(session.ended().0);
}

/// B47: signals that end the program leave the terminal as it was.
#[test]
fn sigterm_and_sighup_restore_the_terminal() {
    for signal in ["-TERM", "-HUP"] {
        let session = Session::start("chat", &[]);
        session.wait_for("ready");
        let pid = session.child.process_id().unwrap().to_string();
        let killed = std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(killed.success());
        session.ended();
    }
}

/// B47: a panic of the screen restores the terminal first, so that its message can be read.
#[test]
fn a_panic_restores_the_terminal_and_is_readable() {
    let session = Session::start("panic", &[]);
    let (success, raw) = session.ended();
    assert!(!success);
    let message = raw.rfind("injected panic").expect("the message is printed");
    assert!(message > raw.rfind("\x1b[?1049l").unwrap());
}

/// B47: a panic of the engine is told on the screen, which lives on.
#[test]
fn a_panic_of_the_engine_leaves_the_screen() {
    let mut session = Session::start("chat", &[]);
    session.wait_for("ready");
    session.paste("panic please");
    session.send("\r");
    session.wait_for("the engine stopped");
    session.wait_for("panic please");
    session.send("\x15/pair\r");
    std::thread::sleep(Duration::from_millis(300));
    session.send("\r");
    session.wait_for("ready");
    session.send("\x11");
    assert!(session.ended().0);
}

/// With `NO_COLOR` bold and underline stay, and no colour is sent.
#[test]
fn no_color_keeps_weight_and_underline() {
    let mut session = Session::start("chat", &[("NO_COLOR", "1")]);
    session.wait_for("ready");
    session.paste("markdown");
    session.send("\r");
    session.wait_for("tokens ·");
    session.send("\x11");
    let (success, raw) = session.ended();
    assert!(success);
    assert!(raw.contains("\x1b[1m"), "no bold");
    for colour in ["\x1b[38;", "\x1b[48;", "\x1b[31m", "\x1b[32m", "\x1b[36m"] {
        assert!(!raw.contains(colour), "{colour:?} was sent");
    }
}

/// A recording is shown in the colours that the settings say.
#[test]
fn a_replay_follows_the_settings() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap();
    let replay = |setting: (&str, &str)| {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_dflash-chat"));
        command.args(["replay", "--demo", "--speed", "8"]);
        let folders = ["DATA", "CONFIG", "CACHE"].map(|name| format!("DFLASH_CHAT_{name}"));
        let folders = folders.iter().map(|name| (name.as_str(), home));
        let settings: Vec<_> = folders.chain([("COLORTERM", "truecolor"), setting]).collect();
        let mut session = Session::of(command, &settings);
        session.wait_for("at the end");
        session.send("\x11");
        session.ended().1
    };
    // The blue of the light theme, and that of the dark one.
    let (light, dark) = ("38;2;10;88;176", "38;2;122;184;245");
    let raw = replay(("DFLASH_CHAT_THEME", "light"));
    assert!(raw.contains(light) && !raw.contains(dark));
    let raw = replay(("DFLASH_CHAT_COLOR", "never"));
    assert!(!raw.contains("38;2;"), "a colour was sent");
}

/// A drag with the mouse copies what it covers, through the terminal.
#[test]
fn a_drag_reaches_the_clipboard() {
    let mut session = Session::start("chat", &[]);
    session.wait_for("ready");
    session.paste("hello there");
    session.send("\r");
    session.wait_for("tokens ·");
    // Row 3 (title and rule above it): the message, from its first cell to its fifth.
    session.send("\x1b[<0;4;3M");
    session.wait_for("\x1b[?1002h");
    session.send("\x1b[<32;8;3M\x1b[<0;8;3m");
    session.wait_for("\x1b]52;c;aGVsbG8=\x07");
    session.send("\x11");
    assert!(session.ended().0);
}

/// Nothing is drawn while nothing happens.
#[test]
fn idle_sends_nothing() {
    let mut session = Session::start("chat", &[]);
    session.wait_for("ready");
    std::thread::sleep(Duration::from_millis(300));
    let before = session.raw().len();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(session.raw().len(), before);
    session.send("\x11");
    assert!(session.ended().0);
}
