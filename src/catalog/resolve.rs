//! From what was asked for to files on this machine, and a list of those that are missing.

use super::error::CatalogError;
use super::local::{self, Store};
use super::names::{self, RepoRef};
use super::pairs::{self, DEMO_PAIR, KnownFile, Model, Pair, Source};
use super::{EmbeddedDraft, embedded_draft};
use std::path::{Path, PathBuf};

/// What was asked for. Nothing at all means the demo pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// A name in `pairs.toml`.
    pub pair: Option<String>,
    /// A folder with `config.json`, a .gguf file, or a hub repository (`organisation/name`,
    /// `organisation/name@revision`, `organisation/name/FILE.gguf`). Replaces the pair's target.
    pub target: Option<String>,
    /// Likewise; replaces the pair's draft.
    pub draft: Option<String>,
}

/// Which of the two networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The large one.
    Target,
    /// The small one.
    Draft,
}

/// Files of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A GGUF file.
    Gguf(PathBuf),
    /// A folder with `config.json` and safetensors.
    Folder(PathBuf),
}

impl Location {
    /// The file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Location::Gguf(path) | Location::Folder(path) => path,
        }
    }
}

/// Where the draft is.
#[derive(Debug, Clone, PartialEq)]
pub enum DraftPlace {
    /// In the program.
    Embedded(EmbeddedDraft),
    /// In files.
    At(Location),
    /// Nowhere: decoding is plain, and this says why.
    None(String),
}

/// Something to fetch before the pair can run.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// Which network.
    pub role: Role,
    /// What it is and who has it.
    pub model: Model,
    /// The file or folder that will be there.
    pub at: PathBuf,
    /// How to do without a download.
    pub hint: String,
}

/// A pair with its files. They are there if `missing` is empty, else once it has been fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedPair {
    /// Name of the pair, or of the target where no pair is known.
    pub name: String,
    /// What `pairs.toml` knows of it.
    pub known: Option<&'static Pair>,
    /// The large network.
    pub target: Location,
    /// The small one.
    pub draft: DraftPlace,
    /// What has to be fetched, in this order.
    pub missing: Vec<Missing>,
}

/// Find what was asked for. Nothing is fetched.
///
/// # Errors
/// An unknown pair, a reference that means nothing, a path without a usable model.
pub fn resolve(selection: &Selection, store: &Store) -> Result<ResolvedPair, CatalogError> {
    let asked = match &selection.pair {
        Some(name) => Some(pairs::find(name).ok_or_else(|| unknown(name))?),
        None => None,
    };
    let mut missing = Vec::new();
    let (target, known, name) = match &selection.target {
        Some(text) => {
            let found = reference(text, Role::Target, store, &mut missing)?;
            let known = asked.or_else(|| pair_of_target(text, &found));
            let name = known.map_or_else(|| text.clone(), |pair| pair.name.clone());
            (found, known, name)
        }
        None => {
            let pair =
                asked.or_else(|| pairs::find(DEMO_PAIR)).ok_or_else(|| unknown(DEMO_PAIR))?;
            let found = known_model(pair, &pair.target, Role::Target, store, &mut missing)?;
            (found, Some(pair), pair.name.clone())
        }
    };
    let draft = match (&selection.draft, known) {
        (Some(text), _) => DraftPlace::At(reference(text, Role::Draft, store, &mut missing)?),
        (None, Some(Pair { draft: Model::Embedded(name), .. })) => match embedded_draft(name) {
            Some(draft) => DraftPlace::Embedded(draft),
            None => DraftPlace::None(format!("the program has no draft `{name}`")),
        },
        (None, Some(pair)) => {
            DraftPlace::At(known_model(pair, &pair.draft, Role::Draft, store, &mut missing)?)
        }
        (None, None) => {
            DraftPlace::None("no draft is known for this target; name one with --draft".into())
        }
    };
    Ok(ResolvedPair { name, known, target, draft, missing })
}

pub(super) fn unknown(name: &str) -> CatalogError {
    let known: Vec<&str> = pairs::pairs().iter().map(|pair| pair.name.as_str()).collect();
    CatalogError::UnknownPair { name: name.into(), known: known.join(", ") }
}

/// The pair whose target this is: by repository, or by the file's name or exact size.
fn pair_of_target(text: &str, found: &Location) -> Option<&'static Pair> {
    let file = found.path().file_name().and_then(|name| name.to_str());
    let bytes = std::fs::metadata(found.path()).map(|m| m.len()).ok();
    pairs::pairs().iter().find(|pair| match &pair.target {
        Model::Repo { repo, .. } => text == repo.id || text == repo.to_string(),
        Model::File(known) => {
            let same_size = bytes.is_some() && bytes == local::exact(known).bytes;
            matches!(found, Location::Gguf(_)) && (file == Some(&known.name) || same_size)
        }
        Model::Embedded(_) => false,
    })
}

