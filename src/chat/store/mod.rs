//! Saved conversations: a folder with one file each, private to the person.
//!
//! A file is a header line and then one line a [`Change`], appended in one write when the change
//! happens, so that killing the program loses nothing before the round in progress. It is
//! flushed to the disk when an answer ends, not with every round: a crash of the program needs
//! no flush, only a crash of the machine does.
//!
//! Whoever has a conversation open holds a lock on its file; who opens it meanwhile goes on in a
//! fork, which gets a file of its own with its first change.

mod error;
mod file;
mod list;

use super::conversation::{Change, Conversation, Models};
use super::template::environment::strftime;
use error::{Result, io_error};
use file::{Appended, Contents, Header, VERSION, lock, make_folder, read};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub use error::StoreError;
pub use list::{Listing, Summary};

/// The ending of the files' names.
const ENDING: &str = "jsonl";
/// Why a file that is locked is not written.
const IN_USE: &str = "another program has it open";

/// The folder of saved conversations.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// A conversation that is saved as it happens. Its file begins with the first change.
#[derive(Debug)]
pub struct Saved {
    conversation: Conversation,
    store: Store,
    file: Option<Appended>,
    /// A change could not be written: the file must be brought up to date before the next one.
    behind: bool,
}

/// A conversation from the folder, and what the person should know of how it was opened.
#[derive(Debug)]
pub struct Opened {
    /// The conversation.
    pub saved: Saved,
    /// In words: a half-written line was dropped, it goes on in a fork.
    pub notices: Vec<String>,
}

/// A deleted conversation, to take it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Its name.
    pub id: String,
    path: PathBuf,
}

impl Store {
    /// The store in `folder`, which is made when the first conversation is saved.
    pub fn new(folder: impl Into<PathBuf>) -> Store {
        Store { folder: folder.into() }
    }

    /// A new conversation, named after the time.
    pub fn begin(&self) -> Saved {
        let (id, now) = self.fresh_id();
        self.saved(Conversation::new(id, now))
    }

    /// The conversation `id`, or a new one of that name (scripts).
    ///
    /// # Errors
    /// As [`Store::open`], and a name that would not do.
    pub fn open_or_begin(&self, id: &str) -> Result<Opened> {
        match self.open(id) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let saved = self.saved(Conversation::new(id, now()));
                Ok(Opened { saved, notices: Vec::new() })
            }
            outcome => outcome,
        }
    }

    /// Open the conversation `id` to go on with it. Where it cannot be written (another program
    /// has it, its file is damaged), what is opened is a fork.
    ///
    /// # Errors
    /// No such file, a newer program's file, or none of ours.
    pub fn open(&self, id: &str) -> Result<Opened> {
        let (contents, file) = self.load(id)?;
        let mut notices = Vec::new();
        if contents.half_line {
            notices.push(format!(
                "the last line of conversation `{id}` was only half written and is left out"
            ));
        }
        let conversation = contents.conversation;
        let saved = match file {
            Ok(file) => Saved { file: Some(file), ..self.saved(conversation) },
            Err(reason) => {
                let fork = self.fork(&conversation, conversation.turns.len());
                notices.push(format!(
                    "conversation `{id}` goes on as `{}`: {reason}",
                    fork.conversation.id
                ));
                fork
            }
        };
        Ok(Opened { saved, notices })
    }

    /// What the file of `id` says, and the file to go on with, or why that cannot be.
    fn load(&self, id: &str) -> Result<(Contents, std::result::Result<Appended, String>)> {
        let path = self.path(id)?;
        let (mut file, writable) = match OpenOptions::new().read(true).append(true).open(&path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (File::open(&path).map_err(io_error("open", &path))?, false)
            }
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        // Locked before it is read, so that nothing is added in between.
        let ours = writable && lock(&file);
        let contents = read(&mut file, id, &path)?;
        let file = match &contents.damaged {
            Some(damage) => Err(damage.clone()),
            None if !writable => Err("its file cannot be written".into()),
            None if !ours => Err(IN_USE.into()),
            None => {
                let mut file = Appended { file, path, len: contents.good_bytes };
                file.cut_back()?;
                Ok(file)
            }
        };
        Ok((contents, file))
    }

    /// A copy of the first `turns` turns of a conversation, to go on from there.
    pub fn fork(&self, conversation: &Conversation, turns: usize) -> Saved {
        let (id, now) = self.fresh_id();
        self.saved(conversation.fork(turns, id, now))
    }

    /// Give a conversation that is not open here a title; an empty one takes it back.
    ///
    /// # Errors
    /// As [`Store::open`]; its file cannot be written to.
    pub fn rename(&self, id: &str, title: &str) -> Result<()> {
        let (contents, file) = self.load(id)?;
        let file = file.map_err(|reason| StoreError::Kept { id: id.into(), reason })?;
        let mut saved = Saved { file: Some(file), ..self.saved(contents.conversation) };
        saved.record(&Change::Title { title: title.into() })
    }

    /// Move a conversation that is not open here to the folder's `trash`.
    ///
    /// # Errors
    /// Another program has it open; it cannot be moved.
    pub fn delete(&self, id: &str) -> Result<Deleted> {
        let path = self.path(id)?;
        let file = File::open(&path).map_err(io_error("open", &path))?;
        if !lock(&file) {
            return Err(StoreError::Kept { id: id.into(), reason: IN_USE.into() });
        }
        let trash = self.folder.join("trash");
        make_folder(&trash)?;
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let to = trash.join(format!("{id}.{nanos}.{ENDING}"));
        fs::rename(&path, &to).map_err(io_error("move", &path))?;
        Ok(Deleted { id: id.into(), path: to })
    }

    /// Take a deletion back.
    ///
    /// # Errors
    /// There is another conversation of that name by now; it cannot be moved.
    pub fn undelete(&self, deleted: &Deleted) -> Result<()> {
        let to = self.path(&deleted.id)?;
        if to.exists() {
            return Err(StoreError::Exists(deleted.id.clone()));
        }
        fs::rename(&deleted.path, &to).map_err(io_error("move back", &deleted.path))
    }

    fn saved(&self, conversation: Conversation) -> Saved {
        Saved { conversation, store: self.clone(), file: None, behind: false }
    }

    fn path(&self, id: &str) -> Result<PathBuf> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if id.is_empty() || id.len() > 64 || id.starts_with('.') || !id.chars().all(fine) {
            return Err(StoreError::BadName(id.into()));
        }
        Ok(self.folder.join(format!("{id}.{ENDING}")))
    }

    /// A name that is not taken, and the time in it.
    fn fresh_id(&self) -> (String, u64) {
        let now = now();
        let stem = strftime("%Y-%m-%d-%H%M%S", now);
        // Two programs may begin in the same second.
        let stem = format!("{stem}-{}", std::process::id() % 10_000);
        let free = |id: &String| !self.folder.join(format!("{id}.{ENDING}")).exists();
        let numbered = (2..1000).map(|n| format!("{stem}-{n}"));
        let id = std::iter::once(stem.clone()).chain(numbered).find(free);
        (id.unwrap_or(stem), now)
    }
}

