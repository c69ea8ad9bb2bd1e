use super::*;
use crate::chat::conversation::Change;
use crate::tui::action::Action;
use crate::tui::testing::*;
use crossterm::event::{KeyCode, KeyModifiers};
use std::time::Duration;

#[test]
fn a_message_is_asked_and_its_answer_shown() {
    let mut app = ready_app();
    let effects = submit(&mut app, "What is the capital of France?");
    assert!(effects.contains(&Effect::Remember("What is the capital of France?".into())));
    let Some(EngineCommand::Generate(generate)) = sent(&effects) else { panic!("nothing asked") };
    let asked = ChatMessage::new(Role::User, "What is the capital of France?");
    assert_eq!(generate.prompt, Prompt::Messages(vec![asked]));
    assert!(app.composer.is_blank());
    for event in play(Some(EngineCommand::Generate(generate))) {
        happen(&mut app, Event::Engine(event));
    }
    let answer = app.transcript.last_answer().unwrap();
    assert!(answer.text.starts_with("Paris is the capital"));
    assert_eq!(answer.tokens.last().unwrap().end, answer.text.len());
    assert_eq!(answer.ids.len(), answer.stats.committed + 1);
    assert!(matches!(answer.finished, Some((FinishReason::Eos, _))));
    assert!(app.running.is_none());
}

/// The next prompt carries the ids of the answer before, its end token excluded.
#[test]
fn answers_go_back_as_ids() {
    let mut app = ready_app();
    app.conversation.system = Some("be brief".into());
    ask(&mut app, "one");
    let ids = app.transcript.last_answer().unwrap().ids.clone();
    let Some(EngineCommand::Generate(generate)) = sent(&submit(&mut app, "two")) else {
        panic!("nothing asked")
    };
    let Prompt::Messages(messages) = generate.prompt else { panic!("no messages") };
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::User]);
    assert_eq!(messages[2].ids.as_deref(), Some(&ids[..ids.len() - 1]));
}

/// B03: the ids of one vocabulary never go to another.
#[test]
fn ids_stay_with_their_target() {
    let mut app = ready_app();
    ask(&mut app, "one");
    let mut other = app.model().unwrap().clone();
    other.target.name = "another".into();
    happen(&mut app, Event::Engine(EngineEvent::ModelReady(Box::new(other))));
    let Some(EngineCommand::Generate(generate)) = sent(&submit(&mut app, "two")) else {
        panic!("nothing asked")
    };
    let Prompt::Messages(messages) = generate.prompt else { panic!("no messages") };
    assert_eq!(messages.len(), 3);
    assert!(messages.iter().all(|message| message.ids.is_none()), "{messages:?}");
}

/// What is written down makes the same conversation again.
#[test]
fn every_change_is_recorded() {
    let mut app = new_app();
    let mut written = Conversation::default();
    let mut record = |effects: Vec<Effect>| {
        for effect in &effects {
            if let Effect::Record(change) = effect {
                assert!(written.apply(change));
            }
        }
        (effects, written.clone())
    };
    for event in play(None) {
        record(happen(&mut app, Event::Engine(event)));
    }
    record(submit(&mut app, "/system be brief"));
    for text in ["one", "two", "/retry", "please fail", "/edit", "three", "/title talk"] {
        let (effects, _) = record(submit(&mut app, text));
        for event in sent(&effects).map(|command| play(Some(command))).into_iter().flatten() {
            record(happen(&mut app, Event::Engine(event)));
        }
        // What comes back into the composer (a failed message, one to edit) is written anew.
        app.composer.set("");
    }
    let (_, written) = record(Vec::new());
    assert_eq!(written, app.conversation);
    let asked: Vec<&str> = written.turns.iter().map(|turn| turn.user.as_str()).collect();
    assert_eq!((asked, written.title().as_str()), (vec!["one", "three"], "talk"));
    assert!(written.turns.iter().all(|turn| turn.answer.as_ref().unwrap().finished.is_some()));
}

/// A retry that fails before it begins costs nothing.
#[test]
fn an_answer_outlives_a_retry_that_did_not_begin() {
    let mut app = ready_app();
    ask(&mut app, "one");
    let said = app.transcript.last_answer().unwrap().text.clone();
    submit(&mut app, "/retry");
    assert!(app.transcript.last_answer().unwrap().text.is_empty());
    happen(&mut app, Event::EngineEnded);
    assert_eq!(app.transcript.last_answer().unwrap().text, said);
    assert!(app.composer.is_blank());
}

