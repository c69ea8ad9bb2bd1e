//! What ships with the program for people without a model: recorded runs, and playlists.

use super::Recording;
use super::timeline::SPEEDS;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A recorded run that ships with the program. Its header tells where it comes from.
#[derive(Debug)]
pub struct Trace {
    /// Its name for `replay --demo`.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub caption: &'static str,
    /// The recording.
    pub text: &'static str,
}

impl Trace {
    /// The recording, read. A test reads them all, so an empty one never comes.
    pub fn recording(&self) -> Recording {
        Recording::read(self.text.as_bytes()).unwrap_or_default()
    }
}

/// The recorded runs that ship with the program.
pub const TRACES: [Trace; 3] = [
    Trace {
        name: "math",
        caption: "A small sum with its explanation: much of it repeats the question, which helps.",
        text: include_str!("../../assets/traces/math.jsonl"),
    },
    Trace {
        name: "code",
        caption: "Code: regular text, so the first draft of a block is often right.",
        text: include_str!("../../assets/traces/code.jsonl"),
    },
    Trace {
        name: "chat",
        caption: "Free text is hard to foresee: many rounds keep one draft or none.",
        text: include_str!("../../assets/traces/chat.jsonl"),
    },
];

/// The recorded run of that name.
pub fn trace(name: &str) -> Option<&'static Trace> {
    TRACES.iter().find(|trace| trace.name == name)
}

/// What the demo mode shows, one after the other.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Playlist {
    /// Its title.
    pub title: String,
    /// What it shows.
    pub item: Vec<Item>,
}

/// One thing that the demo mode shows.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// A sentence for the audience.
    pub caption: String,
    /// What to ask.
    pub prompt: String,
    /// One answer, or a race of baseline against speculative.
    #[serde(default)]
    pub show: What,
    /// Times the real speed, within [`SPEEDS`]. Only a recording plays at another speed than its
    /// own, so one that is not 1 plays `trace`, a model or not.
    #[serde(default = "real")]
    pub pace: f32,
    /// Seconds to stand still afterwards.
    #[serde(default = "rest")]
    pub rest: f32,
    /// Most tokens of the answer.
    #[serde(default = "tokens")]
    pub max_tokens: usize,
    /// The recorded run to play where no model is there.
    pub trace: Option<String>,
}

/// What an item of a playlist shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// One answer.
    #[default]
    Single,
    /// Baseline against speculative.
    Race,
}

fn real() -> f32 {
    1.0
}

fn rest() -> f32 {
    3.0
}

fn tokens() -> usize {
    160
}

/// The playlists that ship with the program, by name.
pub const PLAYLISTS: [(&str, &str); 2] = [
    ("tour", include_str!("../../assets/demo/tour.toml")),
    ("races", include_str!("../../assets/demo/races.toml")),
];

impl Playlist {
    /// The playlist of that name, or in that file.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn open(name: &str) -> Result<Playlist> {
        if let Some((_, text)) = PLAYLISTS.iter().find(|(known, _)| *known == name) {
            return Playlist::parse(text);
        }
        let text = std::fs::read_to_string(name).with_context(|| {
            let known: Vec<&str> = PLAYLISTS.iter().map(|(name, _)| *name).collect();
            format!("`{name}` is neither a playlist ({}) nor a playlist's file", known.join(", "))
        })?;
        Playlist::parse(&text).with_context(|| format!("the playlist {name}"))
    }

    /// Read a playlist.
    ///
    /// # Errors
    /// It is not TOML, has a key that is not known, a value out of range, or nothing to show.
    pub fn parse(text: &str) -> Result<Playlist> {
        let playlist: Playlist = toml::from_str(text).context("not a playlist")?;
        ensure!(!playlist.item.is_empty(), "the playlist shows nothing; add an [[item]]");
        for (i, item) in playlist.item.iter().enumerate() {
            let number = i + 1;
            let (least, most) = SPEEDS;
            ensure!(
                (least..=most).contains(&item.pace),
                "item {number}: pace goes from {least} to {most}"
            );
            ensure!(
                item.pace == 1.0 || item.trace.is_some(),
                "item {number}: a pace needs a trace, since only a recording can have one"
            );
            ensure!((0.0..=600.0).contains(&item.rest), "item {number}: rest goes from 0 to 600");
            ensure!(item.max_tokens > 0, "item {number}: max_tokens is at least 1");
            ensure!(!item.prompt.trim().is_empty(), "item {number}: the prompt is empty");
            if let Some(name) = &item.trace {
                ensure!(trace(name).is_some(), "item {number}: no recorded run `{name}` ships");
            }
        }
        Ok(playlist)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EngineEvent;

    #[test]
    fn recorded_runs_are_whole_and_tell_their_origin() {
        for Trace { name, text, .. } in &TRACES {
            assert!(text.len() <= 150_000, "{name}: {} bytes", text.len());
            let recording = Recording::read(text.as_bytes()).unwrap();
            assert_eq!(recording.warnings, [""; 0], "{name}");
            let header = recording.header.unwrap();
            assert!(!header.origin.is_empty() && !header.prompt().is_empty(), "{name}");
            let run = &recording.runs[0];
            assert!(run.rounds().count() > 10, "{name}");
            let committed: usize = run.rounds().map(|round| round.committed.len()).sum();
            let Some(EngineEvent::RunFinished { totals, .. }) = run.events.last() else {
                panic!("{name} has no end")
            };
            assert_eq!(totals.tokens, committed + 1, "{name}");
        }
        assert!(trace("math").is_some() && trace("no").is_none());
    }

    #[test]
    fn playlists_that_ship_are_sound() {
        for (name, text) in PLAYLISTS {
            let playlist = Playlist::parse(text);
            assert!(playlist.is_ok_and(|playlist| playlist.item.len() > 1), "{name}");
        }
    }

    #[test]
    fn a_wrong_playlist_is_told_what_is_wrong() {
        let item =
            |more: &str| format!("title = 't'\n[[item]]\ncaption = 'c'\nprompt = 'p'\n{more}\n");
        assert_eq!(Playlist::parse(&item("")).unwrap().item[0].pace, 1.0);
        for (text, says) in [
            (item("pace = 0"), "pace goes from"),
            (item("pace = 2"), "needs a trace"),
            (item("rest = nan"), "rest goes from"),
            (item("trace = 'x'"), "`x`"),
            (item("speed = 1"), "not a playlist"),
            ("title = 't'\nitem = []".into(), "shows nothing"),
        ] {
            let error = Playlist::parse(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
