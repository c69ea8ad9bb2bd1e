//! A file that is not whole yet: `NAME.part` beside `NAME.part.json`, hashed while it grows, and
//! renamed to `NAME` only when it is whole.

use super::error::{CatalogError, SourceError};
use super::local::{hex, sync_folder};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

/// What is known of a file before it comes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Want {
    pub bytes: Option<u64>,
    pub sha256: Option<String>,
}

/// What is known of a partial file: enough to tell whether the rest of it can be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Notes {
    version: u32,
    etag: Option<String>,
    #[serde(flatten)]
    want: Want,
}

pub(super) struct Part {
    whole: PathBuf,
    path: PathBuf,
    notes_path: PathBuf,
    file: File,
    len: u64,
    hash: Sha256,
    etag: Option<String>,
    /// Some of it was there when it was opened.
    pub resumed: bool,
}

impl Part {
    /// Open what an earlier try left of `whole`, if its notes fit what is wanted now; else begin
    /// with nothing. Notes of another version, or none at all, fit nothing.
    pub fn open(
        whole: &Path,
        want: &Want,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Part, CatalogError> {
        let (path, notes_path) = (beside(whole, ".part"), beside(whole, ".part.json"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| CatalogError::io("write", &path, e))?;
        let mut part = Part {
            whole: whole.into(),
            path,
            notes_path,
            file,
            len: 0,
            hash: Sha256::new(),
            etag: None,
            resumed: false,
        };
        match part.usable_notes(want) {
            Some(notes) => {
                part.etag = notes.etag;
                part.read_existing(cancelled)?;
                part.resumed = part.len > 0;
            }
            None => part.restart()?,
        }
        Ok(part)
    }

    fn usable_notes(&self, want: &Want) -> Option<Notes> {
        let notes: Notes = serde_json::from_slice(&fs::read(&self.notes_path).ok()?).ok()?;
        let agree = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        let bytes = want.bytes.or(notes.want.bytes);
        let len = self.file.metadata().ok()?.len();
        let fits = notes.version == VERSION
            && (notes.etag.is_some() || notes.want.sha256.is_some())
            && agree(&notes.want.sha256, &want.sha256)
            && (notes.want.bytes.is_none() || notes.want.bytes == bytes)
            && bytes.is_none_or(|bytes| len <= bytes);
        fits.then_some(notes)
    }

    fn read_existing(&mut self, cancelled: &dyn Fn() -> bool) -> Result<(), CatalogError> {
        let mut buffer = vec![0; 1 << 20];
        loop {
            if cancelled() {
                return Err(CatalogError::Cancelled);
            }
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    self.hash.update(&buffer[..n]);
                    self.len += n as u64;
                }
                Err(e) => return Err(CatalogError::io("read", &self.path, e)),
            }
        }
    }

    /// Bytes that are there.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The tag that the server gave with them.
    pub fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// Write down what the coming bytes belong to, before they come.
    pub fn note(&mut self, etag: Option<String>, want: &Want) -> Result<(), CatalogError> {
        self.etag = etag.clone();
        let notes = Notes { version: VERSION, etag, want: want.clone() };
        serde_json::to_vec(&notes)
            .map_err(std::io::Error::from)
            .and_then(|text| fs::write(&self.notes_path, text))
            .map_err(|e| CatalogError::io("write", &self.notes_path, e))
    }

    /// Forget everything that came.
    pub fn restart(&mut self) -> Result<(), CatalogError> {
        self.len = 0;
        self.hash = Sha256::new();
        self.etag = None;
        self.resumed = false;
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map(|_| ())
            .map_err(|e| CatalogError::io("write", &self.path, e))
    }

    /// Add what came.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), CatalogError> {
        self.file.write_all(bytes).map_err(|e| CatalogError::io("write", &self.path, e))?;
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// The end: check length and hash, put it on the disk for good, give it its name. Returns the
    /// hash. What fails the check is removed.
    pub fn finish(mut self, what: &str, want: &Want) -> Result<String, CatalogError> {
        let sha256 = hex(&std::mem::take(&mut self.hash).finalize());
        if let Some(why) = mismatch(want, self.len, &sha256) {
            self.discard();
            return Err(SourceError::Wrong { what: what.into(), why }.into());
        }
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, &self.whole))
            .map_err(|e| CatalogError::io("write", &self.whole, e))?;
        let _ = fs::remove_file(&self.notes_path);
        sync_folder(&self.whole);
        Ok(sha256)
    }

    /// Remove everything of it.
    pub fn discard(self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.notes_path);
    }
}

