//! `race` as a person at a shell meets it, with the scripted engine.

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
        (&["x", "--lanes", "baseline"], 1, "2 to 4 lanes"),
        (&["x", "--mode", "baseline"], 1, "--lanes says which"),
        (&["x", "--block-sizes", "0,4"], 2, "block size"),
    ] {
        let (got, out, err) = race(arguments);
        assert_eq!((got, out.as_str()), (Some(code), ""), "{err}");
        assert!(err.contains(says), "{err}");
    }
}
