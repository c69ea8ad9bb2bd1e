//! A round as the slots of its block: what was drafted in each, what the target wanted, and what
//! became of it. The screen and the printed strip are made from this.

use crate::event::{DraftSource, Round};

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
