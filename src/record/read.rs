//! Reading a recording. The file may be anything: cut off, made by a newer program, or no
//! recording at all. What can be played is played, and what was left out is told.

use super::{FORMAT, Header};
use crate::event::{
    DraftedToken, EVENT_VERSION, EngineEvent, Envelope, FinishReason, ModelReady, NetworkInfo,
    Round, Token,
};
use crate::stats::RunStats;
use crate::text::{sanitise, sanitise_line};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line: an event of the longest context is far shorter.
const MOST_LINE: usize = 8 << 20;
/// Most bytes of a recording.
const MOST_BYTES: u64 = 256 << 20;
/// Most events of a recording.
const MOST_EVENTS: usize = 1_000_000;
/// A file with more lines than this that are no events is not taken for a recording.
const MOST_WARNINGS: usize = 20;
/// Most positions of any context.
const MOST_POSITIONS: usize = 1 << 30;
/// Longest time that a part of a round can have taken: an hour.
const MOST_US: u64 = 3_600_000_000;

/// A recording that was read. Its text may go to a screen as any engine's may.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recording {
    /// The header, where there is one.
    pub header: Option<Header>,
    /// The networks, where they are told.
    pub ready: Option<ModelReady>,
    /// The answers; at least one.
    pub runs: Vec<Run>,
    /// What was left out, a line each.
    pub warnings: Vec<String>,
}

/// One recorded answer: from `run_started` to `run_finished`, both included.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// Its events, in order.
    pub events: Vec<EngineEvent>,
}

impl Run {
    /// Its rounds.
    pub fn rounds(&self) -> impl Iterator<Item = &Round> {
        self.events.iter().filter_map(|event| match event {
            EngineEvent::Round(round) => Some(&**round),
            _ => None,
        })
    }

    /// The exact text of the answer.
    pub fn text(&self) -> String {
        let text = |event: &EngineEvent| match event {
            EngineEvent::PrefillDone { text, .. } => text.clone(),
            EngineEvent::Round(round) => round.text.clone(),
            _ => String::new(),
        };
        self.events.iter().map(text).collect()
    }
}

impl Recording {
    /// Read a file.
    ///
    /// # Errors
    /// It cannot be read, or nothing in it can be played.
    pub fn open(path: &Path) -> Result<Recording> {
        let file = std::fs::File::open(path)
            .with_context(|| format!("cannot open the recording {}", path.display()))?;
        Recording::read(BufReader::new(file))
            .with_context(|| format!("cannot play {}", path.display()))
    }

