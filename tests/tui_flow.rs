//! The loop that ships, under a backend that is a buffer, with keys that a test sends and the
//! scripted engine.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use dflash_chat::engine::EngineHandle;
use dflash_chat::engine::scripted::{Script, ScriptedEngine};
use dflash_chat::engine::spawn;
use dflash_chat::tui::{EngineRequest, ScreenOptions, Shelf, new_app, run_loop};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::cell::RefCell;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

fn engine(pace: f32) -> EngineHandle {
    let script = Script { pace, ..Script::default() };
    spawn(move |out, _| Some(Box::new(ScriptedEngine::load(script, out))))
}

fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn ctrl(c: char) -> Event {
    Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL))
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Run the loop at `size` while `person` sends input; returns the last screen and the pairs that
/// engines were asked for.
fn session<F, P>(size: (u16, u16), pace: f32, person: P) -> (String, Vec<String>)
where
    P: FnOnce(UnboundedSender<Event>) -> F,
    F: Future<Output = ()>,
{
    session_with(Shelf::default(), size, pace, person)
}

/// A session that keeps what is said on `shelf`.
fn session_with<F, P>(shelf: Shelf, size: (u16, u16), pace: f32, person: P) -> (String, Vec<String>)
where
    P: FnOnce(UnboundedSender<Event>) -> F,
    F: Future<Output = ()>,
{
    let options = ScreenOptions { pair: "demo".into(), ..ScreenOptions::default() };
    session_as(options, shelf, size, pace, person)
}

/// A session that starts with `options`.
fn session_as<F, P>(
    options: ScreenOptions,
    shelf: Shelf,
    size: (u16, u16),
    pace: f32,
    person: P,
) -> (String, Vec<String>)
where
    P: FnOnce(UnboundedSender<Event>) -> F,
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut app = new_app(&options).unwrap();
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let (sender, mut input) = tokio::sync::mpsc::unbounded_channel();
        let asked = RefCell::new(Vec::new());
        let start = |request: &EngineRequest| {
            asked.borrow_mut().push(request.pair.clone());
            engine(pace)
        };
        let person = person(sender);
        let screen = run_loop(&mut terminal, &mut input, &mut app, shelf, start);
        let both = async { tokio::join!(screen, person) };
        let (ended, ()) = tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
        ended.unwrap();
        (terminal.backend().to_string(), asked.take())
    })
}

/// The program ends in the middle of an answer; the next one goes on with what was said.
#[test]
fn a_conversation_goes_on_the_next_day() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = |resume| Shelf::new(None, Some(folder.path().join("sessions")), resume);
    session_with(shelf(false), (80, 24), 1.0, |keys| async move {
        pause(150).await;
        keys.send(Event::Paste("a long answer please".into())).unwrap();
        keys.send(key(KeyCode::Enter)).unwrap();
        pause(1500).await;
        keys.send(ctrl('q')).unwrap();
    });
    let (screen, _) = session_with(shelf(true), (80, 24), 1.0, |keys| async move {
        pause(300).await;
        keys.send(ctrl('q')).unwrap();
    });
    // The end of what was said, marked as not finished.
    assert!(screen.contains("stopped"), "{screen}");
    assert!(screen.contains("a long answer please: 1 turn"), "{screen}");
}

/// The file keeps what an edit is to replace until an answer to it begins.
#[test]
fn an_edit_that_fails_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let shelf = |resume| Shelf::new(None, Some(folder.path().join("sessions")), resume);
    session_with(shelf(false), (100, 30), 0.0, |keys| async move {
        for text in ["one", "two", "/edit 1", " please fail"] {
            keys.send(Event::Paste(text.into())).unwrap();
            keys.send(key(KeyCode::Enter)).unwrap();
            pause(300).await;
        }
        keys.send(ctrl('q')).unwrap();
    });
    let (screen, _) = session_with(shelf(true), (100, 30), 0.0, |keys| async move {
        pause(300).await;
        keys.send(ctrl('q')).unwrap();
    });
    assert!(screen.contains("one: 2 turns"), "{screen}");
}

#[test]
fn a_question_is_answered_and_ctrl_q_leaves() {
    let (screen, asked) = session((100, 30), 0.0, |keys| async move {
        keys.send(Event::Paste("What is the capital of France?".into())).unwrap();
        keys.send(key(KeyCode::Enter)).unwrap();
        pause(400).await;
        keys.send(ctrl('q')).unwrap();
    });
    assert!(screen.contains("Paris is the capital of France."), "{screen}");
    assert!(screen.contains("tok/s"), "{screen}");
    assert_eq!(asked, ["demo"]);
}

