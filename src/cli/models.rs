//! `dflash-chat models`: what can run, what is here, fetching, checking, removing.

mod inspect;

use super::watch::StderrWatch;
use crate::catalog::download::{self, Watch as _, size};
use crate::catalog::fit::{self, Fit, Verdict, fit, free_on_device};
use crate::catalog::{self, DraftPlace, Network, Selection, Store};
use crate::engine::load::DEFAULT_CONTEXT;
use crate::model::ops::Quantise;
use crate::settings::Paths;
use clap::{Args, Subcommand};
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::process::ExitCode;

/// The context that the answer to "does it fit" is given for.
const CONTEXT: u64 = DEFAULT_CONTEXT as u64;

const PLACES: &str = "\
Models go to the data folder (DFLASH_CHAT_DATA); what lies in the hub's cache (HF_HOME) is used
from there and never copied, changed or removed. HF_TOKEN opens gated repositories, HF_ENDPOINT
names another hub, --offline, HF_HUB_OFFLINE=1 or DFLASH_CHAT_OFFLINE=1 keep the network out.
DFLASH_DEMO_TARGET=FILE.gguf stands for the demo pair's target.";

/// List, fetch, look at, check and remove models.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// The pairs that are known to fit: size, state, and whether this machine can hold them.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Fetch a pair, or a target from the hub.
    Pull {
        /// A pair's name, or a hub repository (organisation/name[@revision]).
        name: String,
        /// Fetch nothing; say what is missing.
        #[arg(long)]
        offline: bool,
    },
    /// What is known of a pair, or of a model in a file or folder.
    Inspect {
        /// A pair's name, a folder with config.json, a .gguf file, or a hub repository.
        name: String,
    },
    /// Compute the hashes of fetched files again.
    Verify {
        /// A pair's name; everything that is here unless given.
        name: Option<String>,
    },
    /// Remove a pair's files from our own folder. The hub's cache is never touched.
    Remove {
        /// A pair's name, or a hub repository.
        name: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

/// Carry out `dflash-chat models …`.
///
/// # Errors
/// See [`catalog::CatalogError::exit_code`] for how the program ends then.
pub fn run(args: ModelsArgs) -> anyhow::Result<ExitCode> {
    let store = Store::from_env(&Paths::from_env()?);
    match args.command {
        ModelsCommand::List { json } => list(&store, json),
        ModelsCommand::Pull { name, offline } => pull(&name, offline, &store),
        ModelsCommand::Inspect { name } => inspect::run(&name, &store),
        ModelsCommand::Verify { name } => verify(name.as_deref(), &store),
        ModelsCommand::Remove { name, yes } => remove(&name, yes, &store),
    }
}

/// A pair's name, else a reference to a target.
fn selection(name: &str) -> Selection {
    match catalog::find(name) {
        Some(_) => Selection { pair: Some(name.into()), ..Selection::default() },
        // A single word can only have been meant as a pair's name.
        None if !name.contains(['/', '.']) => {
            Selection { pair: Some(name.into()), ..Selection::default() }
        }
        None => Selection { target: Some(name.into()), ..Selection::default() },
    }
}

fn list(store: &Store, json: bool) -> anyhow::Result<ExitCode> {
    let free = free_on_device(true);
    let mut out = stdout().lock();
    if json {
        let rows: Vec<serde_json::Value> = catalog::pairs()
            .iter()
            .map(|pair| {
                let fit = free.map(|free| fit(&pair.into(), free, CONTEXT, Quantise::AsStored));
                serde_json::json!({
                    "name": pair.name,
                    "title": pair.title,
                    "parameters": pair.parameters,
                    "bytes": pair.target.bytes() + pair.draft.bytes(),
                    "licence": pair.licence,
                    "origin": pair.origin,
                    "block": pair.block,
                    "context": pair.context,
                    "state": store.state(pair).name(),
                    "fits": fit.as_ref().map(|fit| fit.verdict),
                    "memory": fit.as_ref().map(|fit| fit.needed),
                    "parts": fit.as_ref().map(|fit| fit.parts),
                    "suggestion": fit.and_then(|fit| fit.suggestion),
                })
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{:14} {:6} {:>10}  {:8} FITS", "NAME", "PARAMS", "SIZE", "STATE")?;
    for pair in catalog::pairs() {
        let bytes = pair.target.bytes() + pair.draft.bytes();
        let answer = match free {
            Some(free) => answer(&fit(&pair.into(), free, CONTEXT, Quantise::AsStored)),
            None => "free memory unknown".into(),
        };
        writeln!(
            out,
            "{:14} {:6} {:>10}  {:8} {answer}",
            pair.name,
            pair.parameters,
            size(bytes),
            store.state(pair).name()
        )?;
    }
    if let Some(free) = free {
        writeln!(out, "\n{} of memory are free; FITS is for {CONTEXT} tokens.", size(free))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn answer(fit: &Fit) -> String {
    let needed = size(fit.needed);
    match (fit.verdict, &fit.suggestion) {
        (Verdict::Fits, _) => format!("yes ({needed})"),
        (Verdict::Tight, _) => format!("just ({needed})"),
        (Verdict::TooLarge, Some(how)) => format!("with {how} (else {needed})"),
        (Verdict::TooLarge, None) => format!("no ({needed})"),
    }
}

fn pull(name: &str, offline: bool, store: &Store) -> anyhow::Result<ExitCode> {
    let pair = catalog::resolve(&selection(name), store)?;
    let mut watch = StderrWatch::new()?;
    let network = Network::from_env(offline, store.hub.as_ref());
    if let Some(warning) = pair
        .known
        .filter(|_| !pair.missing.is_empty())
        .and_then(|known| fit::warning(known, free_on_device(true)?, CONTEXT, Quantise::AsStored))
    {
        watch.say(&warning);
    }
    download::fetch_all(&pair, store, &network, &mut watch)?;
    drop(watch);
    writeln!(stdout(), "{} is ready: {}", pair.name, pair.target.path().display())?;
    if let DraftPlace::None(why) = &pair.draft {
        writeln!(stdout(), "no draft: {why}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(name: Option<&str>, store: &Store) -> anyhow::Result<ExitCode> {
    let (files, unknown) = match name {
        Some(name) => {
            let pair = catalog::resolve(&selection(name), store)?;
            (catalog::checkable(&pair, store)?, catalog::uncheckable(&pair, store)?)
        }
        None => (catalog::checkable_all(store)?, Vec::new()),
    };
    let mut watch = StderrWatch::new()?;
    let mut wrong = 0;
    if files.is_empty() && unknown.is_empty() {
        watch.say("nothing has been fetched yet");
    }
    for path in &unknown {
        writeln!(stdout(), "?      {}: no hash is known to compare it with", path.display())?;
    }
    for file in &files {
        let result = catalog::verify(file, &mut watch)?;
        watch.clear();
        match result {
            Ok(()) => writeln!(stdout(), "ok     {}", file.path.display())?,
            Err(why) => {
                wrong += 1;
                writeln!(stdout(), "WRONG  {}: {why}", file.path.display())?;
            }
        }
    }
    if wrong > 0 {
        watch.say("remove what is wrong (`dflash-chat models remove NAME`) and fetch it again");
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn remove(name: &str, yes: bool, store: &Store) -> anyhow::Result<ExitCode> {
    let folders = catalog::removable(&selection(name), store)?;
    if folders.is_empty() {
        writeln!(stderr(), "nothing of {name} is in {}", store.models.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    for folder in &folders {
        writeln!(stderr(), "{} ({})", folder.path.display(), size(folder.bytes))?;
    }
    if !yes {
        if !stdin().is_terminal() {
            writeln!(stderr(), "nobody to ask: give --yes to remove it")?;
            return Ok(ExitCode::from(2));
        }
        write!(stderr(), "remove? [y/N] ")?;
        let mut reply = String::new();
        stdin().read_line(&mut reply)?;
        if !matches!(reply.trim(), "y" | "Y" | "yes") {
            writeln!(stderr(), "nothing removed")?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    for folder in &folders {
        catalog::remove(folder)?;
    }
    writeln!(stderr(), "removed")?;
    Ok(ExitCode::SUCCESS)
}
