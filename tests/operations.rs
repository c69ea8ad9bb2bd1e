//! Everything that may happen to a conversation, one by one, with small models that have weights
//! and caches: after it, the answer is the one that a fresh session gives to the same messages,
//! with the same drafts in every round, and the session processes no token that it has already.
//!
//! Gemma's target attends with sliding windows of 8 positions, and Qwen's draft with windows of
//! 12; the conversations are several times as long.

#[path = "decode_support/mod.rs"]
mod support;

use dflash_chat::chat::conversation::{Change, Conversation, Models};
use dflash_chat::event::{
    BlockSize, ChatMessage, FinishReason, Generate, Mode, Prompt, Round, Sampling,
};
use support::{Chat, Mishap, Outcome};

const MODELS: [&str; 4] = ["gemma3-text", "gemma4-text", "qwen3-tied", "llama-tied"];
const TOKENS: usize = 20;

/// A session in which things happen.
struct Talk {
    model: &'static str,
    session: Chat,
    conversation: Conversation,
    asked: Generate,
    /// End tokens beside the model's own.
    ends: Vec<u32>,
}

impl Talk {
    /// Three turns, all answered.
    fn new(model: &'static str, asked: Generate) -> Talk {
        let mut conversation = Conversation::new("c", 0);
        conversation.apply(&Change::Models(Models { target: "t".into(), ..Models::default() }));
        let session = Chat::with_weights(model);
        let mut talk = Talk { model, session, conversation, asked, ends: Vec::new() };
        for text in ["alpha beta", "gamma", "delta and so on"] {
            talk.say(text);
        }
        talk
    }

    fn say(&mut self, text: &str) -> Outcome {
        self.change(Change::User { text: text.into() });
        self.answer()
    }

    fn change(&mut self, change: Change) {
        assert!(self.conversation.apply(&change), "{change:?} changes nothing");
    }

    fn messages(&self) -> Vec<ChatMessage> {
        self.conversation.messages_for_retry()
    }

    /// Answer the last message here and in a fresh session, and compare. What was stopped is the
    /// beginning of what a fresh session says.
    fn answer(&mut self) -> Outcome {
        let asked = Generate { prompt: Prompt::Messages(self.messages()), ..self.asked.clone() };
        let before = self.session.worker.session.ids().to_vec();
        let drafted = self.session.worker.session.networks().drafted_len();
        let answered = self.session.ask(asked.clone());
        for change in answered.events.iter().filter_map(Change::of) {
            self.conversation.apply(&change);
        }

        let model = self.model;
        let mut fresh = Chat::with_weights(model);
        fresh.worker.end_tokens.extend(&self.ends);
        let fresh = fresh.ask(asked);
        let (ids, rounds) = (answered.ids(), &answered.rounds);
        let stopped = answered.reason_is_cancelled();
        if !stopped {
            assert_eq!(answered.text, fresh.text, "{model}");
            assert_eq!(answered.reason(), fresh.reason(), "{model}");
            assert_eq!(ids, fresh.ids(), "{model}");
            assert_eq!(rounds.len(), fresh.rounds.len(), "{model}");
        }
        assert!(fresh.text.starts_with(&answered.text), "{model}");
        assert_eq!(ids, fresh.ids()[..ids.len()], "{model}");
        let steps = |round: &Round| {
            let drafted: Vec<u32> = round.drafted.iter().map(|draft| draft.id).collect();
            (round.position, drafted, round.committed.clone())
        };
        for (here, there) in rounds.iter().zip(&fresh.rounds) {
            assert_eq!(steps(here), steps(there), "{model}: round {}", here.index);
        }

        let prompt = &answered.started.as_ref().unwrap().prompt_ids;
        let same = before.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let mut most = same.min(prompt.len() - 1);
        if self.asked.mode == Mode::Speculative {
            // What the draft does not know passes through the target again.
            most = most.min(drafted);
        }
        assert_eq!(answered.reused(), most, "{model}");
        if answered.first.is_some() {
            assert_eq!(answered.prefilled, prompt.len() - most, "{model}");
        }
        answered
    }
}

fn greedy() -> Generate {
    Generate { block_size: BlockSize::Fixed(6), max_tokens: TOKENS, ..Generate::default() }
}

fn sampled() -> Generate {
    let sampling = Sampling { temperature: 0.8, top_p: 0.95, ..Sampling::default() };
    Generate { sampling, seed: 11, ..greedy() }
}

fn plain() -> Generate {
    Generate { mode: Mode::Baseline, ..greedy() }
}

/// Let `happen` happen to a conversation with each model, greedy, sampled, and without drafts.
fn with_each(happen: impl Fn(&mut Talk)) {
    for model in MODELS {
        for asked in [greedy(), sampled(), plain()] {
            happen(&mut Talk::new(model, asked));
        }
    }
}

#[test]
fn another_turn() {
    with_each(|talk| {
        let before = talk.session.worker.session.ids().len();
        let answered = talk.say("and then?");
        assert!(before > 60, "the windows are shorter than the conversation");
        assert!(answered.reused() + 2 >= before, "{} of {before}", answered.reused());
    });
}

