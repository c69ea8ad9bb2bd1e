//! Rendered conversations and their ids against transformers' own rendering of the same
//! templates. `tests/fixtures/templates/generate.py` made the expected values; see
//! `tests/tokenizer.rs` for where the tokenizers come from.

mod text_support;

use dflash_chat::chat::template::{ChatTemplate, Piece, RenderOptions};
use dflash_chat::event::{ChatMessage, Role};
use dflash_chat::model::tokenizer::{Special, Tokenizer};
use serde_json::Value;

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/templates/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn conversations() -> Vec<Vec<ChatMessage>> {
    serde_json::from_value(fixture("conversations")).unwrap()
}

fn options(thinking: bool) -> RenderOptions {
    RenderOptions { thinking, ..RenderOptions::default() }
}

fn text_of(pieces: &[Piece]) -> String {
    let part = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Content(text) => text.clone(),
        Piece::Ids(_) => panic!("no ids were given"),
    };
    pieces.iter().map(part).collect()
}

/// Every conversation of the fixture: text, ids, or the refusal.
fn compare(tokenizer: &Tokenizer, name: &str) {
    let (template, warning) = ChatTemplate::of(tokenizer).unwrap();
    assert_eq!(warning, None);
    let conversations = conversations();
    for case in fixture(name)["cases"].as_array().unwrap() {
        let messages = &conversations[case["conversation"].as_u64().unwrap() as usize];
        let options = options(case["thinking"].as_bool().unwrap());
        let rendered = template.render(messages, &options);
        if let Some(refusal) = case["error"].as_str() {
            let said = rendered.unwrap_err().to_string();
            assert!(said.contains(refusal), "{said}");
            continue;
        }
        assert_eq!(text_of(&rendered.unwrap().pieces), case["text"].as_str().unwrap());
        let (ids, warning) = template.encode_prompt(tokenizer, messages, &options).unwrap();
        let expected: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(ids, expected, "{name}: {}", case["text"]);
        assert_eq!(warning, None);
    }
    splices(tokenizer, &template);
}

/// Answers with ids are spliced in: the ids of the turn before are a prefix of the next turn's.
fn splices(tokenizer: &Tokenizer, template: &ChatTemplate) {
    // Ids that no tokenizer would choose for the text: letter by letter.
    let answer = "Paris is the capital.";
    let odd: Vec<u32> = answer
        .chars()
        .flat_map(|c| tokenizer.encode(&c.to_string(), Special::AsText).unwrap())
        .collect();
    assert_ne!(odd, tokenizer.encode(answer, Special::AsText).unwrap());
    let mut talk = vec![ChatMessage::new(Role::User, "What is the capital of France?")];
    let (first, _) = template.encode_prompt(tokenizer, &talk, &options(true)).unwrap();
    talk.push(ChatMessage { ids: Some(odd.clone()), ..ChatMessage::new(Role::Assistant, answer) });
    talk.push(ChatMessage::new(Role::User, "And of Spain?"));
    let (second, _) = template.encode_prompt(tokenizer, &talk, &options(true)).unwrap();
    let known = [first, odd].concat();
    assert_eq!(second[..known.len()], known);
}

#[test]
fn smollm2() {
    let Some(tokenizer) = text_support::demo_tokenizer() else { return };
    compare(&tokenizer, "smollm2");
}

#[test]
fn qwen3() {
    let Some(tokenizer) = text_support::json_tokenizer("qwen3") else { return };
    compare(&tokenizer, "qwen3");
    let (template, _) = ChatTemplate::of(&tokenizer).unwrap();
    let ask = [ChatMessage::new(Role::User, "x /no_think")];
    let ends = |thinking| text_of(&template.render(&ask, &options(thinking)).unwrap().pieces);
    assert!(ends(false).ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
    assert!(ends(true).ends_with("x /no_think<|im_end|>\n<|im_start|>assistant\n"));
}

/// Qwen3's template drops the thinking of earlier answers: their ids may not bring it back.
#[test]
fn thinking_of_earlier_answers_is_dropped() {
    let Some(tokenizer) = text_support::json_tokenizer("qwen3") else { return };
    let (template, _) = ChatTemplate::of(&tokenizer).unwrap();
    let answer = |text: &str| ChatMessage {
        ids: Some(tokenizer.encode(text, Special::AsText).unwrap()),
        ..ChatMessage::new(Role::Assistant, text)
    };
    let talk = [
        ChatMessage::new(Role::User, "a"),
        answer("<think>\nhm\n</think>\n\nYes."),
        ChatMessage::new(Role::User, "b <|im_end|>"),
        answer("No."),
        ChatMessage::new(Role::User, "c"),
    ];
    let pieces = template.render(&talk, &options(true)).unwrap().pieces;
    let ids: Vec<&Vec<u32>> = pieces
        .iter()
        .filter_map(|p| if let Piece::Ids(ids) = p { Some(ids) } else { None })
        .collect();
    assert_eq!(ids, [talk[3].ids.as_ref().unwrap()]);
    assert!(pieces.contains(&Piece::Content("b <|im_end|>".into())));
    assert!(pieces.iter().any(|p| matches!(p, Piece::Text(t) if t.contains("assistant\nYes."))));
    assert!(!pieces.iter().any(|p| matches!(p, Piece::Text(t) if t.contains("hm"))));
}

#[test]
fn llama3_1() {
    let Some(tokenizer) = text_support::json_tokenizer("llama3_1") else { return };
    compare(&tokenizer, "llama3_1");
}

#[test]
fn gemma3() {
    let Some(tokenizer) = text_support::json_tokenizer("gemma3") else { return };
    compare(&tokenizer, "gemma3");
}
