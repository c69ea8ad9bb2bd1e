//! What can go wrong with saved conversations.

use super::file::VERSION;
use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with saved conversations.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system said no.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A newer program wrote it.
    #[error(
        "conversation `{id}` was written by a newer version of this program (format {version}, \
         this one reads up to {VERSION}); it is left as it is"
    )]
    Newer {
        /// The conversation.
        id: String,
        /// The version in its file.
        version: u32,
    },
    /// It is no conversation's file.
    #[error("conversation `{id}` cannot be read: {reason}")]
    Unreadable {
        /// The conversation.
        id: String,
        /// What is wrong.
        reason: String,
    },
    /// It can be read but not changed.
    #[error("conversation `{id}` is left as it is: {reason}")]
    Kept {
        /// The conversation.
        id: String,
        /// Why.
        reason: String,
    },
    /// Its name would not do as a file's.
    #[error(
        "`{0}` cannot be a conversation's name; use up to 64 letters, digits, `-`, `_` and `.`, \
         the first not a `.`"
    )]
    BadName(String),
    /// There is one already.
    #[error("there is a conversation `{0}` already")]
    Exists(String),
}

pub(super) type Result<T> = std::result::Result<T, StoreError>;

/// What `map_err` makes of a refusal of the file system.
pub(super) fn io_error(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::Io { what, path, source }
}