    /// Read from anywhere.
    ///
    /// # Errors
    /// Reading fails, a limit is passed, or nothing in it can be played.
    pub fn read(reader: impl BufRead) -> Result<Recording> {
        let mut reader = reader.take(MOST_BYTES);
        let mut recording = Recording::default();
        let mut open: Option<Run> = None;
        let mut events = 0;
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let length = reader
                .by_ref()
                .take(MOST_LINE as u64 + 1)
                .read_until(b'\n', &mut line)
                .context("reading failed")?;
            if length == 0 {
                break;
            }
            ensure!(length <= MOST_LINE, "line {number} is longer than {MOST_LINE} bytes");
            if line.trim_ascii().is_empty() {
                continue;
            }
            if number == 1 && recording.take_header(&line)? {
                continue;
            }
            events += 1;
            ensure!(events <= MOST_EVENTS, "there are more than {MOST_EVENTS} events in it");
            match event(&line) {
                Ok(event) => recording.add(event, &mut open),
                Err(_) if line.last() != Some(&b'\n') => {
                    recording.warnings.push(format!("line {number} is cut off"));
                }
                Err(why) => {
                    recording.warnings.push(format!("line {number}: {why}; left out"));
                    if recording.warnings.len() > MOST_WARNINGS {
                        bail!("it is not a recording ({})", recording.warnings[0]);
                    }
                }
            }
        }
        if reader.limit() == 0 {
            recording.warnings.push(format!("only the first {MOST_BYTES} bytes were read"));
        }
        recording.close(&mut open);
        if recording.runs.is_empty() {
            let why = recording.warnings.first().cloned();
            bail!("no answer is recorded in it ({})", why.unwrap_or_else(|| "no event".into()));
        }
        Ok(recording)
    }

    /// Whether the first line is a header; it is kept then.
    fn take_header(&mut self, line: &[u8]) -> Result<bool> {
        let value: Option<serde_json::Value> = serde_json::from_slice(line).ok();
        let Some(format) = value.as_ref().and_then(|value| value.get("format")) else {
            return Ok(false);
        };
        ensure!(format == FORMAT, "line 1: its format is {format}, not \"{FORMAT}\"");
        let version = value.as_ref().and_then(|value| value.get("version")?.as_u64());
        if version.is_none_or(|version| version > u64::from(EVENT_VERSION)) {
            self.warnings.push(format!(
                "line 1: made by a newer program (version {}, known {EVENT_VERSION}); what is \
                 known of it is played",
                version.map_or("not told".into(), |version| version.to_string())
            ));
        }
        match value.map(serde_json::from_value::<Header>) {
            Some(Ok(header)) => {
                self.header = Some(Header {
                    pair: sanitise_line(&header.pair),
                    device: sanitise_line(&header.device),
                    date: sanitise_line(&header.date),
                    origin: sanitise_line(&header.origin),
                    program: sanitise_line(&header.program),
                    ..header
                });
            }
            Some(Err(error)) => {
                self.warnings.push(sanitise_line(&format!("line 1: {error}; left out")))
            }
            None => {}
        }
        Ok(true)
    }

    fn add(&mut self, event: EngineEvent, open: &mut Option<Run>) {
        match event {
            EngineEvent::ModelReady(ready) => self.ready = Some(tamed(*ready)),
            EngineEvent::RunStarted(_) => {
                self.close(open);
                *open = Some(Run { events: vec![event] });
            }
            EngineEvent::RunFinished { .. } => {
                if let Some(mut run) = open.take() {
                    run.events.push(event);
                    self.runs.push(run);
                }
            }
            EngineEvent::LoadProgress { .. }
            | EngineEvent::VerifyCost(_)
            | EngineEvent::Phase { .. } => {}
            // The first prompt failed before its answer began: the first answer is another's.
            EngineEvent::Error(_) if open.is_none() && self.runs.is_empty() => {
                if let Some(header) = &mut self.header {
                    header.request = None;
                }
            }
            event => {
                if let Some(run) = open {
                    run.events.push(event);
                }
            }
        }
    }

    /// End a run whose end was not recorded.
    fn close(&mut self, open: &mut Option<Run>) {
        let Some(mut run) = open.take() else { return };
        self.warnings.push(format!("the end of answer {} is missing", self.runs.len() + 1));
        let mut stats = RunStats::default();
        run.rounds().for_each(|round| stats.add(round));
        let totals = stats.totals(0, 0, 0);
        run.events.push(EngineEvent::RunFinished { reason: FinishReason::Cancelled, totals });
        self.runs.push(run);
    }
}

/// The event on a line, checked; else what is wrong with it.
fn event(line: &[u8]) -> Result<EngineEvent, String> {
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_string())?;
    let envelope: Envelope = serde_json::from_str(text)
        .map_err(|error| sanitise_line(&format!("not a known event ({error})")))?;
    let mut event = envelope.event;
    match &mut event {
        EngineEvent::Round(round) => {
            check(round)?;
            round.target.iter_mut().chain(&mut round.committed).for_each(show);
            show(&mut round.anchor);
            round.drafted.iter_mut().chain(&mut round.unsent).for_each(show_drafted);
        }
        EngineEvent::PrefillDone { first, us, .. } => {
            show(first);
            *us = (*us).min(MOST_US);
        }
        EngineEvent::Notice(message) | EngineEvent::Error(message) => {
            message.message = sanitise(&message.message).into_owned();
        }
        _ => {}
    }
    Ok(event)
}

