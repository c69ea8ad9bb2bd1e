//! # dflash-chat
//!
//! A terminal chat with a language model that runs on this machine, sped up by DFlash: a small
//! block-diffusion *draft* proposes a whole block of tokens in one forward pass, conditioned on
//! hidden states tapped from the *target*; the target verifies the block in one pass.
//!
//! ```text
//!  key press ─► tui ─► EngineCommand ─►┐                          ┌─► tui       draws it
//!                                      │  engine thread           ├─► run       prints it
//!  chat: messages ─► template ─► ids ──┤  one decode session ─► EngineEvent ─► bench   sums it up
//!                                      │  prefill, then rounds    ├─► record    writes it
//!                                      └──────────────────────────└◄─ replay    reads it back
//! ```
//!
//! One program, one decode loop, one stream of events ([`event`]). Everything a person can see
//! is computed from that stream by pure code. Plain decoding is the same loop with nothing
//! drafted.
//!
//! ## Who knows whom
//!
//! Arrows run downward only: [`cli`] and [`tui`] → [`engine`] → [`decode`] → [`model`].
//! - [`model`] is the networks: files to weights, the tokenizer, one decoder that its config
//!   shapes, the draft, and [`model::pair::Pair`], which offers both to decoding as
//!   [`model::networks::Networks`]. Its arithmetic is the trait [`model::ops::Ops`], with kernels
//!   of our own on the CPU ([`model::ops::cpu`]) and candle's on GPUs ([`model::ops::device`]);
//!   [`model::ops::parity`] sets the two side by side.
//! - [`decode`] is the loop: prompt reuse, prefill, rounds, how long blocks are and whether the
//!   draft or an earlier place in the text fills them, how tokens are chosen, what stops an
//!   answer. It knows ids and logits, no text but for stop strings.
//! - [`engine`] is a thread that answers commands with events: the worker, a script, a recording.
//! - [`chat`] is conversations and the templates that turn them into prompts; [`catalog`] is what
//!   can run and where it comes from; [`settings`] is what the person prefers.
//! - [`event`], [`stats`], [`slots`], [`race`] and [`text`] know nobody but each other.
//!
//! ## The numbers
//!
//! On the CPU every operation computes a row the same way, whatever the number of rows beside
//! it, so that the logits of a verify pass are the plain pass's logits bit for bit, and greedy
//! speculative text equals greedy plain text by construction. Sampled text too: a draw belongs to
//! its seed and position ([`decode::sampler`]).

#![deny(unsafe_code)]

pub mod catalog;
pub mod chat;
pub mod cli;
pub mod decode;
pub mod engine;
pub mod event;
pub mod model;
pub mod race;
pub mod record;
pub mod settings;
pub mod slots;
pub mod stats;
pub mod text;
pub mod tui;
