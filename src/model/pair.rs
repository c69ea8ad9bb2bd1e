//! A target and, perhaps, its draft, with both caches and what lies between them: the features
//! of verified rows that the draft has not absorbed yet.
//!
//! With S committed positions and a draft context of D, the pending features cover exactly
//! [D, S), unless plain steps were taken without taps: then the draft's context simply ends
//! at D, and [`Networks::drafted_len`] says so.

use super::decoder::Decoder;
use super::draft::Draft;
use super::networks::{Networks, Proposal};
use super::ops::{Choice, Ops};
use anyhow::{Result, ensure};

/// Pending rows are absorbed when they are this many, so that plain rounds do not pile them up.
const MOST_PENDING: usize = 64;

/// A target and, perhaps, its draft.
pub struct Pair<O: Ops> {
    ops: O,
    target: Decoder<O>,
    draft: Option<Draft<O>>,
    max_positions: usize,
    /// Positions that are committed; the target's cache holds more between verify and commit.
    committed: usize,
    /// Features of the positions after the draft's context, oldest first.
    pending: Vec<O::Rows>,
    last: Option<LastPass<O>>,
}

/// What a pass left for `choices`, `logits` and `commit`.
struct LastPass<O: Ops> {
    logits: O::Rows,
    features: Option<O::Rows>,
}

impl<O: Ops> Pair<O> {
    /// Put the two together. `max_positions` is what both were loaded for.
    pub fn new(ops: O, target: Decoder<O>, draft: Option<Draft<O>>, max_positions: usize) -> Self {
        Pair { ops, target, draft, max_positions, committed: 0, pending: Vec::new(), last: None }
    }

    /// The operations.
    pub fn ops(&self) -> &O {
        &self.ops
    }

    /// The target.
    pub fn target(&self) -> &Decoder<O> {
        &self.target
    }

    /// The draft.
    pub fn draft(&self) -> Option<&Draft<O>> {
        self.draft.as_ref()
    }

    fn pending_rows(&self) -> usize {
        self.pending.iter().map(|rows| self.ops.count(rows)).sum()
    }

    /// Run the target; returns the hidden rows and the features side by side.
    fn pass(&mut self, ids: &[u32], taps: bool) -> Result<(O::Rows, Option<O::Rows>)> {
        let room = self.max_positions.saturating_sub(self.committed);
        ensure!(
            ids.len() <= room,
            "{} tokens do not fit into the context: {room} positions are left",
            ids.len()
        );
        let draft = self.draft.as_ref().filter(|_| taps);
        let wanted = draft.map_or(Vec::new(), |draft| draft.config().taps.clone());
        let pass = self.target.forward(&self.ops, ids, &wanted)?;
        let features = match draft {
            Some(_) => Some(self.ops.beside(&pass.taps.iter().collect::<Vec<_>>())?),
            None => None,
        };
        Ok((pass.hidden, features))
    }

    fn keep(&mut self, features: Option<O::Rows>) -> Result<()> {
        if let Some(rows) = features {
            // Features that do not continue what the draft knows are of no use to it.
            if self.drafted_len() == self.committed {
                self.pending.push(rows);
            }
        }
        Ok(())
    }

    fn absorb(&mut self) -> Result<()> {
        let Some(draft) = &mut self.draft else { return Ok(()) };
        let pending = std::mem::take(&mut self.pending);
        match pending.as_slice() {
            [] => Ok(()),
            [rows] => draft.absorb(&self.ops, rows),
            many => draft.absorb(&self.ops, &self.ops.stack(&many.iter().collect::<Vec<_>>())?),
        }
    }
}

impl<O: Ops> Networks for Pair<O> {
    fn vocab(&self) -> usize {
        self.target.config().vocab
    }

