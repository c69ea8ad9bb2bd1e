//! Anything may happen to a conversation, in any order: every answer is the one that a fresh
//! session gives to the same messages, and no more of the caches is used than is the same.

#[path = "decode_support/mod.rs"]
mod support;

use dflash_chat::chat::conversation::{Change, Conversation, Models};
use dflash_chat::event::{BlockSize, Generate, Mode, Prompt};
use proptest::prelude::*;
use support::{Chat, Mishap, hashed};

#[derive(Debug, Clone)]
enum Act {
    Ask(String),
    Retry,
    Undo,
    Edit(usize, String),
    System(Option<String>),
    Mode(Mode),
}

fn act() -> impl Strategy<Value = Act> {
    let text = || "[a-d]{1,9}";
    prop_oneof![
        4 => text().prop_map(Act::Ask),
        2 => Just(Act::Retry),
        1 => Just(Act::Undo),
        2 => (0usize..4, text()).prop_map(|(at, text)| Act::Edit(at, text)),
        1 => prop::option::of(text()).prop_map(Act::System),
        1 => prop::sample::select(vec![Mode::Speculative, Mode::Baseline]).prop_map(Act::Mode),
    ]
}

fn mishap() -> impl Strategy<Value = (usize, Mishap)> {
    let what = vec![Mishap::None, Mishap::None, Mishap::Fails, Mishap::Cancelled];
    (0usize..5, prop::sample::select(what))
}

fn chat(window: usize, accuracy: f64) -> Chat {
    let mut chat = Chat::with_window(hashed(), 6, 4000, window);
    chat.worker.end_tokens = (0..12).collect();
    chat.knobs.accuracy.set(accuracy);
    chat
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_answer_is_that_of_a_fresh_session(
        acts in prop::collection::vec((act(), mishap()), 1..16),
        window in prop::sample::select(vec![usize::MAX, 24]),
        accuracy in prop::sample::select(vec![0.0, 0.6, 1.0]),
    ) {
        let mut session = chat(window, accuracy);
        let mut conversation = Conversation::new("c", 0);
        conversation.apply(&Change::Models(Models { target: "t".into(), ..Models::default() }));
        let (mut mode, mut draft_knows_all) = (Mode::Speculative, true);
        for (act, mishap) in acts {
            let changes = match act {
                Act::Ask(text) => vec![Change::User { text }],
                Act::Retry => Vec::new(),
                Act::Undo => {
                    if let Some((undo, _)) = conversation.undo() {
                        conversation.apply(&undo);
                    }
                    continue;
                }
                Act::Edit(at, text) => conversation.edit(at, text),
                Act::System(text) => {
                    conversation.apply(&Change::System { text });
                    continue;
                }
                Act::Mode(other) => {
                    mode = other;
                    continue;
                }
            };
            for change in &changes {
                conversation.apply(change);
            }
            if conversation.turns.is_empty() {
                continue;
            }
            let asked = Generate {
                prompt: Prompt::Messages(conversation.messages_for_retry()),
                mode,
                block_size: BlockSize::Fixed(6),
                max_tokens: 14,
                ..Generate::default()
            };
            let before = session.worker.session.ids().to_vec();
            session.knobs.mishap.set(mishap);
            let answered = session.ask(asked.clone());
            session.knobs.mishap.set((0, Mishap::None));
            for change in answered.events.iter().filter_map(Change::of) {
                conversation.apply(&change);
            }

            let whole = chat(window, 1.0).ask(asked).ids();
            let ids = answered.ids();
            match answered.errors.is_empty() && !answered.reason_is_cancelled() {
                true => prop_assert_eq!(&ids, &whole),
                false => prop_assert_eq!(&ids[..], &whole[..ids.len()]),
            }
            let prompt = &answered.started.as_ref().unwrap().prompt_ids;
            let same = before.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            let most = same.min(prompt.len() - 1);
            prop_assert!(answered.reused() <= most);
            draft_knows_all &= mode == Mode::Speculative;
            if window == usize::MAX && (draft_knows_all || mode == Mode::Baseline) {
                prop_assert_eq!(answered.reused(), most);
            }
            let saved = conversation.turns.last().unwrap().answer.as_ref().unwrap();
            prop_assert_eq!(&saved.ids, &ids);
            prop_assert_eq!(&saved.text, &answered.text);
        }
    }
}