/// One half of a known pair.
fn known_model(
    pair: &Pair,
    model: &Model,
    role: Role,
    store: &Store,
    missing: &mut Vec<Missing>,
) -> Result<Location, CatalogError> {
    if role == Role::Target
        && pair.name == DEMO_PAIR
        && let Some(path) = &store.demo_target
    {
        return gguf_file(path, "DFLASH_DEMO_TARGET names it");
    }
    let hint = match (role, pair.name == DEMO_PAIR) {
        (Role::Target, true) => {
            "put the file there, or point at a local copy: --target FILE.gguf, or \
             DFLASH_DEMO_TARGET=FILE.gguf"
        }
        _ => "point at local copies: --target FOLDER or FILE.gguf, --draft FOLDER",
    };
    Ok(model_or_missing(&pair.name, model, role, hint.into(), store, missing))
}

fn model_or_missing(
    folder: &str,
    model: &Model,
    role: Role,
    hint: String,
    store: &Store,
    missing: &mut Vec<Missing>,
) -> Location {
    let (found, place) = match model {
        Model::File(file) => (store.find_file(folder, file), store.file_place(folder, file)),
        Model::Repo { repo, .. } => (store.find_repo(repo), store.repo_place(repo)),
        // Only drafts are embedded, and they are taken before this is asked.
        Model::Embedded(name) => (None, store.models.join(name)),
    };
    let at = found.unwrap_or_else(|| {
        missing.push(Missing { role, model: model.clone(), at: place.clone(), hint });
        place
    });
    match model {
        Model::File(_) => Location::Gguf(at),
        _ => Location::Folder(at),
    }
}

/// A `--target` or `--draft` as a person writes it.
fn reference(
    text: &str,
    role: Role,
    store: &Store,
    missing: &mut Vec<Missing>,
) -> Result<Location, CatalogError> {
    let path = Path::new(text);
    if path.is_dir() {
        return match local::missing_in(path) {
            None => Ok(Location::Folder(path.into())),
            Some(what) => Err(CatalogError::BadFile {
                path: path.into(),
                what,
                hint: "a model folder has config.json and safetensors".into(),
            }),
        };
    }
    let is_gguf = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    if path.is_file() {
        return if is_gguf { gguf_file(path, "give another file") } else { Err(not_a_model(text)) };
    }
    let flag = if role == Role::Target { "--target" } else { "--draft" };
    let hint = format!("point at a local copy with {flag}");
    if is_gguf {
        let (repo, name) = hub_file(text).ok_or_else(|| gone(path))?;
        let folder = repo.folder();
        let file = KnownFile { name, bytes: None, sha256: None, sources: vec![Source::Hub(repo)] };
        return Ok(model_or_missing(&folder, &Model::File(file), role, hint, store, missing));
    }
    if text.starts_with(['/', '.', '~']) || text.contains('\\') {
        return Err(gone(path));
    }
    let repo = RepoRef::parse(text).map_err(|why| CatalogError::BadReference {
        text: text.into(),
        why: if text.contains('/') { format!(": {why}") } else { String::new() },
    })?;
    let bytes = pairs::pairs()
        .iter()
        .flat_map(|pair| [&pair.target, &pair.draft])
        .find(|model| matches!(model, Model::Repo { repo: known, .. } if *known == repo))
        .map_or(0, Model::bytes);
    Ok(model_or_missing("", &Model::Repo { repo, bytes }, role, hint, store, missing))
}

/// `organisation/name/FILE.gguf`, with `@revision` after the name if need be.
fn hub_file(text: &str) -> Option<(RepoRef, String)> {
    let (repo, file) = text.rsplit_once('/')?;
    names::check_file_name(file).ok()?;
    Some((RepoRef::parse(repo).ok()?, file.into()))
}

fn gguf_file(path: &Path, hint: &str) -> Result<Location, CatalogError> {
    let bad = |what: String| CatalogError::BadFile { path: path.into(), what, hint: hint.into() };
    match std::fs::metadata(path) {
        Ok(m) if m.is_file() && m.len() > 0 => Ok(Location::Gguf(path.into())),
        Ok(m) if m.is_file() => Err(bad("the file is empty".into())),
        Ok(_) => Err(bad("it is not a file".into())),
        Err(e) => Err(bad(e.to_string())),
    }
}

fn gone(path: &Path) -> CatalogError {
    CatalogError::BadFile {
        path: path.into(),
        what: "there is no such file or folder".into(),
        hint: "check the path; a hub repository is written organisation/name".into(),
    }
}

