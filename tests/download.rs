//! Downloads from a server that drops, lies, refuses and stalls.

#[path = "support/server.rs"]
mod server;

use dflash_chat::catalog::download::{Progress, Watch, fetch};
use dflash_chat::catalog::{
    self, CatalogError, KnownFile, Missing, Model, Network, RepoRef, ResolvedPair, Role, Selection,
    Source, Store,
};
use proptest::prelude::*;
use server::{Reply, Request, Server};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Remembers what it was told, and wishes to stop at a time.
#[derive(Default)]
struct Notes {
    said: Vec<String>,
    done: u64,
    stop_at: Option<Instant>,
}

impl Watch for Notes {
    fn progress(&mut self, progress: &Progress<'_>) {
        self.done = progress.done;
    }
    fn say(&mut self, line: &str) {
        self.said.push(line.into());
    }
    fn cancelled(&self) -> bool {
        self.stop_at.is_some_and(|when| Instant::now() > when)
    }
}

struct World {
    folder: tempfile::TempDir,
    store: Store,
    network: Network,
}

impl World {
    fn new(endpoint: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Store { models: folder.path().join("models"), hub: None, demo_target: None };
        let network = Network {
            offline: false,
            endpoint: endpoint.into(),
            token: Some("secret".into()),
            connect: Duration::from_millis(500),
            stall: Duration::from_millis(500),
            pause: Duration::from_millis(1),
        };
        World { folder, store, network }
    }

    fn resolve(&self, target: &str) -> ResolvedPair {
        let selection = Selection { target: Some(target.into()), ..Selection::default() };
        catalog::resolve(&selection, &self.store).unwrap()
    }

    fn pull(&self, target: &str, notes: &mut Notes) -> Result<PathBuf, String> {
        let pair = self.resolve(target);
        for missing in pair.missing.iter().filter(|missing| missing.role == Role::Target) {
            fetch(missing, &self.store, &self.network, notes).map_err(|e| e.to_string())?;
        }
        let again = self.resolve(target);
        assert!(!again.missing.iter().any(|m| m.role == Role::Target), "fetched and still missing");
        Ok(again.target.path().to_path_buf())
    }

    fn file(&self, notes: &mut Notes) -> Result<Vec<u8>, String> {
        self.pull(FILE, notes).map(|path| fs::read(path).unwrap())
    }

    fn part(&self) -> PathBuf {
        self.store.models.join("org--name/x.gguf.part")
    }

    /// A file of which size and hash are known beforehand.
    fn known(&self, data: &[u8], sources: Vec<Source>) -> Missing {
        let file = KnownFile {
            name: "x.gguf".into(),
            bytes: Some(data.len() as u64),
            sha256: Some(sha256(data)),
            sources,
        };
        Missing {
            role: Role::Target,
            at: self.store.models.join("p/x.gguf"),
            model: Model::File(file),
            hint: "point at a local copy".into(),
        }
    }

    fn fetch(&self, missing: &Missing) -> Result<(), CatalogError> {
        fetch(missing, &self.store, &self.network, &mut Notes::default())
    }
}

const FILE: &str = "org/name/x.gguf";

fn data() -> Vec<u8> {
    (0..3_000_000u32).map(|i| (i * 7 / 3) as u8).collect()
}

fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hub(name: &str) -> Source {
    Source::Hub(RepoRef::parse(name).unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_comes_whole() {
    let server = Server::start(|request, _| Reply::file(&data(), request));
    let world = World::new(&server.url);
    let mut notes = Notes::default();
    assert_eq!(world.file(&mut notes).unwrap(), data());
    assert_eq!(notes.done, 3_000_000);
    assert_eq!(names(world.part().parent().unwrap()), ["download.lock", "files.json", "x.gguf"]);
    assert_eq!(server.requests()[0].path, "/org/name/resolve/main/x.gguf");
    // It is there now: nobody asks again.
    world.file(&mut notes).unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_dropped_connection_is_resumed_where_it_broke() {
    let server = Server::start(|request, n| {
        let reply = Reply::file(&data(), request);
        if n == 0 { reply.cut(1_500_000) } else { reply }
    });
    let world = World::new(&server.url);
    assert_eq!(world.file(&mut Notes::default()).unwrap(), data());
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].offset(), Some(1_500_000));
    assert_eq!(requests[1].headers["if-range"], "\"tag\"");
}

#[test]
fn an_ignored_range_starts_over() {
    let server = Server::start(|_, n| {
        let reply = Reply::new(200, data()).with("ETag", "\"tag\"");
        if n == 0 { reply.cut(2_000_000) } else { reply }
    });
    let world = World::new(&server.url);
    assert_eq!(world.file(&mut Notes::default()).unwrap(), data());
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_refused_range_starts_over() {
    let server = Server::start(|request, n| match (request.offset(), n) {
        (Some(_), _) => Reply::new(416, ""),
        (None, 0) => Reply::file(&data(), request).cut(2_900_000),
        (None, _) => Reply::file(&data(), request),
    });
    let world = World::new(&server.url);
    assert_eq!(world.file(&mut Notes::default()).unwrap(), data());
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn another_part_than_asked_starts_over() {
    for (range, tag) in [
        ("bytes 7-2999999/3000000", "\"tag\""),
        ("nonsense", "\"tag\""),
        ("bytes 1000000-2999999/3000000", "\"another file\""),
    ] {
        let server = Server::start(move |request, n| match (request.offset(), n) {
            (Some(_), _) => {
                Reply::new(206, vec![0; 10]).with("Content-Range", range).with("ETag", tag)
            }
            (None, 0) => Reply::file(&data(), request).cut(1_000_000),
            (None, _) => Reply::file(&data(), request),
        });
        let world = World::new(&server.url);
        assert_eq!(world.file(&mut Notes::default()).unwrap(), data(), "{range} {tag}");
    }
}

#[test]
fn a_server_that_always_drops_is_given_up_and_the_part_kept() {
    let server = Server::start(|request, _| Reply::file(&data(), request).cut(1000));
    let world = World::new(&server.url);
    let error = world.file(&mut Notes::default()).unwrap_err();
    assert!(error.contains("broke off after 4.0 kB"), "{error}");
    assert_eq!(fs::metadata(world.part()).unwrap().len(), 4000);
}

#[test]
fn busy_servers_are_asked_again() {
    let server = Server::start(|request, n| match n {
        0 => Reply::new(503, "busy"),
        1 => Reply::new(429, "slowly"),
        _ => Reply::file(&data(), request),
    });
    assert_eq!(World::new(&server.url).file(&mut Notes::default()).unwrap(), data());
    let server = Server::start(|_, _| Reply::new(500, "broken"));
    let error = World::new(&server.url).file(&mut Notes::default()).unwrap_err();
    assert!(error.contains("HTTP 500"), "{error}");
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn refusals_say_what_to_do() {
    let gated = || Reply::new(401, "").with("X-Error-Code", "GatedRepo");
    for (reply, words) in [
        (gated(), ["accept its licence", "HF_TOKEN"]),
        (Reply::new(401, ""), ["HTTP 401", "HF_TOKEN"]),
        (Reply::new(403, ""), ["HTTP 403", "HF_TOKEN"]),
        (Reply::new(404, ""), ["does not exist", "revision"]),
        (Reply::new(418, ""), ["HTTP 418", "try again"]),
    ] {
        let sent = reply.clone();
        let server = Server::start(move |_, _| sent.clone());
        let world = World::new(&server.url);
        for target in [FILE, "org/name"] {
            let error = world.pull(target, &mut Notes::default()).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
            assert!(error.lines().count() <= 2, "{error}");
        }
        assert_eq!(server.requests().len(), 2, "a refusal is final");
    }
}

#[test]
fn redirects_are_followed_and_the_token_stays_at_home() {
    let elsewhere = Server::start(|request, _| Reply::file(&data(), request));
    let there = format!("{}/blob", elsewhere.url);
    let hub = Server::start(move |request, _| match request.path.as_str() {
        "/moved" => Reply::new(302, "").with("Location", &there),
        _ => Reply::new(307, "")
            .with("Location", "/moved")
            .with("X-Linked-Etag", format!("\"{}\"", sha256(&data())))
            .with("X-Linked-Size", 3_000_000),
    });
    let world = World::new(&hub.url);
    assert_eq!(world.file(&mut Notes::default()).unwrap(), data());
    assert!(hub.requests().iter().all(|r| r.headers["authorization"] == "Bearer secret"));
    let there = elsewhere.requests();
    assert_eq!((there.len(), there[0].path.as_str()), (1, "/blob"));
    assert!(!there[0].headers.contains_key("authorization"));
}

#[test]
fn endless_and_bad_redirects_are_refused() {
    for location in ["/again", "ftp://x/y", "nonsense"] {
        let server = Server::start(move |_, _| Reply::new(302, "").with("Location", location));
        let error = World::new(&server.url).file(&mut Notes::default()).unwrap_err();
        assert!(error.contains("redirect"), "{error}");
    }
}

#[test]
fn the_hubs_own_hash_is_checked() {
    let server = Server::start(|request, _| {
        Reply::file(&data(), request).with("X-Linked-Etag", format!("\"{}\"", sha256(b"other")))
    });
    let world = World::new(&server.url);
    let error = world.file(&mut Notes::default()).unwrap_err();
    assert!(error.contains("SHA-256"), "{error}");
    assert_eq!(names(world.part().parent().unwrap()), ["download.lock"]);
}

#[test]
fn a_wrong_length_is_noticed_before_it_comes() {
    let server = Server::start(|request, _| Reply::file(&data()[1..], request));
    let world = World::new(&server.url);
    let error = world.fetch(&world.known(&data(), vec![hub("a/b")])).unwrap_err().to_string();
    assert!(error.contains("2999999 bytes, 3000000 are expected"), "{error}");
    assert!(!world.store.models.join("p/x.gguf").exists());
}

#[test]
fn a_body_of_unknown_length_is_refused() {
    let server = Server::start(|request, _| {
        let mut reply = Reply::file(&data(), request);
        reply.length = Some(None);
        reply
    });
    let error = World::new(&server.url).file(&mut Notes::default()).unwrap_err();
    assert!(error.contains("how long"), "{error}");
}

#[test]
fn a_damaged_part_is_fetched_once_more() {
    let server = Server::start(|request, _| Reply::file(&data(), request));
    let world = World::new(&server.url);
    let missing = world.known(&data(), vec![hub("a/b")]);
    fs::create_dir_all(world.store.models.join("p")).unwrap();
    fs::write(world.store.models.join("p/x.gguf.part"), vec![9; 1000]).unwrap();
    let notes = format!(r#"{{"version":1,"bytes":3000000,"sha256":"{}"}}"#, sha256(&data()));
    fs::write(world.store.models.join("p/x.gguf.part.json"), notes).unwrap();
    world.fetch(&missing).unwrap();
    assert_eq!(fs::read(&missing.at).unwrap(), data());
    let offsets: Vec<_> = server.requests().iter().map(Request::offset).collect();
    assert_eq!(offsets, [Some(1000), None]);
}

#[test]
fn parts_and_locks_of_dead_or_other_programs_hold_nobody_up() {
    let server = Server::start(|request, _| Reply::file(&data(), request));
    let world = World::new(&server.url);
    let folder = world.part().parent().unwrap().to_path_buf();
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("download.lock"), "1234").unwrap();
    fs::write(world.part(), vec![1; 5_000_000]).unwrap();
    fs::write(folder.join("x.gguf.part.json"), r#"{"version":99,"etag":"\"tag\""}"#).unwrap();
    assert_eq!(world.file(&mut Notes::default()).unwrap(), data());
    assert_eq!(server.requests()[0].offset(), None);
}

#[test]
fn a_stop_leaves_a_part_that_the_next_try_goes_on_from() {
    let server = Server::start(|request, n| {
        let mut reply = Reply::file(&data(), request);
        if n == 0 {
            reply.stall = Duration::from_secs(20);
        }
        reply
    });
    let mut world = World::new(&server.url);
    world.network.stall = Duration::from_secs(30);
    let start = Instant::now();
    let mut notes = Notes { stop_at: Some(start + Duration::from_millis(500)), ..Notes::default() };
    let error = world.file(&mut notes).unwrap_err();
    assert!(error.contains("stopped"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(3), "a stop is heard while the server is silent");
    assert_eq!(world.resolve(FILE).missing.len(), 1);
    let had = fs::metadata(world.part()).unwrap().len() as usize;
    assert!(had > 0);
    assert_eq!(world.file(&mut Notes::default()).unwrap(), data());
    assert_eq!(server.requests()[1].offset(), Some(had));
}

#[test]
fn a_silent_server_is_given_up() {
    let server = Server::start(|request, _| {
        let mut reply = Reply::file(&data(), request);
        reply.body.truncate(4);
        reply.length = Some(Some(3_000_000));
        reply.stall = Duration::from_secs(20);
        reply
    });
    let mut world = World::new(&server.url);
    world.network.stall = Duration::from_millis(100);
    let start = Instant::now();
    assert!(world.file(&mut Notes::default()).unwrap_err().contains("broke off"));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_next_source_is_tried_at_once() {
    let server = Server::start(|request, _| match request.path.as_str() {
        "/none/there/resolve/main/x.gguf" => Reply::new(404, ""),
        _ => Reply::file(&data(), request),
    });
    let world = World::new(&server.url);
    let missing = world.known(&data(), vec![hub("none/there"), hub("a/b@v1")]);
    let mut notes = Notes::default();
    fetch(&missing, &world.store, &world.network, &mut notes).unwrap();
    assert_eq!(notes.said.len(), 1);
    assert!(notes.said[0].ends_with("trying the hub (a/b@v1)"), "{}", notes.said[0]);
}

#[test]
fn without_a_network_one_message_says_what_is_missing_and_what_to_do() {
    let mut world = World::new("http://127.0.0.1:1");
    let selection = Selection { pair: Some("qwen3-4b".into()), ..Selection::default() };
    let pair = catalog::resolve(&selection, &world.store).unwrap();
    let unreachable = world.fetch(&pair.missing[0]).unwrap_err().to_string();
    world.network.offline = true;
    let offline = world.fetch(&pair.missing[0]).unwrap_err().to_string();
    for (error, why) in [(unreachable, "cannot be reached"), (offline, "offline")] {
        for word in [why, "Qwen/Qwen3-4B", "8.06 GB", "Qwen--Qwen3-4B", "--target"] {
            assert!(error.contains(word), "{word}: {error}");
        }
        assert!(error.lines().count() <= 2, "{error}");
    }
}

#[test]
fn no_space_is_noticed_before_anything_is_asked() {
    let server = Server::start(|request, _| Reply::file(&data(), request));
    let world = World::new(&server.url);
    let mut missing = world.known(&data(), vec![hub("a/b")]);
    if let Model::File(file) = &mut missing.model {
        file.bytes = Some(1 << 60);
    }
    let error = world.fetch(&missing).unwrap_err().to_string();
    assert!(error.contains("no space") && error.contains("DFLASH_CHAT_DATA"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let mut world = World::new("http://127.0.0.1:1");
    fs::write(world.folder.path().join("file"), "").unwrap();
    world.store.models = world.folder.path().join("file/models");
    let error = world.file(&mut Notes::default()).unwrap_err();
    assert!(error.contains("cannot create") && error.contains("file/models"), "{error}");
}

#[test]
fn two_at_once_fetch_once() {
    let server = Server::start(|request, _| {
        let mut reply = Reply::file(&data(), request);
        reply.stall = Duration::from_millis(400);
        reply
    });
    let world = World::new(&server.url);
    let missing = world.known(&data(), vec![hub("a/b")]);
    let run = |delay: u64| {
        std::thread::sleep(Duration::from_millis(delay));
        let mut notes = Notes::default();
        fetch(&missing, &world.store, &world.network, &mut notes).unwrap();
        notes.said
    };
    let said = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(0));
        let mine = run(150);
        other.join().unwrap();
        mine
    });
    assert!(said[0].contains("another program"), "{said:?}");
    assert_eq!(server.requests().len(), 1);
}

/// A repository: the list, and its files.
fn repository(files: &[(&str, &[u8])]) -> impl Fn(&Request) -> Reply + Send + Sync + use<> {
    let files: Vec<(String, Vec<u8>)> =
        files.iter().map(|(name, data)| (name.to_string(), data.to_vec())).collect();
    move |request| {
        if request.path == "/api/models/org/name/revision/main?blobs=true" {
            let siblings: Vec<_> = files
                .iter()
                .map(|(name, data)| {
                    serde_json::json!({"rfilename": name, "size": data.len(),
                        "lfs": {"sha256": sha256(data), "size": data.len()}})
                })
                .collect();
            let list = serde_json::json!({"sha": "c0ffee", "siblings": siblings});
            return Reply::new(200, list.to_string());
        }
        let found = files
            .iter()
            .find(|(name, _)| request.path == format!("/org/name/resolve/c0ffee/{name}"));
        match found {
            Some((_, data)) => Reply::file(data, request),
            None => Reply::new(404, ""),
        }
    }
}

const INDEX: &[u8] =
    br#"{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-1.safetensors"}}"#;

#[test]
fn a_repository_brings_what_is_needed_and_nothing_else() {
    let answer = repository(&[
        ("README.md", b"text"),
        ("config.json", b"{}"),
        ("consolidated.pth", b"no"),
        ("model-1.safetensors", b"first"),
        ("model-2.safetensors", b"second"),
        ("model-3.safetensors", b"not in the index"),
        ("model.safetensors.index.json", INDEX),
        ("original/model.safetensors", b"no"),
        ("pytorch_model.bin", b"no"),
        ("tokenizer.json", b"{}"),
    ]);
    // The second shard breaks off in the middle the first time.
    let server = Server::start(move |request, n| match answer(request) {
        reply if n == 5 => reply.cut(3),
        reply => reply,
    });
    let world = World::new(&server.url);
    let folder = world.pull("org/name", &mut Notes::default()).unwrap();
    assert_eq!(
        names(&folder),
        [
            "config.json",
            "download.lock",
            "files.json",
            "model-1.safetensors",
            "model-2.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json"
        ]
    );
    assert_eq!(fs::read(folder.join("model-2.safetensors")).unwrap(), b"second");
    assert_eq!(server.requests().len(), 7);

    // A shard that was truncated later is noticed, and it alone is fetched again.
    fs::write(folder.join("model-1.safetensors"), "fir").unwrap();
    assert_eq!(world.resolve("org/name").missing.len(), 1);
    world.pull("org/name", &mut Notes::default()).unwrap();
    let later: Vec<String> = server.requests()[7..].iter().map(|r| r.path.clone()).collect();
    assert_eq!(later.len(), 2);
    assert_eq!(later[1], "/org/name/resolve/c0ffee/model-1.safetensors");
}

#[test]
fn a_single_safetensors_file_is_enough() {
    let answer = repository(&[("config.json", b"{}"), ("model.safetensors", b"weights")]);
    let server = Server::start(move |request, _| answer(request));
    let folder = World::new(&server.url).pull("org/name", &mut Notes::default()).unwrap();
    assert!(folder.ends_with("models/org--name"));
}

#[test]
fn hostile_indexes_fetch_nothing() {
    for name in
        ["../../evil.safetensors", "/tmp/evil.safetensors", "evil.pth", "absent.safetensors"]
    {
        let index = format!(r#"{{"weight_map":{{"a":"{name}"}}}}"#);
        let answer = repository(&[
            ("config.json", b"{}"),
            ("model.safetensors.index.json", index.as_bytes()),
            ("evil.pth", b"no"),
        ]);
        let server = Server::start(move |request, _| answer(request));
        let world = World::new(&server.url);
        let error = world.pull("org/name", &mut Notes::default()).unwrap_err();
        assert!(error.contains("index"), "{error}");
        assert_eq!(server.requests().len(), 3);
        assert!(!world.folder.path().join("evil.safetensors").exists());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a server does to the first tries, the file comes whole or not at all.
    #[test]
    fn broken_tries_never_make_a_broken_file(
        tries in proptest::collection::vec((0usize..40_000, 0u8..5), 0..6),
        size in 1usize..40_000,
    ) {
        let body: Vec<u8> = data()[..size].to_vec();
        let right = body.clone();
        let server = Server::start(move |request, n| match tries.get(n) {
            Some((cut, 0)) => Reply::file(&body, request).cut(*cut),
            Some((cut, 1)) => Reply::new(200, body.clone()).cut(*cut),
            Some((_, 2)) => Reply::new(416, ""),
            Some((_, 3)) => Reply::new(503, ""),
            Some((cut, _)) => {
                Reply::new(206, &body[(*cut).min(size)..]).with("Content-Range", format!("bytes {cut}-{size}/{size}"))
            }
            None => Reply::file(&body, request),
        });
        let world = World::new(&server.url);
        let missing = world.known(&right, vec![hub("a/b")]);
        for _ in 0..4 {
            match world.fetch(&missing) {
                Ok(()) => break,
                Err(_) => prop_assert!(!missing.at.exists()),
            }
        }
        prop_assert_eq!(fs::read(&missing.at).unwrap(), right);
    }
}
