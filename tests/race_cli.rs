//! `race` as a person at a shell meets it, with the scripted engine.

#[cfg(unix)]
#[path = "support/server.rs"]
mod server;

use assert_cmd::Command;
use serde_json::Value;
use std::time::Duration;

fn race(arguments: &[&str]) -> (Option<i32>, String, String) {
    let home = tempfile::tempdir().unwrap();
    let output = Command::cargo_bin("dflash-chat")
        .unwrap()
        .args(["race", "--engine", "scripted"])
        .args(arguments)
        .env("DFLASH_CHAT_DATA", home.path())
        .env("DFLASH_CHAT_CONFIG", home.path())
        .env("DFLASH_CHAT_CACHE", home.path())
        .timeout(Duration::from_secs(60))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn both_lanes_say_the_same_and_the_report_tells_by_how_much_one_is_faster() {
    let (code, out, err) = race(&["capital", "--max-tokens", "12"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("--- baseline ---\nParis") && !out.contains('\x1b'), "{out}");
    assert!(out.contains("×, faster; identical for 12 tokens"), "{out}");
}

#[test]
fn repeats_and_block_sizes_come_as_json() {
    let arguments = [
        "capital",
        "--block-sizes",
        "2,4,8",
        "--repeat",
        "2",
        "--max-tokens",
        "8",
        "--format",
        "json",
    ];
    let (code, out, _) = race(&arguments);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["repeats"]), (Some(0), &Value::from(2)));
    let lanes = report["lanes"].as_array().unwrap();
    let sizes: Vec<_> = lanes.iter().map(|lane| lane["block_size"]["fixed"].clone()).collect();
    assert_eq!(sizes, [2, 4, 8]);
    for lane in lanes {
        assert_eq!((&lane["mode"], &lane["verdict"]["tokens"]), (&"speculative".into(), &8.into()));
        let speedup = &lane["speedup"];
        assert!(speedup["min"].as_f64() <= speedup["max"].as_f64());
    }
    assert_eq!(lanes[0]["speedup"]["median"], 1.0);
}

#[test]
fn failures_are_one_or_two_lines() {
    for (arguments, code, says) in [
        (&["fail"][..], 1, "the script said that this fails"),
        (&["panic"], 1, "the engine stopped"),
        (&["x", "--lanes", "baseline"], 2, "2 to 4 lanes"),
        (&["x", "--mode", "baseline"], 2, "--lanes says which"),
        (&["x", "--block-sizes", "0,4"], 2, "block size"),
        (&["x", "--repetition-penalty", "0"], 2, "a number from 0.01 to 100"),
        (&["x", "--max-tokens", "2000000"], 2, "a whole number from 1 to 1048576"),
    ] {
        let (got, out, err) = race(arguments);
        assert_eq!((got, out.as_str()), (Some(code), ""), "{err}");
        assert!(err.contains(says), "{err}");
    }
}

/// Plain decoding twice would be called as fast as itself.
#[test]
fn without_a_draft_there_is_nothing_to_race() {
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/models/llama-tied");
    let output = Command::cargo_bin("dflash-chat")
        .unwrap()
        .args(["race", "x", "--target", target, "--offline"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing to race"), "{said}");
}

/// Stopped while it fetches its models, which is no failure.
#[cfg(unix)]
#[test]
fn ctrl_c_while_models_are_fetched_is_a_stop() {
    use server::{Reply, Server};
    use std::time::Instant;

    let hub = Server::start(|request, _| {
        let mut reply = Reply::file(&vec![5; 2_000_000], request);
        reply.stall = Duration::from_secs(20);
        reply
    });
    let home = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("dflash-chat"))
        .args(["race", "x", "--target", "org/name/x.gguf"])
        .env_clear()
        .env("DFLASH_CHAT_DATA", home.path())
        .env("DFLASH_CHAT_CONFIG", home.path())
        .env("DFLASH_CHAT_CACHE", home.path())
        .env("HF_HOME", home.path())
        .env("HF_ENDPOINT", &hub.url)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let part = home.path().join("models/org--name/x.gguf.part");
    let start = Instant::now();
    while std::fs::metadata(&part).map_or(0, |file| file.len()) < 1_000_000 {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Instant::now();
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(interrupted.elapsed() < Duration::from_secs(5));
}
