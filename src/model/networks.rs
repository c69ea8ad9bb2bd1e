//! What a pair of networks offers to decoding. [`super::pair::Pair`] computes it; tests script it.

use super::ops::Choice;
use anyhow::Result;

/// A draft's proposal for one slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proposal {
    /// The proposed token.
    pub id: u32,
    /// The probability that the draft gives it.
    pub prob: f32,
}

/// A target with, perhaps, a draft. It holds the caches of both; decoding holds the ids.
///
/// Between calls the target's cache has `len()` positions, and the draft's context together
/// with the pending features of verified rows covers a prefix of them (all of them, unless
/// plain steps were taken with `taps` off).
pub trait Networks {
    /// Entries of the vocabulary.
    fn vocab(&self) -> usize;
    /// The draft's block size, anchor included; 1 without a draft.
    fn block_size(&self) -> usize;
    /// Positions that fit into the caches and that both networks know.
    fn max_positions(&self) -> usize;
    /// Whether both networks know more positions than fit into the caches: those could be larger.
    fn knows_more(&self) -> bool {
        false
    }
    /// Positions in the target's cache.
    fn len(&self) -> usize;
    /// Whether the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Positions that the draft knows or can learn from pending features; a speculative run can
    /// reuse only these.
    fn drafted_len(&self) -> usize;
    /// Cut caches to `len` positions, or to fewer where a sliding window forgot what is before;
    /// returns the length.
    fn rewind(&mut self, len: usize) -> usize;
    /// Prompt tokens that shall pass at once: between two passes work can be cancelled.
    fn prefill_rows(&self) -> usize {
        256
    }
    /// Pass prompt tokens through the target. `taps`: keep what the draft needs. With `last`
    /// set, the logits of the last row are ready for [`Networks::choices`] afterwards.
    fn prefill(&mut self, ids: &[u32], taps: bool, last: bool) -> Result<()>;
    /// Let the draft fill the `drafts` slots after `anchor`, which stands at `len()`.
    fn propose(&mut self, anchor: u32, drafts: usize) -> Result<Vec<Proposal>>;
    /// Pass `ids` (the anchor and drafts) through the target; logits of all rows are ready
    /// afterwards. The rows count as pending until [`Networks::commit`].
    fn verify(&mut self, ids: &[u32], taps: bool) -> Result<()>;
    /// Keep the first `rows` rows of the last verify pass and forget the others.
    fn commit(&mut self, rows: usize) -> Result<()>;
    /// The greedy choice at each row of the last pass.
    fn choices(&mut self) -> Result<Vec<Choice>>;
    /// The logits of the last pass, `[rows, vocab]`.
    fn logits(&mut self) -> Result<Vec<f32>>;
    /// Bytes of weights that a pass of one row through the target reads; 0 where that is not known.
    fn pass_bytes(&self) -> u64 {
        0
    }
    /// Bytes a second at which the memory that has the weights can be read, measured a few times on
    /// at most so many bytes; none where that is not known.
    fn memory_rates(&mut self, _bytes: u64) -> Vec<f64> {
        Vec::new()
    }
}
