//! What can run and where it comes from: known [`pairs`], where their files lie on this machine
//! ([`resolve`]), and how missing ones get there ([`download`]).

pub mod download;
mod error;
pub mod fit;
mod http;
mod hub;
mod local;
mod manage;
mod names;
mod pairs;
mod part;
mod pip;
mod progress;
mod resolve;
mod transfer;

pub use error::CatalogError;
pub use http::Network;
pub use local::{Store, free_space};
pub use manage::{
    Checkable, Removable, State, checkable, checkable_all, removable, remove, uncheckable, verify,
};
pub use names::RepoRef;
pub use pairs::{DEMO_PAIR, KnownFile, Model, Pair, Shape, Source, find, pairs, parse};
pub use resolve::{DraftPlace, Location, Missing, ResolvedPair, Role, Selection, resolve};

/// A draft that is part of the program.
#[derive(Clone, Copy)]
pub struct EmbeddedDraft {
    /// What `pairs.toml` calls it.
    pub name: &'static str,
    /// Its GGUF file.
    pub file: &'static [u8],
}

impl std::fmt::Debug for EmbeddedDraft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmbeddedDraft({}, {} bytes)", self.name, self.file.len())
    }
}

impl PartialEq for EmbeddedDraft {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The draft of that name, if the program carries it.
pub fn embedded_draft(name: &str) -> Option<EmbeddedDraft> {
    (name == SMOLLM2_DRAFT.name).then_some(SMOLLM2_DRAFT)
}

const SMOLLM2_DRAFT: EmbeddedDraft = EmbeddedDraft {
    name: "smollm2-135m-instruct-dflash",
    file: include_bytes!("../../assets/drafts/smollm2-135m-instruct-dflash.gguf"),
};
