//! DFlash 2's candidate selector: which of a slot's likeliest tokens goes best after the token
//! before it.
//!
//! All slots are filled in one pass, so that a slot's row does not know what the slots before it
//! became. The selector walks from the anchor through the slots: of each it takes the
//! `candidates` with the largest logits, adds to the logit of `b` after `a` the score
//! `⟨A[a] ⊙ H(row), B[b]⟩` (`A` and `B` are codebooks of `rank` numbers a token, `H` is a
//! projection of the slot's normed row), and goes on from the best one. No other pass is needed:
//! a slot costs a few thousand multiplications. After the published `DFlash2DraftModel`, whose
//! walk at temperature 0 this is; what is proposed is verified as ever.

use super::config::SelectorConfig;
use super::decoder::Reader;
use super::ops::Ops;
use super::weights::{RawTensor, Role};
use anyhow::{Context, Result, ensure};

/// The selector. "Places" are rows of the draft's head: ids, unless it proposes from fewer.
pub(super) struct Selector<O: Ops> {
    config: SelectorConfig,
    /// H: `[rank, hidden]`
    view: O::Linear,
    /// A, as stored: `[places, rank]`
    predecessors: RawTensor<'static>,
    /// B, as stored: `[places, rank]`
    successors: RawTensor<'static>,
}

/// A place, and how probable it is among the slot's candidates.
pub(super) type Chosen = (u32, f32);

impl<O: Ops> Selector<O> {
    pub(super) fn load(read: &Reader<'_, O>, config: SelectorConfig) -> Result<Self> {
        let codebook = |role| -> Result<RawTensor<'static>> {
            let book = (read.tensor)(role)?.into_owned();
            (read.release)(role);
            book.row_bytes()?;
            Ok(book)
        };
        Ok(Selector {
            config,
            view: read.matrix(&[Role::SelectorHidden], |view| read.ops.linear(&view, None))?,
            predecessors: codebook(Role::Predecessors)?,
            successors: codebook(Role::Successors)?,
        })
    }

    /// Bytes of its matrices.
    pub(super) fn bytes(&self, ops: &O) -> u64 {
        let books = self.predecessors.bytes.len() + self.successors.bytes.len();
        ops.linear_bytes(&self.view) + books as u64
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
        let mut before = anchor;
        let slots = views.chunks_exact(self.config.rank).zip(logits.chunks_exact(width));
        slots
            .map(|(view, logits)| {
                let mut candidates = likeliest(logits, self.config.candidates);
                if let Some(before) = before {
                    self.weigh(before, view, &mut candidates)?;
                }
                let chosen = best(&candidates).context("the draft gave no numbers as logits")?;
                before = Some(chosen.0);
                Ok(chosen)
            })
            .collect()
    }

    /// Add the scores of standing after `before`.
    fn weigh(&self, before: u32, view: &[f32], candidates: &mut [(u32, f32)]) -> Result<()> {
        let wanted = self.predecessors.select_rows(&[before])?.to_f32()?;
        let wanted: Vec<f32> = wanted.iter().zip(view).map(|(a, h)| a * h).collect();
        let places: Vec<u32> = candidates.iter().map(|(place, _)| *place).collect();
        let offered = self.successors.select_rows(&places)?.to_f32()?;
        for ((_, score), offered) in candidates.iter_mut().zip(offered.chunks(wanted.len())) {
            *score += wanted.iter().zip(offered).map(|(a, b)| a * b).sum::<f32>();
        }
        Ok(())
    }
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

/// The candidate of the largest score (of equals the first), with its share of their softmax.
fn best(candidates: &[(u32, f32)]) -> Option<Chosen> {
    let mut best = *candidates.first()?;
    for &candidate in candidates {
        if candidate.1 > best.1 {
            best = candidate;
        }
    }
    let sum: f32 = candidates.iter().map(|(_, score)| (score - best.1).exp()).sum();
    Some((best.0, 1.0 / sum))
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
        assert_eq!(best(&[(4, 1.0), (7, 2.0), (9, 2.0)]).unwrap().0, 7);
        let (place, prob) = best(&[(4, 0.0), (7, 3f32.ln())]).unwrap();
        assert!(place == 7 && (prob - 0.75).abs() < 1e-6);
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
