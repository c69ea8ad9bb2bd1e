//! Recordings: an engine's events in a file, to be looked at again without any model.
//!
//! A recording is JSON, one object a line: a [`Header`], then one
//! [`Envelope`](crate::event::Envelope) a line, exactly as `dflash-chat run --format jsonl`
//! prints them; that output, which has no header, is a recording too. [`Recorder`] writes one,
//! [`Recording`] is one that was read. [`timeline`] gives its events their times back, and the
//! other modules show it without a screen.

pub mod asciicast;
pub mod demo;
mod read;
pub mod strip;
pub mod timeline;
mod write;

pub use read::{Recording, Run};
pub use write::Recorder;

use crate::event::{EVENT_VERSION, Generate, ModelReady, Prompt, Role};
use serde::{Deserialize, Serialize};

/// The word by which a recording is known.
pub const FORMAT: &str = "dflash-chat-recording";

/// The first line of a recording: what was recorded, where and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// Version of the events, [`EVENT_VERSION`].
    pub version: u32,
    /// Version of the program that recorded.
    pub program: String,
    /// Name of the pair.
    pub pair: String,
    /// "cpu", "candle-cpu", "metal" or "cuda", and which one.
    pub device: String,
    /// The day, as YYYY-MM-DD.
    pub date: String,
    /// Where the recording comes from, in words.
    pub origin: String,
    /// What was asked, and how it was to be answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Generate>,
}

impl Header {
    /// For a recording that begins now.
    pub fn new(ready: &ModelReady, request: Option<Generate>, origin: &str) -> Header {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs());
        Header {
            format: FORMAT.into(),
            version: EVENT_VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            pair: ready.pair.clone(),
            device: format!("{} ({})", ready.device, ready.device_detail),
            date: crate::chat::template::environment::strftime("%Y-%m-%d", seconds),
            origin: origin.into(),
            request,
        }
    }

    /// What the person asked; empty where only token ids are known.
    pub fn prompt(&self) -> &str {
        match self.request.as_ref().map(|request| &request.prompt) {
            Some(Prompt::Text(text)) => text,
            Some(Prompt::Messages(messages)) => messages
                .iter()
                .rev()
                .find(|message| message.role == Role::User)
                .map_or("", |message| &message.content),
            Some(Prompt::Ids(_)) | None => "",
        }
    }
}
