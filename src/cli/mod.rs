//! One file a subcommand.

pub mod models;
pub mod watch;
