//! The rules of decoding, tried with networks that follow a script: what is committed, what is
//! reused, where answers end. The fake networks insist on the invariants of every round.

#[path = "decode_support/mod.rs"]
mod support;

use dflash_chat::chat::template::ChatTemplate;
use dflash_chat::event::{
    BlockSize, ChatMessage, FinishReason, Generate, Mode, PlannedBy, Prompt, Role, Sampling,
};
use proptest::prelude::*;
use support::{Chat, END, Mishap, hashed, says};

const PROMPT: [u32; 5] = [104, 101, 108, 108, 111];

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn fixed(block: usize) -> Generate {
    Generate { block_size: BlockSize::Fixed(block), ..Generate::default() }
}

fn plain() -> Generate {
    Generate { mode: Mode::Baseline, ..Generate::default() }
}

/// B01.
#[test]
fn nothing_after_an_accepted_end_token_exists() {
    let answer = [ids("axy"), vec![END], ids("zw")].concat();
    let mut chat = Chat::new(says(5, &answer), 8, 100);
    let outcome = chat.ask_ids(&PROMPT, fixed(8));
    assert_eq!(outcome.reason(), FinishReason::Eos);
    assert_eq!(outcome.ids(), answer[..4]);
    assert_eq!(outcome.text, "axy");
    let [round] = &outcome.rounds[..] else { panic!("one round was enough") };
    assert_eq!((round.drafted.len(), round.accepted, round.committed.len()), (7, 3, 3));
    // The prompt, a, x and y; the end token is the answer's last and not in the cache.
    assert_eq!(chat.worker.session.ids(), [ids("helloa"), ids("xy")].concat());
}

#[test]
fn an_end_token_as_the_first_token_ends_the_answer() {
    let mut chat = Chat::new(says(5, &[END]), 8, 100);
    let outcome = chat.ask_ids(&PROMPT, fixed(8));
    assert_eq!((outcome.reason(), outcome.ids()), (FinishReason::Eos, vec![END]));
    assert!(outcome.rounds.is_empty() && outcome.text.is_empty());
}

/// B03.
#[test]
fn an_answer_has_exactly_the_tokens_that_were_asked_for() {
    for max_tokens in [1, 2, 5, 16, 17] {
        for block in [1, 2, 8, 16] {
            let mut chat = Chat::new(hashed(), 16, 200);
            chat.worker.end_tokens.clear();
            let outcome = chat.ask_ids(&PROMPT, Generate { max_tokens, ..fixed(block) });
            assert_eq!(outcome.ids().len(), max_tokens, "blocks of {block}");
            assert_eq!(outcome.reason(), FinishReason::MaxTokens);
            let most = outcome.rounds.iter().map(|r| r.drafted.len()).max();
            // A draft more than the budget allows would be work for nothing.
            assert!(most.unwrap_or(0) < max_tokens);
        }
    }
}

#[test]
fn the_context_is_filled_to_its_last_token() {
    for room in [1, 2, 3, 9] {
        let mut chat = Chat::new(hashed(), 8, 5 + room);
        chat.worker.end_tokens.clear();
        let outcome = chat.ask_ids(&PROMPT, fixed(8));
        assert_eq!(outcome.reason(), FinishReason::ContextFull);
        assert_eq!(outcome.ids().len(), room, "prompt and answer fill the context");
    }
    // One token before the end a plain step is left, and the round says why.
    let mut chat = Chat::new(hashed(), 8, 7);
    chat.worker.end_tokens.clear();
    let outcome = chat.ask_ids(&PROMPT, fixed(8));
    let round = &outcome.rounds[0];
    assert_eq!((round.block_size, round.planned_by), (1, PlannedBy::Room));

    let outcome = Chat::new(hashed(), 8, 5).ask_ids(&PROMPT, fixed(8));
    assert!(outcome.finished.is_none());
    assert!(outcome.errors[0].contains("5 tokens and the context 5"), "{:?}", outcome.errors);
}

