//! DFlash 2's convolutions: within a block each row is mixed with the one before it, before and
//! after attention and feed-forward, so that late slots know of early ones.
//!
//! The weights of channel `c` are `base[t, c]` and a change of the row's own, shared by a group
//! of channels. Both sides' changes are made of the normed input, by one product. The anchor's
//! row has none before it. After the published `DFlash2DraftModel`.

use super::config::ConvolutionConfig;
use super::decoder::Reader;
use super::ops::Ops;
use super::weights::{Part, Role};
use anyhow::Result;

/// The two convolutions around one attention or feed-forward.
pub(super) struct Convolution<O: Ops> {
    config: ConvolutionConfig,
    /// Weights before and after, `[taps, hidden]` each.
    base: [O::Rows; 2],
    change: O::Linear,
}

impl<O: Ops> Convolution<O> {
    /// Read those of layer `i`.
    pub(super) fn load(
        read: &Reader<'_, O>,
        i: usize,
        config: ConvolutionConfig,
        [base, change]: [Part; 2],
    ) -> Result<Self> {
        let base = (read.tensor)(Role::Layer(i, base))?;
        let width = base.shape.last().copied().unwrap_or(0);
        let weights = base.to_f32()?;
        let (before, after) = weights.split_at(config.taps * width);
        Ok(Convolution {
            config,
            base: [read.ops.upload(before, width)?, read.ops.upload(after, width)?],
            change: read.product(i, &[change], &[])?,
        })
    }

    /// The mixed input, and the rows' changes for both sides. `x` is the residual stream.
    pub(super) fn before(
        &self,
        ops: &O,
        x: &O::Rows,
        norm: &O::Norm,
    ) -> Result<(O::Rows, O::Rows)> {
        let normed = ops.normed(x, norm)?;
        let change = ops.project(&normed, None, &self.change)?;
        let mixed = ops.convolve(&normed, &self.base[0], &change, self.config.group, 0)?;
        Ok((mixed, change))
    }

    /// Add the mixed `result` to the residual stream `x`.
    pub(super) fn after(
        &self,
        ops: &O,
        x: &mut O::Rows,
        result: &O::Rows,
        change: &O::Rows,
    ) -> Result<()> {
        let mixed = ops.convolve(result, &self.base[1], change, self.config.group, 1)?;
        ops.add(x, &mixed)
    }

    /// Bytes of its matrix.
    pub(super) fn bytes(&self, ops: &O) -> u64 {
        ops.linear_bytes(&self.change)
    }
}