fn not_a_model(text: &str) -> CatalogError {
    let why = if text.ends_with(".safetensors") || text.ends_with("config.json") {
        ": name the folder that it is in"
    } else {
        ""
    };
    CatalogError::BadReference { text: text.into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct World {
        folder: tempfile::TempDir,
        store: Store,
    }

    fn world() -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Store {
            models: folder.path().join("models"),
            hub: Some(hf_hub::Cache::new(folder.path().join("hub"))),
            demo_target: None,
        };
        World { folder, store }
    }

    impl World {
        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        fn go(&self, target: Option<&str>, draft: Option<&str>) -> Result<ResolvedPair, String> {
            let selection = Selection {
                pair: None,
                target: target.map(String::from),
                draft: draft.map(String::from),
            };
            resolve(&selection, &self.store).map_err(|e| e.to_string())
        }
    }

    #[test]
    fn nothing_asked_means_the_demo_pair() {
        let mut world = world();
        let pair = world.go(None, None).unwrap();
        assert_eq!(pair.name, DEMO_PAIR);
        assert!(matches!(pair.draft, DraftPlace::Embedded(_)));
        assert_eq!(pair.missing.len(), 1);
        assert_eq!(pair.missing[0].at, pair.target.path());
        assert!(pair.missing[0].hint.contains("DFLASH_DEMO_TARGET"));

        let file = world.write("any.gguf", "x");
        world.store.demo_target = Some(file.clone());
        let pair = world.go(None, None).unwrap();
        assert_eq!((pair.target, pair.missing.len()), (Location::Gguf(file), 0));
        world.store.demo_target = Some("/nowhere.gguf".into());
        assert!(world.go(None, None).unwrap_err().contains("DFLASH_DEMO_TARGET"));
    }

    #[test]
    fn a_truncated_file_is_missing() {
        let world = world();
        let at = world.go(None, None).unwrap().missing[0].at.clone();
        world.write(at.strip_prefix(world.folder.path()).unwrap().to_str().unwrap(), "short");
        assert_eq!(world.go(None, None).unwrap().missing.len(), 1);
    }

    #[test]
    fn an_unknown_pair_names_those_there_are() {
        let selection = Selection { pair: Some("nope".into()), ..Selection::default() };
        let error = resolve(&selection, &world().store).unwrap_err().to_string();
        assert!(error.contains("`nope`") && error.contains("qwen3-4b"), "{error}");
    }

    #[test]
    fn a_known_target_brings_its_draft() {
        let world = world();
        let file = world.write("SmolLM2-135M-Instruct.Q4_1.gguf", "x");
        let pair = world.go(file.to_str(), None).unwrap();
        assert!(matches!(pair.draft, DraftPlace::Embedded(_)));
        let pair = world.go(Some("Qwen/Qwen3-4B"), None).unwrap();
        assert_eq!((pair.name.as_str(), pair.missing.len()), ("qwen3-4b", 2));
        assert_eq!(pair.missing[1].model.bytes(), 1_070_000_000);
        let file = world.write("other.gguf", "x");
        assert!(matches!(world.go(file.to_str(), None).unwrap().draft, DraftPlace::None(_)));
    }

    #[test]
    fn folders_are_looked_into() {
        let world = world();
        world.write("m/config.json", "");
        let folder = world.folder.path().join("m");
        let folder = folder.to_str().unwrap();
        assert!(
            world.go(Some(folder), None).unwrap_err().contains("config.json is missing or empty")
        );
        world.write("m/config.json", "{}");
        let weights = world.write("m/model.safetensors", "x");
        let pair = world.go(Some(folder), Some(folder)).unwrap();
        assert_eq!(pair.target, Location::Folder(folder.into()));
        assert_eq!(pair.draft, DraftPlace::At(Location::Folder(folder.into())));
        assert!(world.go(weights.to_str(), None).unwrap_err().contains("folder"));
    }

    #[test]
    fn the_hubs_cache_is_used_where_it_is_whole() {
        let world = world();
        let snapshot = "hub/models--Qwen--Qwen3-4B/snapshots/abc";
        world.write("hub/models--Qwen--Qwen3-4B/refs/main", "abc");
        world.write(&format!("{snapshot}/config.json"), "{}");
        assert_eq!(world.go(Some("Qwen/Qwen3-4B"), None).unwrap().missing.len(), 2);
        world.write(&format!("{snapshot}/model.safetensors"), "x");
        for revision in ["", "@abc", "@main"] {
            let pair = world.go(Some(&format!("Qwen/Qwen3-4B{revision}")), None).unwrap();
            assert_eq!(pair.target.path(), world.folder.path().join(snapshot), "{revision}");
        }
    }

    #[test]
    fn gguf_files_of_the_hub() {
        let world = world();
        let pair = world.go(Some("a/b@v1/x.gguf"), None).unwrap();
        assert_eq!(pair.target, Location::Gguf(world.store.models.join("a--b@v1/x.gguf")));
        assert_eq!(pair.missing.len(), 1);
    }

    #[test]
    fn what_means_nothing_says_so() {
        let world = world();
        for bad in [
            "",
            "word",
            "../x",
            "/no/such",
            "a/b/c",
            "a b/c",
            "x.gguf",
            "~/m",
            "../../a/b.gguf",
            "a/../b.gguf",
        ] {
            let error = world.go(Some(bad), None).expect_err(bad);
            assert!(error.lines().count() <= 2, "{error}");
        }
    }
}