#[test]
fn regenerate() {
    with_each(|talk| {
        let answered = talk.answer();
        assert_eq!(answered.prefilled, 1, "the last token of the prompt gives the first answer");
    });
}

#[test]
fn undo() {
    with_each(|talk| {
        talk.change(Change::Cut { turns: 2 });
        talk.say("another way");
        talk.change(Change::Cut { turns: 1 });
        talk.say("once more");
    });
}

#[test]
fn edit_of_an_earlier_message() {
    with_each(|talk| {
        for at in [1, 0] {
            for change in talk.conversation.edit(at, "alpha gamma") {
                talk.conversation.apply(&change);
            }
            talk.answer();
        }
        talk.say("go on");
    });
}

#[test]
fn changed_instructions() {
    with_each(|talk| {
        for text in [Some("be brief"), Some("be long"), None] {
            talk.change(Change::System { text: text.map(String::from) });
            talk.say("delta");
        }
    });
}

#[test]
fn switch_of_mode() {
    for model in MODELS {
        let mut talk = Talk::new(model, greedy());
        for mode in [Mode::Baseline, Mode::Baseline, Mode::Speculative, Mode::Baseline] {
            talk.asked.mode = mode;
            talk.say("more");
        }
        // The other mode's answer to the same message is the same.
        talk.asked.mode = Mode::Speculative;
        let before = talk.conversation.turns.last().unwrap().answer.clone().unwrap().ids;
        assert_eq!(talk.answer().ids(), before, "{model}");
    }
}

#[test]
fn switch_of_block_and_temperature() {
    for model in MODELS {
        let mut talk = Talk::new(model, greedy());
        for (block, temperature) in [(2, 0.0), (8, 0.9), (1, 0.9), (5, 0.0)] {
            talk.asked.block_size = BlockSize::Fixed(block);
            talk.asked.sampling.temperature = temperature;
            talk.say("more");
        }
    }
}

/// Text is taken from what the model would have said, so that the stop string comes in the middle
/// of a round.
#[test]
fn stop_strings() {
    with_each(|talk| {
        let whole = talk.answer();
        let places: Vec<usize> = whole.text.char_indices().map(|(at, _)| at).collect();
        let Some(&[.., _, _, _]) = places.get(3..) else { panic!("{:?}", whole.text) };
        for at in [places[1], places[places.len() / 2]] {
            let stop: String = whole.text[at..].chars().take(2).collect();
            talk.asked.stop = vec!["not this".into(), stop.clone()];
            let cut = talk.answer();
            assert_eq!(cut.reason(), FinishReason::Stop);
            assert_eq!(cut.text, whole.text.split(&stop).next().unwrap());
            talk.asked.stop.clear();
            talk.say("why?");
            talk.change(Change::Cut { turns: 3 });
        }
    });
}

#[test]
fn end_tokens() {
    with_each(|talk| {
        // A token of the answer's middle becomes an end token.
        let ids = talk.answer().ids();
        let end = ids[ids.len() / 2];
        talk.ends.push(end);
        talk.session.worker.end_tokens.push(end);
        let ended = talk.answer();
        assert_eq!(ended.reason(), FinishReason::Eos);
        assert_eq!(ended.ids().iter().position(|id| *id == end), Some(ended.ids().len() - 1));
        talk.say("why?");
    });
}

#[test]
fn token_limit() {
    with_each(|talk| {
        for limit in [1, 2, 7] {
            talk.asked.max_tokens = limit;
            let short = talk.answer();
            assert_eq!((short.reason(), short.ids().len()), (FinishReason::MaxTokens, limit));
        }
        talk.say("why?");
    });
}

#[test]
fn cancel() {
    with_each(|talk| {
        for after in [0, 1, 2] {
            talk.session.knobs.mishap.set((after, Mishap::Cancelled));
            let answered = talk.say("a long story");
            let done = answered.rounds.len() <= after;
            assert!(done || answered.reason_is_cancelled());
            talk.session.knobs.mishap.set((0, Mishap::None));
            talk.say("so?");
        }
        // Before the prompt is read.
        talk.session.knobs.cancel();
        let answered = talk.say("nothing of this");
        assert!(answered.reason_is_cancelled() && answered.ids().is_empty());
        talk.answer();
    });
}

#[test]
fn a_failed_pass() {
    with_each(|talk| {
        talk.session.knobs.mishap.set((1, Mishap::Fails));
        talk.change(Change::User { text: "a long story".into() });
        let asked = Generate { prompt: Prompt::Messages(talk.messages()), ..talk.asked.clone() };
        let failed = talk.session.ask(asked);
        assert_eq!(failed.reason(), FinishReason::Failed);
        for change in failed.events.iter().filter_map(Change::of) {
            talk.conversation.apply(&change);
        }
        talk.say("again");
    });
}

#[test]
fn a_fork() {
    with_each(|talk| {
        let original = talk.conversation.clone();
        talk.conversation = original.fork(2, "d", 1);
        talk.say("the other way");
        talk.say("and on");
        talk.conversation = original;
        talk.say("the first way again");
    });
}