#[test]
fn an_edit_can_be_left() {
    let mut app = ready_app();
    ask(&mut app, "one");
    submit(&mut app, "/edit");
    assert_eq!(app.composer.text(), "one");
    act(&mut app, Action::Back);
    assert!(app.composer.is_blank());
    ask(&mut app, "two");
    assert_eq!(app.conversation.turns.len(), 2);
}

/// An earlier message is said otherwise: what came after it goes.
#[test]
fn an_earlier_message_is_edited() {
    let mut app = ready_app();
    for text in ["one", "two", "three"] {
        ask(&mut app, text);
    }
    submit(&mut app, "/edit 4");
    assert_eq!(app.notice.as_ref().unwrap().1, "there are 3 turns");
    app.composer.set("");
    submit(&mut app, "/edit 2");
    assert_eq!(app.composer.text(), "two");
    assert!(app.notice.as_ref().unwrap().1.ends_with("1 later turn goes"));
    app.composer.set("");
    ask(&mut app, "2");
    let said: Vec<&str> = app.conversation.turns.iter().map(|turn| turn.user.as_str()).collect();
    assert_eq!((said, app.transcript.items.len()), (vec!["one", "2"], 4));
    ask(&mut app, "and on");
    assert_eq!(app.conversation.turns.len(), 3);
}

/// Until an answer to the other message begins, all that it replaces is there: a request that
/// fails costs nothing, on the screen and in the file.
#[test]
fn an_edit_that_fails_costs_nothing() {
    let mut app = ready_app();
    ask(&mut app, "one");
    ask(&mut app, "two");
    let (before, shown) = (app.conversation.clone(), app.transcript.items.len());
    submit(&mut app, "/edit 1");
    app.composer.set("");
    let effects = submit(&mut app, "please fail");
    let Some(EngineCommand::Generate(generate)) = sent(&effects) else { panic!("nothing asked") };
    let asked = ChatMessage::new(Role::User, "please fail");
    assert_eq!(generate.prompt, Prompt::Messages(vec![asked]));
    assert_eq!(app.transcript.items.len(), 2);
    let failed = play(Some(EngineCommand::Generate(generate))).remove(0);
    let effects = [effects, happen(&mut app, Event::Engine(failed))].concat();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Record(_))), "{effects:?}");
    assert_eq!(app.conversation, before);
    assert_eq!(app.transcript.items.len(), shown + 1, "and the failure");
    assert_eq!(app.composer.text(), "please fail");
    // It is still an edit, and an engine that ends loses nothing either.
    assert_eq!(app.editing, Some(0));
    act(&mut app, Action::Submit);
    happen(&mut app, Event::EngineEnded);
    assert_eq!((app.conversation.clone(), app.editing), (before, Some(0)));
    assert_eq!(app.transcript.items.len(), shown + 1);
    for event in play(None) {
        happen(&mut app, Event::Engine(event));
    }
    app.composer.set("");
    ask(&mut app, "uno");
    let said: Vec<&str> = app.conversation.turns.iter().map(|turn| turn.user.as_str()).collect();
    assert_eq!((said, app.transcript.items.len()), (vec!["uno"], 2));
}

/// An edit is over where nothing is left of the message, or another is recalled: what is written
/// then replaces nothing.
#[test]
fn an_edit_ends_with_its_text() {
    let leave: [fn(&mut App); 3] = [
        |app| drop(act(app, Action::DeleteToStart)),
        |app| drop(act(app, Action::Up)),
        |app| drop(happen(app, Event::Edited(Ok(String::new())))),
    ];
    for leave in leave {
        let mut app = ready_app();
        ask(&mut app, "one");
        ask(&mut app, "two");
        submit(&mut app, "/edit 1");
        press(&mut app, KeyCode::Char('!'), KeyModifiers::NONE);
        act(&mut app, Action::Left);
        assert_eq!((app.composer.text().as_str(), app.editing), ("one!", Some(0)));
        act(&mut app, Action::LineEnd);
        leave(&mut app);
        assert_eq!(app.editing, None);
        assert!(app.notice.as_ref().unwrap().1.starts_with("message 1 stays"));
        app.composer.set("");
        ask(&mut app, "three");
        assert_eq!(app.conversation.turns.len(), 3);
    }
}

