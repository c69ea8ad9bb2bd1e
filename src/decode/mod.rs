//! One decode session: prompt reuse, prefill, rounds. Plain decoding is a round without drafts.
//!
//! The loop asks [`Networks`](crate::model::networks::Networks) for numbers and knows nothing
//! else about them, so that its rules are tested with scripted ones.

pub mod accept;
pub mod acceptance;
pub mod block_length;
pub mod cost;
pub mod detokenize;
pub mod repeats;
pub mod sampler;
pub mod session;
pub mod slot_gains;
pub mod stop;
