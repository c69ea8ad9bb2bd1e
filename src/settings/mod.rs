//! Where the program keeps its files ([`Paths`]), and what the person prefers ([`Settings`]):
//! defaults, then `config.toml`, then the environment, then the command line, each value with its
//! origin.

mod paths;
mod sources;
mod values;

pub use paths::{Paths, PathsError};
pub use sources::{Origin, Settings, SettingsError, Sources, config_file};
pub use values::{Color, ContextFull, Device, Glyphs, KEYS, Key, Kind, Quant, Values};