/// A message that was found again is a new one.
#[test]
fn a_search_ends_an_edit() {
    let mut app = ready_app();
    ask(&mut app, "one and two");
    submit(&mut app, "/edit");
    app.composer.set("one");
    act(&mut app, Action::Search);
    assert_eq!((app.composer.text().as_str(), app.editing), ("one and two", None));
    assert!(app.notice.as_ref().unwrap().1.starts_with("message 1 stays"));
}

#[test]
fn a_search_says_what_it_finds() {
    let mut app = ready_app();
    ask(&mut app, "why is the sky blue?");
    ask(&mut app, "thank you");
    app.composer.set("Sky");
    act(&mut app, Action::Search);
    assert_eq!(app.composer.text(), "why is the sky blue?");
    act(&mut app, Action::Search);
    assert_eq!(app.notice.as_ref().unwrap().1, "no other earlier message has \"Sky\"");
    assert_eq!(app.composer.text(), "why is the sky blue?");
}

/// An opened conversation is shown as it was; what never got an answer can be sent again.
#[test]
fn a_conversation_is_opened() {
    let mut app = ready_app();
    ask(&mut app, "one");
    ask(&mut app, "two");
    let mut before = app.conversation.clone();
    before.apply(&Change::User { text: "unanswered".into() });
    let text = app.transcript.last_answer().unwrap().text.clone();
    assert_eq!(submit(&mut app, "/new"), [Effect::Begin]);
    happen(&mut app, Event::Opened(Box::default(), Vec::new()));
    assert!(app.transcript.items.is_empty());
    let effects = happen(&mut app, Event::Opened(Box::new(before), vec!["a fork".into()]));
    assert_eq!(effects, [Effect::Record(Change::Cut { turns: 2 })]);
    assert_eq!(app.composer.text(), "unanswered");
    assert_eq!(app.transcript.last_answer().unwrap().text, text);
    assert_eq!(app.notice.as_ref().unwrap().1, "a fork");
    app.composer.set("");
    let Some(EngineCommand::Generate(generate)) = sent(&submit(&mut app, "three")) else {
        panic!("nothing asked")
    };
    let Prompt::Messages(messages) = generate.prompt else { panic!("no messages") };
    assert_eq!(messages.len(), 5);
    assert!(messages[3].ids.is_some());
}

/// The meter is right at once, and a conversation that fills the context is told of once.
#[test]
fn the_context_is_known_when_a_conversation_is_opened() {
    let mut app = ready_app();
    ask(&mut app, "one");
    ask(&mut app, "two");
    let (used, conversation) = (app.context_used, app.conversation.clone());
    assert_eq!(used, conversation.context_tokens());
    happen(&mut app, Event::Opened(Box::default(), Vec::new()));
    assert_eq!(app.context_used, 0);
    happen(&mut app, Event::Opened(Box::new(conversation), Vec::new()));
    assert_eq!(app.context_used, used);
    submit(&mut app, "/undo");
    let first = app.conversation.turns[0].answer.as_ref().unwrap();
    assert_eq!(app.context_used, first.run.prompt_tokens + first.ids.len());
}

/// From 80 % of the context on the person is warned, once, and again after there was room.
#[test]
fn little_context_is_told_once() {
    let mut app = ready_app();
    let warnings = |app: &App| {
        let told = |item: &&Item| matches!(item, Item::Notice(Level::Warning, note) if note.text.contains("context"));
        app.transcript.items.iter().filter(told).count()
    };
    ask(&mut app, "one");
    let first = app.context_used;
    ask(&mut app, "two");
    let EngineState::Ready(model) = &mut app.engine else { panic!("not ready") };
    // 79 %, then more than 80.
    model.ctx_limit = app.context_used * 100 / 79;
    app.watch_context();
    assert_eq!(warnings(&app), 0);
    ask(&mut app, "three");
    assert_eq!(warnings(&app), 1);
    ask(&mut app, "four");
    assert_eq!(warnings(&app), 1, "said already");
    let said = app.notice.clone();
    assert!(app.context_share().unwrap() > 0.8 && said.is_none(), "{said:?}");
    for _ in 0..3 {
        app.composer.set("");
        submit(&mut app, "/undo");
    }
    assert_eq!(app.context_used, first);
    app.composer.set("");
    app.generate.drop_oldest = true;
    (0..3).for_each(|_| ask(&mut app, "again"));
    assert_eq!(warnings(&app), 1, "the first warning went with the turn that it followed");
    let Some(Item::Notice(_, note)) =
        app.transcript.items.iter().rev().find(|item| matches!(item, Item::Notice(..)))
    else {
        panic!("no warning")
    };
    assert!(note.text.ends_with("oldest turns are left out when it is full."), "{}", note.text);
}