/// B16.
#[test]
fn a_cancelled_answer_leaves_only_what_was_committed() {
    for mode in [Mode::Speculative, Mode::Baseline] {
        let asked = Generate { mode, max_tokens: 60, ..fixed(8) };
        let mut chat = Chat::new(hashed(), 8, 400);
        chat.worker.end_tokens.clear();
        chat.knobs.accuracy.set(0.5);
        chat.knobs.mishap.set((3, Mishap::Cancelled));
        let cancelled = chat.ask_ids(&PROMPT, asked.clone());
        assert_eq!(cancelled.reason(), FinishReason::Cancelled);
        // The round in which it was cancelled is whole.
        assert_eq!(cancelled.rounds.len(), 4);
        let follow = [PROMPT.to_vec(), cancelled.ids(), ids("and then?")].concat();
        let next = chat.ask_ids(&follow, asked.clone());
        assert_eq!(next.reused(), 5 + cancelled.ids().len() - 1);
        let mut fresh = Chat::new(hashed(), 8, 400);
        fresh.worker.end_tokens.clear();
        assert_eq!(next.ids(), fresh.ask_ids(&follow, asked).ids());
    }
}

/// Text that was held back, because a stop string might have begun, is shown where the answer
/// is stopped by the person instead.
#[test]
fn a_cancelled_answer_keeps_the_text_that_was_held_back() {
    let answer = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for block in [1, 3, 8] {
        for after in 0..4 {
            let mut chat = Chat::new(says(5, &ids(answer)), 8, 100);
            chat.knobs.mishap.set((after, Mishap::Cancelled));
            let asked = Generate { stop: vec!["aaaaaaaaaaaaaaab".into()], ..fixed(block) };
            let cancelled = chat.ask_ids(&PROMPT, asked.clone());
            assert_eq!(cancelled.reason(), FinishReason::Cancelled);
            assert_eq!(cancelled.rounds.len(), after + 1);
            assert_eq!(cancelled.text, answer[..cancelled.ids().len()]);
        }
        // Before the first round, when the first token is known: it is told as well.
        let mut chat = Chat::new(says(5, &ids(answer)), 8, 100);
        let asked = Generate { stop: vec!["ab".into()], max_tokens: 1, ..fixed(block) };
        assert_eq!(chat.ask_ids(&PROMPT, asked).text, "a");
    }
}

#[test]
fn an_answer_cancelled_before_its_prompt_was_read_keeps_what_was_read() {
    let long: Vec<u32> = (0..700).map(|i| i % 200).collect();
    let mut chat = Chat::new(hashed(), 8, 1000);
    chat.knobs.cancel();
    let cancelled = chat.ask_ids(&long, fixed(8));
    assert_eq!(cancelled.reason(), FinishReason::Cancelled);
    assert!(cancelled.first.is_none());
    let next = chat.ask_ids(&long, fixed(8));
    assert_eq!(next.ids(), Chat::new(hashed(), 8, 1000).ask_ids(&long, fixed(8)).ids());
}

#[test]
fn a_failed_pass_leaves_only_what_was_committed() {
    let asked = Generate { max_tokens: 40, ..fixed(8) };
    let mut chat = Chat::new(hashed(), 8, 400);
    chat.worker.end_tokens.clear();
    chat.knobs.mishap.set((2, Mishap::Fails));
    let failed = chat.ask_ids(&PROMPT, asked.clone());
    assert_eq!(failed.reason(), FinishReason::Failed);
    assert!(failed.errors[0].contains("the device went away"));
    let follow = [PROMPT.to_vec(), failed.ids(), ids("again")].concat();
    let next = chat.ask_ids(&follow, asked.clone());
    let mut fresh = Chat::new(hashed(), 8, 400);
    fresh.worker.end_tokens.clear();
    assert_eq!(next.ids(), fresh.ask_ids(&follow, asked).ids());
    assert_eq!(next.reused(), 5 + failed.ids().len() - 1);
}

/// A conversation of messages with known ids, as the screen keeps it.
fn said(turns: &[(&str, Vec<u32>)], last: &str) -> Prompt {
    let mut messages = Vec::new();
    for (user, answer) in turns {
        messages.push(ChatMessage::new(Role::User, *user));
        messages.push(ChatMessage {
            role: Role::Assistant,
            content: "*".into(),
            ids: Some(answer.clone()),
        });
    }
    messages.push(ChatMessage::new(Role::User, last));
    Prompt::Messages(messages)
}

#[test]
fn every_turn_reuses_all_of_the_turns_before() {
    let mut chat = Chat::new(hashed(), 8, 2000);
    chat.worker.end_tokens.clear();
    let mut turns: Vec<(&str, Vec<u32>)> = Vec::new();
    for turn in 0..10 {
        let asked = Generate {
            prompt: said(&turns, "and-what-of-it?"),
            max_tokens: 20,
            thinking: turn % 2 == 1,
            ..fixed(8)
        };
        let before = chat.worker.session.ids().len();
        let outcome = chat.ask(asked.clone());
        // All that the cache held, and the rest of the prompt processed.
        assert_eq!(outcome.reused(), before);
        // The answer's last token, the line's end and the new message.
        assert_eq!(outcome.prefilled, if turn == 0 { 31 } else { 33 });
        let mut fresh = Chat::new(hashed(), 8, 2000);
        fresh.worker.end_tokens.clear();
        assert_eq!(outcome.ids(), fresh.ask(asked).ids());
        turns.push(("and-what-of-it?", outcome.ids()));
    }
}

