//! Merge rules for SentencePiece vocabularies, which have scores instead.

use std::collections::HashMap;

/// Longest token, in bytes, that is taken apart into merges. Real ones are below 100; the work
/// grows with the square.
const LONGEST: usize = 512;

/// The merges that spell out the scores of a SentencePiece BPE vocabulary: for each token, every
/// way to join it from two others, best score first, ties by the ids of the two halves. This is
/// the order in which Hugging Face's converter writes them.
///
/// `tokens` yields the tokens that merging may produce, with id and score.
pub(super) fn merges_from_scores<'a>(
    tokens: impl Iterator<Item = (&'a str, u32, f32)>,
) -> Vec<(String, String)> {
    let scores: HashMap<&str, (u32, f32)> =
        tokens.map(|(text, id, score)| (text, (id, score))).collect();
    let mut merges: Vec<(f32, u32, u32, &str, &str)> = Vec::new();
    for (&token, &(_, score)) in &scores {
        if token.len() > LONGEST {
            continue;
        }
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&(l, _)), Some(&(r, _))) = (scores.get(left), scores.get(right)) {
                merges.push((score, l, r, left, right));
            }
        }
    }
    merges.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    merges.into_iter().map(|(_, _, _, l, r)| (l.to_owned(), r.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_score_comes_first() {
        let tokens = [("a", 0, 0.0), ("b", 1, 0.0), ("ab", 2, -2.0), ("ba", 3, -1.0)];
        let longer = [("aba", 4, -3.0)];
        let merges = merges_from_scores(tokens.into_iter().chain(longer));
        let expected = [("b", "a"), ("a", "b"), ("a", "ba"), ("ab", "a")];
        assert_eq!(merges, expected.map(|(l, r)| (l.to_owned(), r.to_owned())));
    }
}
