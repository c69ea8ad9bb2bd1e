//! Token ids against references. `tests/fixtures/tokenizer/generate_ids.py` made the expected ids;
//! the tokenizers themselves are not in the repository. The demo target's is read from the file
//! that `DFLASH_DEMO_TARGET` names, the others from `target/fixtures/tokenizers`, where
//! `tests/fetch-tokenizers.sh` puts them.

mod text_support;

use dflash_chat::decode::detokenize::Detokenizer;
use dflash_chat::model::tokenizer::{Special, Tokenizer};
use proptest::prelude::*;
use serde_json::Value;
use std::ops::Range;

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/tokenizer/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Every string of the fixture, both ways.
fn compare(tokenizer: &Tokenizer, name: &str) {
    compare_but(tokenizer, name, &[]);
}

/// Every string of the fixture but some, both ways.
fn compare_but(tokenizer: &Tokenizer, name: &str, left_out: &[&str]) {
    let strings = fixture("strings");
    let strings = strings.as_array().unwrap();
    assert!(strings.len() >= 200);
    let expected = fixture(name);
    let mut wrong = Vec::new();
    for (i, text) in strings.iter().enumerate() {
        let text = text.as_str().unwrap();
        if left_out.contains(&text) {
            continue;
        }
        for (key, special) in [("parse", Special::Parse), ("as_text", Special::AsText)] {
            let got = tokenizer.encode(text, special).unwrap();
            if got != ids(&expected[key][i]) {
                wrong.push(format!("{key} {text:?}: {got:?}, expected {}", expected[key][i]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

fn random_rounds(tokenizer: &Tokenizer) {
    let size = tokenizer.vocab_size() as u32;
    let ids = prop::collection::vec((0..size + 50, any::<bool>()), 0..60);
    proptest!(cases(), |(ids in ids)| {
        let all: Vec<u32> = ids.iter().map(|(id, _)| *id).collect();
        let mut detokenizer = Detokenizer::new(tokenizer);
        let mut text = String::new();
        let mut round = Vec::new();
        for (id, cut) in ids {
            round.push(id);
            if cut {
                text.push_str(&detokenizer.push(&round));
                round.clear();
            }
        }
        text.push_str(&detokenizer.push(&round));
        prop_assert_eq!(text, tokenizer.decode(&all));
    });
}

/// Any ids decode as the `tokenizers` crate decodes them, once no character is left open.
fn decodes_alike(tokenizer: &Tokenizer, name: &str, ids: Range<u32>) {
    let crates_own = text_support::crates_tokenizer(name);
    let close = tokenizer.encode("x", Special::AsText).unwrap();
    let lists = prop::collection::vec(ids, 0..40);
    proptest!(cases(), |(list in lists)| {
        let ids = [list, close.clone()].concat();
        prop_assert_eq!(tokenizer.decode(&ids), crates_own.decode(&ids, true).unwrap());
    });
}

/// Texts that are whole come back whole, in whatever rounds their ids come.
fn round_trips(tokenizer: &Tokenizer) {
    for text in fixture("strings").as_array().unwrap() {
        // `▁` is a space to SentencePiece, whoever typed it.
        let text = text.as_str().unwrap().replace('▁', "");
        let ids = tokenizer.encode(&text, Special::AsText).unwrap();
        assert_eq!(tokenizer.decode(&ids), text);
        let mut detokenizer = Detokenizer::new(tokenizer);
        let streamed: Vec<String> = ids.iter().map(|&id| detokenizer.push(&[id])).collect();
        assert_eq!(streamed.concat(), text);
        assert!(streamed.iter().all(|t| text.contains('\u{fffd}') || !t.contains('\u{fffd}')));
    }
}

#[test]
fn demo_target() {
    let Some(tokenizer) = text_support::demo_tokenizer() else { return };
    compare(&tokenizer, "smollm2");
    round_trips(&tokenizer);
    random_rounds(&tokenizer);
    assert_eq!(tokenizer.end_tokens(), [0, 2]);
    assert_eq!(tokenizer.vocab_size(), 49152);
    assert_eq!(tokenizer.warnings(), &[] as &[String]);
    assert_eq!(tokenizer.piece(2), "<|im_end|>");
    assert_eq!(tokenizer.piece(49152), "[49152]");
    assert_eq!(tokenizer.piece(198), "⏎");
    assert_eq!(tokenizer.with_bos(vec![198]), [198]);
}

#[test]
fn qwen3() {
    let Some(tokenizer) = text_support::json_tokenizer("qwen3") else { return };
    compare(&tokenizer, "qwen3");
    decodes_alike(&tokenizer, "qwen3", 0..151_669);
    random_rounds(&tokenizer);
    assert_eq!(tokenizer.end_tokens(), [151643, 151645]);
    assert_eq!(tokenizer.vocab_size(), 151669);
    assert_eq!(tokenizer.piece(151669), "[151669]", "the draft's mask token");
    assert_eq!(tokenizer.with_bos(vec![9707]), [9707]);
    let tables = text_support::as_gguf_tables("qwen3", "qwen2");
    compare(&Tokenizer::from_gguf(tables).unwrap(), "qwen3");
}

#[test]
fn llama3_1() {
    let Some(tokenizer) = text_support::json_tokenizer("llama3_1") else { return };
    compare(&tokenizer, "llama3_1");
    decodes_alike(&tokenizer, "llama3_1", 0..128_256);
    round_trips(&tokenizer);
    random_rounds(&tokenizer);
    assert_eq!(tokenizer.end_tokens(), [128001, 128009]);
    assert_eq!(tokenizer.with_bos(vec![9906]), [128000, 9906]);
    assert_eq!(tokenizer.with_bos(vec![128000, 128000, 9906]), [128000, 9906]);
    let tables = text_support::as_gguf_tables("llama3_1", "llama-bpe");
    compare(&Tokenizer::from_gguf(tables).unwrap(), "llama3_1");
}

#[test]
fn gemma3() {
    let Some(tokenizer) = text_support::json_tokenizer("gemma3") else { return };
    compare(&tokenizer, "gemma3");
    decodes_alike(&tokenizer, "gemma3", 500..262_145);
    round_trips(&tokenizer);
    random_rounds(&tokenizer);
    assert_eq!(tokenizer.end_tokens(), [1, 106]);
    assert_eq!(tokenizer.bos(), Some(2));
    assert_eq!(tokenizer.with_bos(vec![9259]), [2, 9259]);
}

/// The same ids from a GGUF file's scores as from `tokenizer.json`'s merges. Two strings differ
/// because the tables do (llama.cpp has our ids for them): unused tokens are control tokens in the
/// one and text in the other, and `▁▁` typed as such is a token in `tokenizer.json` only.
#[test]
fn gemma3_from_gguf() {
    let Some(tokenizer) = text_support::named_tokenizer("DFLASH_GEMMA3") else { return };
    compare_but(&tokenizer, "gemma3", &["<unused7>", "▁▁under▁line"]);
    random_rounds(&tokenizer);
    assert_eq!(tokenizer.with_bos(vec![9259]), [2, 9259]);
}
