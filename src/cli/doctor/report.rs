//! What the doctor found, for people and for programs.

use super::folders::Folder;
use super::machine::{DeviceState, Machine};
use super::operations::Operations;
use super::terminal::Terminal;
use crate::catalog::download::size;
use crate::engine::load::Examination;
use crate::event::ModelReady;
use crate::text::sanitise_line;
use anyhow::Result;
use serde::Serialize;
use std::fmt::{self, Formatter};
use std::path::PathBuf;
use unicode_width::UnicodeWidthStr;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Of this program.
    pub version: &'static str,
    /// Whether nothing is wrong.
    pub well: bool,
    /// What is wrong, one a line.
    pub problems: Vec<String>,
    /// What machine this is.
    pub machine: Machine,
    /// What can compute.
    pub devices: Vec<DeviceState>,
    /// Whether it computes right.
    pub operations: Operations,
    /// The model, if one was asked for.
    pub model: Option<ModelState>,
    /// The file with the person's settings.
    pub settings: Option<PathBuf>,
    /// The program's folders.
    pub folders: Vec<Folder>,
    /// The terminal.
    pub terminal: Terminal,
}

/// A model that was loaded, or why it was not.
#[derive(Debug, Serialize)]
pub struct ModelState {
    /// What it is.
    pub ready: Option<ModelReady>,
    /// Why it, or the draft that should be there, could not be loaded.
    pub failure: Option<String>,
    /// Tensors that could not be kept as asked, one a line; they work, more slowly.
    pub slower: Vec<String>,
    /// What its reader should be told.
    pub warnings: Vec<String>,
    /// Bytes of keys and values at the whole context.
    pub cache_bytes: Option<u64>,
}

impl ModelState {
    /// After loading.
    pub fn new(outcome: Result<Examination>, warnings: Vec<String>) -> ModelState {
        match outcome {
            Ok(Examination { ready, draft_wanted, notes, cache_bytes }) => ModelState {
                failure: ready
                    .draft_missing
                    .as_ref()
                    .filter(|_| draft_wanted)
                    .map(|why| format!("the draft cannot be used: {why}")),
                ready: Some(ready),
                slower: notes,
                warnings,
                cache_bytes: Some(cache_bytes),
            },
            Err(why) => ModelState {
                ready: None,
                failure: Some(format!("{why:#}")),
                slower: Vec::new(),
                warnings,
                cache_bytes: None,
            },
        }
    }
}

impl Report {
    /// With everything that is wrong listed.
    pub fn judged(mut self) -> Report {
        let mut found = Vec::new();
        let wrong = self.operations.results.iter().filter(|result| !result.agrees).count();
        if wrong > 0 {
            let (tried, of) = (&self.operations.tried, self.operations.results.len());
            found.push(format!(
                "{wrong} of {of} operations are wrong on {tried}; use another --device"
            ));
        }
        for set in self.operations.instruction_sets.iter().filter(|set| !set.differing.is_empty()) {
            found.push(format!(
                "{}: {} of {} operations give other bits than the plain kernels; please report it",
                set.name,
                set.differing.len(),
                set.operations
            ));
        }
        found.extend(self.model.iter().filter_map(|model| model.failure.clone()));
        for folder in &self.folders {
            let told = |why: &String| {
                format!("the {} folder {}: {why}", folder.name, folder.path.display())
            };
            found.extend(folder.problem.as_ref().map(told));
        }
        self.problems.extend(found);
        self.well = self.problems.is_empty();
        self
    }
}

/// Columns of a terminal.
const WIDTH: usize = 80;
/// Where values begin.
const INDENT: usize = 16;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "dflash-chat {}", self.version)?;
        self.machine(f)?;
        self.devices(f)?;
        self.operations(f)?;
        if let Some(model) = &self.model {
            model.fmt(f)?;
        }
        self.folders(f)?;
        self.terminal(f)?;
        if self.well {
            return writeln!(f, "\nAll is well.");
        }
        writeln!(f, "\nWrong:")?;
        self.problems.iter().try_for_each(|problem| wrapped(f, "  - ", problem))
    }
}

