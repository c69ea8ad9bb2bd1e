//! `dflash-chat config`: the file with the person's settings.

use crate::settings::{KEYS, Origin, Paths, Sources, config_file};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use std::fs::OpenOptions;
use std::io::{Write, stdout};
use std::process::ExitCode;

const DEFAULT: &str = include_str!("../../assets/config.default.toml");

/// Write, show or find the settings.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Write a commented file with all settings.
    Init,
    /// What holds, and where each value comes from.
    Show,
    /// Where the file is.
    Path,
}

/// Carry out `dflash-chat config …`.
///
/// # Errors
/// Bad settings, or a file that cannot be written.
pub fn run(args: ConfigArgs) -> anyhow::Result<ExitCode> {
    let paths = Paths::from_env()?;
    match args.command {
        ConfigCommand::Init => init(&paths)?,
        ConfigCommand::Show => show(&paths)?,
        ConfigCommand::Path => writeln!(stdout(), "{}", config_file(&paths).display())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn init(paths: &Paths) -> anyhow::Result<()> {
    let path = config_file(paths);
    let shown = path.display();
    std::fs::create_dir_all(&paths.config)
        .with_context(|| format!("cannot create {}", paths.config.display()))?;
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => {
            file.write_all(DEFAULT.as_bytes()).with_context(|| format!("cannot write {shown}"))?
        }
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{shown} is there already; edit it, or move it away first")
        }
        Err(e) => return Err(e).with_context(|| format!("cannot write {shown}")),
    }
    writeln!(stdout(), "{shown}")?;
    Ok(())
}

fn show(paths: &Paths) -> anyhow::Result<()> {
    let settings = Sources::load(paths)?.settings(None);
    let file = config_file(paths);
    let mut out = stdout().lock();
    for key in KEYS {
        let value = (key.get)(&settings.values).unwrap_or_else(|| "(not set)".into());
        let value = crate::text::sanitise_line(&value);
        let origin = match settings.origin(key.name) {
            Origin::Default => "default".into(),
            Origin::File(line) => format!("{}:{line}", file.display()),
            Origin::PairInFile(line) => format!("{}:{line}, for this pair", file.display()),
            Origin::Environment => format!("DFLASH_CHAT_{}", key.name.to_uppercase()),
            Origin::Flag => "command line".into(),
        };
        writeln!(out, "{:18} = {value:24}  # {origin}", key.name)?;
    }
    for (action, chords) in &settings.keys {
        writeln!(out, "keys.{action:13} = {}", crate::text::sanitise_line(&chords.join(", ")))?;
    }
    Ok(())
}
