//! `tokenizer.json` and its companions.

use super::pieces::{Pieces, Spelling};
use super::{Facts, Tokenizer};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// Largest file that is read whole. Gemma's `tokenizer.json` has 33 MB.
const LARGEST: u64 = 1 << 28;

/// The contents of a model folder's tokenizer files. Only the first is needed.
#[derive(Debug, Clone, Default)]
pub struct TokenizerFiles {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`: names of special tokens, the chat template.
    pub tokenizer_config: Option<Vec<u8>>,
    /// `special_tokens_map.json`: names of special tokens, where the config has none.
    pub special_tokens_map: Option<Vec<u8>>,
    /// `generation_config.json`: end tokens.
    pub generation_config: Option<Vec<u8>>,
    /// `chat_template.jinja`, which goes before the config's.
    pub chat_template: Option<Vec<u8>>,
}

impl TokenizerFiles {
    /// Read them from a model's folder.
    ///
    /// # Errors
    /// A file that cannot be read; `tokenizer.json` missing.
    pub fn read(folder: &Path) -> Result<TokenizerFiles> {
        let optional = |name: &str| read(&folder.join(name));
        let Some(tokenizer) = optional("tokenizer.json")? else {
            bail!("{} has no tokenizer.json", folder.display());
        };
        Ok(TokenizerFiles {
            tokenizer,
            tokenizer_config: optional("tokenizer_config.json")?,
            special_tokens_map: optional("special_tokens_map.json")?,
            generation_config: optional("generation_config.json")?,
            chat_template: optional("chat_template.jinja")?,
        })
    }
}

/// The contents of a file, `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let size = match std::fs::metadata(path) {
        Ok(facts) => facts.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("reading {}", path.display())),
    };
    ensure!(size <= LARGEST, "{} is too large for what it should be", path.display());
    std::fs::read(path).map(Some).with_context(|| format!("reading {}", path.display()))
}

impl Tokenizer {
    /// The tokenizer of a model's folder.
    ///
    /// # Errors
    /// Files that are missing, damaged, or of a kind that is not supported.
    pub fn from_dir(folder: &Path) -> Result<Tokenizer> {
        let files = TokenizerFiles::read(folder)?;
        Tokenizer::from_files(&files).with_context(|| format!("in {}", folder.display()))
    }

