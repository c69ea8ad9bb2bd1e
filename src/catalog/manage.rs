//! What is here, whether it is still right, and how it goes away again.

use super::download::{lock_now, size};
use super::error::CatalogError;
use super::local::{self, Store};
use super::names::RepoRef;
use super::pairs::{self, Model, Pair};
use super::part::{Want, mismatch};
use super::progress::{Meter, Watch};
use super::resolve::{DraftPlace, Location, ResolvedPair, Selection};
use std::fs;
use std::path::{Path, PathBuf};

/// How much of a pair is on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Everything.
    Ready,
    /// A part; fetching goes on from there.
    Partial,
    /// Nothing.
    Remote,
}

impl State {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Partial => "partial",
            State::Remote => "remote",
        }
    }
}

impl Store {
    /// How much of a pair is here.
    pub fn state(&self, pair: &Pair) -> State {
        let models: Vec<&Model> = [&pair.target, &pair.draft]
            .into_iter()
            .filter(|model| !matches!(model, Model::Embedded(_)))
            .collect();
        let here = |model: &Model| match model {
            Model::File(file) => self.find_file(&pair.name, file).is_some(),
            Model::Repo { repo, .. } => self.find_repo(repo).is_some(),
            Model::Embedded(_) => true,
        };
        let demo = pair.name == pairs::DEMO_PAIR && self.demo_target.is_some();
        if demo || models.iter().all(|model| here(model)) {
            State::Ready
        } else if models.iter().any(|model| here(model) || self.begun(&pair.name, model)) {
            State::Partial
        } else {
            State::Remote
        }
    }

    fn begun(&self, folder: &str, model: &Model) -> bool {
        self.folder_of(folder, model).is_some_and(|folder| bytes_in(&folder) > 0)
    }

    /// The folder of ours that a model has.
    fn folder_of(&self, folder: &str, model: &Model) -> Option<PathBuf> {
        match model {
            Model::File(_) => Some(self.models.join(folder)),
            Model::Repo { repo, .. } => Some(self.repo_place(repo)),
            Model::Embedded(_) => None,
        }
    }
}

/// A file whose right hash is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkable {
    /// Where it is.
    pub path: PathBuf,
    want: Want,
}

/// The files of a pair that can be checked.
///
/// # Errors
/// The pair has not been fetched.
pub fn checkable(pair: &ResolvedPair, store: &Store) -> Result<Vec<Checkable>, CatalogError> {
    let places = fetched(pair)?;
    Ok(places.into_iter().flat_map(|place| checkable_at(place, store)).collect())
}

/// The files and folders of a pair that cannot be checked: nobody wrote down a hash of what lies
/// in the hub's cache or where a person put it, unless `pairs.toml` has one.
///
/// # Errors
/// The pair has not been fetched.
pub fn uncheckable(pair: &ResolvedPair, store: &Store) -> Result<Vec<PathBuf>, CatalogError> {
    let places = fetched(pair)?.into_iter();
    let unknown = places.filter(|place| checkable_at(*place, store).is_empty());
    Ok(unknown.map(|(location, _)| location.path().to_path_buf()).collect())
}

/// Where a network lies, and what `pairs.toml` knows of it.
type Place<'a> = (&'a Location, Option<&'a Model>);

/// The places of a pair's networks that are not in the program.
fn fetched(pair: &ResolvedPair) -> Result<Vec<Place<'_>>, CatalogError> {
    if let Some(missing) = pair.missing.first() {
        return Err(CatalogError::BadFile {
            path: missing.at.clone(),
            what: "it is not here, or not whole".into(),
            hint: format!("fetch it with `dflash-chat models pull {}`", pair.name),
        });
    }
    let mut places = vec![(&pair.target, pair.known.map(|known| &known.target))];
    if let DraftPlace::At(location) = &pair.draft {
        places.push((location, pair.known.map(|known| &known.draft)));
    }
    Ok(places)
}

/// The files of one place that can be checked.
fn checkable_at((location, known): Place<'_>, store: &Store) -> Vec<Checkable> {
    match location {
        Location::Folder(folder) => receipt_files(folder).collect(),
        Location::Gguf(path) => {
            let want = wanted(path, known, store).filter(|want| want.sha256.is_some());
            want.map(|want| Checkable { path: path.clone(), want }).into_iter().collect()
        }
    }
}

/// What is known of a GGUF file: by `pairs.toml`, or by what we wrote down when we fetched it.
fn wanted(path: &Path, known: Option<&Model>, store: &Store) -> Option<Want> {
    if let Some(Model::File(file)) = known {
        return Some(local::wanted(path, file));
    }
    let folder = path.parent().filter(|folder| folder.starts_with(&store.models))?;
    local::read_receipt(folder).remove(path.file_name()?.to_str()?)
}

