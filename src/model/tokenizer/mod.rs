//! Text to ids and back.
//!
//! The splitting and merging is the `tokenizers` crate's. What it does is chosen here: from a
//! GGUF file's own tables ([`GgufVocabulary`]) or from `tokenizer.json` and its companions
//! ([`Tokenizer::from_dir`]). Decoding is done on bytes, so that a character that
//! spans several tokens comes out whole.

mod gguf;
mod json;
mod pieces;
mod sentencepiece;

pub use gguf::GgufVocabulary;
pub use json::TokenizerFiles;
pub(crate) use pieces::Pieces;

use crate::decode::detokenize::Detokenizer;
use crate::text::sanitise_line;
use anyhow::{Result, anyhow};
use std::ops::Range;
use std::sync::Arc;
use tokenizers::{
    AddedVocabulary, Model, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizer,
};

/// Special tokens that end an answer in the families that we know.
const END_TOKENS: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<end_of_turn>",
    "<turn|>",
    "<eos>",
    "</s>",
];

/// What the names of special tokens in a text mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// They are the special tokens: text that a chat template wrote.
    Parse,
    /// They are letters like any others: text that a person wrote.
    AsText,
}

/// A vocabulary with its rules.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The added tokens of `inner`, set to leave the special ones alone.
    plain: AddedVocabulary,
    pieces: Arc<Pieces>,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: bool,
    end_tokens: Vec<u32>,
    chat_template: Option<String>,
    warnings: Vec<String>,
}

/// What is known of a vocabulary beside its pipeline and its tokens.
#[derive(Debug, Default)]
struct Facts {
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: bool,
    /// End tokens that the model's files name, beside those known by name.
    ends: Vec<u32>,
    chat_template: Option<String>,
    warnings: Vec<String>,
}

impl Tokenizer {
    fn new(inner: tokenizers::Tokenizer, pieces: Pieces, facts: Facts) -> Tokenizer {
        let known = |id: &u32| (*id as usize) < pieces.len();
        let mut ends: Vec<u32> = facts.eos.into_iter().chain(facts.ends).filter(known).collect();
        let named = END_TOKENS.iter().filter_map(|name| inner.token_to_id(name));
        ends.extend(named.filter(|&id| pieces.is_special(id)));
        ends.sort_unstable();
        ends.dedup();
        let mut plain = inner.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);
        Tokenizer {
            plain,
            bos: facts.bos.filter(known),
            eos: facts.eos.filter(known),
            adds_bos: facts.adds_bos,
            end_tokens: ends,
            chat_template: facts.chat_template,
            warnings: facts.warnings,
            pieces: Arc::new(pieces),
            inner,
        }
    }

    /// The ids of `text`, without a BOS token of our own.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>> {
        match special {
            Special::Parse => self.run(self.inner.get_added_vocabulary(), text),
            Special::AsText => self.run(&self.plain, text),
        }
    }

    /// The ids of the parts' texts put together. Names of special tokens count only where they
    /// lie wholly in [`Special::Parse`] parts; otherwise the parts' borders leave no trace.
    pub fn encode_parts(&self, parts: &[(&str, Special)]) -> Result<Vec<u32>> {
        let mut text = String::with_capacity(parts.iter().map(|(t, _)| t.len()).sum());
        let mut plain: Vec<Range<usize>> = Vec::new();
        for (part, special) in parts {
            let start = text.len();
            text.push_str(part);
            if *special == Special::AsText {
                plain.push(start..text.len());
            }
        }
        let (honoured, ignored): (Vec<_>, Vec<_>) = self
            .special_spans(&text)
            .into_iter()
            .partition(|(span, _)| !plain.iter().any(|p| p.start < span.end && span.start < p.end));
        if ignored.is_empty() {
            return self.encode(&text, Special::Parse);
        }
        let mut ids = Vec::new();
        let mut at = 0;
        for (span, id) in honoured {
            ids.extend(self.encode(&text[at..span.start], Special::AsText)?);
            ids.push(id);
            at = span.end;
        }
        ids.extend(self.encode(&text[at..], Special::AsText)?);
        Ok(ids)
    }

    /// Where special tokens lie in `text`, in order, as the pipeline finds them.
    fn special_spans(&self, text: &str) -> Vec<(Range<usize>, u32)> {
        let split = self
            .inner
            .get_added_vocabulary()
            .extract_and_normalize(None::<&NormalizerWrapper>, text);
        split
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .filter_map(|(_, (start, end), tokens)| {
                let id = tokens.as_ref()?.first()?.id;
                self.pieces.is_special(id).then_some((start..end, id))
            })
            .collect()
    }

    fn run(&self, added: &AddedVocabulary, text: &str) -> Result<Vec<u32>> {
        let failed = |e: tokenizers::Error| anyhow!("the tokenizer failed on a text: {e}");
        let mut split = added.extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(rule) = self.inner.get_pre_tokenizer() {
            rule.pre_tokenize(&mut split).map_err(failed)?;
        }
        let model = self.inner.get_model();
        split.tokenize(|part| model.tokenize(part.get())).map_err(failed)?;
        Ok(split
            .get_splits(OffsetReferential::Original, OffsetType::None)
            .into_iter()
            .filter_map(|(_, _, tokens)| tokens.as_ref())
            .flatten()
            .map(|token| token.id)
            .collect())
    }

    /// `ids` with the BOS token in front exactly once where this vocabulary wants one: added if
    /// it is missing, and not twice where a template wrote it too.
    pub fn with_bos(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self.bos {
            let written = ids.iter().take_while(|&&id| id == bos).count();
            if self.adds_bos && written == 0 {
                ids.insert(0, bos);
            } else if self.adds_bos && written > 1 {
                ids.drain(..written - 1);
            }
        }
        ids
    }

    /// The text of `ids`. Special tokens and unknown ids add nothing; bytes that end inside a
    /// character are dropped.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut text = Detokenizer::new(self);
        text.push(ids)
    }

    /// The text of one token alone, for display: safe for a terminal, on one line, the bytes of
    /// partial characters as `<E2>`. Special tokens are shown by name; ids without a token (a
    /// draft's mask token may be one) as `[id]`.
    pub fn piece(&self, id: u32) -> String {
        let Some(bytes) = self.pieces.named_bytes(id).filter(|b| !b.is_empty()) else {
            return format!("[{id}]");
        };
        let mut text = String::new();
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            for byte in chunk.invalid() {
                text.push_str(&format!("<{byte:02X}>"));
            }
        }
        sanitise_line(&text)
    }

    pub(crate) fn pieces(&self) -> &Arc<Pieces> {
        &self.pieces
    }

    /// Every token that ends an answer: those that the model's files name, and the special
    /// tokens known to end a turn or a text.
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// The token that begins a text, where there is one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text or a turn, as the model's files name it.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The id of the special token of this name.
    pub fn special_id(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name).filter(|&id| self.pieces.is_special(id))
    }

    /// One more than the largest id. A network's embedding may have more rows.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The chat template of the model's files.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// What was odd about the files, each in a line for a person.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The name of a special token as templates write it, empty where there is none.
    pub fn special_name(&self, id: Option<u32>) -> String {
        id.and_then(|id| self.pieces.named_bytes(id))
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    }
}
