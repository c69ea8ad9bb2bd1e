//! `tokenizer.json` with its companions. (next)
/// The contents of a model folder's tokenizer files.
#[derive(Debug, Default)]
pub struct TokenizerFiles {}
