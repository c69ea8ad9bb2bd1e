//! What outlives the screen: the messages for Up, the conversations, exports.

use super::app::Event;
use super::effect::Effect;
use super::history;
use crate::chat::conversation::{Change, Conversation};
use crate::chat::store::{Deleted, Saved, Store, StoreError};
use crate::event::Level;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where things are kept. The default keeps nothing.
#[derive(Debug, Default)]
pub struct Shelf {
    /// The file of messages for Up.
    history: Option<PathBuf>,
    sessions: Option<Sessions>,
    /// Whether to go on with the last conversation.
    resume: bool,
    /// What is to be said when it is open.
    notices: Vec<String>,
}

/// The folder of conversations, and the one that goes on.
#[derive(Debug)]
struct Sessions {
    store: Store,
    saved: Saved,
    /// What was deleted since the program started, the latest last.
    deleted: Vec<Deleted>,
    /// Whether the person knows that the conversation cannot be written.
    told: bool,
}

impl Shelf {
    /// Keep messages in the file `history` and conversations in the folder `sessions`; go on
    /// with the last one if `resume`.
    pub fn new(history: Option<PathBuf>, sessions: Option<PathBuf>, resume: bool) -> Shelf {
        let sessions = sessions.map(|folder| {
            let store = Store::new(folder);
            Sessions { saved: store.begin(), store, deleted: Vec::new(), told: false }
        });
        Shelf { history, sessions, resume, notices: Vec::new() }
    }

    /// Also say this, when the first conversation is open.
    pub fn saying(self, notices: Vec<String>) -> Shelf {
        Shelf { notices, ..self }
    }

    /// The conversation to start with; `None` where none is kept.
    pub(super) fn first(&mut self) -> Option<Event> {
        let sessions = self.sessions.as_ref()?;
        let mut notices = std::mem::take(&mut self.notices);
        if !self.resume {
            return Some(opened(self.current(), notices));
        }
        let outcome = match sessions.store.latest() {
            Some(last) => self
                .open(&last.id)
                .map_err(|failed| format!("{failed}; this is a new conversation")),
            None => Err("there is no earlier conversation to go on with".into()),
        };
        Some(match outcome {
            Ok(Event::Opened(conversation, more)) => {
                notices.extend(more);
                Event::Opened(conversation, notices)
            }
            Ok(other) => other,
            Err(notice) => {
                notices.push(notice);
                opened(self.current(), notices)
            }
        })
    }

    /// Do `effect`, if it is one of the shelf's; what came of it is what happens next.
    pub(super) fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Remember(message) => return self.remember(&message),
            Effect::Export(path, text) => return Some(export(&path, &text)),
            Effect::Begin => {
                if let Some(sessions) = &mut self.sessions {
                    sessions.saved = sessions.store.begin();
                    sessions.told = false;
                }
                return Some(opened(self.current(), Vec::new()));
            }
            Effect::Open(id) => {
                return Some(self.open(&id).unwrap_or_else(|failed| refused(&failed)));
            }
            _ => {}
        }
        let Some(sessions) = &mut self.sessions else {
            use Effect::{Delete, Fork, List, Undelete};
            let asked = matches!(effect, List | Delete | Undelete | Fork(_));
            let what = "conversations are not kept here".to_string();
            return asked.then_some(Event::Notice(Level::Warning, what));
        };
        match effect {
            Effect::Record(change) => sessions.record(&change),
            Effect::List => Some(Event::Listed(sessions.store.list())),
            Effect::Fork(turns) => Some(sessions.fork(turns)),
            Effect::Delete => Some(sessions.delete()),
            Effect::Undelete => match sessions.undelete() {
                Ok(id) => self.perform(Effect::Open(id)),
                Err(failed) => Some(*failed),
            },
            Effect::DeleteListed(id) => Some(match sessions.store.delete(&id) {
                Ok(deleted) => {
                    sessions.deleted.push(deleted);
                    Event::Listed(sessions.store.list())
                }
                Err(failed) => refused(&failed),
            }),
            Effect::UndeleteListed => Some(match sessions.undelete() {
                Ok(_) => Event::Listed(sessions.store.list()),
                Err(failed) => *failed,
            }),
            Effect::TitleListed(id, title) => Some(match sessions.store.rename(&id, &title) {
                Ok(()) => Event::Listed(sessions.store.list()),
                Err(failed) => refused(&failed),
            }),
            _ => None,
        }
    }

    fn current(&self) -> Conversation {
        let saved = self.sessions.as_ref().map(|sessions| sessions.saved.conversation());
        saved.cloned().unwrap_or_default()
    }

    fn open(&mut self, id: &str) -> Result<Event, StoreError> {
        let Some(sessions) = &mut self.sessions else { return Ok(opened(self.current(), vec![])) };
        // Its own lock would be in the way.
        if sessions.saved.conversation().id == id {
            return Ok(Event::Notice(Level::Info, "that conversation is open".into()));
        }
        let found = sessions.store.open(id)?;
        sessions.saved = found.saved;
        sessions.told = false;
        Ok(opened(self.current(), found.notices))
    }

    fn remember(&mut self, message: &str) -> Option<Event> {
        let error = history::append(self.history.as_deref()?, message).err()?;
        // Said once: a full disk would say it with every message.
        self.history = None;
        let what = format!("messages are not kept for Up: {error}");
        Some(Event::Notice(Level::Warning, what))
    }
}

