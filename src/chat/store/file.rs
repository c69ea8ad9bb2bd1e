//! A conversation's file: a header line, then one line a change.

use super::error::{Result, StoreError, io_error};
use crate::chat::conversation::{Change, Conversation, Origin};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the files that this program writes; it reads all up to it.
pub(super) const VERSION: u32 = 1;
/// Files of more bytes are not read.
const MOST_BYTES: u64 = 256 << 20;

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename = "session")]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<Origin>,
}

/// A file that grows by whole lines.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Bytes of whole lines.
    pub(super) len: u64,
}

impl Appended {
    pub(super) fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let mut bytes = serde_json::to_vec(line)
            .map_err(io::Error::other)
            .map_err(io_error("write", &self.path))?;
        bytes.push(b'\n');
        match self.file.write_all(&bytes) {
            Ok(()) => {
                self.len += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A half line would swallow the next one.
                let _ = self.cut_back();
                Err(io_error("write", &self.path)(error))
            }
        }
    }

    /// Leave the whole lines alone in the file.
    pub(super) fn cut_back(&mut self) -> Result<()> {
        let longer = self.file.metadata().is_ok_and(|meta| meta.len() > self.len);
        if longer {
            self.file.set_len(self.len).map_err(io_error("write", &self.path))?;
        }
        Ok(())
    }

    pub(super) fn flush(&self) -> Result<()> {
        self.file.sync_data().map_err(io_error("write", &self.path))
    }
}

/// What a file says.
pub(super) struct Contents {
    pub(super) conversation: Conversation,
    /// Bytes up to the end of the last good line.
    pub(super) good_bytes: u64,
    /// The last line has no end.
    pub(super) half_line: bool,
    /// Where and how it is damaged before that.
    pub(super) damaged: Option<String>,
}

pub(super) fn read(file: &mut File, id: &str, path: &Path) -> Result<Contents> {
    let unreadable = |reason: String| StoreError::Unreadable { id: id.into(), reason };
    let meta = file.metadata().map_err(io_error("read", path))?;
    if !meta.is_file() || meta.len() > MOST_BYTES {
        return Err(unreadable(format!("{} is no file of a fitting size", path.display())));
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).map_err(io_error("read", path))?;
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(io_error("read", path))?;

    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let first = lines.next().filter(|line| line.ends_with(b"\n"));
    let first = first.ok_or_else(|| unreadable("its first line is not whole".into()))?;
    // The version comes first: what else a newer header holds is not known.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let not_ours = |error| unreadable(format!("its first line is no header of ours ({error})"));
    let Version { version } = serde_json::from_slice(first).map_err(not_ours)?;
    if version > VERSION {
        return Err(StoreError::Newer { id: id.into(), version });
    }
    let header: Header = serde_json::from_slice(first).map_err(not_ours)?;

    let mut read = Contents {
        conversation: Conversation {
            origin: header.origin,
            ..Conversation::new(id, header.created)
        },
        good_bytes: first.len() as u64,
        half_line: false,
        damaged: None,
    };
    for (number, line) in lines.enumerate() {
        if !line.ends_with(b"\n") {
            read.half_line = true;
            break;
        }
        match serde_json::from_slice::<Change>(line) {
            Ok(change) => read.conversation.apply(&change),
            Err(error) => {
                let number = number + 2;
                read.damaged = Some(format!("its file is damaged from line {number} on ({error})"));
                break;
            }
        };
        read.good_bytes += line.len() as u64;
    }
    Ok(read)
}

/// Lock a file for this program. False if another holds it; where the file system has no locks,
/// there is nobody to ask.
pub(super) fn lock(file: &File) -> bool {
    let taken = || !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    // A lock that this program gave up lives on for a moment in a child that it is just starting.
    taken()
        || (0..5).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            taken()
        })
}

/// Make a folder that only its owner sees.
pub(super) fn make_folder(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(io_error("create", path))
}
