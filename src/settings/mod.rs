//! Where the program keeps its files ([`Paths`]) and what the person prefers.

mod paths;

pub use paths::{Paths, PathsError};