    /// The tokenizer of these files.
    ///
    /// # Errors
    /// Files that are damaged or of a kind that is not supported.
    pub fn from_files(files: &TokenizerFiles) -> Result<Tokenizer> {
        check_merges(&files.tokenizer)?;
        let inner = tokenizers::Tokenizer::from_bytes(&files.tokenizer)
            .map_err(|e| anyhow!("tokenizer.json is damaged or of a kind not supported: {e}"))?;
        let pieces = pieces(&inner)?;
        let mut warnings = Vec::new();
        let mut companion = |name: &str, bytes: &Option<Vec<u8>>| -> Value {
            let Some(bytes) = bytes else { return Value::Null };
            serde_json::from_slice(bytes).unwrap_or_else(|e| {
                warnings.push(format!("{name} cannot be read and is left out: {e}"));
                Value::Null
            })
        };
        let config = companion("tokenizer_config.json", &files.tokenizer_config);
        let names = companion("special_tokens_map.json", &files.special_tokens_map);
        let generation = companion("generation_config.json", &files.generation_config);
        let id_of = |key: &str| {
            let name = token_name(&config[key]).or_else(|| token_name(&names[key]))?;
            inner.token_to_id(name)
        };
        let chat_template = match &files.chat_template {
            Some(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            None => template_of(&config["chat_template"]),
        };
        // Where the config does not say, the file's own post-processor does.
        let begins = || inner.encode("", true).ok()?.get_ids().first().copied();
        let named = id_of("bos_token");
        let facts = Facts {
            bos: named.or_else(begins),
            eos: id_of("eos_token"),
            adds_bos: match config["add_bos_token"].as_bool() {
                Some(adds) => adds,
                None => begins().is_some_and(|first| named.is_none_or(|bos| bos == first)),
            },
            ends: ids_of(&generation["eos_token_id"]),
            chat_template,
            warnings,
        };
        Ok(Tokenizer::new(inner, pieces, facts))
    }
}

/// The bytes of each token, by the decoder that the file asks for.
fn pieces(inner: &tokenizers::Tokenizer) -> Result<Pieces> {
    let vocab = inner.get_vocab(true);
    let largest = vocab.values().copied().max().context("tokenizer.json has no tokens")?;
    let count = largest as usize + 1;
    // A table as long as the largest id is made below: refuse ids that no vocabulary has.
    ensure!(
        count <= 4 * vocab.len() + 1024,
        "tokenizer.json has {} tokens, but ids up to {largest}",
        vocab.len()
    );
    let decoder = serde_json::to_value(inner.get_decoder())?;
    let (spelling, strips_first_space) = spelling_of(&decoder)?;
    let added = inner.get_added_tokens_decoder();
    let tokens: Vec<Option<(String, bool)>> = (0..count as u32)
        .map(|id| {
            let special = added.get(&id).is_some_and(|token| token.special);
            inner.id_to_token(id).map(|token| (token, special))
        })
        .collect();
    let tokens =
        tokens.iter().map(|t| t.as_ref().map(|(token, special)| (token.as_str(), *special)));
    Ok(Pieces::new(tokens, spelling, strips_first_space))
}

/// How tokens are spelled, and whether a text's first space is dropped, from the decoder's
/// settings.
fn spelling_of(decoder: &Value) -> Result<(Spelling, bool)> {
    let steps = match decoder["type"].as_str() {
        Some("Sequence") => decoder["decoders"].as_array().map_or(&[] as &[Value], Vec::as_slice),
        _ => std::slice::from_ref(decoder),
    };
    let mut spelling = None;
    let mut strips = false;
    for step in steps {
        match step["type"].as_str().unwrap_or("none") {
            "ByteLevel" => spelling = Some(Spelling::ByteLevel),
            "ByteFallback" | "Fuse" => {}
            "Replace" if step["pattern"]["String"] == "\u{2581}" && step["content"] == " " => {
                spelling = Some(Spelling::SentencePiece);
            }
            "Metaspace" => {
                spelling = Some(Spelling::SentencePiece);
                strips = step["prepend_scheme"] != "never";
            }
            "Strip" if step["content"] == " " && step["stop"] == 0 => {
                strips = step["start"] != 0;
            }
            other => bail!("tokenizer.json decodes by `{other}`, which is not supported"),
        }
    }
    let spelling = spelling.context("tokenizer.json has no decoder that is supported")?;
    Ok((spelling, strips))
}

/// A token's name: written as a string, or as an object with its settings.
fn token_name(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

/// A chat template: one text, or several with names of which `default` is meant.
fn template_of(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let named = value.as_array()?.iter().find(|entry| entry["name"] == "default")?;
    named["template"].as_str().map(str::to_owned)
}

/// One id or several.
fn ids_of(value: &Value) -> Vec<u32> {
    let one = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
    match value.as_array() {
        Some(list) => list.iter().filter_map(one).collect(),
        None => one(value).into_iter().collect(),
    }
}

/// Refuse a BPE model with a merge longer than its longest token: the `tokenizers` crate copies
/// merges into a buffer of that length and would panic.
fn check_merges(json: &[u8]) -> Result<()> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        model: Model,
    }
    #[derive(Deserialize, Default)]
    struct Model {
        #[serde(default, deserialize_with = "longest_key")]
        vocab: Option<usize>,
        #[serde(default, deserialize_with = "longest_pair")]
        merges: usize,
    }
    let File { model } = serde_json::from_slice(json).context("tokenizer.json is damaged")?;
    if let Some(longest) = model.vocab {
        ensure!(
            model.merges <= longest,
            "tokenizer.json is damaged: a merge rule makes a token of {} bytes, the longest one has {longest}",
            model.merges
        );
    }
    Ok(())
}

/// The length of an object's longest key; `None` for a list (a Unigram model's vocabulary).
fn longest_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    struct Longest;
    impl<'de> Visitor<'de> for Longest {
        type Value = Option<usize>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a vocabulary")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut longest = 0;
            while let Some((key, IgnoredAny)) = map.next_entry::<Text<'de>, _>()? {
                longest = longest.max(key.0.len());
            }
            Ok(Some(longest))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while let Some(IgnoredAny) = list.next_element()? {}
            Ok(None)
        }
    }
    deserializer.deserialize_any(Longest)
}

