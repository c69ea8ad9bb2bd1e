//! What several tests need.
#![allow(dead_code)]

use candle_core::quantized::gguf_file::{Content, Value};
use dflash_chat::model::tokenizer::{GgufVocabulary, Tokenizer};

/// The tokenizer of the demo target, if the file is there.
pub fn demo_tokenizer() -> Option<Tokenizer> {
    named_tokenizer("DFLASH_DEMO_TARGET")
}

/// The tokenizer of the GGUF file that this variable of the environment names.
pub fn named_tokenizer(variable: &str) -> Option<Tokenizer> {
    let Ok(path) = std::env::var(variable) else {
        eprintln!("skipped: {variable} does not name a GGUF file");
        return None;
    };
    Some(gguf_tokenizer(&path))
}

/// The tokenizer of a GGUF file.
pub fn gguf_tokenizer(path: &str) -> Tokenizer {
    let mut file = std::fs::File::open(path).unwrap();
    let content = Content::read(&mut file).unwrap();
    let get = |key: &str| content.metadata.get(&format!("tokenizer.{key}"));
    let list = |key: &str| get(key).map_or(&[] as &[Value], |v| v.to_vec().unwrap().as_slice());
    let string = |v: &Value| v.to_string().unwrap().clone();
    let id = |key: &str| get(key).map(|v| v.to_u32().unwrap());
    Tokenizer::from_gguf(GgufVocabulary {
        model: get("ggml.model").map(string).unwrap_or_default(),
        pre: get("ggml.pre").map(string).unwrap_or_default(),
        tokens: list("ggml.tokens").iter().map(string).collect(),
        merges: list("ggml.merges").iter().map(string).collect(),
        token_types: list("ggml.token_type").iter().map(|v| v.to_i32().unwrap()).collect(),
        scores: list("ggml.scores").iter().map(|v| v.to_f32().unwrap()).collect(),
        bos: id("ggml.bos_token_id"),
        eos: id("ggml.eos_token_id"),
        eot: id("ggml.eot_token_id"),
        unk: id("ggml.unknown_token_id"),
        pad: id("ggml.padding_token_id"),
        add_bos: get("ggml.add_bos_token").map(|v| v.to_bool().unwrap()),
        add_space_prefix: get("ggml.add_space_prefix").map(|v| v.to_bool().unwrap()),
        chat_template: get("chat_template").map(string),
    })
    .unwrap()
}

/// A tokenizer that `tests/fetch-tokenizers.sh` fetched, if it is there.
pub fn json_tokenizer(name: &str) -> Option<Tokenizer> {
    let folder = format!("{}/target/fixtures/tokenizers/{name}", env!("CARGO_MANIFEST_DIR"));
    if !std::path::Path::new(&folder).exists() {
        eprintln!("skipped: {folder} is not there; tests/fetch-tokenizers.sh fetches it");
        return None;
    }
    Some(Tokenizer::from_dir(folder.as_ref()).unwrap())
}

/// The same without anything of ours around it.
pub fn crates_tokenizer(name: &str) -> tokenizers::Tokenizer {
    let file =
        format!("{}/target/fixtures/tokenizers/{name}/tokenizer.json", env!("CARGO_MANIFEST_DIR"));
    tokenizers::Tokenizer::from_file(file).unwrap()
}

/// The tables that a GGUF file of this tokenizer would have, by the rules of llama.cpp's
/// converter.
pub fn as_gguf_tables(name: &str, pre: &str) -> GgufVocabulary {
    let folder = format!("{}/target/fixtures/tokenizers/{name}", env!("CARGO_MANIFEST_DIR"));
    let json = std::fs::read(format!("{folder}/tokenizer.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let mut tokens: Vec<(u64, String, i32)> = Vec::new();
    for (token, id) in json["model"]["vocab"].as_object().unwrap() {
        tokens.push((id.as_u64().unwrap(), token.clone(), 1));
    }
    for added in json["added_tokens"].as_array().unwrap() {
        let kind = if added["special"] == true { 3 } else { 4 };
        let content = added["content"].as_str().unwrap().to_owned();
        tokens.push((added["id"].as_u64().unwrap(), content, kind));
    }
    tokens.sort_unstable();
    assert!(tokens.iter().enumerate().all(|(i, (id, ..))| i as u64 == *id));
    let merge = |merge: &serde_json::Value| match merge.as_array() {
        Some(pair) => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        None => merge.as_str().unwrap().to_owned(),
    };
    GgufVocabulary {
        model: "gpt2".into(),
        pre: pre.into(),
        token_types: tokens.iter().map(|(_, _, kind)| *kind).collect(),
        tokens: tokens.into_iter().map(|(_, token, _)| token).collect(),
        merges: json["model"]["merges"].as_array().unwrap().iter().map(merge).collect(),
        ..GgufVocabulary::default()
    }
}
