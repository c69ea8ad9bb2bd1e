//! The chat itself, started on a terminal where something is not as it should be (bugs.md B50),
//! and going on with the last conversation.

#![cfg(unix)]

#[path = "pty_support/mod.rs"]
mod support;

use dflash_chat::chat::conversation::{Change, Models};
use dflash_chat::chat::store::Store;
use portable_pty::CommandBuilder;
use std::path::{Path, PathBuf};
use support::Session;

/// The chat with its folders in `home`, and no network.
fn chat(home: &Path, arguments: &[&str]) -> Session {
    let mut command = CommandBuilder::new(assert_cmd::cargo::cargo_bin("dflash-chat"));
    command.args(arguments);
    command.arg("--offline");
    command.cwd(home);
    for name in ["CONFIG", "DATA", "CACHE"] {
        command.env(format!("DFLASH_CHAT_{name}"), home);
    }
    command.env("HF_HOME", home);
    for name in ["DFLASH_DEMO_TARGET", "DFLASH_CHAT_PAIR", "DFLASH_CHAT_TARGET", "NO_COLOR"] {
        command.env_remove(name);
    }
    Session::start(command)
}

fn leave(mut session: Session) -> String {
    let shown = session.shown();
    session.send("\x11");
    assert!(session.ended().0, "{shown}");
    shown
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models").join(name)
}

/// A conversation that the pair `pair` made.
fn said_with(home: &Path, pair: &str, target: &str) {
    said_by(home, Models { pair: pair.into(), target: target.into(), ..Models::default() });
}

fn said_by(home: &Path, models: Models) {
    let mut saved = Store::new(home.join("sessions")).begin();
    let text = Change::Text { ids: vec![5, 6], text: "said before".into() };
    for change in [
        Change::Models(models),
        Change::User { text: "hello".into() },
        Change::Answer(Box::default()),
        text,
    ] {
        saved.record(&change).unwrap();
    }
}

#[test]
fn a_model_that_is_not_there_is_explained() {
    let home = tempfile::tempdir().unwrap();
    let session = chat(home.path(), &["--target", "/nowhere/model.gguf"]);
    session.wait_for("no model");
    session.wait_for("/nowhere/model.gguf");
    leave(session);
}

#[test]
fn a_file_that_is_no_model_is_explained() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("junk.gguf"), "this is no model").unwrap();
    let session = chat(home.path(), &["--target", "junk.gguf"]);
    session.wait_for("no model");
    session.wait_for("junk.gguf");
    leave(session);
}

#[test]
fn no_model_and_no_network_is_explained_and_what_is_typed_stays() {
    let home = tempfile::tempdir().unwrap();
    let mut session = chat(home.path(), &[]);
    session.wait_for("no model");
    session.wait_for("SmolLM2");
    session.paste("typed all the same");
    session.send("\r");
    session.wait_for("no model is loaded");
    assert!(leave(session).contains("typed all the same"));
}

/// The folder for conversations is a file: nobody can write into it, not even root.
#[test]
fn a_folder_that_cannot_be_written_is_told_and_the_chat_goes_on() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("sessions"), "in the way").unwrap();
    let model = fixture("llama-tied");
    let mut session =
        chat(home.path(), &["--target", model.to_str().unwrap(), "--max-tokens", "4"]);
    session.wait_for("ready");
    session.paste("hello");
    session.send("\r");
    session.wait_for("is not saved");
    session.wait_for("4 tokens");
    leave(session);
}

#[test]
fn a_conversation_goes_on_with_the_pair_that_made_it() {
    let home = tempfile::tempdir().unwrap();
    let pair = fixture("llama-tied");
    said_with(home.path(), pair.to_str().unwrap(), "llama-tied");
    let session = chat(home.path(), &["--continue"]);
    session.wait_for("ready");
    session.wait_for("said before");
    let shown = leave(session);
    assert!(shown.contains("llama-tied") && !shown.contains("goes on with it"), "{shown}");
}

#[test]
fn a_conversation_goes_on_with_the_draft_that_was_named() {
    let home = tempfile::tempdir().unwrap();
    let target = fixture("llama-tied").to_str().unwrap().to_owned();
    let draft = fixture("llama-tied/draft").to_str().unwrap().to_owned();
    let with = ["--target", &target, "--draft", &draft, "--max-tokens", "8"];
    let mut session = chat(home.path(), &with);
    session.wait_for("ready");
    session.paste("hello");
    session.send("\r");
    session.wait_for("8 tokens");
    leave(session);
    let last = Store::new(home.path().join("sessions")).latest().unwrap();
    assert_eq!(last.models.draft_asked, Some(draft));
    let session = chat(home.path(), &["--continue"]);
    session.wait_for("ready");
    session.wait_for("hello");
    let shown = leave(session);
    assert!(!shown.contains("no draft") && !shown.contains("goes on with it"), "{shown}");
}

#[test]
fn a_pair_that_is_gone_is_named() {
    let home = tempfile::tempdir().unwrap();
    said_with(home.path(), "/gone/model", "model");
    let session = chat(home.path(), &["--continue"]);
    session.wait_for("/gone/model, which made this conversation");
    session.wait_for("said before");
    leave(session);
}

#[test]
fn another_pair_is_used_where_it_is_asked_for_and_that_is_said() {
    let home = tempfile::tempdir().unwrap();
    said_with(home.path(), fixture("llama-tied").to_str().unwrap(), "llama-tied");
    let other = fixture("qwen3-tied");
    let session = chat(home.path(), &["--continue", "--target", other.to_str().unwrap()]);
    session.wait_for("goes on with it");
    let shown = leave(session);
    assert!(shown.contains("said before"), "{shown}");
}