/// A conversation that another model made says so, when it is opened and when a model comes.
#[test]
fn another_model_is_told() {
    let mut app = ready_app();
    ask(&mut app, "one");
    let mut other = app.conversation.clone();
    other.models.pair = "other pair".into();
    other.models.target = "another".into();
    let told = |app: &App| {
        let text = |item: &Item| match item {
            Item::Notice(_, note) => note.text.clone(),
            _ => String::new(),
        };
        app.transcript.items.iter().map(text).any(|text| {
            text == "this conversation was made with other pair; scripted goes on with it"
        })
    };
    assert!(!told(&app));
    happen(&mut app, Event::Opened(Box::new(other.clone()), Vec::new()));
    assert!(told(&app));
    let mut starting = new_app();
    happen(&mut starting, Event::Opened(Box::new(other), Vec::new()));
    assert!(!told(&starting), "nothing is loaded yet");
    for event in play(None) {
        happen(&mut starting, Event::Engine(event));
    }
    assert!(told(&starting));
    // Another file under the same name.
    let target = app.conversation.models.target.clone();
    let mut copy = app.conversation.clone();
    copy.models.target = "/tmp/copy.gguf".into();
    happen(&mut app, Event::Opened(Box::new(copy), Vec::new()));
    let note = app.transcript.items.iter().rev().find_map(|item| match item {
        Item::Notice(_, note) => Some(note.text.as_str()),
        _ => None,
    });
    let both = format!("made with /tmp/copy.gguf; {target} goes on with it");
    assert!(note.is_some_and(|note| note.ends_with(&both)), "{note:?}");
}

#[test]
fn a_fork_ends_with_the_turn_that_is_named_or_walked() {
    let mut app = ready_app();
    assert!(submit(&mut app, "/fork").is_empty());
    for text in ["one", "two", "three"] {
        ask(&mut app, text);
    }
    assert_eq!(submit(&mut app, "/fork"), [Effect::Fork(3)]);
    assert_eq!(submit(&mut app, "/fork 1"), [Effect::Fork(1)]);
    assert!(submit(&mut app, "/fork 4").is_empty());
    assert_eq!(app.notice.as_ref().unwrap().1, "there are 3 turns");
    app.composer.set("");
    assert_eq!(act(&mut app, Action::Fork), [Effect::Fork(3)]);
    act(&mut app, Action::Walk);
    act(&mut app, Action::Up);
    assert_eq!(act(&mut app, Action::Fork), [Effect::Fork(2)]);
    act(&mut app, Action::Walk);
    // Answers of an earlier session, whose rounds are not known, are walked too.
    let before = app.conversation.clone();
    let mut next_day = ready_app();
    happen(&mut next_day, Event::Opened(Box::new(before), Vec::new()));
    for turn in [3, 2, 1, 1] {
        let up = if next_day.walk.is_none() { Action::Walk } else { Action::Up };
        act(&mut next_day, up);
        assert_eq!(act(&mut next_day, Action::Fork), [Effect::Fork(turn)]);
        act(&mut next_day, Action::Right);
    }
    ask_partly(&mut app, "four", 8);
    assert!(act(&mut app, Action::Fork).is_empty());
}

/// Sampled, another answer is another draw; its seed is shown.
#[test]
fn a_retry_draws_anew() {
    let mut app = ready_app();
    submit(&mut app, "/temp 0.8");
    submit(&mut app, "/seed 4");
    ask(&mut app, "one");
    let Some(EngineCommand::Generate(again)) = sent(&submit(&mut app, "/retry")) else {
        panic!("nothing asked")
    };
    assert_eq!(again.seed, 5);
    assert_eq!(app.notice.as_ref().unwrap().1, "again, with seed 5");
    happen(&mut app, Event::EngineEnded);
    let mut greedy = ready_app();
    ask(&mut greedy, "one");
    let Some(EngineCommand::Generate(again)) = sent(&submit(&mut greedy, "/retry")) else {
        panic!("nothing asked")
    };
    assert_eq!(again.seed, 0);
}

/// What comes back from the editor is the message; what goes wrong leaves it.
#[test]
fn the_editor_writes_the_message() {
    let mut app = ready_app();
    app.composer.set("half");
    assert_eq!(act(&mut app, Action::Editor), [Effect::Edit("half".into())]);
    happen(&mut app, Event::Edited(Err("it failed".into())));
    assert_eq!(
        (app.composer.text().as_str(), &app.notice.as_ref().unwrap().1[..]),
        ("half", "it failed")
    );
    app.mouse = false;
    let effects = happen(&mut app, Event::Edited(Ok("half and\nwhole".into())));
    assert_eq!(effects, [Effect::Mouse(false)]);
    assert_eq!(app.composer.text(), "half and\nwhole");
}

