//! `dflash-chat models` and `config` as a person at a shell meets them.

mod program_support;
#[path = "support/server.rs"]
mod server;

use assert_cmd::Command;
use program_support::Outcome;
use server::{Reply, Server};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct World {
    folder: tempfile::TempDir,
    endpoint: String,
}

impl World {
    fn new(endpoint: &str) -> World {
        World { folder: tempfile::tempdir().unwrap(), endpoint: endpoint.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The program with no home but this world's, and no Python.
    fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("DFLASH_CHAT_DATA", self.path("data")),
            ("DFLASH_CHAT_CONFIG", self.path("config")),
            ("DFLASH_CHAT_CACHE", self.path("cache")),
            ("HF_HOME", self.path("hf")),
            ("HF_ENDPOINT", PathBuf::from(&self.endpoint)),
            ("PATH", self.path("no-programs")),
        ]
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with(arguments, &[])
    }

    fn run_with(&self, arguments: &[&str], more: &[(&str, &Path)]) -> Outcome {
        Outcome::of(
            Command::cargo_bin("dflash-chat")
                .unwrap()
                .args(arguments)
                .env_clear()
                .envs(self.environment())
                .envs(more.iter().copied())
                .timeout(Duration::from_secs(60)),
        )
    }
}

/// A hub with one repository of one 2 MB file.
fn hub() -> Server {
    Server::start(|request, _| {
        if request.path.starts_with("/org/name/resolve/main/x.gguf") {
            Reply::file(&vec![5; 2_000_000], request)
        } else {
            Reply::new(404, "")
        }
    })
}

const NOWHERE: &str = "http://127.0.0.1:1";

#[test]
fn list_names_every_pair_and_its_state() {
    let world = World::new(NOWHERE);
    let text = world.run(&["models", "list"]).expect(0).out;
    for pair in dflash_chat::catalog::pairs() {
        let line = text.lines().find(|line| line.starts_with(&pair.name)).unwrap();
        assert!(line.contains("remote"), "{line}");
    }
    let json = world.run(&["models", "list", "--json"]).expect(0).out;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(rows.len(), dflash_chat::catalog::pairs().len());
    assert_eq!(rows[0]["state"], "remote");
    assert_eq!(rows[0]["bytes"], 98_362_432);

    let file = world.path("any.gguf");
    fs::write(&file, "not a model").unwrap();
    let more = [("DFLASH_DEMO_TARGET", file.as_path())];
    let text = world.run_with(&["models", "list"], &more).expect(0).out;
    assert!(text.lines().any(|line| line.starts_with("smollm2-135m") && line.contains("ready")));
    // Its own facts are told, and then that the file is none.
    let inspected = world.run_with(&["models", "inspect", "smollm2-135m"], &more).expect(1);
    assert!(inspected.out.contains(file.to_str().unwrap()), "{inspected:?}");
    assert_eq!(inspected.err.lines().count(), 1, "{inspected:?}");
}

#[test]
fn without_a_network_the_message_says_what_where_and_how_else() {
    let world = World::new(NOWHERE);
    let place = world.path("data/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf");
    for arguments in
        [&["models", "pull", "smollm2-135m"][..], &["models", "pull", "smollm2-135m", "--offline"]]
    {
        let start = Instant::now();
        let error = world.run(arguments).expect(1).err;
        assert!(start.elapsed() < Duration::from_secs(5));
        for word in ["98.4 MB", place.to_str().unwrap(), "--target FILE.gguf", "DFLASH_DEMO_TARGET"]
        {
            assert!(error.contains(word), "{word}: {error}");
        }
        assert!(!place.exists());
    }
    let error =
        world.run_with(&["models", "pull", "smollm2-135m"], &[("HF_HUB_OFFLINE", Path::new("1"))]);
    assert!(error.expect(1).err.contains("offline"));
}

#[test]
fn wrong_names_are_wrong_usage() {
    let world = World::new(NOWHERE);
    for name in ["nope", "a/b/c", "../x.gguf"] {
        for command in ["pull", "inspect"] {
            let outcome = world.run(&["models", command, name]);
            assert!(matches!(outcome.code, Some(1 | 2)), "{outcome:?}");
            assert_eq!(outcome.err.lines().count(), 1, "{outcome:?}");
        }
    }
    assert!(world.run(&["models", "pull", "nope"]).expect(2).err.contains("smollm2-135m"));
    world.run(&["models", "frobnicate"]).expect(2);
}