/// B19: a template that opens answers with empty thinking, and drops thinking from history, as
/// Qwen3's does. What it changes is processed again, all before it is not, thinking or not; and
/// every answer is that of a fresh session.
#[test]
fn thinking_that_the_template_drops_costs_no_more_than_itself() {
    let template = "{% for m in messages %}{{ m.role }}:\
                    {% if m.role == 'assistant' and '</think>' in m.content %}\
                    {{ m.content.split('</think>')[-1].lstrip('\n') }}\
                    {% else %}{{ m.content }}{% endif %}\n{% endfor %}assistant:\
                    {% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}";
    let rule: support::Rule = std::rc::Rc::new(|prefix| {
        let text: String = prefix.iter().map(|id| char::from(*id as u8)).collect();
        let (before, said) = text.rsplit_once("assistant:").unwrap();
        let turn = before.matches("user:").count();
        let answer = match said.strip_prefix("<think>\n\n</think>\n\n") {
            Some(_) => format!("<think>\n\n</think>\n\nShort answer {turn}."),
            None => format!("<think>So it is {turn}.</think>\n\nLong answer {turn}."),
        };
        let mut logits = vec![0.0; support::VOCAB];
        logits[answer.as_bytes().get(said.len()).map_or(END, |b| u32::from(*b)) as usize] = 9.0;
        logits
    });
    let question = "what do you make of this, all things considered? ".repeat(5);
    for thinking in [false, true] {
        let chat = || {
            let mut chat = Chat::new(rule.clone(), 8, 4000);
            chat.worker.template = ChatTemplate::new(template, "", "").unwrap();
            chat
        };
        let mut session = chat();
        let mut messages = Vec::new();
        for turn in 1..=3 {
            messages.push(ChatMessage::new(Role::User, &question));
            let prompt = Prompt::Messages(messages.clone());
            let asked = Generate { prompt, thinking, ..fixed(8) };
            let before = session.worker.session.ids().to_vec();
            let outcome = session.ask(asked.clone());
            let started = outcome.started.as_ref().unwrap();
            let same = before.iter().zip(&started.prompt_ids).take_while(|(a, b)| a == b).count();
            assert_eq!(outcome.reused(), same);
            // What the template changed is the answer's opening, and all after it.
            assert!(turn == 1 || same * 10 > before.len() * 8, "{same} of {}", before.len());
            let fresh = chat().ask(asked);
            assert_eq!((&outcome.text, outcome.ids()), (&fresh.text, fresh.ids()));
            let said = if thinking { "Long" } else { "Short" };
            assert!(outcome.text.ends_with(&format!("{said} answer {turn}.")), "{}", outcome.text);
            let mut ids = outcome.ids();
            ids.pop_if(|id| *id == END);
            messages.push(ChatMessage {
                role: Role::Assistant,
                content: outcome.text.clone(),
                ids: Some(ids),
            });
        }
    }
}

#[test]
fn the_oldest_turns_are_left_out_where_that_is_wanted() {
    let mut chat = Chat::new(hashed(), 8, 1024);
    chat.worker.end_tokens.clear();
    let mut turns: Vec<(&str, Vec<u32>)> = Vec::new();
    let (mut told, mut cold) = (0, 0);
    for _ in 0..40 {
        let prompt = said(&turns, "and-what-of-it?");
        let asked = Generate { prompt, max_tokens: 20, drop_oldest: true, ..fixed(8) };
        let outcome = chat.ask(asked);
        assert_eq!((outcome.errors.len(), outcome.ids().len()), (0, 20));
        told += outcome.notices.len();
        assert!(outcome.notices.iter().all(|notice| notice.contains("left out, from “and-what")));
        cold += usize::from(outcome.reused() < outcome.prefilled);
        turns.push(("and-what-of-it?", outcome.ids()));
    }
    // From the 19th turn on, five or so turns are left out at once, so that the turns after
    // find what they begin with in the cache.
    assert!((19..23).contains(&told), "{told}");
    assert!((4..=7).contains(&cold), "{cold}");

    let too_long = Generate { prompt: said(&turns, "?"), ..fixed(8) };
    let outcome = chat.ask(too_long);
    assert!(outcome.started.is_none() && outcome.errors[0].contains("shorten it"));
}