/// What differs between what was wanted and what is there.
pub(super) fn mismatch(want: &Want, bytes: u64, sha256: &str) -> Option<String> {
    match want {
        Want { bytes: Some(wanted), .. } if *wanted != bytes => {
            Some(format!("{bytes} bytes instead of {wanted}"))
        }
        Want { sha256: Some(wanted), .. } if wanted != sha256 => {
            Some(format!("SHA-256 {sha256} instead of {wanted}"))
        }
        _ => None,
    }
}

/// `NAME` with a suffix after its extension.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn want(data: &[u8]) -> Want {
        Want { bytes: Some(data.len() as u64), sha256: Some(hex(&Sha256::digest(data))) }
    }

    proptest! {
        /// However the transfer is cut into tries, the whole file is the whole file.
        #[test]
        fn any_interruptions_give_the_same_file(
            data in proptest::collection::vec(any::<u8>(), 0..2000),
            cuts in proptest::collection::vec(0usize..700, 0..6),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let whole = folder.path().join("x.bin");
            let want = want(&data);
            for cut in cuts {
                let mut part = Part::open(&whole, &want, &|| false).unwrap();
                part.note(None, &want).unwrap();
                let from = part.len() as usize;
                part.append(&data[from..data.len().min(from + cut)]).unwrap();
                prop_assert!(!whole.exists());
            }
            let mut part = Part::open(&whole, &want, &|| false).unwrap();
            let from = part.len() as usize;
            part.append(&data[from..]).unwrap();
            part.finish("x", &want).unwrap();
            prop_assert_eq!(fs::read(&whole).unwrap(), data);
            prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }

        /// Whatever notes lie there, a part never becomes a wrong file.
        #[test]
        fn hostile_notes_do_no_harm(notes in "\\PC{0,80}", old in proptest::collection::vec(any::<u8>(), 0..50)) {
            let folder = tempfile::tempdir().unwrap();
            let whole = folder.path().join("x.bin");
            fs::write(beside(&whole, ".part"), old).unwrap();
            fs::write(beside(&whole, ".part.json"), notes).unwrap();
            let want = want(b"hello");
            let mut part = Part::open(&whole, &want, &|| false).unwrap();
            prop_assert_eq!(part.len(), 0);
            part.append(b"hello").unwrap();
            part.finish("x", &want).unwrap();
            prop_assert_eq!(fs::read(&whole).unwrap(), b"hello");
        }
    }

    #[test]
    fn notes_that_do_not_fit_start_again() {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("x.bin");
        let good = want(b"hello world");
        let leave = |notes: &str| {
            fs::write(beside(&whole, ".part"), b"hello").unwrap();
            fs::write(beside(&whole, ".part.json"), notes).unwrap();
            Part::open(&whole, &good, &|| false).unwrap().len()
        };
        let sha = good.sha256.clone().unwrap();
        assert_eq!(leave(&format!(r#"{{"version":1,"bytes":11,"sha256":"{sha}"}}"#)), 5);
        assert_eq!(leave(r#"{"version":1,"etag":"\"a\"","bytes":11}"#), 5);
        assert_eq!(leave(&format!(r#"{{"version":2,"bytes":11,"sha256":"{sha}"}}"#)), 0);
        assert_eq!(leave(r#"{"version":1,"bytes":11,"sha256":"00"}"#), 0);
        assert_eq!(leave(r#"{"version":1,"etag":"\"a\"","bytes":12}"#), 0);
        assert_eq!(leave(r#"{"version":1,"bytes":11}"#), 0);
        assert_eq!(leave(""), 0);
    }

    #[test]
    fn a_wrong_file_never_gets_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("x.bin");
        let want = want(b"hello");
        let mut part = Part::open(&whole, &want, &|| false).unwrap();
        part.append(b"hellO").unwrap();
        let error = part.finish("x", &want).unwrap_err().to_string();
        assert!(error.contains("SHA-256"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
