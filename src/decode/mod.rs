//! One decode session: prompt reuse, prefill, rounds. Plain decoding is a round without drafts.
//!
//! The loop asks [`Networks`] for numbers and knows nothing else about them, so that its rules
//! are tested with scripted ones.

pub mod detokenize;
pub mod networks;

pub use networks::Networks;
