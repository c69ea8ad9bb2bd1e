//! Named weights of a model's files, as they lie there.

use candle_core::quantized::GgmlDType;
use std::borrow::Cow;

/// A tensor as its file has it: row-major, `shape` outermost first (`[out, in]` for a matrix),
/// of any type that GGUF files use (f32, f16 and bf16 among them).
#[derive(Debug, Clone)]
pub struct RawTensor<'a> {
    /// Its name in the file, for messages.
    pub name: String,
    /// Outermost first.
    pub shape: Vec<usize>,
    /// How `bytes` are to be read.
    pub dtype: GgmlDType,
    /// The numbers; the length fits `shape` and `dtype`.
    pub bytes: Cow<'a, [u8]>,
}
