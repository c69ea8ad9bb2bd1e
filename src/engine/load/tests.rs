use super::*;
use crate::event::{EngineCommand, Generate, Mode, Prompt};
use std::fs;
use std::path::Path;

/// A folder with copies of a small model's files, and what loading them told.
struct World {
    folder: tempfile::TempDir,
    told: Vec<EngineEvent>,
}

impl World {
    fn new() -> World {
        World { folder: tempfile::tempdir().unwrap(), told: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Copy a file of `tests/fixtures/models/qwen3-tied`, with `old` in it replaced by `new`.
    fn copy(&self, name: &str, to: &str, (old, new): (&str, &str)) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/qwen3-tied");
        let to = self.path(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if old.is_empty() {
            fs::copy(from.join(name), to).unwrap();
        } else {
            let text = fs::read_to_string(from.join(name)).unwrap();
            assert!(text.contains(old), "{text}");
            fs::write(to, text.replace(old, new)).unwrap();
        }
    }

    fn request(&self, target: &str, draft: Option<&str>) -> LoadRequest {
        let text = |name: &str| Some(self.path(name).to_str().unwrap().to_owned());
        let selection = Selection { pair: None, target: text(target), draft: draft.and_then(text) };
        let store = Store { models: self.path("models"), hub: None, demo_target: None };
        LoadRequest {
            selection,
            store,
            offline: true,
            place: Place::Cpu,
            threads: 1,
            quantise: Quantise::None,
            context: None,
            cache: self.path("cache"),
            taps: None,
        }
    }

    fn load(&mut self, request: &LoadRequest) -> Box<dyn Engine> {
        let engine = self.tell(|out| load(request, out, &CancelToken::default()));
        engine.unwrap_or_else(|| panic!("{:?}", self.told))
    }

    /// Let `work` tell its events, in the place of those that were told before.
    fn tell<T>(&mut self, work: impl FnOnce(&mut EventSink) -> T) -> T {
        let (mut sink, mut events) = EventSink::channel();
        let done = work(&mut sink);
        self.told.clear();
        while let Ok(envelope) = events.try_recv() {
            self.told.push(envelope.event);
        }
        done
    }

    fn answer(&mut self, engine: &mut dyn Engine, asked: Generate) {
        let command = EngineCommand::Generate(Box::new(asked));
        self.tell(|out| engine.handle(command, out, &CancelToken::default()));
    }

    fn ready(&self) -> &ModelReady {
        let ready = self.told.iter().find_map(|event| match event {
            EngineEvent::ModelReady(ready) => Some(ready),
            _ => None,
        });
        ready.unwrap()
    }

    /// Whether a notice or an error says `words`.
    fn says(&self, words: &str) -> bool {
        self.told.iter().any(|event| match event {
            EngineEvent::Notice(message) | EngineEvent::Error(message) => {
                message.message.contains(words)
            }
            _ => false,
        })
    }
}

/// A target and a draft that was made for 100 positions.
fn with_a_short_draft() -> World {
    let world = World::new();
    world.copy("model.f32.gguf", "target.gguf", ("", ""));
    world.copy("draft/model.safetensors", "short/model.safetensors", ("", ""));
    let fewer = ("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 100");
    world.copy("draft/config.json", "short/config.json", fewer);
    world
}

fn ids(count: usize, mode: Mode) -> Generate {
    Generate { prompt: Prompt::Ids(vec![5; count]), mode, max_tokens: 8, ..Generate::default() }
}

#[test]
fn a_draft_that_cannot_be_fetched_leaves_plain_decoding() {
    let mut world = World::new();
    // The name of a known pair's target.
    world.copy("model.f32.gguf", "Qwen3-4B-Q4_K_M.gguf", ("", ""));
    let mut engine = world.load(&world.request("Qwen3-4B-Q4_K_M.gguf", None));
    let ready = world.ready();
    assert!(ready.draft.is_none());
    let why = ready.draft_missing.as_deref().unwrap();
    assert!(why.contains("z-lab/Qwen3-4B-DFlash-b16") && why.contains("offline"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
    world.answer(engine.as_mut(), ids(9, Mode::Speculative));
    assert!(world.told.iter().any(|event| matches!(event, EngineEvent::RunFinished { .. })));
    let started = world.told.iter().find_map(|event| match event {
        EngineEvent::RunStarted(run) => Some(run.mode),
        _ => None,
    });
    assert_eq!(started, Some(Mode::Baseline), "plain decoding is called so");

    // A target that cannot be fetched is another matter.
    let request = world.request("Qwen3-4B-Q4_K_M.gguf", None);
    let selection = Selection { target: Some("org/name".into()), ..Selection::default() };
    let request = LoadRequest { selection, ..request };
    assert!(world.tell(|out| load(&request, out, &CancelToken::default())).is_none());
    assert!(world.says("cannot get org/name"), "{:?}", world.told);
}

#[test]
fn a_draft_for_few_positions_cuts_the_context_and_is_named() {
    let mut world = with_a_short_draft();
    let mut engine = world.load(&world.request("target.gguf", Some("short")));
    assert_eq!(world.ready().ctx_limit, 100);
    assert!(world.says("the draft short was made for 100 positions"), "{:?}", world.told);
    world.answer(engine.as_mut(), ids(100, Mode::Speculative));
    assert!(world.says("shorten it") && !world.says("raise --ctx"), "{:?}", world.told);

    // Where the person asked for less, more can be asked for.
    let request = LoadRequest { context: Some(60), ..world.request("target.gguf", Some("short")) };
    let mut engine = world.load(&request);
    assert!(!world.says("100 positions"), "{:?}", world.told);
    world.answer(engine.as_mut(), ids(60, Mode::Speculative));
    assert!(world.says("raise --ctx"), "{:?}", world.told);
}

#[test]
fn only_speculative_runs_write_what_was_learned() {
    let mut world = with_a_short_draft();
    let mut engine = world.load(&world.request("target.gguf", Some("short")));
    let learned = LearnedFile::new(&world.path("cache"), world.ready(), Quantise::None);
    // A prompt of `expected.json`, whose answer is long.
    let prompt = Prompt::Ids(vec![279, 223, 286, 88, 264]);
    let asked = |mode| Generate { prompt: prompt.clone(), ..ids(0, mode) };
    world.answer(engine.as_mut(), asked(Mode::Baseline));
    assert_eq!(learned.read(), Default::default());
    world.answer(engine.as_mut(), asked(Mode::Speculative));
    assert_ne!(learned.read(), Default::default());
}
