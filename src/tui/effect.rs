//! What the screen's state asks of the world. [`super::app::update`] only says so; the loop does
//! it.

use crate::chat::conversation::Change;
use crate::event::{EngineCommand, Generate};
use std::path::PathBuf;

/// Something to be done outside the screen's state.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a command to the engine.
    Send(Box<EngineCommand>),
    /// Ask the engine to end what it does.
    Cancel,
    /// End the engine, if there is one, and start another for this pair.
    StartEngine(String),
    /// Have each lane of a race answer its request.
    Race {
        /// The pair whose engines are started where there are no lanes yet.
        pair: String,
        /// What each lane is asked.
        requests: Vec<Generate>,
    },
    /// Ask the lanes to end what they do.
    StopRace,
    /// End the lanes.
    EndRace,
    /// End the engine, if there is one, and play the recorded run of this name, which ships.
    PlayTrace(&'static str),
    /// Put text on the clipboard.
    Copy(String),
    /// Append a message to the file of earlier messages.
    Remember(String),
    /// Write down what happened to the conversation.
    Record(Change),
    /// Begin another conversation.
    Begin,
    /// List the conversations.
    List,
    /// Open the conversation of this name.
    Open(String),
    /// Go on in a copy of the first turns.
    Fork(usize),
    /// Delete the conversation that is open.
    Delete,
    /// Bring back what was deleted last, and open it.
    Undelete,
    /// Delete the conversation of this name, which is not open, and list the others.
    DeleteListed(String),
    /// Bring back what was deleted last, and list it with the others.
    UndeleteListed,
    /// Give the conversation of this name, which is not open, a title, and list it with the
    /// others.
    TitleListed(String, String),
    /// Let the person write this text in an editor.
    Edit(String),
    /// Write a text into a new file.
    Export(PathBuf, String),
    /// Write a picture of the screen into a new file.
    Picture,
    /// Hear the mouse, or leave it to the terminal.
    Mouse(bool),
    /// Hear the mouse move while a button is down, or no longer.
    Drag(bool),
    /// Leave.
    Quit,
}
