//! What lies on this machine: our own folder, and the hub's cache, which is read and never
//! written.

use super::error::CatalogError;
use super::names::{self, RepoRef};
use super::pairs::{KnownFile, Source};
use super::part::Want;
use crate::settings::Paths;
use hf_hub::{Cache, Repo, RepoType};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The weights of a repository in one file.
pub(super) const SINGLE: &str = "model.safetensors";
/// The list of its files, where there are several.
pub(super) const INDEX: &str = "model.safetensors.index.json";
/// Sizes and hashes of what we fetched into a folder.
const RECEIPT: &str = "files.json";
/// An index is a few hundred kilobytes at most.
const INDEX_LIMIT: u64 = 32 << 20;

/// Where models are looked for.
#[derive(Debug, Clone)]
pub struct Store {
    /// Our own folder, one folder a model in it.
    pub models: PathBuf,
    /// The hub's cache: `HF_HOME`, or its usual place.
    pub hub: Option<Cache>,
    /// A file that stands for the demo pair's target; `DFLASH_DEMO_TARGET`.
    pub demo_target: Option<PathBuf>,
}

impl Store {
    /// As the environment says.
    pub fn from_env(paths: &Paths) -> Store {
        // Cache::from_env panics where there is no home folder.
        let hub = (std::env::var_os("HF_HOME").is_some() || directories::BaseDirs::new().is_some())
            .then(Cache::from_env);
        let demo_target =
            std::env::var_os("DFLASH_DEMO_TARGET").filter(|v| !v.is_empty()).map(PathBuf::from);
        Store { models: paths.data.join("models"), hub, demo_target }
    }

    /// Where a pair's file goes.
    pub(super) fn file_place(&self, folder: &str, file: &KnownFile) -> PathBuf {
        self.models.join(folder).join(&file.name)
    }

    /// Where a repository goes.
    pub(super) fn repo_place(&self, repo: &RepoRef) -> PathBuf {
        self.models.join(repo.folder())
    }

    /// A file that is whole: in our folder with the size that it must have, or in the hub's cache.
    pub(super) fn find_file(&self, folder: &str, file: &KnownFile) -> Option<PathBuf> {
        let ours = self.file_place(folder, file);
        if is_whole(&ours, &wanted(&ours, file)) {
            return Some(ours);
        }
        file.sources.iter().find_map(|source| match source {
            Source::Hub(repo) => {
                let path = self.snapshot(repo, &file.name)?.join(&file.name);
                is_whole(&path, &exact(file)).then_some(path)
            }
            Source::Pip { .. } => None,
        })
    }

    /// A repository's folder that has all that is needed.
    pub(super) fn find_repo(&self, repo: &RepoRef) -> Option<PathBuf> {
        let ours = self.repo_place(repo);
        let receipt = read_receipt(&ours);
        let as_received = || receipt.iter().all(|(name, want)| is_whole(&ours.join(name), want));
        if missing_in(&ours).is_none() && as_received() {
            return Some(ours);
        }
        let cached = self.snapshot(repo, "config.json")?;
        missing_in(&cached).is_none().then_some(cached)
    }

    /// The folder of the hub's cache that has `name` at the repository's revision.
    fn snapshot(&self, repo: &RepoRef, name: &str) -> Option<PathBuf> {
        let cache = self.hub.as_ref()?.repo(Repo::with_revision(
            repo.id.clone(),
            RepoType::Model,
            repo.revision.clone(),
        ));
        let by_commit = cache.pointer_path(&repo.revision);
        if by_commit.join(name).is_file() {
            return Some(by_commit);
        }
        Some(cache.get(name)?.parent()?.to_path_buf())
    }
}

/// What a model folder lacks before it can be loaded, in words; `None` if nothing.
pub(super) fn missing_in(folder: &Path) -> Option<String> {
    let nonempty = |name: &str| fs::metadata(folder.join(name)).is_ok_and(|m| m.len() > 0);
    if !nonempty("config.json") {
        return Some("config.json is missing or empty".into());
    }
    if !folder.join(INDEX).exists() {
        return (!nonempty(SINGLE)).then(|| format!("{SINGLE} is missing or empty"));
    }
    match shards(&folder.join(INDEX)) {
        Ok(shards) => shards
            .iter()
            .find(|name| !nonempty(name))
            .map(|name| format!("{name} is missing or empty")),
        Err(why) => Some(why),
    }
}

