//! `replay` and `run --record` as a person at a shell meets them, without any model.

mod program_support;

use assert_cmd::Command;
use program_support::Outcome;
use serde_json::Value;
use std::time::Duration;

fn dflash_chat(arguments: &[&str]) -> Outcome {
    let home = tempfile::tempdir().unwrap();
    Outcome::of(
        Command::cargo_bin("dflash-chat")
            .unwrap()
            .args(arguments)
            .env_remove("NO_COLOR")
            .env("DFLASH_CHAT_DATA", home.path())
            .env("DFLASH_CHAT_CONFIG", home.path())
            .env("DFLASH_CHAT_CACHE", home.path())
            .timeout(Duration::from_secs(60)),
    )
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_demo_is_told_in_every_format_without_escape_codes() {
    let text = dflash_chat(&["replay", "--demo"]);
    assert_eq!((text.code, text.err.as_str()), (Some(0), ""));
    assert!(text.out.starts_with("REPLAY of smollm2-135m on cpu"), "{}", text.out);
    assert!(text.out.contains("outcome ▸") && !text.out.contains('\x1b'), "{}", text.out);

    let json = dflash_chat(&["replay", "--demo", "code", "--format", "json"]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert!(json["text"].as_str().unwrap().contains("def factorial"));
    assert_eq!(json["header"]["format"], "dflash-chat-recording");
    let committed = |round: &Value| round["committed"].as_array().unwrap().len();
    let rounds = json["rounds"].as_array().unwrap();
    let tokens = 1 + rounds.iter().map(committed).sum::<usize>();
    assert_eq!(json["ids"].as_array().unwrap().len(), tokens);

    let jsonl = dflash_chat(&["replay", "--demo", "chat", "--format", "jsonl"]);
    let events = json_lines(&jsonl.out);
    assert_eq!(events[0]["type"], "model_ready");
    assert_eq!(events[events.len() - 1]["type"], "run_finished");
    assert!(events.iter().enumerate().all(|(i, event)| event["seq"] == i));

    let list = dflash_chat(&["replay", "--list"]);
    assert!(["math", "code", "chat"].iter().all(|name| list.out.contains(name)), "{}", list.out);
}

#[test]
fn a_replay_is_exported_as_a_cast_and_as_a_picture() {
    let cast = dflash_chat(&["replay", "--demo", "--format", "asciicast", "--speed", "4"]);
    let lines = json_lines(&cast.out);
    assert_eq!(lines[0]["version"], 2);
    assert!(lines[1..].iter().all(|line| line[0].is_number() && line[2].is_string()));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("round.svg");
    let name = file.to_str().unwrap();
    let made = dflash_chat(&["replay", "--demo", "--svg", "3", name, "--background", "light"]);
    assert_eq!((made.code, made.err.as_str()), (Some(0), ""));
    let picture = std::fs::read_to_string(&file).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains(">Round 3"), "{picture}");
    for round in ["0", "9999", "x"] {
        let wrong = dflash_chat(&["replay", "--demo", "--svg", round, name]);
        assert_eq!(wrong.code, Some(1));
        assert!(wrong.err.contains(&format!("there is no round {round}")), "{}", wrong.err);
    }
}

#[test]
fn what_run_records_is_replayed_and_so_is_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.jsonl");
    let name = file.to_str().unwrap();
    let run = ["run", "code", "--engine", "scripted"];
    let said = dflash_chat(&[&run[..], &["--record", name, "--origin", "a test"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    let replayed = dflash_chat(&["replay", name, "--format", "json"]);
    let json: Value = serde_json::from_str(&replayed.out).unwrap();
    assert_eq!(json["text"].as_str().unwrap().trim_end(), said.out.trim_end());
    assert_eq!(json["header"]["origin"], "a test");
    // Not over a recording that is there.
    let again = dflash_chat(&[&run[..], &["--record", name]].concat());
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("give the name of a new file"), "{}", again.err);

    let events = dflash_chat(&[&run[..], &["--format", "jsonl"]].concat()).out;
    std::fs::write(&file, events).unwrap();
    let plain = dflash_chat(&["replay", name, "--format", "json"]);
    let plain: Value = serde_json::from_str(&plain.out).unwrap();
    assert_eq!((&plain["text"], &plain["header"]), (&json["text"], &Value::Null));
}

/// A recording's header has the first prompt alone, which must not stand above another's answer.
#[test]
fn another_answer_does_not_answer_the_first_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = folder.path().join("prompts.jsonl");
    std::fs::write(&prompts, "{\"prompt\":\"capital\"}\n{\"prompt\":\"cjk\"}\n").unwrap();
    let file = folder.path().join("a.jsonl");
    let name = file.to_str().unwrap();
    let run = ["run", "--engine", "scripted", "--max-tokens", "6", "--record", name];
    dflash_chat(&[&run[..], &["--prompts", prompts.to_str().unwrap()]].concat()).expect(0);

    let replay = |answer: &str, format: &str| {
        dflash_chat(&["replay", name, "--answer", answer, "--format", format]).expect(0).out
    };
    let [first, second] = ["1", "2"].map(|answer| replay(answer, "text"));
    assert!(first.contains("> capital\n") && first.contains("Paris"), "{first}");
    assert!(!second.contains("capital") && second.contains("日本語"), "{second}");
    let json: Value = serde_json::from_str(&replay("2", "json")).unwrap();
    assert_eq!(
        (&json["header"]["request"], &json["header"]["pair"]),
        (&Value::Null, &"scripted".into())
    );
    assert!(!replay("2", "asciicast").contains("capital"));

    // Nor does it where the first prompt has none.
    std::fs::write(&prompts, "{\"prompt\":\"fail\"}\n{\"prompt\":\"cjk\"}\n").unwrap();
    std::fs::remove_file(&file).unwrap();
    dflash_chat(&[&run[..], &["--prompts", prompts.to_str().unwrap()]].concat()).expect(1);
    let only = replay("1", "text");
    assert!(!only.contains("fail") && only.contains("日本語"), "{only}");
}

#[test]
fn a_demo_needs_a_playlist_and_a_terminal() {
    let list = dflash_chat(&["demo", "--list"]);
    assert_eq!((list.code, list.err.as_str()), (Some(0), ""));
    assert!(["tour", "races"].iter().all(|name| list.out.contains(name)), "{}", list.out);
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.toml");
    std::fs::write(&wrong, "title = 't'\nitem = []\n").unwrap();
    for (playlist, says) in [
        ("nothing", "neither a playlist (tour, races) nor"),
        (wrong.to_str().unwrap(), "shows nothing"),
        ("tour", "the demo needs a terminal"),
    ] {
        let outcome = dflash_chat(&["demo", playlist]);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
        assert!(outcome.err.contains(says) && outcome.err.lines().count() == 1, "{}", outcome.err);
    }
}

#[test]
fn what_cannot_be_replayed_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.jsonl");
    let name = file.to_str().unwrap();
    let nothing = folder.path().join("nothing");
    for (bytes, says) in [(&b""[..], "no answer is recorded"), (b"\0\xff\n\n{\n", "line 1")] {
        std::fs::write(&file, bytes).unwrap();
        let outcome = dflash_chat(&["replay", name]);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(1), ""));
        assert!(outcome.err.contains(says) && outcome.err.lines().count() == 1, "{}", outcome.err);
    }
    for arguments in [
        &["replay", nothing.to_str().unwrap()][..],
        &["replay", folder.path().to_str().unwrap()],
        &["replay", "--demo", "nobody"],
        &["replay", "--demo", "--answer", "2"],
        &["replay", "--demo", "--answer", "0"],
    ] {
        let outcome = dflash_chat(arguments);
        assert_eq!(outcome.code, Some(1), "{arguments:?}");
        assert_eq!(outcome.err.lines().count(), 1, "{}", outcome.err);
    }
    for arguments in [&["replay"][..], &["replay", "--demo", "--speed", "nan"]] {
        assert_eq!(dflash_chat(arguments).code, Some(2), "{arguments:?}");
    }
}
