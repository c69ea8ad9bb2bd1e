//! DFlash 2's candidate selector: which of a slot's likeliest tokens goes best after the token
//! before it.
//!
//! All slots are filled in one pass, so that a slot's row does not know what the slots before it
//! became. The selector walks from the anchor through the slots: of each it takes the
//! `candidates` with the largest logits, adds to the logit of `b` after `a` the score
//! `⟨A[a] ⊙ H(row), B[b]⟩` (`A` and `B` are codebooks of `rank` numbers a token, `H` is a
//! projection of the slot's normed row), and goes on from the best one. No other pass is needed,
//! one small product and a lookup. After the published `DFlash2DraftModel`, whose walk at
//! temperature 0 this is; what is proposed is verified as ever.

use super::config::SelectorConfig;
use super::decoder::Reader;
use super::ops::Ops;
use super::weights::Role;
use anyhow::{Context, Result, ensure};

/// The selector. "Places" are rows of the draft's head: ids, unless it proposes from fewer.
pub(super) struct Selector<O: Ops> {
    config: SelectorConfig,
    /// H: `[rank, hidden]`
    view: O::Linear,
    /// A: `[places, rank]`
    predecessors: O::Linear,
    /// B: `[places, rank]`
    successors: O::Linear,
}

/// Matrices of a selector.
pub(super) const SELECTOR_STEPS: usize = 3;

/// A place, and how probable it is among the slot's candidates.
pub(super) type Chosen = (u32, f32);

impl<O: Ops> Selector<O> {
    pub(super) fn load(read: &Reader<'_, O>, config: SelectorConfig) -> Result<Self> {
        Ok(Selector {
            config,
            view: read.matrix(&[Role::SelectorHidden], |view| read.ops.linear(&view, None))?,
            predecessors: read.table(Role::Predecessors)?,
            successors: read.table(Role::Successors)?,
        })
    }

    /// Bytes of its matrices.
    pub(super) fn bytes(&self, ops: &O) -> u64 {
        let all = [&self.view, &self.predecessors, &self.successors];
        all.into_iter().map(|linear| ops.linear_bytes(linear)).sum()
    }

    /// Fill the slots whose last rows are `slots` and whose logits are `logits`, after `anchor`
    /// (`None` where the draft never proposes it, and so knows nothing of what follows it).
    pub(super) fn walk(
        &self,
        ops: &O,
        slots: &O::Rows,
        norm: &O::Norm,
        logits: &O::Rows,
        anchor: Option<u32>,
    ) -> Result<Vec<Chosen>> {
        let views = ops.download(&ops.project(slots, Some(norm), &self.view)?)?;
        let logits = ops.download(logits)?;
        let width = logits.len() / ops.count(slots).max(1);
        ensure!(width > 0, "a draft without logits");
        let slots = logits.chunks_exact(width).map(|row| likeliest(row, self.config.candidates));
        let mut slots: Vec<Vec<(u32, f32)>> = slots.collect();
        // All rows that the walk may need at once, so that a GPU is waited for but twice.
        let places: Vec<u32> = slots.iter().flatten().map(|(place, _)| *place).collect();
        let rows = |book, places: &[u32]| ops.download(&ops.embed(book, places, 1.0)?);
        let (predecessors, successors) =
            (rows(&self.predecessors, &places)?, rows(&self.successors, &places)?);
        let after_anchor = anchor.map(|anchor| rows(&self.predecessors, &[anchor])).transpose()?;

        let rank = self.config.rank;
        let mut before = after_anchor.as_deref();
        let (mut path, mut first) = (Vec::with_capacity(slots.len()), 0);
        for (candidates, view) in slots.iter_mut().zip(views.chunks_exact(rank)) {
            for (i, (_, score)) in candidates.iter_mut().enumerate() {
                let successor = &successors[(first + i) * rank..][..rank];
                *score += before.map_or(0.0, |before| pair_score(before, view, successor));
            }
            let (chosen, prob) = best(candidates).context("the draft gave no numbers as logits")?;
            path.push((candidates[chosen].0, prob));
            before = Some(&predecessors[(first + chosen) * rank..][..rank]);
            first += candidates.len();
        }
        Ok(path)
    }
}

/// `⟨A[a] ⊙ H(row), B[b]⟩`
fn pair_score(predecessor: &[f32], view: &[f32], successor: &[f32]) -> f32 {
    predecessor.iter().zip(view).zip(successor).map(|((a, h), b)| a * h * b).sum()
}

/// The places of the `count` largest logits with these, the largest first, of equals the first.
fn likeliest(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut kept: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    let mut least = f32::NEG_INFINITY;
    for (place, &logit) in logits.iter().enumerate() {
        // Almost every logit ends here; one that is no number too.
        if logit > least {
            let at = kept.partition_point(|(_, other)| *other >= logit);
            kept.insert(at, (place as u32, logit));
            kept.truncate(count);
            if kept.len() == count {
                least = kept[count - 1].1;
            }
        }
    }
    kept
}

/// Which candidate has the largest score (of equals the first), and its share of their softmax.
fn best(candidates: &[(u32, f32)]) -> Option<(usize, f32)> {
    let mut best = 0;
    for (i, (_, score)) in candidates.iter().enumerate() {
        if *score > candidates[best].1 {
            best = i;
        }
    }
    let top = candidates.get(best)?.1;
    let sum: f32 = candidates.iter().map(|(_, score)| (score - top).exp()).sum();
    Some((best, 1.0 / sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_likeliest_come_first() {
        let logits = [1.0, 5.0, f32::NAN, 5.0, -2.0, 3.0];
        assert_eq!(likeliest(&logits, 3), [(1, 5.0), (3, 5.0), (5, 3.0)]);
        assert_eq!(likeliest(&logits, 9).len(), 5);
        assert_eq!(likeliest(&[f32::NAN, f32::NEG_INFINITY], 2), []);
    }

    #[test]
    fn the_best_is_the_first_of_equals() {
        assert_eq!(best(&[(4, 1.0), (7, 2.0), (9, 2.0)]).unwrap().0, 1);
        let (i, prob) = best(&[(4, 0.0), (7, 3f32.ln())]).unwrap();
        assert!(i == 1 && (prob - 0.75).abs() < 1e-6);
        assert_eq!(best(&[]), None);
    }

    proptest! {
        #[test]
        fn as_sorting_would(
            logits in proptest::collection::vec(-9i8..9, 1..200),
            count in 1usize..20,
        ) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let mut sorted: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
            sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            sorted.truncate(count);
            prop_assert_eq!(likeliest(&logits, count), sorted);
        }
    }
}