/// All the files in our folder that can be checked.
///
/// # Errors
/// The folder cannot be read.
pub fn checkable_all(store: &Store) -> Result<Vec<Checkable>, CatalogError> {
    let mut files = Vec::new();
    for folder in folders_in(&store.models)? {
        files.extend(receipt_files(&folder));
    }
    Ok(files)
}

fn folders_in(models: &Path) -> Result<Vec<PathBuf>, CatalogError> {
    match fs::read_dir(models) {
        Ok(entries) => {
            let mut folders: Vec<PathBuf> =
                entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
            folders.sort();
            Ok(folders)
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(CatalogError::io("read", models, e)),
    }
}

fn receipt_files(folder: &Path) -> impl Iterator<Item = Checkable> {
    let folder = folder.to_path_buf();
    local::read_receipt(&folder)
        .into_iter()
        .map(move |(name, want)| Checkable { path: folder.join(name), want })
}

/// Read a file again. The inner error is what is wrong with it.
///
/// # Errors
/// A wish to stop.
pub fn verify(file: &Checkable, watch: &mut dyn Watch) -> Result<Result<(), String>, CatalogError> {
    let bytes = match fs::metadata(&file.path) {
        Ok(metadata) => metadata.len(),
        Err(e) => return Ok(Err(e.to_string())),
    };
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let mut meter = Meter::new(watch, name, Some(bytes));
    let mut done = 0;
    let hash = local::hash_file(&file.path, |n| {
        done += n;
        meter.at(done);
        !meter.watch.cancelled()
    });
    match hash {
        Ok(Some(sha256)) => Ok(mismatch(&file.want, bytes, &sha256).map_or(Ok(()), Err)),
        Ok(None) => Err(CatalogError::Cancelled),
        Err(e) => Ok(Err(e.to_string())),
    }
}

/// A folder of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removable {
    /// Where.
    pub path: PathBuf,
    /// What removing it frees.
    pub bytes: u64,
}

/// The folders of ours that belong to a selection and to no other pair that is here. Files
/// elsewhere (the hub's cache, a person's own) are never among them.
///
/// # Errors
/// An unknown name.
pub fn removable(selection: &Selection, store: &Store) -> Result<Vec<Removable>, CatalogError> {
    let mut folders = Vec::new();
    if let Some(name) = &selection.pair {
        let pair = pairs::find(name).ok_or_else(|| super::resolve::unknown(name))?;
        let shared = |model: &Model| {
            pairs::pairs().iter().any(|other| {
                other.name != pair.name
                    && (other.draft == *model || other.target == *model)
                    && store.begun(&other.name, &other.target)
            })
        };
        for model in [&pair.target, &pair.draft] {
            if !shared(model) {
                folders.extend(store.folder_of(&pair.name, model));
            }
        }
    } else if let Some(text) = &selection.target {
        let repo = RepoRef::parse(text).map_err(|why| CatalogError::BadReference {
            text: text.clone(),
            why: format!(": {why}"),
        })?;
        folders.push(store.repo_place(&repo));
    }
    folders.retain(|folder| folder.is_dir());
    Ok(folders.into_iter().map(|path| Removable { bytes: bytes_in(&path), path }).collect())
}

/// Remove a folder, unless a download is at work in it.
///
/// # Errors
/// It is in use, or the system refuses.
pub fn remove(folder: &Removable) -> Result<(), CatalogError> {
    let _lock = lock_now(&folder.path)?;
    fs::remove_dir_all(&folder.path).map_err(|e| CatalogError::io("remove", &folder.path, e))?;
    tracing::info!("removed {} ({})", folder.path.display(), size(folder.bytes));
    Ok(())
}

fn bytes_in(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::resolve;

    #[test]
    fn files_without_a_known_hash_are_named_and_never_right() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store { models: folder.path().join("models"), hub: None, demo_target: None };
        let file = folder.path().join("own.gguf");
        fs::write(&file, "x").unwrap();
        let target = Some(file.to_str().unwrap().to_owned());
        let pair = resolve(&Selection { target, ..Selection::default() }, &store).unwrap();
        assert!(checkable(&pair, &store).unwrap().is_empty());
        assert_eq!(uncheckable(&pair, &store).unwrap(), [file]);

        // A pair's file whose hash `pairs.toml` does not have, before and after it is written down.
        let ours = store.models.join("qwen3-4b-q4/Qwen3-4B-Q4_K_M.gguf");
        fs::create_dir_all(ours.parent().unwrap()).unwrap();
        fs::write(&ours, "x").unwrap();
        let pair = pairs::find("qwen3-4b-q4").unwrap();
        let location = Location::Gguf(ours.clone());
        let found = || checkable_at((&location, Some(&pair.target)), &store);
        assert!(found().is_empty());
        let want = Want { bytes: Some(1), sha256: Some("no such hash".into()) };
        local::write_receipt(ours.parent().unwrap(), "Qwen3-4B-Q4_K_M.gguf", want).unwrap();
        assert_eq!(found().len(), 1);
    }
}
