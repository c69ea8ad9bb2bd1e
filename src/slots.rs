//! A round as the slots of its block: what was drafted in each, what the target wanted, and what
//! became of it. The screen and the printed strip are made from this.

use crate::event::{DraftSource, Round, RoundPhase};

/// What became of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The last committed token, from which the block starts.
    Anchor,
    /// The target agreed.
    Accepted,
    /// The first draft that the target would not have said.
    Rejected,
    /// After the first rejected one: never judged.
    Discarded,
    /// Proposed, but not worth verifying.
    Unsent,
    /// The target's own, after a block without rejection.
    Bonus,
    /// The only token of a plain step.
    Plain,
    /// Not known yet: the round is under way.
    Open,
}

/// One slot of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    /// What stands in it: the anchor, a draft, nothing for a bonus.
    pub draft: Option<String>,
    /// The probability that the draft gave.
    pub prob: Option<f32>,
    /// What the target wanted there, given all before.
    pub target: Option<String>,
    /// What became of it.
    pub fate: Fate,
}

/// The slots of `round`, the anchor first; `show` makes a token's text fit to be seen.
pub fn slots(round: &Round, show: impl Fn(&str) -> String) -> Vec<Slot> {
    let draft = Some(show(&round.anchor.text));
    let mut slots = vec![Slot { draft, prob: None, target: None, fate: Fate::Anchor }];
    for (i, draft) in round.drafted.iter().enumerate() {
        let fate = match i.cmp(&round.accepted) {
            std::cmp::Ordering::Less => Fate::Accepted,
            std::cmp::Ordering::Equal if !round.is_cut() => Fate::Rejected,
            _ => Fate::Discarded,
        };
        let target = round.target.get(i).map(|token| show(&token.text));
        slots.push(Slot { draft: Some(show(&draft.text)), prob: Some(draft.prob), target, fate });
    }
    if !round.rejected() && !round.is_cut() {
        let own = round.target.get(round.accepted).or(round.committed.last());
        let fate = if round.drafted.is_empty() { Fate::Plain } else { Fate::Bonus };
        let target = own.map(|token| show(&token.text));
        slots.push(Slot { draft: None, prob: None, target, fate });
    }
    slots.extend(round.unsent.iter().map(|draft| Slot {
        draft: Some(show(&draft.text)),
        prob: Some(draft.prob),
        target: None,
        fate: Fate::Unsent,
    }));
    slots
}

/// The slots of `round` while it is under way: what the draft has not proposed and the target has
/// not said is not known.
pub fn slots_in(round: &Round, phase: RoundPhase, show: impl Fn(&str) -> String) -> Vec<Slot> {
    let mut slots = slots(round, show);
    // The place after the last draft is only the target's, and it takes a plain step alone.
    slots.retain(|slot| match slot.fate {
        Fate::Bonus => false,
        Fate::Plain => phase == RoundPhase::Verify,
        _ => true,
    });
    for slot in slots.iter_mut().filter(|slot| slot.fate != Fate::Anchor) {
        slot.target = None;
        match phase {
            RoundPhase::Draft => {
                (slot.draft, slot.prob, slot.fate) = (None, None, Fate::Open);
            }
            RoundPhase::Verify if slot.fate == Fate::Unsent => {}
            RoundPhase::Verify => slot.fate = Fate::Open,
        }
    }
    slots
}

/// What goes on in a round that is under way.
pub fn doing_in_words(round: &Round, phase: RoundPhase) -> String {
    let (sent, unsent) = (round.drafted.len(), round.unsent.len());
    match (phase, round.source) {
        (RoundPhase::Draft, DraftSource::Ngram) => "what followed earlier is looked up".into(),
        (RoundPhase::Draft, _) if sent + unsent == 1 => "the draft guesses a token".into(),
        (RoundPhase::Draft, _) => {
            format!("the draft guesses {} tokens in one pass", sent + unsent)
        }
        (RoundPhase::Verify, _) if sent == 0 => "the target takes a plain step".into(),
        (RoundPhase::Verify, _) => {
            format!("the target checks {sent} at once and adds one")
        }
    }
}