#[test]
fn a_title_is_begun_with_its_key() {
    let mut app = ready_app();
    ask(&mut app, "one");
    act(&mut app, Action::Rename);
    assert_eq!(app.composer.text(), "/title one");
    act(&mut app, Action::Back);
    act(&mut app, Action::Back);
    assert!(app.composer.is_blank(), "the popup, then the command");
    act(&mut app, Action::Rename);
    act(&mut app, Action::Submit);
    assert_eq!(app.conversation.title(), "one");
    app.composer.set("a message");
    act(&mut app, Action::Rename);
    assert_eq!(app.composer.text(), "a message");
}

#[test]
fn an_export_is_markdown_or_json_by_its_name() {
    let mut app = ready_app();
    assert!(submit(&mut app, "/export").is_empty());
    ask(&mut app, "one");
    let export = |app: &mut App, input| match &submit(app, input)[..] {
        [Effect::Export(path, text)] => (path.display().to_string(), text.clone()),
        other => panic!("{other:?}"),
    };
    let (path, text) = export(&mut app, "/export");
    assert!(path == "conversation.md" && text.starts_with("# one\n"), "{path}: {text}");
    let (path, text) = export(&mut app, "/export talk.json");
    assert_eq!(path, "talk.json");
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
}

/// Nothing typed is lost when the engine fails.
#[test]
fn a_failed_prompt_comes_back() {
    let mut app = ready_app();
    ask(&mut app, "please fail");
    let finished =
        EngineEvent::RunFinished { reason: FinishReason::Failed, totals: Totals::default() };
    happen(&mut app, Event::Engine(finished));
    assert_eq!(app.composer.text(), "please fail");
    assert!(app.conversation.turns.is_empty());
    assert!(app.running.is_none());
    assert!(matches!(app.transcript.items[..], [Item::Notice(Level::Error, _)]));
}

/// B50: an engine that ends leaves a screen that says so and can start another.
#[test]
fn an_engine_that_ends_can_be_started_again() {
    let mut app = ready_app();
    submit(&mut app, "hello");
    happen(&mut app, Event::EngineEnded);
    assert_eq!(app.composer.text(), "hello");
    assert_eq!(app.engine, EngineState::Ended);
    assert!(sent(&act(&mut app, Action::Submit)).is_none());
    assert_eq!(app.notice.as_ref().unwrap().0, Level::Error);
    app.composer.set("");
    assert_eq!(submit(&mut app, "/pair"), [Effect::StartEngine("demo".into())]);
    assert!(matches!(app.engine, EngineState::Loading { .. }));
}

/// B46: what was said until it was stopped stays, marked.
#[test]
fn a_stopped_answer_is_kept_and_marked() {
    let mut app = ready_app();
    ask_partly(&mut app, "code", 12);
    assert_eq!(act(&mut app, Action::Back), [Effect::Cancel]);
    assert!(app.running.unwrap().stopping);
    let said = app.transcript.last_answer().unwrap().text.clone();
    assert!(!said.is_empty());
    let finished =
        EngineEvent::RunFinished { reason: FinishReason::Cancelled, totals: Totals::default() };
    happen(&mut app, Event::Engine(finished));
    let answer = app.transcript.last_answer().unwrap();
    assert_eq!(answer.text, said);
    assert!(matches!(answer.finished, Some((FinishReason::Cancelled, _))));
}

/// B46: Ctrl+C stops the work in progress only; a second one within a second quits.
#[test]
fn ctrl_c_stops_then_quits() {
    let mut app = ready_app();
    ask_partly(&mut app, "code", 8);
    let start = Instant::now();
    let ctrl_c = || {
        let key = crossterm::event::KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        Event::Input(Input::Key(key))
    };
    assert_eq!(update(&mut app, ctrl_c(), start), [Effect::Cancel]);
    let later = start + Duration::from_secs(2);
    assert_eq!(update(&mut app, ctrl_c(), later), [Effect::Cancel]);
    assert_eq!(update(&mut app, ctrl_c(), later + Duration::from_millis(300)), [Effect::Quit]);
    // While nothing is done there is nothing to stop, and what is written stays.
    let mut idle = ready_app();
    idle.composer.set("half a thought");
    assert!(update(&mut idle, ctrl_c(), start).is_empty());
    assert_eq!(idle.composer.text(), "half a thought");
    assert_eq!(idle.notice.as_ref().unwrap().1, "Ctrl+C again quits");
    // While the prompt is read.
    let mut reading = ready_app();
    ask_partly(&mut reading, "code", 2);
    assert!(matches!(reading.running.unwrap().phase, Phase::Prefill(..)));
    assert_eq!(update(&mut reading, ctrl_c(), start), [Effect::Cancel]);
}

