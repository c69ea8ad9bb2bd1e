//! Saved conversations through the command line: continued from scripts, several prompts from a
//! file, and the program killed while it writes.

use assert_cmd::Command;
use dflash_chat::chat::conversation::Conversation;
use dflash_chat::chat::store::Store;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

fn program(data: &Path) -> Command {
    let mut command = Command::cargo_bin("dflash-chat").unwrap();
    command.args(["run", "--engine", "scripted"]);
    for name in ["CONFIG", "DATA", "CACHE"] {
        command.env(format!("DFLASH_CHAT_{name}"), data);
    }
    command
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn saved(data: &Path, id: &str) -> Conversation {
    Store::new(data.join("sessions")).open(id).unwrap().saved.conversation().clone()
}

#[test]
fn a_script_continues_a_conversation() {
    let data = tempfile::tempdir().unwrap();
    let args = ["--session", "work", "--format", "json"];
    let first = stdout(program(data.path()).args(args).args(["hello", "--system", "be brief"]));
    let second = stdout(program(data.path()).args(args).arg("the code, please"));
    let [first, second]: [Value; 2] =
        [first, second].map(|text| serde_json::from_str(&text).unwrap());

    let conversation = saved(data.path(), "work");
    assert_eq!(conversation.system.as_deref(), Some("be brief"));
    let users: Vec<&str> = conversation.turns.iter().map(|turn| turn.user.as_str()).collect();
    assert_eq!(users, ["hello", "the code, please"]);
    for (turn, printed) in conversation.turns.iter().zip([&first, &second]) {
        let answer = turn.answer.as_ref().unwrap();
        assert_eq!(answer.text, printed["text"].as_str().unwrap());
        assert_eq!(serde_json::to_value(&answer.ids).unwrap(), printed["ids"]);
        assert!(answer.finished.is_some());
    }
    // The second prompt held the first turn.
    let prompt = |answer: &Value| answer["run"]["prompt_ids"].as_array().unwrap().len();
    let turn = prompt(&first) + first["ids"].as_array().unwrap().len();
    assert!(prompt(&second) >= turn, "{} < {turn}", prompt(&second));
}

#[test]
fn a_failed_message_is_no_part_of_the_conversation() {
    let data = tempfile::tempdir().unwrap();
    stdout(program(data.path()).args(["--session", "work", "hello"]));
    program(data.path()).args(["--session", "work", "fail"]).assert().code(1);
    assert_eq!(saved(data.path(), "work").turns.len(), 1);
}

#[test]
fn several_prompts_from_a_file() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("prompts.jsonl");
    let lines = "{\"prompt\":\"hello\"}\n{\"prompt\":\"fail\"}\n{\"turns\":[\"a\",\"cjk\"]}\n";
    std::fs::write(&file, lines).unwrap();
    let mut command = program(data.path());
    let output = command.arg("--prompts").arg(&file).args(["--format", "json"]).output().unwrap();
    // One failed: the others are answered, and the exit code says so.
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("line 2: the script said that this fails"), "{errors}");
    assert!(errors.contains("1 of 3 prompts failed"), "{errors}");
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let texts: Vec<&str> = answers.iter().map(|answer| answer["text"].as_str().unwrap()).collect();
    let lines: Vec<u64> = answers.iter().map(|answer| answer["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [1, 3, 3]);
    assert!(texts[0].starts_with("Paris") && texts[2].starts_with("日本語"), "{texts:?}");
    assert!(!data.path().join("sessions").exists(), "nothing was to be saved");
}

#[test]
fn wrong_usage_has_its_exit_code_and_says_what_would_be_right() {
    let data = tempfile::tempdir().unwrap();
    let error = |args: &[&str], code| {
        let output = program(data.path()).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(error(&[], 2).contains("PROMPT"));
    assert!(error(&["a", "--prompts", "b"], 2).contains("cannot be used with"));
    assert!(error(&["a", "--session", "../b"], 1).contains("letters, digits"));
    let missing = data.path().join("none.jsonl");
    let said = error(&["--prompts", missing.to_str().unwrap()], 1);
    assert!(said.contains("cannot read the prompts"), "{said}");
    std::fs::create_dir_all(data.path().join("sessions")).unwrap();
    let newer = data.path().join("sessions/new.jsonl");
    std::fs::write(newer, "{\"type\":\"session\",\"version\":9}\n").unwrap();
    assert!(error(&["a", "--session", "new"], 1).contains("newer version"));
}

#[test]
fn two_scripts_at_once_do_not_harm_each_other() {
    let data = tempfile::tempdir().unwrap();
    stdout(program(data.path()).args(["--session", "work", "hello"]));
    let _held = Store::new(data.path().join("sessions")).open("work").unwrap();
    let output = program(data.path()).args(["--session", "work", "code"]).output().unwrap();
    assert!(output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("goes on as"), "{errors}");
    let sessions = Store::new(data.path().join("sessions")).list().sessions;
    let mut turns: Vec<usize> = sessions.iter().map(|summary| summary.turns).collect();
    turns.sort_unstable();
    assert_eq!(turns, [1, 2]);
}

/// `DFLASH_KILLS` says how often; 200 is the figure of a full check.
#[test]
fn a_killed_program_loses_nothing_that_was_shown() {
    let kills: u64 = std::env::var("DFLASH_KILLS").map_or(6, |n| n.parse().unwrap());
    let data = tempfile::tempdir().unwrap();
    let mut streamed = 0;
    let mut before = Conversation::default();
    for kill in 0..kills {
        let name = format!("s{}", kill / 5);
        if kill % 5 == 0 {
            before = Conversation::default();
        }
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("dflash-chat"));
        for variable in ["CONFIG", "DATA", "CACHE"] {
            command.env(format!("DFLASH_CHAT_{variable}"), data.path());
        }
        let shown = data.path().join("shown.jsonl");
        let mut child = command
            .args(["run", "--engine", "scripted", "--format", "jsonl", "--session", &name, "code"])
            .stdout(std::fs::File::create(&shown).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Loading takes 200 ms, the answer some more: most kills fall into the answer.
        std::thread::sleep(Duration::from_micros(190_000 + kill * 7919 % 31 * 12_000));
        child.kill().unwrap();
        child.wait().unwrap();

        let mut text = String::new();
        for line in std::fs::read_to_string(&shown).unwrap().lines() {
            // The last line that was shown may be half.
            let Ok(event) = serde_json::from_str::<Value>(line) else { break };
            text.push_str(event["text"].as_str().unwrap_or_default());
        }
        let listing = Store::new(data.path().join("sessions")).list();
        assert_eq!(listing.unreadable, []);
        if text.is_empty() {
            continue;
        }
        streamed += 1;
        let conversation = saved(data.path(), &name);
        let answer = conversation.turns.last().unwrap().answer.as_ref().unwrap();
        assert!(answer.text.starts_with(&text), "{:?} does not hold {text:?}", answer.text);
        // What was said before is as it was.
        assert_eq!(conversation.turns[..before.turns.len()], before.turns);
        before = conversation;
    }
    assert!(streamed * 2 >= kills, "only {streamed} of {kills} kills met an answer");
}