/// Names that may go to a screen.
fn tamed(ready: ModelReady) -> ModelReady {
    let network = |network: NetworkInfo| NetworkInfo {
        name: sanitise_line(&network.name),
        architecture: sanitise_line(&network.architecture),
        quantisation: sanitise_line(&network.quantisation),
        ..network
    };
    ModelReady {
        engine: sanitise_line(&ready.engine),
        pair: sanitise_line(&ready.pair),
        target: network(ready.target),
        draft: ready.draft.map(network),
        draft_missing: ready.draft_missing.as_deref().map(sanitise_line),
        target_asked: ready.target_asked.as_deref().map(sanitise_line),
        draft_asked: ready.draft_asked.as_deref().map(sanitise_line),
        device: sanitise_line(&ready.device),
        device_detail: sanitise_line(&ready.device_detail),
        ..ready
    }
}

fn show(token: &mut Token) {
    token.text = sanitise_line(&token.text);
}

fn show_drafted(token: &mut DraftedToken) {
    token.text = sanitise_line(&token.text);
    token.prob = token.prob.clamp(0.0, 1.0);
}

/// What holds for every round of an engine must hold for a recorded one, since everything that
/// shows rounds relies on it.
fn check(round: &Round) -> Result<(), String> {
    let drafted = round.drafted.len();
    let kept = round.accepted;
    if kept > drafted || kept > round.committed.len() {
        return Err(format!("a round that keeps {kept} of {drafted} drafts"));
    }
    if round.committed.len() > kept + 1 {
        return Err(format!("a round that adds {} tokens to {kept}", round.committed.len()));
    }
    if [round.index, round.position, round.kv_len].iter().any(|n| *n > MOST_POSITIONS) {
        return Err("a round at an impossible place".into());
    }
    if round.block_size != drafted + 1 || round.target.len() != round.block_size {
        return Err(format!(
            "a round of {} rows with {drafted} drafts and {} target tokens",
            round.block_size,
            round.target.len()
        ));
    }
    if round.committed[..kept].iter().zip(&round.drafted).any(|(a, b)| a.id != b.id) {
        return Err("a round whose kept drafts are not what it added".into());
    }
    if [round.draft_us, round.verify_us, round.other_us].iter().any(|us| *us > MOST_US) {
        return Err("a round of more than an hour".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Recorder;
    use super::*;
    use crate::record::demo::TRACES;
    use proptest::prelude::*;

    fn lines(text: &str) -> Result<Recording> {
        Recording::read(text.as_bytes())
    }

    #[test]
    fn what_is_written_is_read_back_and_the_file_is_private() {
        let trace = TRACES[0].recording();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let request = trace.header.as_ref().and_then(|header| header.request.clone());
        let mut recorder = Recorder::create(&path, request, "a test").unwrap();
        let before = EngineEvent::LoadProgress { stage: "x".into(), done: 0, total: 1 };
        let ready = EngineEvent::ModelReady(Box::new(trace.ready.clone().unwrap()));
        let events = [before, ready].into_iter().chain(trace.runs[0].events.clone());
        for (seq, event) in events.enumerate() {
            recorder.record(&Envelope { seq: seq as u64, t_us: 0, event }).unwrap();
        }
        let read = Recording::open(&path).unwrap();
        assert_eq!((&read.runs, &read.ready), (&trace.runs, &trace.ready));
        let header = read.header.unwrap();
        assert_eq!((header.origin.as_str(), header.date.len()), ("a test", 10));
        assert_eq!(header.prompt(), trace.header.unwrap().prompt());
        assert_eq!(read.warnings, [""; 0]);
        // Never over a file that is there; and one that never began leaves none behind.
        assert!(Recorder::create(&path, None, "").is_err());
        assert!(path.exists());
        let path = folder.path().join("b.jsonl");
        drop(Recorder::create(&path, None, "").unwrap());
        assert!(!path.exists());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.path().join("a.jsonl");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn the_output_of_run_without_a_header_is_a_recording() {
        let text = TRACES[0].text.split_once('\n').unwrap().1;
        let read = lines(text).unwrap();
        assert_eq!((read.header, read.runs), (None, TRACES[0].recording().runs));
    }

    #[test]
    fn a_cut_recording_ends_where_it_is_cut() {
        let text = TRACES[0].text;
        let read = lines(&text[..text.len() * 2 / 3]).unwrap();
        assert!(read.warnings[0].contains("is cut off"), "{:?}", read.warnings);
        assert!(read.warnings[1].contains("end of answer 1"), "{:?}", read.warnings);
        let last = read.runs[0].events.last();
        assert!(matches!(last, Some(EngineEvent::RunFinished { .. })));
    }

    #[test]
    fn unknown_lines_are_left_out_and_named() {
        let (header, rest) = TRACES[0].text.split_once('\n').unwrap();
        let newer = header.replace("\"version\":1", "\"version\":9");
        let text = format!("{newer}\n{{\"seq\":0,\"t_us\":0,\"type\":\"dream\"}}\n\0\n{rest}");
        let read = lines(&text).unwrap();
        assert!(read.warnings[0].contains("newer program (version 9"), "{:?}", read.warnings);
        assert!(read.warnings[1].starts_with("line 2: not a known event"), "{:?}", read.warnings);
        assert!(read.warnings[1].contains("dream"));
        assert!(read.warnings[2].starts_with("line 3"));
        assert_eq!(read.runs, TRACES[0].recording().runs);
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused_in_a_line() {
        for (text, says) in [
            ("", "no event"),
            ("hello\n", "line 1: not a known event"),
            ("{\"format\":\"asciicast\"}\n", "its format is \"asciicast\""),
            (&"x\n".repeat(100), "not a recording (line 1"),
            (&"[".repeat(10_000), "is cut off"),
        ] {
            let error = lines(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
        assert!(Recording::read(&vec![b'x'; MOST_LINE + 2][..]).is_err());
    }

    #[test]
    fn rounds_that_contradict_themselves_are_left_out_and_text_is_tamed() {
        let started = TRACES[0].text.lines().find(|line| line.contains("run_started")).unwrap();
        let round = |change: fn(&mut Round)| {
            let mut round = Round { block_size: 1, ..Round::default() };
            round.target = vec![Token { id: 1, text: "\x1b[2J".into() }];
            round.committed = round.target.clone();
            change(&mut round);
            let event = EngineEvent::Round(Box::new(round));
            serde_json::to_string(&Envelope { seq: 0, t_us: 0, event }).unwrap()
        };
        let bad: [fn(&mut Round); 7] = [
            |round| round.committed.push(Token::default()),
            |round| round.index = usize::MAX,
            |round| round.accepted = 3,
            |round| round.block_size = usize::MAX,
            |round| round.target.clear(),
            |round| round.verify_us = u64::MAX,
            |round| round.committed.clear(),
        ];
        // The last is sound: a stop string can cut all of a round's tokens.
        for (change, left) in bad.into_iter().zip([0, 0, 0, 0, 0, 0, 1]) {
            let read = lines(&format!("{started}\n{}\n", round(change))).unwrap();
            assert_eq!(read.runs[0].rounds().count(), left);
        }
        let read = lines(&format!("{started}\n{}\n", round(|_| {}))).unwrap();
        assert_eq!(read.runs[0].rounds().next().unwrap().target[0].text, "␛[2J");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), at in 0.0..1.0) {
            let _ = Recording::read(&bytes[..]);
            // A recording with a hole in it.
            let mut text = TRACES[0].text.as_bytes()[..9000].to_vec();
            let from = (at * 8000.0) as usize;
            let to = from + bytes.len();
            text[from..to].copy_from_slice(&bytes);
            let _ = Recording::read(&text[..]);
        }
    }
}
