//! Which drafts a verify pass accepts.

/// What a verify pass decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Drafts that are kept: the longest prefix that matches the target's choices.
    pub accepted: usize,
    /// The target's own token after them: a correction, or the bonus if all were accepted.
    pub own: u32,
}

/// Compare drafts with the target's choices; `choices[i]` is the target's choice in the place
/// of `drafted[i]`, and there is one more choice than drafts. `None` if there is not.
///
/// With the target's choices made the same way as without drafts (greedy, or sampled with a
/// random number that belongs to the position), the committed text is the text that plain
/// decoding gives: a draft decides only how many of the choices are known after one pass.
pub fn longest_match(drafted: &[u32], choices: &[u32]) -> Option<Verdict> {
    let accepted =
        drafted.iter().zip(choices).take_while(|(draft, choice)| draft == choice).count();
    choices.get(accepted).map(|&own| Verdict { accepted, own })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_prefix_and_one_more() {
        let verdict = |drafted: &[u32], choices: &[u32]| longest_match(drafted, choices);
        assert_eq!(verdict(&[1, 2, 3], &[1, 2, 3, 4]), Some(Verdict { accepted: 3, own: 4 }));
        assert_eq!(verdict(&[1, 9, 3], &[1, 2, 3, 4]), Some(Verdict { accepted: 1, own: 2 }));
        assert_eq!(verdict(&[9, 2, 3], &[1, 2, 3, 4]), Some(Verdict { accepted: 0, own: 1 }));
        assert_eq!(verdict(&[], &[7]), Some(Verdict { accepted: 0, own: 7 }));
        assert_eq!(verdict(&[1], &[1]), None);
    }

    proptest! {
        #[test]
        fn nothing_after_a_mismatch_is_kept(
            drafted in proptest::collection::vec(0u32..3, 0..8),
            choices in proptest::collection::vec(0u32..3, 9),
        ) {
            let verdict = longest_match(&drafted, &choices).unwrap();
            prop_assert_eq!(&drafted[..verdict.accepted], &choices[..verdict.accepted]);
            if verdict.accepted < drafted.len() {
                prop_assert_ne!(drafted[verdict.accepted], choices[verdict.accepted]);
            }
            prop_assert_eq!(verdict.own, choices[verdict.accepted]);
        }
    }
}