/// B20.
#[test]
fn an_edited_message_is_answered_as_in_a_fresh_session() {
    // With a window, a long way back means to begin anew.
    for window in [usize::MAX, 16] {
        let mut chat = Chat::with_window(hashed(), 8, 2000, window);
        let first = chat.ask(Generate {
            prompt: said(&[], "the-word-is-tulip"),
            max_tokens: 12,
            ..fixed(8)
        });
        let turns = [("the-word-is-tulip", first.ids())];
        chat.ask(Generate { prompt: said(&turns, "which?"), max_tokens: 12, ..fixed(8) });

        let edited = Generate { prompt: said(&[], "the-word-is-rose"), max_tokens: 12, ..fixed(8) };
        let answered = chat.ask(edited.clone());
        let fresh = Chat::with_window(hashed(), 8, 2000, window).ask(edited);
        assert_eq!(answered.ids(), fresh.ids());
        let common = if window == 16 { 0 } else { "user:the-word-is-".len() };
        assert_eq!(answered.reused(), common);
    }
}

#[test]
fn regenerating_processes_one_token() {
    let mut chat = Chat::new(hashed(), 8, 400);
    let first = chat.ask_ids(&PROMPT, Generate { max_tokens: 30, ..fixed(8) });
    let again = chat.ask_ids(&PROMPT, Generate { max_tokens: 30, ..fixed(8) });
    assert_eq!((again.reused(), again.prefilled), (4, 1));
    assert_eq!(again.ids(), first.ids());
}

#[test]
fn after_plain_answers_a_speculative_one_reuses_what_the_draft_knows() {
    let mut chat = Chat::new(hashed(), 8, 400);
    chat.worker.end_tokens.clear();
    let asked = Generate { max_tokens: 10, ..fixed(8) };
    let first = chat.ask_ids(&PROMPT, asked.clone());
    let known = chat.worker.session.ids().len();
    let second = [PROMPT.to_vec(), first.ids(), ids("go on")].concat();
    let spoken = chat.ask_ids(&second, Generate { max_tokens: 10, ..plain() });
    assert_eq!(spoken.reused(), known);
    assert!(spoken.rounds.iter().all(|round| round.drafted.is_empty()));
    let third = [second, spoken.ids(), ids("more")].concat();
    let drafted = chat.ask_ids(&third, asked.clone());
    assert_eq!(drafted.reused(), known);
    let mut fresh = Chat::new(hashed(), 8, 400);
    fresh.worker.end_tokens.clear();
    assert_eq!(drafted.ids(), fresh.ask_ids(&third, asked).ids());
}

#[test]
fn a_stop_string_that_straddles_rounds_ends_the_text_before_it() {
    let answer = "The answer: 42. STOP and more of it";
    for accuracy in [0.0, 0.4, 1.0] {
        for block in 1..12 {
            let mut chat = Chat::new(says(5, &ids(answer)), 12, 200);
            chat.knobs.accuracy.set(accuracy);
            let asked = Generate { stop: vec!["never".into(), " STOP".into()], ..fixed(block) };
            let outcome = chat.ask_ids(&PROMPT, asked.clone());
            assert_eq!(outcome.reason(), FinishReason::Stop);
            assert_eq!(outcome.text, "The answer: 42.");
            let kept = outcome.ids();
            assert_eq!(kept, ids(answer)[..kept.len()]);
            assert!((15..20).contains(&kept.len()), "{} tokens", kept.len());
            let cached = chat.worker.session.ids().len();
            assert_eq!(cached, 5 + kept.len() - 1);
            // What was cut is out of the cache: another prompt there is answered as if fresh.
            let follow = [PROMPT.to_vec(), kept, ids("?")].concat();
            assert_eq!(chat.ask_ids(&follow, asked).reused(), cached);
        }
    }
}

#[test]
fn text_that_only_began_a_stop_string_is_shown_at_the_end() {
    let answer = [ids("go to ST"), vec![END]].concat();
    let mut chat = Chat::new(says(5, &answer), 4, 200);
    let outcome = chat.ask_ids(&PROMPT, Generate { stop: vec!["STOP".into()], ..fixed(4) });
    assert_eq!((outcome.reason(), outcome.text.as_str()), (FinishReason::Eos, "go to ST"));
}