impl Saved {
    /// The conversation.
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Begin its file now, not with the first change.
    ///
    /// # Errors
    /// It could not be written.
    pub fn keep(&mut self) -> Result<()> {
        if self.file.is_none() {
            let file = self.create()?;
            file.flush()?;
            self.file = Some(file);
        }
        Ok(())
    }

    /// Let something happen to the conversation, and write it down.
    ///
    /// # Errors
    /// It could not be written. It happened all the same, and is written with the next change.
    pub fn record(&mut self, change: &Change) -> Result<()> {
        if !self.conversation.apply(change) {
            return Ok(());
        }
        match &mut self.file {
            Some(file) => {
                let written = match self.behind {
                    true => catch_up(file, &self.conversation),
                    false => file.append(change),
                };
                self.behind = written.is_err();
                written?;
            }
            // Nothing is kept of a conversation in which nothing was said.
            None if self.conversation.turns.is_empty() => return Ok(()),
            None => self.file = Some(self.create()?),
        }
        match (&self.file, change) {
            (Some(file), Change::Finished { .. }) => file.flush(),
            _ => Ok(()),
        }
    }

    /// Write all that happened so far into a new file.
    fn create(&self) -> Result<Appended> {
        let conversation = &self.conversation;
        let path = self.store.path(&conversation.id)?;
        make_folder(&self.store.folder)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(io_error("create", &path))?;
        lock(&file);
        let mut appended = Appended { file, path, len: 0 };
        let header = Header {
            version: VERSION,
            created: conversation.created,
            origin: conversation.origin.clone(),
        };
        let written = (|| {
            appended.append(&header)?;
            conversation.changes().iter().try_for_each(|change| appended.append(change))
        })();
        if written.is_err() {
            // The next change begins the file again.
            let _ = fs::remove_file(&appended.path);
        }
        written.map(|()| appended)
    }
}

/// Write over, line by line, what a file that lacks changes holds: were only the next change
/// written, an answer would stand after the wrong message.
fn catch_up(file: &mut Appended, conversation: &Conversation) -> Result<()> {
    let title = conversation.renamed.clone().unwrap_or_default();
    let from_nothing = [
        Change::Cut { turns: 0 },
        Change::Title { title },
        Change::System { text: conversation.system.clone() },
        Change::Models(Models::default()),
    ];
    let mut all = from_nothing.into_iter().chain(conversation.changes());
    all.try_for_each(|change| file.append(&change))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

#[cfg(test)]
mod tests;