/// B46: Ctrl+C while the model is loaded, or fetched, ends that only.
#[test]
fn ctrl_c_ends_loading() {
    let mut app = new_app();
    assert_eq!(act(&mut app, Action::Interrupt), [Effect::Cancel]);
    happen(&mut app, Event::EngineEnded);
    assert_eq!(app.engine, EngineState::Ended);
}

/// A message waits here for the model: to take it back leaves the loading alone.
#[test]
fn a_message_waits_for_the_model_and_can_be_taken_back() {
    let mut app = new_app();
    assert!(sent(&submit(&mut app, "hello")).is_none());
    assert!(app.running.is_some());
    assert!(submit(&mut app, "and more").is_empty());
    app.composer.set("");
    let taken_back = [Effect::Record(Change::Cut { turns: 0 })];
    assert_eq!(act(&mut app, Action::Back), taken_back);
    assert_eq!((app.composer.text().as_str(), app.running), ("hello", None));
    assert!(matches!(app.engine, EngineState::Loading { .. }));
    assert!(app.transcript.items.is_empty());
    act(&mut app, Action::Submit);
    assert_eq!(act(&mut app, Action::Interrupt), taken_back);
    act(&mut app, Action::Submit);
    // What is changed meanwhile is for the next one.
    submit(&mut app, "/temp 0.5");
    let asked: Vec<Effect> =
        play(None).into_iter().flat_map(|event| happen(&mut app, Event::Engine(event))).collect();
    let Some(EngineCommand::Generate(generate)) = sent(&asked) else { panic!("{asked:?}") };
    let hello = ChatMessage::new(Role::User, "hello");
    assert_eq!(generate.prompt, Prompt::Messages(vec![hello]));
    assert_eq!(generate.sampling.temperature, 0.0);
    for event in play(Some(EngineCommand::Generate(generate))) {
        happen(&mut app, Event::Engine(event));
    }
    assert!(app.transcript.last_answer().unwrap().finished.is_some());
}

/// What waits for a model goes to that one with its own ids, or, where it cannot be loaded, back.
#[test]
fn what_waits_is_for_the_model_that_comes() {
    let mut app = ready_app();
    ask(&mut app, "one");
    submit(&mut app, "/pair other");
    assert!(sent(&submit(&mut app, "two")).is_none());
    let mut failed = app.clone();
    happen(&mut failed, Event::EngineEnded);
    assert_eq!((failed.composer.text().as_str(), failed.running), ("two", None));
    let Some(EngineEvent::ModelReady(mut other)) = play(None).pop() else { panic!("not ready") };
    other.target.name = "another".into();
    let effects = happen(&mut app, Event::Engine(EngineEvent::ModelReady(other)));
    let Some(EngineCommand::Generate(generate)) = sent(&effects) else { panic!("nothing asked") };
    let Prompt::Messages(messages) = generate.prompt else { panic!("no messages") };
    assert_eq!(messages.len(), 3);
    assert!(messages.iter().all(|message| message.ids.is_none()), "{messages:?}");
}

/// A retry and an edit wait too, and cost nothing when they are taken back.
#[test]
fn what_waits_replaces_nothing_yet() {
    let mut app = ready_app();
    ask(&mut app, "one");
    ask(&mut app, "two");
    let (before, shown) = (app.conversation.clone(), app.transcript.items.len());
    submit(&mut app, "/pair other");
    assert!(submit(&mut app, "/retry").is_empty());
    assert!(act(&mut app, Action::Back).is_empty());
    submit(&mut app, "/edit 1");
    assert_eq!(sent(&act(&mut app, Action::Submit)), None);
    assert!(act(&mut app, Action::Back).is_empty());
    assert_eq!((app.composer.text().as_str(), app.editing), ("one", Some(0)));
    assert_eq!((app.conversation, app.transcript.items.len()), (before, shown));
}

