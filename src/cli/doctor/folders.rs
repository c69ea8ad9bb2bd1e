//! The program's folders, and whether they can be written.

use crate::catalog::free_space;
use crate::settings::Paths;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A folder of the program.
#[derive(Debug, Serialize)]
pub struct Folder {
    /// What it is for.
    pub name: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is there yet; it is made when it is needed.
    pub exists: bool,
    /// Why it cannot be written, if it cannot.
    pub problem: Option<String>,
    /// Bytes that are free on its disk, where the system tells.
    pub free: Option<u64>,
}

/// All of them.
pub fn folders(paths: &Paths) -> Vec<Folder> {
    let Paths { config, data, cache, state } = paths;
    let named = [("config", config), ("data", data), ("cache", cache), ("state", state)];
    named.into_iter().map(|(name, path)| look(name, path)).collect()
}

fn look(name: &'static str, path: &Path) -> Folder {
    let nearest = path.ancestors().find(|folder| fs::symlink_metadata(folder).is_ok());
    // A relative path ends at the folder that the program was started in.
    let nearest = nearest.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let exists = nearest == path;
    let tried = if exists { write_something(path) } else { may_write(nearest) };
    let problem = tried.err().map(|why| match exists {
        true => why.to_string(),
        false => format!("it cannot be made in {}: {why}", nearest.display()),
    });
    Folder { name, path: path.into(), exists, problem, free: free_space(nearest) }
}

/// Write a file and remove it again: only that tells of a full disk too.
fn write_something(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!(".dflash-chat-doctor-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&probe)?;
    let written = file.write_all(b"Can this be written?\n").and_then(|()| file.sync_all());
    fs::remove_file(&probe).and(written)
}

/// Whether a folder that belongs to others may be written; nothing is left in it meanwhile.
#[cfg(unix)]
fn may_write(folder: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    if !folder.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Whether a folder that belongs to others may be written.
#[cfg(not(unix))]
fn may_write(folder: &Path) -> io::Result<()> {
    match fs::metadata(folder)?.is_dir() {
        true => Ok(()),
        false => Err(io::Error::from(io::ErrorKind::NotADirectory)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_are_there_missing_and_in_the_way() {
        let world = tempfile::tempdir().unwrap();
        let here = look("data", world.path());
        assert_eq!((here.exists, &here.problem), (true, &None));
        assert_eq!(fs::read_dir(world.path()).unwrap().count(), 0, "the probe is left");
        let missing = look("data", &world.path().join("a/b"));
        assert_eq!((missing.exists, &missing.problem), (false, &None));
        let file = world.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(look("data", &file).problem.is_some());
        assert!(look("data", &file.join("a")).problem.unwrap().starts_with("it cannot be made in"));
        assert!(look("data", Path::new("some/relative/folder")).problem.is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_refuses_is_told() {
        assert!(look("data", Path::new("/proc")).problem.is_some());
    }
}
