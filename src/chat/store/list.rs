//! The list of conversations.

use super::error::{Result, StoreError, io_error};
use super::file::read;
use super::{ENDING, Store};
use crate::chat::conversation::Models;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// A conversation in the list of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Its name.
    pub id: String,
    /// Its title, safe to show.
    pub title: String,
    /// When something was last said, in seconds since 1970.
    pub changed: u64,
    /// How many turns it has.
    pub turns: usize,
    /// The models that answered last.
    pub models: Models,
    /// All its words in small letters, for the search.
    words: String,
}

/// The list of conversations.
#[derive(Debug, Default)]
pub struct Listing {
    /// Those that can be opened, the latest first.
    pub sessions: Vec<Summary>,
    /// Those that cannot, with the reason.
    pub unreadable: Vec<(String, String)>,
}

impl Summary {
    /// Whether it has all words of `query`, in any case.
    pub fn matches(&self, query: &str) -> bool {
        query.to_lowercase().split_whitespace().all(|word| self.words.contains(word))
    }
}

impl Store {
    /// All conversations, the latest first; empty ones are left out.
    pub fn list(&self) -> Listing {
        let mut listing = Listing::default();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return listing,
            Err(error) => {
                listing.unreadable.push((self.folder.display().to_string(), error.to_string()));
                return listing;
            }
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            match self.summary(&id, &path) {
                Ok(summary) if summary.turns > 0 => listing.sessions.push(summary),
                Ok(_) => {}
                Err(error) => listing.unreadable.push((id, error.to_string())),
            }
        }
        listing.sessions.sort_by(|a, b| b.changed.cmp(&a.changed).then(b.id.cmp(&a.id)));
        listing.unreadable.sort();
        listing
    }

    /// The conversation in which something was said last (`--continue`).
    pub fn latest(&self) -> Option<Summary> {
        self.list().sessions.into_iter().next()
    }

    fn summary(&self, id: &str, path: &Path) -> Result<Summary> {
        // Opening a pipe would wait for somebody to write into it.
        if !fs::metadata(path).map_err(io_error("read", path))?.is_file() {
            return Err(StoreError::Unreadable { id: id.into(), reason: "it is no file".into() });
        }
        let mut file = File::open(path).map_err(io_error("open", path))?;
        let read = read(&mut file, id, path)?;
        let modified = file.metadata().and_then(|meta| meta.modified()).ok();
        let since_1970 = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let conversation = read.conversation;
        let mut words = conversation.title();
        for turn in &conversation.turns {
            words.push('\n');
            words.push_str(&turn.user);
            words.push('\n');
            words.push_str(turn.answer.as_ref().map_or("", |answer| &answer.text));
        }
        Ok(Summary {
            id: id.into(),
            title: conversation.title(),
            changed: since_1970.map_or(conversation.created, |d| d.as_secs()),
            turns: conversation.turns.len(),
            models: conversation.models,
            words: words.to_lowercase(),
        })
    }
}
