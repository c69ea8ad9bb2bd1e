//! The screen on a real pseudo-terminal: what it sends to enter its modes it also undoes,
//! whatever ends it. The test runs itself as the program: [`screen`] is the child.

#![cfg(unix)]

#[path = "pty_support/mod.rs"]
mod support;

use dflash_chat::engine::scripted::{Script, ScriptedEngine};
use dflash_chat::engine::spawn;
use dflash_chat::record::demo::Playlist;
use dflash_chat::tui::{ColorChoice, GlyphChoice, ScreenOptions, run};
use portable_pty::{CommandBuilder, PtySize};
use std::time::Duration;
use support::Session;

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

/// The child on its terminal.
fn start(how: &str, environment: &[(&str, &str)]) -> Session {
    let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
    command.args(["--exact", "screen", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, how);
    for name in ["NO_COLOR", "VISUAL", "EDITOR"] {
        command.env_remove(name);
    }
    for (name, value) in environment {
        command.env(name, value);
    }
    Session::start(command)
}

#[test]
fn a_chat_then_ctrl_q() {
    let mut session = start("chat", &[]);
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
    let mut session = start("chat", &[]);
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
    let mut session = start("chat", &[]);
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
    let mut session = start("demo", &[]);
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
    let mut session = start("chat", &[]);
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
    // Stopped, or, on a machine that is busy, over by itself.
    session.wait_until_gone("answering");
    session.send("\x11");
    assert!(session.ended().0);
}

/// Over a slow link two keys may arrive as one: Esc and Ctrl+Q as Ctrl+Alt+Q.
#[test]
fn esc_and_ctrl_q_at_once_end_the_chat() {
    let mut session = start("chat", &[]);
    session.wait_for("ready");
    session.paste("a long answer");
    session.send("\r");
    session.wait_for("answering");
    session.send("\x1b\x11");
    assert!(session.ended().0);
}

/// B47: signals that end the program leave the terminal as it was.
#[test]
fn sigterm_and_sighup_restore_the_terminal() {
    for signal in ["-TERM", "-HUP"] {
        let session = start("chat", &[]);
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
    let session = start("panic", &[]);
    let (success, raw) = session.ended();
    assert!(!success);
    let message = raw.rfind("injected panic").expect("the message is printed");
    assert!(message > raw.rfind("\x1b[?1049l").unwrap());
}

/// B47: a panic of the engine is told on the screen, which lives on.
#[test]
fn a_panic_of_the_engine_leaves_the_screen() {
    let mut session = start("chat", &[]);
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
    let mut session = start("chat", &[("NO_COLOR", "1")]);
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
        let settings = folders.chain([("COLORTERM", "truecolor"), setting]);
        command.env_remove("NO_COLOR");
        for (name, value) in settings {
            command.env(name, value);
        }
        let mut session = Session::start(command);
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
    let mut session = start("chat", &[]);
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

/// An editor has the terminal as the shell left it, and the screen has it again afterwards.
#[test]
fn the_editor_has_the_terminal_and_gives_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("editor.sh");
    std::fs::write(
        &script,
        "stty -a | grep -q ' icanon' && echo 'EDITOR HAS A PLAIN TERMINAL'\n\
         read answer; grep -q 'half a thought' \"$1\" && printf 'whole: %s' \"$answer\" > \"$1\"\n",
    )
    .unwrap();
    let editor = format!("sh {}", script.display());
    let mut session = start("chat", &[("VISUAL", &editor), ("EDITOR", "false")]);
    session.wait_for("ready");
    session.paste("half a thought");
    session.wait_for("half a thought");
    session.send("\x07");
    session.wait_for("EDITOR HAS A PLAIN TERMINAL");
    let left = session.raw();
    assert!(left.rfind("\x1b[?1049l") > left.rfind("\x1b[?1049h"), "the screen was not left");
    // The keys are the editor's now.
    session.send("typed there\r");
    session.wait_for("whole: typed there");
    let again = session.raw();
    assert!(again.rfind("\x1b[?1049h") > again.rfind("\x1b[?1049l"), "the screen is not back");
    // And now they are the screen's.
    session.send("!\r");
    session.wait_for("Paris is the capital");
    session.send("\x11");
    assert!(session.ended().0);
}

/// No editor, and one that fails: a message, and what was written stands.
#[test]
fn an_editor_that_fails_loses_nothing() {
    for (editor, message) in [("", "set VISUAL or EDITOR"), ("false", "the message is as it was")] {
        let mut session = start("chat", &[("EDITOR", editor)]);
        session.wait_for("ready");
        session.paste("half a thought");
        session.send("\x07");
        session.wait_for(message);
        let shown = session.shown();
        assert!(shown.contains("half a thought"), "{shown}");
        session.send("\x11");
        assert!(session.ended().0);
    }
}

/// Nothing is drawn while nothing happens.
#[test]
fn idle_sends_nothing() {
    let mut session = start("chat", &[]);
    session.wait_for("ready");
    std::thread::sleep(Duration::from_millis(300));
    let before = session.raw().len();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(session.raw().len(), before);
    session.send("\x11");
    assert!(session.ended().0);
}