/// The files that an index names. Names that are not plain safetensors names are refused.
pub(super) fn shards(index: &Path) -> Result<BTreeSet<String>, String> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let bad = |why: String| format!("{INDEX}: {why}");
    let size = fs::metadata(index).map_err(|e| bad(e.to_string()))?.len();
    if size > INDEX_LIMIT {
        return Err(bad(format!("{size} bytes are too many")));
    }
    let text = fs::read(index).map_err(|e| bad(e.to_string()))?;
    let index: Index = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    for name in &shards {
        names::check_file_name(name).map_err(bad)?;
        if !name.ends_with(".safetensors") {
            return Err(bad(format!("{name:?} is not a safetensors file")));
        }
    }
    if shards.is_empty() { Err(bad("it names no files".into())) } else { Ok(shards) }
}

/// The size and hash that a known file must have; a size without a hash is only about right.
pub(super) fn exact(file: &KnownFile) -> Want {
    Want { bytes: file.sha256.as_ref().and(file.bytes), sha256: file.sha256.clone() }
}

/// Like [`exact`]; where `pairs.toml` has no hash, what we wrote down when we fetched it.
pub(super) fn wanted(path: &Path, file: &KnownFile) -> Want {
    let exact = exact(file);
    if exact.sha256.is_some() {
        return exact;
    }
    path.parent().and_then(|dir| read_receipt(dir).remove(&file.name)).unwrap_or(exact)
}

/// Whether a file of the right size is there. Hashes take seconds a gigabyte: they are checked
/// while fetching and by `models verify`.
pub(super) fn is_whole(path: &Path, want: &Want) -> bool {
    fs::metadata(path)
        .is_ok_and(|m| m.is_file() && m.len() > 0 && want.bytes.is_none_or(|b| b == m.len()))
}

/// Sizes and hashes of the files that we fetched into `folder`.
pub(super) fn read_receipt(folder: &Path) -> BTreeMap<String, Want> {
    let text = fs::read(folder.join(RECEIPT)).unwrap_or_default();
    let mut receipt: BTreeMap<String, Want> = serde_json::from_slice(&text).unwrap_or_default();
    receipt.retain(|name, _| names::check_file_name(name).is_ok());
    receipt
}

/// Add one file to the folder's receipt.
pub(super) fn write_receipt(folder: &Path, name: &str, want: Want) -> Result<(), CatalogError> {
    let mut receipt = read_receipt(folder);
    receipt.insert(name.into(), want);
    let path = folder.join(RECEIPT);
    let new = folder.join("files.json.new");
    serde_json::to_vec_pretty(&receipt)
        .map_err(std::io::Error::from)
        .and_then(|text| fs::write(&new, text))
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|e| CatalogError::io("write", &path, e))
}

/// SHA-256 of a file, telling how far it is; `None` when `on` says stop.
pub(super) fn hash_file(
    path: &Path,
    mut on: impl FnMut(u64) -> bool,
) -> std::io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(Some(hex(&hash.finalize())));
        }
        hash.update(&buffer[..n]);
        if !on(n as u64) {
            return Ok(None);
        }
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Make a rename in a file's folder last through a power cut. Not every file system can; then
/// the rename is as safe as it gets.
pub(super) fn sync_folder(file: &Path) {
    if let Some(folder) = file.parent()
        && let Ok(folder) = File::open(folder)
    {
        let _ = folder.sync_all();
    }
}

/// Bytes that may be written on the disk that holds `folder`; `None` where it cannot be told.
#[cfg(unix)]
pub fn free_space(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Bytes that may be written on the disk that holds `folder`; not known on this platform.
#[cfg(not(unix))]
pub fn free_space(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_index_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join(INDEX);
        let read = |text: &str| {
            fs::write(&index, text).unwrap();
            shards(&index)
        };
        assert_eq!(
            read(r#"{"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors"}}"#).unwrap().len(),
            1
        );
        for bad in [
            r#"{"weight_map":{"a":"../m.safetensors"}}"#,
            r#"{"weight_map":{"a":"/etc/m.safetensors"}}"#,
            r#"{"weight_map":{"a":"sub/m.safetensors"}}"#,
            r#"{"weight_map":{"a":"m.bin"}}"#,
            r#"{"weight_map":{}}"#,
            r#"{"weight_map":[]}"#,
            "{}",
            "",
            "\u{0}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_says_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let missing = || missing_in(folder.path()).unwrap_or_default();
        write("config.json", "");
        assert!(missing().starts_with("config.json"));
        write("config.json", "{}");
        assert!(missing().starts_with(SINGLE));
        write(SINGLE, "x");
        assert_eq!(missing(), "");
        write(INDEX, r#"{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#);
        write("m-1.safetensors", "x");
        assert!(missing().starts_with("m-2.safetensors"));
        write("m-2.safetensors", "x");
        assert_eq!(missing(), "");
    }
}