/// The length of the longest token that a list of merges makes.
fn longest_pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Merge<'a> {
        Pair(#[serde(borrow)] Text<'a>, Text<'a>),
        Words(#[serde(borrow)] Text<'a>),
    }
    struct Longest;
    impl<'de> Visitor<'de> for Longest {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a list of merge rules")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
            let mut longest = 0;
            while let Some(merge) = list.next_element::<Merge<'de>>()? {
                longest = longest.max(match merge {
                    Merge::Pair(left, right) => left.0.len() + right.0.len(),
                    Merge::Words(words) => words.0.len().saturating_sub(1),
                });
            }
            Ok(longest)
        }
    }
    deserializer.deserialize_seq(Longest)
}

/// A string that is copied only if it must be.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::super::Special;
    use super::*;
    use serde_json::json;

    fn files(model: Value, decoder: Value) -> TokenizerFiles {
        let added = json!([{"id": 3, "content": "<end>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}]);
        let whole = json!({"version": "1.0", "added_tokens": added, "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": decoder, "model": model});
        TokenizerFiles { tokenizer: whole.to_string().into_bytes(), ..Default::default() }
    }

    fn byte_level() -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
    }

    fn small(merges: Value) -> Value {
        json!({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": merges})
    }

    fn error(files: &TokenizerFiles) -> String {
        format!("{:#}", Tokenizer::from_files(files).unwrap_err())
    }

    #[test]
    fn both_spellings_of_merges() {
        for merges in [json!(["a b"]), json!([["a", "b"]])] {
            let tokenizer = Tokenizer::from_files(&files(small(merges), byte_level())).unwrap();
            assert_eq!(tokenizer.encode("ab<end>", Special::Parse).unwrap(), [2, 3]);
            assert_eq!(tokenizer.decode(&[2, 3, 0]), "aba");
        }
    }

    #[test]
    fn companions_name_the_ends() {
        let mut files = files(small(json!([])), byte_level());
        files.tokenizer_config = Some(json!({"eos_token": {"content": "<end>"},
            "chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]})
        .to_string().into_bytes());
        files.generation_config =
            Some(json!({"eos_token_id": [1, 99, -5]}).to_string().into_bytes());
        files.special_tokens_map = Some(b"not json".to_vec());
        let tokenizer = Tokenizer::from_files(&files).unwrap();
        assert_eq!(tokenizer.end_tokens(), [1, 3]);
        assert_eq!((tokenizer.eos(), tokenizer.bos()), (Some(3), None));
        assert_eq!(tokenizer.chat_template(), Some("d"));
        assert!(tokenizer.warnings()[0].starts_with("special_tokens_map.json"));
        files.chat_template = Some(b"jinja".to_vec());
        assert_eq!(Tokenizer::from_files(&files).unwrap().chat_template(), Some("jinja"));
    }

    #[test]
    fn hostile_files_are_refused() {
        let long = files(small(json!([["a", "bbbbbbbb"]])), byte_level());
        assert!(error(&long).contains("a merge rule makes a token of 9 bytes"));
        assert!(error(&files(small(json!(["b a"])), byte_level())).contains("not supported"));
        assert!(
            error(&files(
                small(json!([])),
                json!({"type": "WordPiece", "prefix": "##", "cleanup": true})
            ))
            .contains("`WordPiece`")
        );
        assert!(error(&files(small(json!([])), Value::Null)).contains("`none`"));
        let sparse = json!({"type": "BPE", "vocab": {"a": 4294967295u32}, "merges": []});
        assert!(error(&files(sparse, byte_level())).contains("ids up to 4294967295"));
        for bytes in ["", "{}", "[]", "{\"model\": 3}", "{\"model\": {\"type\": \"BPE\"}}", "\u{0}"]
        {
            let files = TokenizerFiles { tokenizer: bytes.into(), ..Default::default() };
            assert!(error(&files).starts_with("tokenizer.json is damaged"), "{bytes}");
        }
    }

    /// bugs.md B30: spaces between tokens are kept, and shown.
    #[test]
    fn metaspace_strips_the_first_space_only() {
        let metaspace = json!({"type": "Metaspace", "replacement": "\u{2581}",
            "prepend_scheme": "always", "split": true});
        let model =
            json!({"type": "BPE", "vocab": {"\u{2581}Hello": 0, "\u{2581}world": 1}, "merges": []});
        let tokenizer = Tokenizer::from_files(&files(model, metaspace)).unwrap();
        assert_eq!(tokenizer.decode(&[0, 1]), "Hello world");
        assert_eq!(tokenizer.piece(1), " world");
    }
}