impl Sessions {
    fn record(&mut self, change: &Change) -> Option<Event> {
        let failed = self.saved.record(change).err()?;
        let what = format!("this conversation is not saved: {failed}");
        (!std::mem::replace(&mut self.told, true)).then_some(Event::Told(Level::Warning, what))
    }

    /// Go on in a copy of the first `turns` turns, which has its file at once.
    fn fork(&mut self, turns: usize) -> Event {
        let mut fork = self.store.fork(self.saved.conversation(), turns);
        if let Err(failed) = fork.keep() {
            return refused(&failed);
        }
        self.saved = fork;
        self.told = false;
        opened(self.saved.conversation().clone(), Vec::new())
    }

    /// Bring back what was deleted last; its name.
    fn undelete(&mut self) -> Result<String, Box<Event>> {
        let Some(deleted) = self.deleted.pop() else {
            let what = "nothing was deleted since the program started";
            return Err(Box::new(Event::Notice(Level::Warning, what.into())));
        };
        match self.store.undelete(&deleted) {
            Ok(()) => Ok(deleted.id),
            Err(failed) => {
                self.deleted.push(deleted);
                Err(Box::new(refused(&failed)))
            }
        }
    }

    /// Delete the conversation that is open, and begin another.
    fn delete(&mut self) -> Event {
        let id = self.saved.conversation().id.clone();
        let saved = std::mem::replace(&mut self.saved, self.store.begin());
        self.told = false;
        // Closed before it is moved: its lock would be in the way.
        drop(saved);
        match self.store.delete(&id) {
            Ok(deleted) => {
                self.deleted.push(deleted);
                let notice = "the conversation is deleted; /undelete brings it back";
                opened(self.saved.conversation().clone(), vec![notice.into()])
            }
            // One that was never written is gone with its screen.
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                opened(self.saved.conversation().clone(), Vec::new())
            }
            Err(failed) => opened(self.saved.conversation().clone(), vec![failed.to_string()]),
        }
    }
}

fn opened(conversation: Conversation, notices: Vec<String>) -> Event {
    Event::Opened(Box::new(conversation), notices)
}

fn refused(error: &StoreError) -> Event {
    Event::Told(Level::Error, error.to_string())
}

/// Write `picture` into the first free file of the current folder.
pub(super) fn write_picture(picture: &str) -> Event {
    let names = (1..1000).map(|n| PathBuf::from(format!("dflash-chat-{n}.svg")));
    let free = names.into_iter().find(|name| !name.exists());
    export(&free.unwrap_or_else(|| PathBuf::from("dflash-chat.svg")), picture)
}

