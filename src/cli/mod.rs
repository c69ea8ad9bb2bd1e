//! One file a subcommand.

pub mod config;
pub mod models;
pub mod watch;