/// Nothing is asked of an engine that is not there.
#[test]
fn without_a_model_nothing_is_asked_again() {
    let mut app = ready_app();
    ask(&mut app, "one");
    happen(&mut app, Event::EngineEnded);
    assert!(submit(&mut app, "/retry").is_empty());
    assert!(app.running.is_none());
    assert!(app.notice.as_ref().unwrap().1.starts_with("no model is loaded"));
}

/// A measurement is stopped as an answer is, and nothing is asked meanwhile.
#[test]
fn a_measurement_can_be_stopped() {
    for stop in [Action::Back, Action::Interrupt] {
        let mut app = ready_app();
        assert!(sent(&submit(&mut app, "/cost")).is_some());
        assert!(submit(&mut app, "hello").is_empty());
        assert_eq!(app.composer.text(), "hello");
        assert!(app.notice.as_ref().unwrap().1.starts_with("the cost is being measured"));
        app.composer.set("");
        assert!(submit(&mut app, "/undo").is_empty());
        assert_eq!(app.composer.text(), "/undo");
        app.composer.set("");
        assert_eq!(act(&mut app, stop), [Effect::Cancel]);
        assert!(app.busy(), "until the engine says so");
        let message = Message { level: Level::Error, message: "stopped".into(), hint: None };
        happen(&mut app, Event::Engine(EngineEvent::Error(message)));
        assert!(app.transcript.items.is_empty(), "no failure");
        assert_eq!(app.notice.as_ref().unwrap().1, "the measurement was stopped");
        ask(&mut app, "hello");
        // One that fails by itself is told.
        submit(&mut app, "/cost");
        let message = Message { level: Level::Error, message: "no memory".into(), hint: None };
        happen(&mut app, Event::Engine(EngineEvent::Error(message)));
        assert!(matches!(app.transcript.items.last(), Some(Item::Notice(Level::Error, _))));
    }
}

#[test]
fn sending_waits_for_the_answer_but_commands_that_may_do_not() {
    let mut app = ready_app();
    ask_partly(&mut app, "code", 8);
    assert!(submit(&mut app, "another").is_empty());
    assert_eq!(app.composer.text(), "another");
    app.composer.set("");
    submit(&mut app, "/temp 0.7");
    assert_eq!(app.generate.sampling.temperature, 0.7);
    submit(&mut app, "/new");
    assert!(!app.transcript.items.is_empty());
    assert_eq!(app.composer.text(), "/new");
}

#[test]
fn mode_and_block_size_follow_their_keys() {
    let mut app = ready_app();
    act(&mut app, Action::Mode);
    assert_eq!(app.generate.mode, Mode::Baseline);
    act(&mut app, Action::Mode);
    let mut sizes = Vec::new();
    for action in [
        Action::BlockLarger,
        Action::BlockLarger,
        Action::BlockSmaller,
        Action::BlockSmaller,
        Action::BlockSmaller,
    ] {
        act(&mut app, action);
        sizes.push(app.generate.block_size.to_string());
    }
    assert_eq!(sizes, ["2", "3", "2", "auto", "auto"]);
    (0..20).for_each(|_| drop(act(&mut app, Action::BlockLarger)));
    assert_eq!(app.generate.block_size, BlockSize::Fixed(8));
}

#[test]
fn retry_asks_again_and_undo_gives_back() {
    let mut app = ready_app();
    ask(&mut app, "one");
    ask(&mut app, "two");
    assert!(sent(&submit(&mut app, "/retry")).is_some());
    assert_eq!(app.transcript.items.len(), 4);
    happen(
        &mut app,
        Event::Engine(EngineEvent::RunFinished {
            reason: FinishReason::Eos,
            totals: Totals::default(),
        }),
    );
    submit(&mut app, "/undo");
    assert_eq!(app.composer.text(), "two");
    assert_eq!(app.transcript.items.len(), 2);
}

/// The cursor walks tokens and rounds, and the panel shows the round behind the token.
#[test]
fn walking_opens_the_round_behind_a_token() {
    let mut app = ready_app();
    ask(&mut app, "code");
    act(&mut app, Action::Walk);
    act(&mut app, Action::LineStart);
    assert!(app.shown_round().is_none(), "the first token is prefill's");
    act(&mut app, Action::Right);
    assert_eq!(app.shown_round().unwrap().1.index, 0);
    act(&mut app, Action::WordRight);
    assert_eq!(app.shown_round().unwrap().1.index, 1);
    act(&mut app, Action::WordRight);
    act(&mut app, Action::WordLeft);
    assert_eq!(app.shown_round().unwrap().1.index, 1);
    act(&mut app, Action::LineEnd);
    let (answer, round, _) = app.shown_round().unwrap();
    assert_eq!(round.index, answer.rounds.len() - 1);
    act(&mut app, Action::Back);
    assert!(app.walk.is_none());
    assert!(app.shown_round().unwrap().2);
}

