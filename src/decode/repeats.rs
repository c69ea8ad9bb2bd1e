//! Drafts without a network: where the text's last tokens stand earlier in it, what followed
//! there (prompt lookup, after Saxena 2023). They cost nothing to make, and where a text repeats
//! itself (a name, a line of code, a table's next row) they are right more often than a draft's.

use crate::model::networks::Proposal;

/// Tokens that must stand earlier, the anchor included.
const SHORTEST: usize = 2;
/// A longer match tells no more.
const LONGEST: usize = 16;

/// Up to `most` tokens that may follow `anchor`, which follows `ids`: those after the place
/// earlier in the text that agrees with its end the longest; of equals the latest. Empty where
/// the last two tokens stand nowhere else. A place so late that its continuation runs into the
/// text's end goes on in circles, as such texts do.
///
/// A proposal's probability is a first guess by the length of the match; the planner learns
/// what such guesses are worth.
pub fn continuation(ids: &[u32], anchor: u32, most: usize) -> Vec<Proposal> {
    let Some((&before, rest)) = ids.split_last() else { return Vec::new() };
    if most == 0 {
        return Vec::new();
    }
    let (mut longest, mut place) = (0, 0);
    // `i` is where the anchor stands earlier, after `before`.
    for i in (1..ids.len()).rev() {
        if ids[i] != anchor || ids[i - 1] != before {
            continue;
        }
        let ends = ids[..i - 1].iter().rev().zip(rest.iter().rev());
        let length = SHORTEST + ends.take_while(|(a, b)| a == b).take(LONGEST - SHORTEST).count();
        if length > longest {
            (longest, place) = (length, i);
        }
        if length == LONGEST {
            break;
        }
    }
    if longest == 0 {
        return Vec::new();
    }
    let circle = ids.len() - place;
    let at = |i: usize| *ids.get(place + 1 + i % circle).unwrap_or(&anchor);
    let prob = guess(longest);
    (0..most).map(|i| Proposal { id: at(i), prob }).collect()
}

/// How often the next token is the same after a match of `length` tokens, measured on answers of
/// a small chat model; one value for each bin in which the planner learns.
fn guess(length: usize) -> f32 {
    match length {
        0..=2 => 0.5,
        3 => 0.63,
        4..=5 => 0.77,
        6..=9 => 0.86,
        _ => 0.94,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32], anchor: u32, most: usize) -> Vec<u32> {
        continuation(ids, anchor, most).into_iter().map(|p| p.id).collect()
    }

    #[test]
    fn goes_on_as_the_longest_match_did() {
        // "1 2" stands twice; "9 1 2" only at the first place.
        let text = [9, 1, 2, 5, 6, 1, 2, 7, 8, 9, 1];
        assert_eq!(ids(&text, 2, 3), [5, 6, 1]);
        assert!(continuation(&text, 2, 1)[0].prob > 0.6);
        // Of equals the latest.
        assert_eq!(ids(&[1, 2, 5, 1, 2, 6, 4, 1], 2, 2), [6, 4]);
    }

    #[test]
    fn goes_in_circles_at_the_end() {
        assert_eq!(ids(&[7, 1, 2, 3, 1, 2], 3, 7), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(ids(&[5, 5, 5], 5, 3), [5, 5, 5]);
    }

    #[test]
    fn proposes_nothing_without_a_match() {
        for (text, anchor) in [(&[][..], 1), (&[1], 1), (&[1, 2, 3], 4), (&[2, 1, 3], 1)] {
            assert_eq!(ids(text, anchor, 4), [0; 0], "{text:?} {anchor}");
        }
        assert_eq!(ids(&[1, 2, 1], 2, 0), [0; 0]);
    }

    #[test]
    fn matches_are_as_long_as_they_can_be() {
        // Whatever the texts: the place agrees with the end, and no place agrees longer.
        let mut state = 7u64;
        for _ in 0..500 {
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 60) as u32 % 3
            };
            let all: Vec<u32> = (0..24).map(|_| next()).collect();
            let (anchor, text) = all.split_last().unwrap();
            let agreed = |i: usize| {
                (0..LONGEST).take_while(|k| *k < i && all[i - 1 - k] == all[23 - k]).count()
            };
            let best = (1..24).map(agreed).max().unwrap();
            let got = ids(text, *anchor, 1);
            assert_eq!(got.is_empty(), best < SHORTEST, "{all:?}");
            if let Some(&id) = got.first() {
                assert!((1..24).any(|i| agreed(i) == best && all[i] == id), "{all:?}");
            }
        }
    }
}