/// Write `text` into a new file.
fn export(path: &Path, text: &str) -> Event {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    let name = path.display();
    match written {
        Ok(()) => Event::Notice(Level::Info, format!("written to {name}")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let what = format!("{name} exists and is left as it is; /export FILE writes another");
            Event::Notice(Level::Error, what)
        }
        Err(error) => Event::Notice(Level::Error, format!("{name} could not be written: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Effect {
        Effect::Record(Change::User { text: text.into() })
    }

    fn conversation(event: Option<Event>) -> Conversation {
        match event {
            Some(Event::Opened(conversation, _)) => *conversation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_said_is_there_the_next_time() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = |resume| Shelf::new(None, Some(folder.path().join("sessions")), resume);
        let mut first = shelf(false);
        assert!(first.perform(user("hello")).is_none());
        drop(first);
        let again = conversation(shelf(true).first());
        assert_eq!(again.turns[0].user, "hello");
        assert!(conversation(shelf(false).first()).turns.is_empty());
        assert!(Shelf::default().first().is_none());
    }

    #[test]
    fn a_deleted_conversation_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::new(None, Some(folder.path().into()), false);
        shelf.perform(user("hello"));
        assert!(conversation(shelf.perform(Effect::Delete)).turns.is_empty());
        let Some(Event::Listed(listing)) = shelf.perform(Effect::List) else { panic!() };
        assert!(listing.sessions.is_empty());
        assert_eq!(conversation(shelf.perform(Effect::Undelete)).turns.len(), 1);
        assert!(matches!(shelf.perform(Effect::Undelete), Some(Event::Notice(..))));
    }

    /// What is deleted in the list comes back in the order in which it went, and a title is given
    /// there.
    #[test]
    fn the_list_deletes_renames_and_takes_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::new(None, Some(folder.path().into()), false);
        let mut ids = Vec::new();
        for text in ["one", "two", "three"] {
            shelf.perform(user(text));
            ids.push(shelf.current().id);
            shelf.perform(Effect::Begin);
        }
        let titles = |event: Option<Event>| {
            let Some(Event::Listed(listing)) = event else { panic!("{event:?}") };
            let mut titles: Vec<String> = listing.sessions.into_iter().map(|s| s.title).collect();
            titles.sort();
            titles
        };
        let title = Effect::TitleListed(ids[2].clone(), "Third".into());
        assert_eq!(titles(shelf.perform(title)), ["Third", "one", "two"]);
        let delete = |id: &String| Effect::DeleteListed(id.clone());
        assert_eq!(titles(shelf.perform(delete(&ids[0]))), ["Third", "two"]);
        assert_eq!(titles(shelf.perform(delete(&ids[1]))), ["Third"]);
        assert_eq!(titles(shelf.perform(Effect::UndeleteListed)), ["Third", "two"]);
        assert_eq!(titles(shelf.perform(Effect::UndeleteListed)), ["Third", "one", "two"]);
        assert!(matches!(shelf.perform(Effect::UndeleteListed), Some(Event::Notice(..))));
        assert!(matches!(shelf.perform(delete(&"none".into())), Some(Event::Told(..))));
    }

    #[test]
    fn a_fork_is_open_and_the_original_can_be_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::new(None, Some(folder.path().into()), false);
        shelf.perform(user("one"));
        shelf.perform(user("two"));
        let original = shelf.current();
        let fork = conversation(shelf.perform(Effect::Fork(1)));
        assert_eq!((fork.turns.len(), fork.title().as_str()), (1, "fork at turn 1: one"));
        let Some(Event::Listed(listing)) = shelf.perform(Effect::List) else { panic!() };
        assert_eq!(listing.sessions.len(), 2);
        assert_eq!(conversation(shelf.perform(Effect::Open(original.id.clone()))), original);
    }

    /// B50: a folder that cannot be written is told once, and the chat goes on.
    #[test]
    fn a_store_that_cannot_be_written_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let mut shelf = Shelf::new(None, Some(file), false);
        assert!(matches!(shelf.perform(user("a")), Some(Event::Told(Level::Warning, _))));
        assert!(shelf.perform(user("b")).is_none());
        assert_eq!(shelf.current().turns.len(), 2);
    }

    #[test]
    fn an_export_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("talk.md");
        let write =
            |text: &str| Shelf::default().perform(Effect::Export(path.clone(), text.into()));
        assert!(matches!(write("one"), Some(Event::Notice(Level::Info, _))));
        assert!(matches!(write("two"), Some(Event::Notice(Level::Error, _))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    }
}
