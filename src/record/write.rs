//! Writing a recording, event by event.

use super::Header;
use crate::event::{EngineEvent, Envelope, Generate};
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes events as they happen. Each is in the file before the next, so that a program that is
/// ended loses nothing.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    path: PathBuf,
    origin: String,
    request: Option<Generate>,
    begun: bool,
}

impl Recorder {
    /// Begin a recording in a new file that only this person may read: conversations are
    /// private. `origin` says in words where it comes from.
    ///
    /// # Errors
    /// The file is there already, or cannot be made.
    pub fn create(path: &Path, request: Option<Generate>, origin: &str) -> Result<Recorder> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).with_context(|| {
            format!("cannot record to {}; give the name of a new file", path.display())
        })?;
        let path = path.to_owned();
        Ok(Recorder { file, path, origin: origin.into(), request, begun: false })
    }

    /// Write one event. The recording begins with `model_ready`, of which the header is made;
    /// what comes before (the progress of loading) is left out.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record(&mut self, envelope: &Envelope) -> Result<()> {
        if let (false, EngineEvent::ModelReady(ready)) = (self.begun, &envelope.event) {
            let header = Header::new(ready, self.request.take(), &self.origin);
            self.line(&header)?;
            self.begun = true;
        }
        if self.begun { self.line(envelope) } else { Ok(()) }
    }

    fn line<T: serde::Serialize>(&mut self, value: &T) -> Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .with_context(|| format!("cannot write the recording {}", self.path.display()))
    }
}

/// A recording that never began (the model could not be loaded) leaves no file behind, so that
/// its name can be used again.
impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.begun {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
