//! The tokenizer of a GGUF file, built from the file's own tables.

use super::pieces::{Pieces, Spelling};
use super::sentencepiece::merges_from_scores;
use super::{Facts, Tokenizer};
use anyhow::{Result, anyhow, bail, ensure};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{NFC, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

/// Words with a leading mark, single digits, punctuation, blank lines: Qwen's rule.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with digits in threes: Llama 3's rule.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The tokenizer's part of a GGUF file's metadata (`tokenizer.ggml.*`), unchecked.
#[derive(Debug, Clone, Default)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`: `gpt2` (byte-level BPE), `llama` or `gemma4` (SentencePiece).
    pub model: String,
    /// `tokenizer.ggml.pre`: the rule that splits text before merging; empty if absent.
    pub pre: String,
    /// The tokens, by id.
    pub tokens: Vec<String>,
    /// Merge rules, two tokens with a space between, best first.
    pub merges: Vec<String>,
    /// What each token is (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte);
    /// empty if absent.
    pub token_types: Vec<i32>,
    /// SentencePiece scores; empty if absent.
    pub scores: Vec<f32>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `eot_token_id`, and other ids that the file says end a turn.
    pub eot: Option<u32>,
    /// `unknown_token_id`.
    pub unk: Option<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl Tokenizer {
    /// Build the tokenizer of a GGUF file. Rules that cannot be used are left out with a
    /// warning.
    ///
    /// # Errors
    /// An unsupported kind of vocabulary, or tables that do not fit each other.
    pub fn from_gguf(table: GgufVocabulary) -> Result<Tokenizer> {
        let count = table.tokens.len();
        ensure!(count > 0, "the file has no vocabulary (tokenizer.ggml.tokens is empty)");
        ensure!(u32::try_from(count).is_ok(), "the vocabulary has too many tokens ({count})");
        for (name, len) in [("token_type", table.token_types.len()), ("scores", table.scores.len())]
        {
            ensure!(
                len == 0 || len == count,
                "the file's vocabulary is damaged: {count} tokens, but {len} entries in tokenizer.ggml.{name}"
            );
        }
        match table.model.as_str() {
            "gpt2" => byte_level(table),
            "llama" | "gemma4" => sentencepiece(table),
            other => bail!(
                "the file's tokenizer is of kind `{other}`, which is not supported (gpt2, llama and gemma4 are)"
            ),
        }
    }
}

fn byte_level(table: GgufVocabulary) -> Result<Tokenizer> {
    let mut warnings = Vec::new();
    let vocab = vocabulary(&table, &mut warnings);
    let merges = checked_merges(&table.merges, &vocab, &mut warnings);
    let split = PreTokenizer::of(&table.pre, &mut warnings)?;
    let llama3 = split.ignore_merges;
    let model = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(llama3)
        .build()
        .map_err(unusable)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    inner.with_pre_tokenizer(Some(split.rule));
    if split.nfc {
        inner.with_normalizer(Some(NFC)).map_err(unusable)?;
    }
    finish(inner, table, Spelling::ByteLevel, llama3, false, warnings)
}

/// SentencePiece's BPE: on characters, spaces written `▁`, characters without a token as bytes.
/// The merges are in the file (`gemma4`) or follow from its scores.
fn sentencepiece(table: GgufVocabulary) -> Result<Tokenizer> {
    let mut warnings = Vec::new();
    let vocab = vocabulary(&table, &mut warnings);
    let merges = if table.merges.is_empty() {
        scored_merges(&table)?
    } else {
        checked_merges(&table.merges, &vocab, &mut warnings)
    };
    let mut model = BPE::builder().byte_fallback(true).fuse_unk(true);
    let unk = table.unk.and_then(|id| table.tokens.get(id as usize));
    if let Some(unk) = unk.filter(|token| !token.is_empty()) {
        model = model.unk_token(unk.clone());
    }
    let model = model.vocab_and_merges(vocab, merges).build().map_err(unusable)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    let spaces: NormalizerWrapper = Replace::new(" ", "\u{2581}").map_err(unusable)?.into();
    let prefix = table.add_space_prefix.unwrap_or(table.model == "llama");
    let normalizer = if prefix {
        Normalizers::new(vec![Prepend::new("\u{2581}".into()).into(), spaces]).into()
    } else {
        spaces
    };
    inner.with_normalizer(Some(normalizer)).map_err(unusable)?;
    finish(inner, table, Spelling::SentencePiece, true, prefix, warnings)
}

fn scored_merges(table: &GgufVocabulary) -> Result<Vec<(String, String)>> {
    ensure!(
        !table.scores.is_empty(),
        "the file's vocabulary is damaged: it has neither tokenizer.ggml.scores nor merges"
    );
    let tokens = table.tokens.iter().zip(&table.scores).enumerate();
    let mergeable =
        tokens.filter(|(id, _)| !matches!(kind(table, *id), CONTROL | UNKNOWN | UNUSED | BYTE));
    Ok(merges_from_scores(
        mergeable.map(|(id, (token, &score))| (token.as_str(), id as u32, score)),
    ))
}

/// Add the special tokens and put the rest together.
fn finish(
    mut inner: tokenizers::Tokenizer,
    table: GgufVocabulary,
    spelling: Spelling,
    adds_bos: bool,
    prefix: bool,
    warnings: Vec<String>,
) -> Result<Tokenizer> {
    let special = |id: usize| special(&table, id);
    let added = table.tokens.iter().enumerate().filter_map(|(id, token)| {
        let user_defined = kind(&table, id) == USER_DEFINED;
        (special(id) || user_defined)
            .then(|| AddedToken::from(token.as_str(), special(id)).normalized(false))
    });
    inner.add_tokens(added).map_err(unusable)?;
    let tokens = table.tokens.iter().enumerate();
    let pieces = Pieces::new(
        tokens.map(|(id, token)| Some((token.as_str(), special(id)))),
        spelling,
        prefix,
    );
    let facts = Facts {
        bos: table.bos,
        eos: table.eos,
        adds_bos: table.add_bos.unwrap_or(adds_bos),
        ends: table.eot.into_iter().collect(),
        chat_template: table.chat_template,
        warnings,
    };
    Ok(Tokenizer::new(inner, pieces, facts))
}

fn kind(table: &GgufVocabulary, id: usize) -> i32 {
    table.token_types.get(id).copied().unwrap_or(1)
}

/// Whether a token is a control token; where the file does not say, those that it names.
fn special(table: &GgufVocabulary, id: usize) -> bool {
    if table.token_types.is_empty() {
        let named = [table.bos, table.eos, table.eot, table.pad];
        return named.iter().flatten().any(|&n| n as usize == id);
    }
    matches!(kind(table, id), CONTROL | UNKNOWN)
}

/// Token to id. Of tokens spelled alike the first counts.
fn vocabulary(table: &GgufVocabulary, warnings: &mut Vec<String>) -> Vocab {
    let mut vocab = Vocab::with_capacity(table.tokens.len());
    let mut repeated = 0;
    for (id, token) in table.tokens.iter().enumerate() {
        if vocab.contains_key(token) {
            repeated += 1;
        } else if !token.is_empty() {
            vocab.insert(token.clone(), id as u32);
        }
    }
    if repeated > 0 {
        warnings.push(format!("the vocabulary has {repeated} tokens twice; the first ones count"));
    }
    vocab
}

/// The merges whose two tokens and result exist.
fn checked_merges(
    merges: &[String],
    vocab: &Vocab,
    warnings: &mut Vec<String>,
) -> Vec<(String, String)> {
    let usable: Vec<_> = merges
        .iter()
        .filter_map(|merge| {
            let (left, right) = merge.split_once(' ')?;
            let known = vocab.contains_key(left)
                && vocab.contains_key(right)
                && vocab.contains_key(&format!("{left}{right}"));
            known.then(|| (left.to_owned(), right.to_owned()))
        })
        .collect();
    let dropped = merges.len() - usable.len();
    if dropped > 0 {
        warnings.push(format!(
            "{dropped} of {} merge rules name tokens that the vocabulary lacks; they are left out",
            merges.len()
        ));
    }
    usable
}

/// How text is split before merging.
struct PreTokenizer {
    rule: PreTokenizerWrapper,
    /// Text is composed first.
    nfc: bool,
    /// A piece that is a token as a whole is not merged.
    ignore_merges: bool,
}

impl PreTokenizer {
    /// The rule that a file's `tokenizer.ggml.pre` names, with the settings of the families'
    /// own `tokenizer.json`.
    fn of(name: &str, warnings: &mut Vec<String>) -> Result<PreTokenizer> {
        let bytes = |use_regex| ByteLevel::new(false, false, use_regex).into();
        let rules = match name {
            "smollm" | "starcoder" | "refact" | "command-r" => {
                vec![Digits::new(true).into(), bytes(true)]
            }
            "qwen2" | "deepseek-r1-qwen" => vec![isolated(QWEN2)?, bytes(false)],
            "llama-bpe" | "llama3" | "llama-v3" => vec![isolated(LLAMA3)?, bytes(false)],
            "gpt-2" | "gpt2" | "olmo" | "phi-2" => vec![bytes(true)],
            other => {
                let name = if other.is_empty() { "no" } else { other };
                warnings.push(format!(
                    "the file names {name} rule for splitting text that is known here; GPT-2's is used, so that some texts may be split otherwise than in training"
                ));
                vec![bytes(true)]
            }
        };
        Ok(PreTokenizer {
            rule: Sequence::new(rules).into(),
            nfc: matches!(name, "qwen2" | "deepseek-r1-qwen"),
            ignore_merges: matches!(name, "llama-bpe" | "llama3" | "llama-v3"),
        })
    }
}

fn isolated(regex: &str) -> Result<PreTokenizerWrapper> {
    let pattern = SplitPattern::Regex(regex.to_owned());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(unusable)?;
    Ok(split.into())
}

fn unusable(e: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the file's vocabulary cannot be used: {e}")
}

#[cfg(test)]
mod tests {
    use super::super::Special;
    use super::*;
    use proptest::prelude::*;

    fn table(model: &str, pre: &str, tokens: &[&str], merges: &[&str]) -> GgufVocabulary {
        let strings = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
        GgufVocabulary {
            model: model.into(),
            pre: pre.into(),
            tokens: strings(tokens),
            merges: strings(merges),
            ..GgufVocabulary::default()
        }
    }

    fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer.encode(text, Special::Parse).unwrap()
    }

    #[test]
    fn merges_with_unknown_tokens_are_left_out() {
        let merges = ["a b", "a nothing", "b b", "nospace", "", "aaaaaaaaaaaa bbbbbbbbbbbb"];
        let built = Tokenizer::from_gguf(table("gpt2", "smollm", &["a", "b", "ab"], &merges));
        let tokenizer = built.unwrap();
        assert_eq!(encode(&tokenizer, "abb"), [2, 1]);
        assert_eq!(tokenizer.warnings().len(), 1, "{:?}", tokenizer.warnings());
        assert!(tokenizer.warnings()[0].starts_with("5 of 6 merge rules"));
    }

    #[test]
    fn of_tokens_spelled_alike_the_first_counts() {
        let tokenizer =
            Tokenizer::from_gguf(table("gpt2", "gpt-2", &["x", "a", "a", ""], &[])).unwrap();
        assert_eq!(encode(&tokenizer, "aa"), [1, 1]);
        assert_eq!((tokenizer.decode(&[2]), tokenizer.piece(3)), ("a".into(), "[3]".into()));
        assert_eq!(tokenizer.warnings().len(), 1);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let error = |table| Tokenizer::from_gguf(table).unwrap_err().to_string();
        assert!(error(table("gpt2", "", &[], &[])).contains("no vocabulary"));
        assert!(error(table("bert", "", &["a"], &[])).contains("`bert`"));
        assert!(error(table("llama", "", &["a"], &[])).contains("scores"));
        let mut short = table("gpt2", "", &["a", "b"], &[]);
        short.token_types = vec![1];
        assert!(error(short).contains("2 tokens, but 1 entries in tokenizer.ggml.token_type"));
    }

    #[test]
    fn ids_beyond_the_vocabulary_are_not_ends() {
        let mut huge = table("gpt2", "gpt-2", &["a", "</s>"], &[]);
        (huge.bos, huge.eos, huge.eot) = (Some(u32::MAX), Some(1), Some(7));
        let tokenizer = Tokenizer::from_gguf(huge).unwrap();
        assert_eq!((tokenizer.bos(), tokenizer.end_tokens()), (None, &[1][..]));
        assert_eq!(encode(&tokenizer, "a</s>"), [0, 1]);
        assert_eq!(tokenizer.decode(&[0, 1, 9]), "a");
    }

    #[test]
    fn an_unknown_splitting_rule_is_named() {
        let tokenizer = Tokenizer::from_gguf(table("gpt2", "new-fashion", &["a"], &[])).unwrap();
        assert!(tokenizer.warnings()[0].contains("new-fashion"));
    }

    /// bugs.md B30: spaces between tokens are kept, and shown.
    #[test]
    fn sentencepiece_spaces_and_bytes() {
        let tokens = ["<unk>", "<s>", "\u{2581}", "a", "\u{2581}a", "<0xC3>", "<0xA9>"];
        let mut spm = table("llama", "default", &tokens, &[]);
        spm.scores = vec![0.0, 0.0, -1.0, -2.0, -3.0, 0.0, 0.0];
        spm.token_types = vec![2, 3, 1, 1, 1, 6, 6];
        (spm.unk, spm.bos) = (Some(0), Some(1));
        let tokenizer = Tokenizer::from_gguf(spm).unwrap();
        assert_eq!(encode(&tokenizer, "a aé"), [4, 4, 5, 6]);
        assert_eq!(tokenizer.decode(&[4, 4, 5, 6]), "a aé");
        assert_eq!((tokenizer.piece(4), tokenizer.piece(5)), (" a".into(), "<C3>".into()));
        assert_eq!(tokenizer.with_bos(vec![3]), [1, 3]);
    }

    proptest! {
        /// Any tables make a tokenizer or an error, and any tokenizer takes any text.
        #[test]
        fn no_table_panics(
            tokens in prop::collection::vec("[ab\u{2581} <|>]{0,3}|.{0,3}", 0..20),
            merges in prop::collection::vec("[ab]{1,3} [ab]{1,3}|.{0,5}", 0..20),
            kinds in prop::collection::vec(-1..8i32, 0..20),
            scores in prop::collection::vec(prop::num::f32::ANY, 0..20),
            fit in any::<bool>(),
            model in prop::sample::select(vec!["gpt2", "llama", "gemma4"]),
            pre in prop::sample::select(vec!["smollm", "qwen2", "llama-bpe", ""]),
            some_id in any::<Option<u8>>(),
            text in "[ab\u{2581} <|>]{0,9}|.{0,9}",
        ) {
            let mut table = table(model, pre, &[], &[]);
            (table.tokens, table.merges) = (tokens, merges);
            (table.token_types, table.scores) = (kinds, scores);
            if fit {
                table.token_types.resize(table.tokens.len(), 1);
                table.scores.resize(table.tokens.len(), 0.0);
            }
            let id = some_id.map(|id| u32::from(id) / 10);
            (table.bos, table.eos, table.eot, table.unk) = (id, id, id, id);
            if let Ok(tokenizer) = Tokenizer::from_gguf(table) {
                for special in [Special::Parse, Special::AsText] {
                    let ids = tokenizer.with_bos(tokenizer.encode(&text, special).unwrap());
                    tokenizer.decode(&ids);
                    ids.iter().for_each(|&id| drop(tokenizer.piece(id)));
                }
                let parts = [(text.as_str(), Special::Parse), (text.as_str(), Special::AsText)];
                tokenizer.encode_parts(&parts).unwrap();
            }
        }
    }
}