/// A fact, its name first.
fn fact(f: &mut Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    wrapped(f, &format!("  {name:width$}", width = INDENT - 2), value)
}

/// Words over as many lines as they take; the lines after the first begin below its first word.
fn wrapped(f: &mut Formatter<'_>, first: &str, text: &str) -> fmt::Result {
    let indent = first.width();
    let mut line = first.to_owned();
    let mut empty = true;
    for word in sanitise_line(text).split(' ').filter(|word| !word.is_empty()) {
        if !empty && line.width() + 1 + word.width() > WIDTH {
            writeln!(f, "{line}")?;
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    writeln!(f, "{}", line.trim_end())
}

/// `5.5e-7`, or `0`.
fn small(number: f32, digits: usize) -> String {
    if number == 0.0 { "0".into() } else { format!("{number:.digits$e}") }
}

fn rate(bytes_a_second: f64) -> String {
    format!("{:.1}", bytes_a_second / 1e9)
}

impl Report {
    fn machine(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "\nMachine")?;
        fact(f, "system", &format!("{} {}", machine.os, machine.arch))?;
        fact(f, "processor", machine.cpu.as_deref().unwrap_or("its name is not told"))?;
        let sets = machine.instruction_sets.join(", ");
        fact(f, "instructions", &format!("{sets}; used: {}", machine.instruction_set))?;
        let cores = format!(
            "{} for this program; threads that compute: {}",
            machine.cores, machine.threads
        );
        fact(f, "cores", &cores)?;
        let memory = match (machine.memory_free, machine.memory) {
            (Some(free), Some(all)) => format!("{} free of {}", size(free), size(all)),
            (Some(free), None) => format!("{} free", size(free)),
            _ => "how much is free is not told".into(),
        };
        fact(f, "memory", &memory)?;
        let speed = match &machine.bandwidth {
            Some(b) => {
                let [median, least, most] = [b.median, b.least, b.most].map(rate);
                format!("{median} GB/s ({least} to {most}), reading {}", size(b.bytes))
            }
            None => "not measured".into(),
        };
        fact(f, "memory speed", &speed)
    }

    fn devices(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nDevices")?;
        for device in &self.devices {
            let state = if device.usable { "usable: " } else { "no: " };
            fact(f, device.name, &format!("{state}{}", device.detail))?;
        }
        Ok(())
    }

    fn operations(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Operations { tried, reference, results, instruction_sets } = &self.operations;
        writeln!(f, "\nOperations: {tried} against {reference}")?;
        writeln!(f, "  {:42} {:>13} {:>9}", "", "largest error", "bound")?;
        for result in results {
            let word = if result.agrees { "ok" } else { "WRONG" };
            match (result.largest_error, &result.failure) {
                (Some(error), _) => {
                    let (error, bound) = (small(error, 1), small(result.bound, 0));
                    let operation = &result.operation;
                    writeln!(f, "  {operation:42} {error:>13} {bound:>9}  {word}")?;
                }
                (None, why) => {
                    let why = why.as_deref().unwrap_or("no result");
                    wrapped(f, &format!("  {:42} ", result.operation), &format!("{word}: {why}"))?;
                }
            }
        }
        for set in instruction_sets {
            let (name, count) = (set.name, set.operations);
            if set.differing.is_empty() {
                let same =
                    format!("{name} gives the plain kernels' bits in all {count} operations");
                wrapped(f, "  ", &same)?;
            } else {
                let differing = set.differing.join("; ");
                wrapped(
                    f,
                    "  ",
                    &format!("{name} WRONG, other bits than the plain kernels: {differing}"),
                )?;
            }
        }
        if instruction_sets.is_empty() {
            writeln!(f, "  no vector instructions are used here")?;
        }
        Ok(())
    }

    fn folders(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nFolders")?;
        for folder in &self.folders {
            let state = match (&folder.problem, folder.exists) {
                (Some(why), _) => format!("WRONG: {why}"),
                (None, true) => "can be written".into(),
                (None, false) => "will be made".into(),
            };
            let free = folder.free.map(|free| format!(", {} free", size(free)));
            let path = folder.path.display();
            fact(f, folder.name, &format!("{path} ({state}{})", free.unwrap_or_default()))?;
        }
        match &self.settings {
            Some(file) if file.exists() => fact(f, "settings", &file.display().to_string()),
            Some(_) => fact(f, "settings", "defaults (`dflash-chat config init` writes a file)"),
            None => fact(f, "settings", "no folder for them is known"),
        }
    }

    fn terminal(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let terminal = &self.terminal;
        writeln!(f, "\nTerminal")?;
        let kind = if terminal.term.is_empty() { "TERM is not set" } else { &terminal.term };
        fact(f, "kind", kind)?;
        let dimensions = match terminal.size {
            Some((columns, rows)) => format!("{columns} columns, {rows} rows"),
            None if terminal.interactive => "its size is not told".into(),
            None => "input or output is no terminal; the chat needs both".into(),
        };
        let poor = terminal.too_poor.as_ref().map(|why| format!("; {why}"));
        fact(f, "size", &format!("{dimensions}{}", poor.unwrap_or_default()))?;
        let marks = if terminal.unicode { "Unicode" } else { "ASCII (the locale is not UTF-8)" };
        fact(f, "marks", marks)?;
        fact(f, "colours", terminal.colors)?;
        fact(
            f,
            "Shift+Enter",
            if terminal.kitty_keys { "told from Enter" } else { "same as Enter" },
        )
    }
}

impl fmt::Display for ModelState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nModel")?;
        if self.ready.is_none() {
            fact(f, "target", "it could not be loaded; see below")?;
        }
        if let Some(ready) = &self.ready {
            let network = |info: &crate::event::NetworkInfo| {
                format!(
                    "{}, {} layers, {}: {} in memory",
                    info.name,
                    info.layers,
                    info.quantisation,
                    size(info.bytes)
                )
            };
            fact(f, "target", &network(&ready.target))?;
            match (&ready.draft, &ready.draft_missing) {
                (Some(draft), _) => fact(f, "draft", &network(draft))?,
                (None, Some(why)) => fact(f, "draft", &format!("none, decoding is plain: {why}"))?,
                (None, None) => fact(f, "draft", "none: decoding is plain")?,
            }
            if let Some(bytes) = self.cache_bytes {
                let positions = ready.ctx_limit;
                fact(f, "cache", &format!("{} for {positions} tokens", size(bytes)))?;
            }
            fact(f, "loaded in", &format!("{:.1} s", ready.load_us as f64 / 1e6))?;
            if self.slower.is_empty() {
                fact(f, "tensors", "all kept as asked")?;
            }
        }
        for note in &self.slower {
            fact(f, "slower", note)?;
        }
        self.warnings.iter().try_for_each(|warning| fact(f, "note", warning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Wrapped<'a>(&'a str);

    impl fmt::Display for Wrapped<'_> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            fact(f, "name", self.0)
        }
    }

    #[test]
    fn long_values_go_on_below() {
        let text = Wrapped(&"word ".repeat(40)).to_string();
        assert!(text.lines().all(|line| line.width() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with(&" ".repeat(INDENT))));
        assert_eq!(text.matches("word").count(), 40);
        // A path is not cut, and what drives a terminal is shown.
        let long = format!("/{}\x1b[2J", "x".repeat(100));
        assert_eq!(Wrapped(&long).to_string().lines().count(), 1);
        assert!(!Wrapped(&long).to_string().contains('\x1b'));
        assert_eq!(Wrapped("").to_string(), "  name\n");
    }
}