/// B40: fifty pasted lines are one message, and it is not sent.
#[test]
fn a_paste_is_not_sent() {
    let mut app = ready_app();
    let lines = (0..50).map(|i| format!("line {i}")).collect::<Vec<_>>().join("\n");
    assert!(happen(&mut app, Event::Input(Input::Paste(lines))).is_empty());
    assert_eq!(app.composer.text().lines().count(), 50);
    assert!(app.transcript.items.is_empty());
}

#[test]
fn only_plain_steps_are_the_measure_of_speed() {
    let mut app = ready_app();
    app.generate.block_size = BlockSize::Fixed(4);
    ask(&mut app, "code");
    assert_eq!(app.plain.median_us(), None);
    app.generate.mode = Mode::Baseline;
    ask(&mut app, "code");
    assert!(app.plain.count() > 0);
    let mut steps = PlainSteps::default();
    (0..1000).for_each(|_| steps.add(900));
    steps.add(10);
    assert_eq!((steps.count(), steps.median_us()), (64, Some(900.0)));
}

/// An answer is compared with the plain steps of its own time and model, whatever comes later.
#[test]
fn verdicts_do_not_drift() {
    let mut app = ready_app();
    let compared = |app: &App| -> Vec<Option<f64>> {
        app.transcript.answers().map(|(_, answer)| app.plain_us(answer)).collect()
    };
    app.generate.block_size = BlockSize::Fixed(4);
    ask(&mut app, "code");
    assert_eq!(compared(&app), [None]);
    // Where none was known, the first that is known holds.
    app.generate.mode = Mode::Baseline;
    ask(&mut app, "code");
    let plain = app.plain.median_us();
    assert!(plain.is_some());
    assert_eq!(compared(&app), [plain; 2]);
    (0..64).for_each(|_| app.plain.add(3_000));
    ask_partly(&mut app, "code", 7);
    assert_eq!(compared(&app), [plain, plain, Some(3_000.0)], "the last one goes on");
    let finished =
        EngineEvent::RunFinished { reason: FinishReason::Cancelled, totals: Totals::default() };
    happen(&mut app, Event::Engine(finished));
    // Another model is slower.
    submit(&mut app, "/pair other");
    for event in play(None) {
        happen(&mut app, Event::Engine(event));
    }
    (0..64).for_each(|_| app.plain.add(90_000));
    app.generate.mode = Mode::Speculative;
    ask(&mut app, "code");
    assert_eq!(compared(&app), [plain, plain, Some(3_000.0), Some(90_000.0)]);
}

#[test]
fn copying_is_bounded() {
    let mut app = ready_app();
    assert!(act(&mut app, Action::CopyAnswer).is_empty());
    ask(&mut app, "hello");
    let content = app.transcript.last_answer().unwrap().content.clone();
    assert_eq!(act(&mut app, Action::CopyAnswer), [Effect::Copy(content)]);
    app.transcript.last_answer_mut().unwrap().content = "x".repeat(100_000);
    assert!(act(&mut app, Action::CopyAnswer).is_empty());
}

#[test]
fn an_overlay_takes_the_keys_until_it_is_closed() {
    let mut app = ready_app();
    act(&mut app, Action::Help);
    act(&mut app, Action::PageDown);
    assert_eq!(app.overlay, Some(Overlay::Help(10)));
    assert!(act(&mut app, Action::Back).is_empty());
    assert_eq!(app.overlay, None);
    submit(&mut app, "/stats");
    assert_eq!(app.overlay, Some(Overlay::Stats));
    press(&mut app, KeyCode::Char('x'), KeyModifiers::NONE);
    assert_eq!((app.overlay, app.composer.text().as_str()), (None, "x"));
}

#[test]
fn a_replayed_answer_needs_no_question() {
    let mut app = ready_app();
    let command = EngineCommand::Generate(Box::new(Generate {
        prompt: Prompt::Text("code".into()),
        ..Generate::default()
    }));
    for event in play(Some(command)) {
        happen(&mut app, Event::Engine(event));
    }
    assert_eq!(app.transcript.items.len(), 1);
    assert!(app.running.is_none());
}
