//! What holds of several commands, as a person at a shell meets it, and `bench`, with the scripted
//! engine.

mod program_support;

use assert_cmd::Command;
use program_support::Outcome;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

fn dflash_chat(arguments: &[&str], settings: &[(&str, &str)]) -> Outcome {
    let home = tempfile::tempdir().unwrap();
    Outcome::of(
        Command::cargo_bin("dflash-chat")
            .unwrap()
            .args(arguments)
            .env("DFLASH_CHAT_DATA", home.path())
            .env("DFLASH_CHAT_CONFIG", home.path())
            .env("DFLASH_CHAT_CACHE", home.path())
            .envs(settings.iter().copied())
            .timeout(Duration::from_secs(60)),
    )
}

/// One prompt of the built-in set, in JSON.
const BENCH: [&str; 9] =
    ["bench", "--engine", "scripted", "--category", "chat", "--limit", "1", "--format", "json"];

#[test]
fn every_repeat_of_a_prompt_is_measured_and_compared() {
    let bench = dflash_chat(&[&BENCH[..], &["--repeat", "2", "--max-tokens", "6"]].concat(), &[]);
    let report: Value = serde_json::from_str(&bench.expect(0).out).unwrap();
    assert_eq!((&report["repeat"], &report["seed"]), (&2.into(), &0.into()));
    let prompts = report["prompts"].as_array().unwrap();
    let verdict = serde_json::json!([{"verdict": "identical", "tokens": 6}]);
    assert_eq!((prompts.len(), &prompts[0]["verdicts"]), (1, &verdict));
}

#[test]
fn answers_that_are_compared_are_no_longer_than_the_settings_say() {
    let settings = [("DFLASH_CHAT_MAX_TOKENS", "5")];
    for (more, tokens) in [(&["--max-tokens", "7"][..], 7), (&[], 5)] {
        let bench = [&BENCH[..], &["--repeat", "1"], more].concat();
        let report = dflash_chat(&bench, &settings).expect(0).out;
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["prompts"][0]["verdicts"][0]["tokens"], tokens);
        let race = ["race", "capital", "--engine", "scripted", "--format", "json"];
        let report = dflash_chat(&[&race[..], more].concat(), &settings).expect(0).out;
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["lanes"][1]["verdict"]["tokens"], tokens);
    }
}

#[test]
fn wrong_usage_has_its_exit_code() {
    for (arguments, says) in [
        (&["bench", "--mode", "baseline"][..], "it runs every prompt in both"),
        (&["bench", "--threads", "1", "verify-cost"], "cannot be used with"),
        (&["bench", "verify-cost", "--rows", "0"], "--rows takes numbers"),
        (&["run", "x", "--repetition-penalty", "0"], "a number from 0.01 to 100"),
        (&["run", "x", "--max-tokens", "2000000"], "a whole number from 1 to 1048576"),
        (&["--no-chat-template"], "--no-chat-template"),
    ] {
        let outcome = dflash_chat(arguments, &[]).expect(2);
        assert!(outcome.out.is_empty() && outcome.err.contains(says), "{outcome:?}");
    }
}

/// `completions zsh | true`
#[test]
fn completions_whose_reader_has_gone_are_no_failure() {
    let whole = dflash_chat(&["completions", "zsh"], &[]).expect(0).out;
    assert!(whole.starts_with("#compdef dflash-chat") && whole.ends_with("fi\n"), "{whole}");
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("dflash-chat"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
}