#[test]
fn an_engine_that_panics_is_replaced_on_request() {
    let (screen, asked) = session((100, 30), 0.0, |keys| async move {
        keys.send(Event::Paste("panic now".into())).unwrap();
        keys.send(key(KeyCode::Enter)).unwrap();
        pause(300).await;
        keys.send(ctrl('u')).unwrap();
        keys.send(Event::Paste("/pair".into())).unwrap();
        keys.send(key(KeyCode::Enter)).unwrap();
        pause(300).await;
        keys.send(Event::Paste("hello".into())).unwrap();
        keys.send(key(KeyCode::Enter)).unwrap();
        pause(300).await;
        keys.send(ctrl('q')).unwrap();
    });
    assert_eq!(asked, ["demo", "demo"]);
    assert!(screen.contains("the engine stopped: the script said so"), "{screen}");
    assert!(screen.contains("Paris is the capital"), "{screen}");
}

/// A race has engines of its own: the next answer is what it would have been without it, and what
/// the chat's engine has in its cache is used.
#[test]
fn a_race_leaves_the_chat_as_it_was() {
    let talk = |race: bool| {
        session((200, 50), 0.0, move |keys| async move {
            let say = |text: &str| {
                keys.send(Event::Paste(text.into())).unwrap();
                keys.send(key(KeyCode::Enter)).unwrap();
            };
            say("show me some code");
            pause(500).await;
            if race {
                say("/race something else --repeat 2");
                pause(900).await;
                keys.send(key(KeyCode::Esc)).unwrap();
                say("/race");
                pause(30).await;
                keys.send(key(KeyCode::Esc)).unwrap();
                pause(600).await;
                keys.send(key(KeyCode::Esc)).unwrap();
            }
            say("and now?");
            pause(500).await;
            keys.send(ctrl('q')).unwrap();
        })
    };
    let (raced, asked) = talk(true);
    let (plain, _) = talk(false);
    let footer = |screen: &str| {
        let line = screen.lines().rev().find(|line| line.contains("reused")).unwrap_or_default();
        line.split("prompt").nth(1).unwrap_or_default().chars().take(20).collect::<String>()
    };
    assert_eq!(asked, ["demo"; 5]);
    assert!(raced.contains("faster; identical for"), "{raced}");
    assert!(!footer(&plain).is_empty(), "{plain}");
    assert_eq!(footer(&raced), footer(&plain), "{raced}");
}

#[test]
fn a_demo_runs_by_itself_until_a_key() {
    let playlist = "title = 'Two'\n[[item]]\ncaption = 'first'\nprompt = 'a'\npace = 8\n\
                    trace = 'math'\nrest = 0\n[[item]]\ncaption = 'second'\nprompt = 'b'\nrest = 60\n";
    let demo = dflash_chat::record::demo::Playlist::parse(playlist).unwrap();
    let options = ScreenOptions { pair: "demo".into(), demo: Some(demo), ..Default::default() };
    let (screen, asked) =
        session_as(options, Shelf::default(), (100, 30), 0.0, |keys| async move {
            pause(1500).await;
            keys.send(key(KeyCode::Enter)).unwrap();
            pause(100).await;
            keys.send(ctrl('q')).unwrap();
        });
    assert!(screen.contains("the demo has stopped: this is the chat now"), "{screen}");
    assert!(screen.contains("Paris is the capital"), "{screen}");
    assert_eq!(asked, ["demo"]);
}

/// B42 and B46: the window changes its size all the time while text streams, and Esc stops it.
#[test]
fn resizes_while_streaming_and_a_stop_do_no_harm() {
    let (screen, _) = session((120, 40), 0.3, |keys| async move {
        keys.send(Event::Paste("a long answer".into())).unwrap();
        keys.send(key(KeyCode::Enter)).unwrap();
        for size in (1..250).step_by(5) {
            keys.send(Event::Resize(size, size / 3 + 1)).unwrap();
            pause(5).await;
        }
        keys.send(key(KeyCode::Esc)).unwrap();
        pause(300).await;
        keys.send(ctrl('q')).unwrap();
    });
    assert!(screen.contains("stopped · ") || screen.contains("stopped - "), "{screen}");
}

#[test]
fn input_that_ends_ends_the_screen() {
    session((80, 24), 0.0, |keys| async move { drop(keys) });
}
