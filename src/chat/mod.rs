//! Conversations: what was said ([`conversation`]), how it lasts ([`store`]), how it leaves the
//! program ([`export`]), and how it becomes the model's prompt ([`template`]).
//!
//! A conversation changes only by [`conversation::Change`]s. The store writes each change as a
//! line of a file when it happens, and reading the file applies them again: what is on the
//! screen and what is on the disk cannot differ.

pub mod conversation;
pub mod export;
pub mod store;
pub mod template;
