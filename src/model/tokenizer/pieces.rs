//! What each token stands for, in bytes.

/// How a vocabulary spells bytes in its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's byte-level alphabet: each byte is one printable character.
    ByteLevel,
    /// SentencePiece: `▁` is a space, `<0xE2>` is a byte, the rest is the text itself.
    SentencePiece,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Missing,
    Text,
    Special,
}

/// The bytes of every token, in one allocation. Special tokens have bytes (their names) too, but
/// add no text to an answer.
#[derive(Debug)]
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// Where the bytes of each id end in `bytes`; they start where the id before ends.
    ends: Vec<usize>,
    kinds: Vec<Kind>,
    /// Whether the first space of a text is the vocabulary's own and not the text's.
    strips_first_space: bool,
}

impl Pieces {
    /// `tokens` in the order of their ids, each with whether it is special; `None` where an id
    /// has no token.
    pub(super) fn new<'a>(
        tokens: impl Iterator<Item = Option<(&'a str, bool)>>,
        spelling: Spelling,
        strips_first_space: bool,
    ) -> Pieces {
        let mut pieces =
            Pieces { bytes: Vec::new(), ends: Vec::new(), kinds: Vec::new(), strips_first_space };
        for token in tokens {
            let kind = match token {
                None => Kind::Missing,
                Some((_, true)) => Kind::Special,
                Some((_, false)) => Kind::Text,
            };
            match token {
                Some((text, false)) => append_bytes(text, spelling, &mut pieces.bytes),
                Some((text, true)) => pieces.bytes.extend_from_slice(text.as_bytes()),
                None => {}
            }
            pieces.ends.push(pieces.bytes.len());
            pieces.kinds.push(kind);
        }
        pieces
    }

    /// One more than the largest id.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn strips_first_space(&self) -> bool {
        self.strips_first_space
    }

    pub(super) fn is_special(&self, id: u32) -> bool {
        self.kinds.get(id as usize) == Some(&Kind::Special)
    }

    /// The bytes that `id` adds to an answer: none for special tokens and unknown ids.
    pub(crate) fn text_bytes(&self, id: u32) -> &[u8] {
        match self.kinds.get(id as usize) {
            Some(Kind::Text) => self.slice(id),
            _ => &[],
        }
    }

    /// The bytes of `id` or the name of a special token; `None` for unknown ids.
    pub(super) fn named_bytes(&self, id: u32) -> Option<&[u8]> {
        match self.kinds.get(id as usize) {
            Some(Kind::Text | Kind::Special) => Some(self.slice(id)),
            _ => None,
        }
    }

    fn slice(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start..self.ends[id]]
    }
}

fn append_bytes(token: &str, spelling: Spelling, out: &mut Vec<u8>) {
    match spelling {
        Spelling::ByteLevel => {
            let start = out.len();
            for c in token.chars() {
                match byte_of(c) {
                    Some(byte) => out.push(byte),
                    // Not spelled in the alphabet: an added token, whose text is meant as it is.
                    None => {
                        out.truncate(start);
                        out.extend_from_slice(token.as_bytes());
                        return;
                    }
                }
            }
        }
        Spelling::SentencePiece => match byte_token(token) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(token.replace('\u{2581}', " ").as_bytes()),
        },
    }
}

/// The byte that a SentencePiece token like `<0xE2>` stands for.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that a character of GPT-2's alphabet stands for. Bytes that are printable characters
/// of Latin-1 stand for themselves; the others follow from U+0100 on, in order.
fn byte_of(c: char) -> Option<u8> {
    let printable = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let code = c as u32;
    match code {
        _ if printable(code) => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_byte_alphabet_names_each_byte_once() {
        let bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        assert_eq!(bytes.len(), 256);
        assert_eq!(bytes.iter().collect::<BTreeSet<_>>().len(), 256);
        assert_eq!((byte_of('Ġ'), byte_of('Ċ')), (Some(b' '), Some(b'\n')));
    }

    #[test]
    fn byte_tokens_are_two_hex_digits() {
        assert_eq!(byte_token("<0xE2>"), Some(0xe2));
        assert_eq!(byte_token("<0xE>"), None);
        assert_eq!(byte_token("<0xé>"), None);
        assert_eq!(byte_token("<0x+1>"), None);
    }
}
