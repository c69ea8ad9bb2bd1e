//! The program with its demo pair.
//!
//! The target comes from `DFLASH_DEMO_TARGET`, else from the data folder, else it is fetched
//! (98 MB). Where that is impossible the tests are skipped with the reason, unless `CI` is set:
//! there they must run.
#![allow(dead_code)]

use serde_json::Value;
use std::process::Output;
use std::sync::OnceLock;

/// The program's end with `args`.
pub fn program(args: &[&str]) -> Output {
    assert_cmd::Command::cargo_bin("dflash-chat").unwrap().args(args).output().unwrap()
}

/// Whether the demo target is there; says why if not.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        if std::env::var_os("DFLASH_DEMO_TARGET").is_some() {
            return true;
        }
        let pull = program(&["models", "pull", "smollm2-135m"]);
        if pull.status.success() {
            return true;
        }
        let why = String::from_utf8_lossy(&pull.stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "the demo target cannot be had: {why}");
        eprintln!("skipped: the demo target cannot be had: {why}");
        false
    })
}

/// The events of `run --format jsonl` or the like, which must succeed.
pub fn events(args: &[&str]) -> Vec<Value> {
    let output = program(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}