    fn block_size(&self) -> usize {
        self.draft.as_ref().map_or(1, |draft| draft.config().block_size)
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn knows_more(&self) -> bool {
        let draft = self.draft.as_ref().map_or(usize::MAX, |draft| draft.config().max_positions);
        self.max_positions < self.target.config().max_positions.min(draft)
    }

    fn len(&self) -> usize {
        self.committed
    }

    fn drafted_len(&self) -> usize {
        self.draft.as_ref().map_or(0, |draft| draft.len(&self.ops) + self.pending_rows())
    }

    fn prefill_rows(&self) -> usize {
        self.ops.prefill_rows()
    }

    fn rewind(&mut self, len: usize) -> usize {
        let len = len.min(self.committed);
        // What a window has forgotten must be read again, by both networks or by neither: a
        // draft that knows less than the target learns no more.
        let forgotten = len < self.target.shortest(&self.ops)
            || self.draft.as_ref().is_some_and(|draft| len < draft.shortest(&self.ops));
        let len = if forgotten { 0 } else { len };
        self.target.truncate(&self.ops, len);
        self.committed = len;
        self.last = None;
        if let Some(draft) = &mut self.draft {
            let context = draft.len(&self.ops).min(len);
            draft.truncate(&self.ops, context);
            // Pending rows begin at the context's old end: keep those before `len`.
            let mut room = len - context;
            let pending = std::mem::take(&mut self.pending);
            for rows in pending {
                let n = self.ops.count(&rows).min(room);
                room -= n;
                match self.ops.slice(&rows, 0..n) {
                    Ok(kept) if n > 0 => self.pending.push(kept),
                    // Without these features the draft's context just ends earlier.
                    _ => break,
                }
            }
        }
        len
    }

    fn prefill(&mut self, ids: &[u32], taps: bool, last: bool) -> Result<()> {
        ensure!(!ids.is_empty(), "an empty prompt has nothing to continue");
        self.last = None;
        let (hidden, features) = self.pass(ids, taps)?;
        self.keep(features)?;
        self.committed += ids.len();
        self.absorb()?;
        if last {
            let row = self.ops.slice(&hidden, ids.len() - 1..ids.len())?;
            let logits = self.target.logits(&self.ops, &row)?;
            self.last = Some(LastPass { logits, features: None });
        }
        Ok(())
    }

    fn propose(&mut self, anchor: u32, drafts: usize) -> Result<Vec<Proposal>> {
        ensure!(
            self.drafted_len() == self.committed,
            "the draft knows {} of {} committed positions",
            self.drafted_len(),
            self.committed
        );
        self.absorb()?;
        let Some(draft) = &mut self.draft else { return Ok(Vec::new()) };
        draft.propose(&self.ops, &self.target, anchor, drafts)
    }

    fn verify(&mut self, ids: &[u32], taps: bool) -> Result<()> {
        ensure!(
            self.target.len(&self.ops) == self.committed,
            "the target's cache holds {} positions, not the {} committed ones",
            self.target.len(&self.ops),
            self.committed
        );
        self.last = None;
        let (hidden, features) = self.pass(ids, taps)?;
        let logits = self.target.logits(&self.ops, &hidden)?;
        self.last = Some(LastPass { logits, features });
        Ok(())
    }

    fn commit(&mut self, rows: usize) -> Result<()> {
        let features = self.last.take().and_then(|last| last.features);
        let features = match features {
            Some(all) => Some(self.ops.slice(&all, 0..rows)?),
            None => None,
        };
        self.keep(features)?;
        self.committed += rows;
        self.target.truncate(&self.ops, self.committed);
        if self.pending_rows() >= MOST_PENDING {
            self.absorb()?;
        }
        Ok(())
    }

    fn choices(&mut self) -> Result<Vec<Choice>> {
        match &self.last {
            Some(last) => self.ops.choose(&last.logits, false),
            None => Ok(Vec::new()),
        }
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        match &self.last {
            Some(last) => self.ops.download(&last.logits),
            None => Ok(Vec::new()),
        }
    }

    fn pass_bytes(&self) -> u64 {
        self.target.pass_bytes(&self.ops)
    }

    fn memory_rates(&mut self, bytes: u64) -> Vec<f64> {
        self.ops.memory_rates(bytes)
    }
}
