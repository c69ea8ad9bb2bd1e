//! Ids to exact text, as they come.

use crate::model::tokenizer::{Pieces, Tokenizer};
use std::sync::Arc;

/// Turns ids into text, round by round. The texts put together are the decoding of all ids,
/// wherever the rounds were cut: bytes of a character that is not whole yet are held back, and
/// never shown if the text ends before it is.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    pieces: Arc<Pieces>,
    /// The start of a character; at most three bytes between calls.
    partial: Vec<u8>,
    /// The next byte is the first of the text.
    at_start: bool,
}

impl Detokenizer {
    /// A detokenizer at the start of a text.
    pub fn new(tokenizer: &Tokenizer) -> Detokenizer {
        Detokenizer { pieces: tokenizer.pieces().clone(), partial: Vec::new(), at_start: true }
    }

    /// The exact text that `ids` add. Special tokens and unknown ids add none. Bytes that can
    /// never become a character are U+FFFD.
    pub fn push(&mut self, ids: &[u32]) -> String {
        for &id in ids {
            let mut bytes = self.pieces.text_bytes(id);
            if self.at_start && !bytes.is_empty() {
                self.at_start = false;
                if self.pieces.strips_first_space() {
                    bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
                }
            }
            self.partial.extend_from_slice(bytes);
        }
        let bytes = std::mem::take(&mut self.partial);
        let mut text = String::with_capacity(bytes.len());
        let mut rest = bytes.len();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            rest -= chunk.valid().len() + chunk.invalid().len();
            if rest == 0 && is_start_of_a_character(chunk.invalid()) {
                self.partial = chunk.invalid().to_vec();
            } else if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }
}

/// Whether more bytes could make these a character.
fn is_start_of_a_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}