#[test]
fn a_stop_string_at_the_very_start_leaves_an_empty_answer() {
    let mut chat = Chat::new(says(5, &ids("#x")), 4, 200);
    let outcome = chat.ask_ids(&PROMPT, Generate { stop: vec!["#".into()], ..fixed(4) });
    assert_eq!((outcome.reason(), outcome.text.as_str()), (FinishReason::Stop, ""));
    assert!(outcome.rounds.is_empty());
    assert!(chat.worker.session.ids().len() <= 5);
}

/// B25 and B26.
#[test]
fn characters_cut_by_the_token_limit_and_by_rounds_stay_whole() {
    let answer = "ab👍🏽中é!";
    let all = ids(answer);
    for block in 1..6 {
        for max_tokens in 1..=all.len() {
            let mut chat = Chat::new(says(5, &all), 6, 200);
            chat.knobs.accuracy.set(0.7);
            let outcome = chat.ask_ids(&PROMPT, Generate { max_tokens, ..fixed(block) });
            let whole = String::from_utf8_lossy(&answer.as_bytes()[..max_tokens]).into_owned();
            assert_eq!(outcome.text, whole.trim_end_matches('\u{fffd}'));
        }
    }
}

/// B29: whatever an answer ends with, all of its text is there, and each round brings the text of
/// its own tokens: nothing waits for a letter to come.
#[test]
fn text_comes_with_its_round_whatever_it_is() {
    let answers = ["Well done! 🎉🎉🎉", "`x[0]` -> {y}; ```\n]]]", "…?!", "👩‍👩‍👧‍👦", "a\n\n\n   "];
    for answer in answers {
        let all = [ids(answer), vec![END]].concat();
        for (block, accuracy) in [(1, 0.0), (4, 0.5), (8, 1.0)] {
            let mut chat = Chat::new(says(5, &all), 8, 200);
            chat.knobs.accuracy.set(accuracy);
            let outcome = chat.ask_ids(&PROMPT, fixed(block));
            assert_eq!((outcome.text.as_str(), outcome.reason()), (answer, FinishReason::Eos));
            let first = String::from_utf8(answer.as_bytes()[..1].to_vec()).unwrap_or_default();
            let (mut shown, mut tokens) = (first, 1);
            for round in &outcome.rounds {
                shown.push_str(&round.text);
                tokens += round.committed.len();
                let bytes = &answer.as_bytes()[..tokens.min(answer.len())];
                let whole = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
                assert_eq!(shown, whole, "after {tokens} tokens of {answer:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any draft, any block length, any budget: the answer is the plain one, greedy or sampled.
    #[test]
    fn speculation_changes_no_answer(
        prompt in prop::collection::vec(0u32..256, 1..600),
        (accuracy, block) in (0.0f64..=1.0, 1usize..20),
        asked_block in prop::option::of(1usize..24),
        max_tokens in 1usize..60,
        (room, ends) in (1usize..80, 1usize..60),
        (warm, penalty, seed) in (any::<bool>(), any::<bool>(), any::<u64>()),
    ) {
        let ctx_limit = prompt.len() + room;
        let asked = Generate {
            block_size: asked_block.map_or(BlockSize::Auto, BlockSize::Fixed),
            sampling: Sampling {
                temperature: if warm { 0.8 } else { 0.0 },
                top_k: 40,
                repetition_penalty: if penalty { 1.2 } else { 1.0 },
                ..Sampling::default()
            },
            seed,
            max_tokens,
            ..Generate::default()
        };
        let chat = |accuracy: f64| {
            let mut chat = Chat::new(hashed(), block, ctx_limit);
            chat.knobs.accuracy.set(accuracy);
            // Up to one token in fifty ends an answer.
            chat.worker.end_tokens = (0..ends as u32 % 6).collect();
            chat
        };
        let mut speculative = chat(accuracy);
        let drafted = speculative.ask_ids(&prompt, asked.clone());
        let stepped = chat(0.0).ask_ids(&prompt, Generate { mode: Mode::Baseline, ..asked.clone() });
        prop_assert_eq!(drafted.ids(), stepped.ids());
        prop_assert_eq!(drafted.reason(), stepped.reason());
        prop_assert_eq!(&drafted.text, &stepped.text);
        // The same again, from the caches that the first answer left.
        let again = speculative.ask_ids(&prompt, asked);
        prop_assert_eq!(again.reused(), prompt.len() - 1);
        prop_assert_eq!(again.ids(), stepped.ids());
    }
}