/// What the slots of a round hold, in a word.
pub fn drafts_are(round: &Round) -> &'static str {
    match round.source {
        DraftSource::Ngram => "repeat",
        DraftSource::Draft | DraftSource::Plain => "draft",
    }
}

/// What a round did, in a few words: `kept 3 of 7, +1 correction`.
pub fn in_words(round: &Round) -> String {
    let drafts = round.drafted.len();
    let kept = match (drafts, round.rejected()) {
        (0, _) => "plain step".into(),
        _ if round.is_cut() => format!("kept {} of {drafts}, the answer ends", round.accepted),
        (_, true) => format!("kept {} of {drafts}, +1 correction", round.accepted),
        (_, false) => format!("kept all {drafts}, +1 bonus"),
    };
    match round.source {
        DraftSource::Ngram => format!("repeating the text: {kept}"),
        DraftSource::Draft | DraftSource::Plain => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{DraftedToken, Token};

    fn round(accepted: usize, committed: usize) -> Round {
        Round {
            drafted: vec![DraftedToken::default(); 3],
            target: vec![Token::default(); 4],
            committed: vec![Token::default(); committed],
            accepted,
            ..Round::default()
        }
    }

    /// What is not known yet is not told: drafts before they are proposed, what the target says
    /// before it has.
    #[test]
    fn a_round_under_way_tells_no_more_than_is_known() {
        use Fate::*;
        let rejected = Round { unsent: vec![DraftedToken::default()], ..round(1, 2) };
        let accepted = Round { unsent: vec![DraftedToken::default()], ..round(3, 4) };
        for round in [rejected, accepted, round(3, 4), round(1, 1)] {
            let unsent = round.unsent.len();
            let drafting = slots_in(&round, RoundPhase::Draft, str::to_string);
            assert_eq!(drafting.len(), 4 + unsent);
            assert!(drafting[1..].iter().all(|slot| (slot.fate, &slot.draft) == (Open, &None)));
            let verifying = slots_in(&round, RoundPhase::Verify, str::to_string);
            assert_eq!(verifying.len(), 4 + unsent);
            assert!(verifying[1..4].iter().all(|s| s.fate == Open && s.draft.is_some()));
            assert!(verifying[4..].iter().all(|s| s.fate == Unsent));
            assert!(verifying.iter().chain(&drafting).all(|slot| slot.target.is_none()));
        }
        let plain = Round { drafted: vec![], target: vec![Token::default()], ..round(0, 1) };
        let verifying = slots_in(&plain, RoundPhase::Verify, str::to_string);
        assert_eq!(verifying.iter().map(|slot| slot.fate).collect::<Vec<_>>(), [Anchor, Open]);
    }

    /// An accepted end token ends the round: nothing was rejected and nothing corrected.
    #[test]
    fn a_round_that_ends_with_an_accepted_token_rejects_nothing() {
        use Fate::*;
        let fates = |round: &Round| {
            slots(round, str::to_string).iter().map(|slot| slot.fate).collect::<Vec<_>>()
        };
        let cut = round(1, 1);
        assert!(!cut.rejected());
        assert_eq!(fates(&cut), [Anchor, Accepted, Discarded, Discarded]);
        assert_eq!(in_words(&cut), "kept 1 of 3, the answer ends");
        let repeat = Round { source: DraftSource::Ngram, ..cut };
        assert_eq!(in_words(&repeat), "repeating the text: kept 1 of 3, the answer ends");
        assert_eq!(fates(&round(3, 3)), [Anchor, Accepted, Accepted, Accepted]);
        assert_eq!(fates(&round(1, 2)), [Anchor, Accepted, Rejected, Discarded]);
        assert_eq!(fates(&round(3, 4)), [Anchor, Accepted, Accepted, Accepted, Bonus]);
    }
}
