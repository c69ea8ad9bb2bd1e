use super::*;
use proptest::prelude::*;

fn user(text: &str) -> Change {
    Change::User { text: text.into() }
}

fn answered(ids: &[u32], text: &str, reason: FinishReason) -> Vec<Change> {
    vec![
        Change::Answer(Box::default()),
        Change::Text { ids: ids.to_vec(), text: text.into() },
        Change::Finished { reason, totals: Box::default() },
    ]
}

fn conversation(changes: &[Vec<Change>]) -> Conversation {
    let mut conversation = Conversation::new("c", 1);
    for change in changes.iter().flatten() {
        conversation.apply(change);
    }
    conversation
}

fn two_turns() -> Conversation {
    conversation(&[
        vec![Change::Models(Models { target: "t".into(), ..Models::default() })],
        vec![user("one")],
        answered(&[5, 6, 2], "1", FinishReason::Eos),
        vec![user("two")],
        answered(&[7, 8], "2", FinishReason::MaxTokens),
    ])
}

#[test]
fn answers_bring_their_ids_without_the_end_token() {
    let ids: Vec<_> = two_turns().messages().into_iter().map(|m| m.ids).collect();
    assert_eq!(ids, [None, Some(vec![5, 6]), None, Some(vec![7, 8])]);
}

#[test]
fn an_answer_that_a_stop_string_cut_is_its_text() {
    let mut conversation = two_turns();
    conversation.apply(&user("three"));
    // The last token's text went on into the stop string.
    for change in answered(&[5, 9], "1 ", FinishReason::Stop) {
        conversation.apply(&change);
    }
    let last = conversation.messages().pop().unwrap();
    assert_eq!((last.content.as_str(), last.ids), ("1 ", None));
}

#[test]
fn ids_of_another_model_are_not_used() {
    let mut conversation = two_turns();
    conversation.apply(&Change::Models(Models { target: "u".into(), ..Models::default() }));
    assert!(conversation.messages().iter().all(|message| message.ids.is_none()));
}

#[test]
fn a_retry_asks_without_the_answer_and_replaces_it() {
    let mut conversation = two_turns();
    assert_eq!(conversation.messages_for_retry().last().unwrap().content, "two");
    assert_eq!(conversation.messages_for_retry().len(), 3);
    conversation.apply(&Change::Answer(Box::default()));
    assert_eq!(conversation.turns.len(), 2);
    assert_eq!(conversation.turns[1].answer.as_ref().unwrap().text, "");
}

#[test]
fn undo_and_edit_cut_what_came_after() {
    let mut conversation = two_turns();
    let (change, text) = conversation.undo().unwrap();
    assert!(conversation.apply(&change));
    assert_eq!((text.as_str(), conversation.turns.len()), ("two", 1));
    for change in conversation.edit(0, "other") {
        conversation.apply(&change);
    }
    assert_eq!(conversation.turns, [Turn { user: "other".into(), answer: None }]);
    assert_eq!(Conversation::new("c", 0).undo(), None);
}

#[test]
fn a_fork_leaves_the_original_alone() {
    let original = two_turns();
    let fork = original.fork(1, "d", 9);
    assert_eq!((fork.turns.len(), original.turns.len()), (1, 2));
    assert_eq!(fork.origin, Some(Origin { id: "c".into(), turns: 1 }));
    assert_eq!((fork.id.as_str(), fork.created), ("d", 9));
    assert_eq!(fork.messages(), original.messages()[..2], "ids are kept");
    assert_eq!(fork.title(), "fork at turn 1: one");
    assert_eq!(fork.fork(0, "e", 10).title(), "fork at turn 0: one");
}

#[test]
fn unanswered_turns_are_no_part_of_a_prompt_but_the_last() {
    let conversation = conversation(&[vec![user("a"), user("b")]]);
    let texts: Vec<_> = conversation.messages().into_iter().map(|m| m.content).collect();
    assert_eq!(texts, ["b"]);
}

#[test]
fn the_oldest_turn_goes_first_and_the_instructions_stay() {
    let mut conversation = two_turns();
    conversation.apply(&Change::System { text: Some("be brief".into()) });
    let mut messages = conversation.messages();
    assert_eq!(drop_oldest_turn(&mut messages).as_deref(), Some("one"));
    let roles: Vec<_> = messages.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::System, Role::User, Role::Assistant]);
    assert_eq!(drop_oldest_turn(&mut messages), None);
}

#[test]
fn titles_are_the_first_words_unless_given() {
    let mut conversation = conversation(&[vec![user("why\nis\x1b the  sky blue")]]);
    assert_eq!(conversation.title(), "why is␛ the sky blue");
    conversation.apply(&Change::Title { title: " Sky ".into() });
    assert_eq!(conversation.title(), "Sky");
    assert!(!conversation.apply(&Change::Title { title: "Sky".into() }));
    conversation.apply(&Change::Title { title: "".into() });
    assert_eq!(conversation.title(), "why is␛ the sky blue");
    assert_eq!(shortened(&"x".repeat(90), 5), "xxxx…");
    assert_eq!(shortened("one two three", 9), "one two…");
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        "[a-c]{0,2}".prop_map(|title| Change::Title { title }),
        prop::option::of("[a-c]{0,2}").prop_map(|text| Change::System { text }),
        "[a-c]".prop_map(|target| { Change::Models(Models { target, ..Models::default() }) }),
        "[a-c]{0,3}".prop_map(|text| Change::User { text }),
        Just(Change::Answer(Box::default())),
        (prop::collection::vec(0u32..9, 1..4), "[a-c]{0,3}")
            .prop_map(|(ids, text)| Change::Text { ids, text }),
        Just(Change::Finished { reason: FinishReason::Eos, totals: Box::default() }),
        (0usize..4).prop_map(|turns| Change::Cut { turns }),
    ]
}

proptest! {
    /// Whatever happened, the changes that a fork is written with make the same.
    #[test]
    fn a_conversation_is_made_again_from_its_changes(
        changes in prop::collection::vec(change(), 0..30),
    ) {
        let whole = conversation(&[changes]);
        prop_assert_eq!(conversation(&[whole.changes()]), whole);
    }
}
