//! What can go wrong between a name and the files behind it.

use std::io;
use std::path::{Path, PathBuf};

/// Each message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// No pair has that name.
    #[error("there is no pair `{name}`; there are: {known}")]
    UnknownPair {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// `--target` or `--draft` names nothing that can be understood.
    #[error(
        "`{text}` is neither a folder with config.json, nor a .gguf file, nor a hub repository \
         (organisation/name[@revision]){why}"
    )]
    BadReference {
        /// As it was written.
        text: String,
        /// What is wrong with it, where more can be said; begins with `: `.
        why: String,
    },
    /// A file is there and cannot be what it should be.
    #[error("{}: {what}; {hint}", path.display())]
    BadFile {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do.
        hint: String,
    },
    /// No source could deliver it.
    #[error("cannot get {what} ({size}) for {}: {reasons}\n{hint}", at.display())]
    Unavailable {
        /// A file or repository.
        what: String,
        /// How large it is.
        size: String,
        /// Where it would go.
        at: PathBuf,
        /// One for each source.
        reasons: String,
        /// How to do without a download.
        hint: String,
    },
    /// One source could not deliver.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The disk is too small.
    #[error(
        "no space in {}: {needed} more are needed, {free} are free; free some, or set \
         DFLASH_CHAT_DATA to a folder on another disk",
        at.display()
    )]
    NoSpace {
        /// The folder.
        at: PathBuf,
        /// For what is missing.
        needed: String,
        /// On its disk.
        free: String,
    },
    /// A file operation failed.
    #[error("cannot {doing} {}: {error}{hint}", path.display())]
    Io {
        /// A verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
        /// What to do; begins with `; `, or is empty.
        hint: &'static str,
    },
    /// The person stopped it; what was fetched stays for the next time.
    #[error("stopped; what was fetched is kept, the next try goes on from there")]
    Cancelled,
}

impl CatalogError {
    /// How the program ends: 2 for a wrong name, 130 for a wish to stop, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        match self {
            CatalogError::UnknownPair { .. } | CatalogError::BadReference { .. } => 2,
            CatalogError::Cancelled => 130,
            _ => 1,
        }
    }

    /// An [`CatalogError::Io`] with the hint that fits the error.
    pub(super) fn io(doing: &'static str, path: &Path, error: io::Error) -> CatalogError {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; set DFLASH_CHAT_DATA to a folder that you may write"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free some space, or set DFLASH_CHAT_DATA to a folder on another disk"
            }
            _ => "",
        };
        CatalogError::Io { doing, path: path.to_path_buf(), error, hint }
    }
}

/// Why one source could not deliver; another may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No answer: no network, no such host, a firewall.
    #[error("{host} cannot be reached ({why})")]
    Unreachable {
        /// Who.
        host: String,
        /// What the network said.
        why: String,
    },
    /// It needs a token or an accepted licence.
    #[error(
        "{what} is gated: accept its licence on its page, then set HF_TOKEN to a token that may \
         read it"
    )]
    Gated {
        /// The address.
        what: String,
    },
    /// It is private, or not there.
    #[error(
        "{what} was refused (HTTP {status}): it does not exist, is private, or asks you to accept \
         a licence; check the name, and set HF_TOKEN to a token that may read it"
    )]
    Refused {
        /// The address.
        what: String,
        /// 401 or 403.
        status: u16,
    },
    /// It is not there.
    #[error("{what} does not exist (HTTP 404); check the name and the revision")]
    NotFound {
        /// The address.
        what: String,
    },
    /// Another answer that is not the file.
    #[error("{what} answered HTTP {status}; try again later")]
    Status {
        /// The address.
        what: String,
        /// The code.
        status: u16,
    },
    /// The transfer broke, again and again.
    #[error("{what} broke off after {got} ({why}); what came is kept, try again")]
    Broken {
        /// The address.
        what: String,
        /// Bytes on disk.
        got: String,
        /// The last reason.
        why: String,
    },
    /// What came is not what was promised.
    #[error("{what} is not the expected file: {why}")]
    Wrong {
        /// The address.
        what: String,
        /// Length or hash, both sides.
        why: String,
    },
    /// A child process could not deliver.
    #[error("{0}")]
    Tool(String),
}