#[test]
fn a_file_is_pulled_verified_and_removed() {
    let server = hub();
    let world = World::new(&server.url);
    let name = "org/name/x.gguf";
    let pulled = world.run(&["models", "pull", name]).expect(0);
    assert!(pulled.err.contains("2.0 MB of 2.0 MB  100 %"), "{}", pulled.err);
    let file = world.path("data/models/org--name/x.gguf");
    assert_eq!(fs::metadata(&file).unwrap().len(), 2_000_000);

    assert!(world.run(&["models", "verify"]).expect(0).out.starts_with("ok "));
    let mut bytes = fs::read(&file).unwrap();
    bytes[1_000_000] ^= 1;
    fs::write(&file, bytes).unwrap();
    let verified = world.run(&["models", "verify", name]).expect(1);
    assert!(verified.out.starts_with("WRONG ") && verified.out.contains("SHA-256"), "{verified:?}");

    // Nobody to ask: nothing happens.
    assert!(world.run(&["models", "remove", "org/name"]).expect(2).err.contains("--yes"));
    assert!(file.exists());
    world.run(&["models", "remove", "org/name", "--yes"]).expect(0);
    assert!(!file.parent().unwrap().exists());
    assert!(
        world.run(&["models", "remove", "org/name", "--yes"]).expect(0).err.contains("nothing of")
    );
}

#[test]
fn what_lies_in_the_hubs_cache_is_used_and_never_removed() {
    let world = World::new(NOWHERE);
    let snapshot = world.path("hf/hub/models--Qwen--Qwen3-4B/snapshots/abc");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(world.path("hf/hub/models--Qwen--Qwen3-4B/refs")).unwrap();
    fs::write(world.path("hf/hub/models--Qwen--Qwen3-4B/refs/main"), "abc").unwrap();
    fs::write(snapshot.join("config.json"), "{}").unwrap();
    fs::write(snapshot.join("model.safetensors"), "x").unwrap();
    let text = world.run(&["models", "inspect", "qwen3-4b"]).expect(1).out;
    assert!(text.contains("partial") && text.contains(snapshot.to_str().unwrap()), "{text}");
    world.run(&["models", "remove", "qwen3-4b", "--yes"]).expect(0);
    assert!(snapshot.join("model.safetensors").exists());
}

#[test]
fn what_has_no_known_hash_is_not_called_right() {
    let world = World::new(NOWHERE);
    let file = world.path("own.gguf");
    fs::write(&file, "not a model").unwrap();
    let verified = world.run(&["models", "verify", file.to_str().unwrap()]).expect(0);
    assert!(verified.out.contains("own.gguf: no hash is known"), "{verified:?}");
    assert!(!verified.out.starts_with("ok") && !verified.err.contains("nothing"), "{verified:?}");
    assert!(world.run(&["models", "verify"]).expect(0).err.contains("nothing has been fetched"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_nothing_half_valid() {
    let server = Server::start(|request, n| {
        let mut reply = Reply::file(&vec![5; 2_000_000], request);
        if n == 0 {
            reply.stall = Duration::from_secs(20);
        }
        reply
    });
    let world = World::new(&server.url);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("dflash-chat"))
        .args(["models", "pull", "org/name/x.gguf"])
        .env_clear()
        .envs(world.environment())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let part = world.path("data/models/org--name/x.gguf.part");
    let start = Instant::now();
    while fs::metadata(&part).map_or(0, |m| m.len()) < 1_000_000 {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came");
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupted = Instant::now();
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(interrupted.elapsed() < Duration::from_secs(3));
    assert!(part.exists() && !part.with_extension("").exists());
    world.run(&["models", "pull", "org/name/x.gguf"]).expect(0);
    assert_eq!(server.requests()[1].offset(), Some(1_000_000));
}

#[test]
fn config_is_written_once_and_shown_with_origins() {
    let world = World::new(NOWHERE);
    let path = world.run(&["config", "path"]).expect(0).out;
    assert_eq!(Path::new(path.trim()), world.path("config/config.toml"));
    world.run(&["config", "init"]).expect(0);
    assert!(world.run(&["config", "init"]).expect(1).err.contains("already"));

    fs::write(world.path("config/config.toml"), "seed = 7\n").unwrap();
    let text = world
        .run_with(&["config", "show"], &[("DFLASH_CHAT_TEMPERATURE", Path::new("0.5"))])
        .expect(0)
        .out;
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap();
    assert!(line("seed").contains("= 7") && line("seed").ends_with("config.toml:1"), "{text}");
    assert!(line("temperature").ends_with("DFLASH_CHAT_TEMPERATURE"), "{text}");
    assert!(line("theme").ends_with("default"), "{text}");

    fs::write(world.path("config/config.toml"), "\nsead = 7\n").unwrap();
    let error = world.run(&["config", "show"]).expect(1).err;
    assert!(error.contains("config.toml:2") && error.contains("sead"), "{error}");
}
