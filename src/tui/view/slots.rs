//! A round as the slots of its block: what was drafted in each, what the target wanted, and what
//! became of it. Both layouts of the round are made from this.

use crate::event::{DraftSource, Round, Token};
use crate::tui::app::App;
use crate::tui::glyphs::Glyphs;
use crate::tui::theme::Role;

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

impl Fate {
    /// How it looks.
    pub fn role(self) -> Role {
        match self {
            Fate::Anchor => Role::Anchor,
            Fate::Accepted => Role::Accepted,
            Fate::Rejected => Role::Rejected,
            Fate::Discarded => Role::Discarded,
            Fate::Unsent => Role::Unsent,
            Fate::Bonus => Role::Bonus,
            Fate::Plain => Role::Plain,
        }
    }

    /// Its mark.
    pub fn glyph(self, glyphs: &Glyphs) -> &'static str {
        match self {
            Fate::Anchor => glyphs.anchor,
            Fate::Accepted => glyphs.accepted,
            Fate::Rejected => glyphs.rejected,
            Fate::Discarded => glyphs.discarded,
            Fate::Unsent => glyphs.unsent,
            Fate::Bonus | Fate::Plain => glyphs.bonus,
        }
    }
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

/// The slots of `round`, the anchor first.
pub fn slots(round: &Round, app: &App) -> Vec<Slot> {
    let shown = |token: &Token| visible(&token.text, app);
    let anchor =
        Slot { draft: Some(shown(&round.anchor)), prob: None, target: None, fate: Fate::Anchor };
    let mut slots = vec![anchor];
    for (i, draft) in round.drafted.iter().enumerate() {
        let fate = match i.cmp(&round.accepted) {
            std::cmp::Ordering::Less => Fate::Accepted,
            std::cmp::Ordering::Equal if round.is_cut() => Fate::Discarded,
            std::cmp::Ordering::Equal => Fate::Rejected,
            std::cmp::Ordering::Greater => Fate::Discarded,
        };
        slots.push(Slot {
            draft: Some(visible(&draft.text, app)),
            prob: Some(draft.prob),
            target: round.target.get(i).map(shown),
            fate,
        });
    }
    if !round.rejected() && !round.is_cut() {
        let own = round.target.get(round.accepted).or(round.committed.last());
        let fate = if round.drafted.is_empty() { Fate::Plain } else { Fate::Bonus };
        slots.push(Slot { draft: None, prob: None, target: own.map(shown), fate });
    }
    slots.extend(round.unsent.iter().map(|draft| Slot {
        draft: Some(visible(&draft.text, app)),
        prob: Some(draft.prob),
        target: None,
        fate: Fate::Unsent,
    }));
    slots
}

/// A token's text with the blanks at its start visible.
pub fn visible(text: &str, app: &App) -> String {
    let blank = if app.dress.glyphs.horizontal == "-" { "_" } else { "␣" };
    let safe = crate::text::sanitise_line(text).replace('⏎', app.dress.glyphs.newline);
    let trimmed = safe.trim_start_matches(' ');
    blank.repeat(safe.len() - trimmed.len()) + trimmed
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
        (0, _) => "plain step: nothing drafted".into(),
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
    use crate::event::DraftedToken;
    use crate::tui::testing::ready_app;

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
        let app = ready_app();
        let fates = |round: &Round| slots(round, &app).iter().map(|s| s.fate).collect::<Vec<_>>();
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
