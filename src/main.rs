//! Parse, pick a front end, map an error to an exit code.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    dflash_chat::cli::main(dflash_chat::cli::Cli::parse())
}
