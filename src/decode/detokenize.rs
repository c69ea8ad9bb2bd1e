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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tokenizer::GgufVocabulary;
    use proptest::prelude::*;

    /// One token for each byte, in the byte's place, and an end token.
    fn bytes() -> Tokenizer {
        let tokens = (0..=255).map(|byte| format!("<0x{byte:02X}>")).chain(["</s>".into()]);
        Tokenizer::from_gguf(GgufVocabulary {
            model: "llama".into(),
            tokens: tokens.collect(),
            token_types: [vec![6; 256], vec![3]].concat(),
            scores: vec![0.0; 257],
            add_space_prefix: Some(false),
            ..GgufVocabulary::default()
        })
        .unwrap()
    }

    fn ids(bytes: &[u8]) -> Vec<u32> {
        bytes.iter().map(|&b| u32::from(b)).collect()
    }

    #[test]
    fn a_character_over_several_rounds_comes_whole() {
        let mut text = Detokenizer::new(&bytes());
        let rounds = ["👍".as_bytes(), b"!"].concat();
        let shown: Vec<String> = ids(&rounds).iter().map(|&id| text.push(&[id])).collect();
        assert_eq!(shown, ["", "", "", "👍", "!"]);
    }

    #[test]
    fn half_a_character_at_the_end_is_not_shown() {
        let tokenizer = bytes();
        let half = ids(&"so 👍".as_bytes()[..5]);
        assert_eq!(tokenizer.decode(&half), "so ");
        assert_eq!(tokenizer.decode(&[half.as_slice(), &[256, 900]].concat()), "so ");
    }

    #[test]
    fn special_tokens_and_unknown_ids_add_nothing() {
        assert_eq!(bytes().decode(&[256, 0xc3, 256, 1000, 0xa9, u32::MAX]), "é");
    }

    proptest! {
        /// Any bytes in any rounds are the text that they are in one piece, less an unfinished
        /// character.
        #[test]
        fn rounds_do_not_matter(
            rounds in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..4),
                    "[aé👍中]{0,3}".prop_map(String::into_bytes),
                    prop::sample::select(vec![vec![0xf0, 0x9f], vec![0x91], vec![0x8d, 0xe4]]),
                ],
                0..12,
            ),
        ) {
            let mut text = Detokenizer::new(&bytes());
            let shown: Vec<String> = rounds.iter().map(|round| text.push(&ids(round))).collect();
            let whole = [rounds.concat(), b"x".to_vec()].concat();
            let closed = shown.concat() + &text.push(&[u32::from(b'x')]);
            prop_assert_eq!(closed, String::from_utf8_lossy(&whole));
            prop_assert!(shown.concat().len() <= 3 * rounds.concat().len());
        }
    }
}
