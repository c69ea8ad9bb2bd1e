//! `dflash-chat`: the chat.

use super::options::{ConversationOptions, DecodeOptions, ModelOptions};
use anyhow::Result;
use clap::Args;

/// Options of the chat.
#[derive(Debug, Clone, Args)]
pub struct ChatArgs {
    /// Model options.
    #[command(flatten)]
    pub model: ModelOptions,
    /// Decoding options.
    #[command(flatten)]
    pub decode: DecodeOptions,
    /// Conversation options.
    #[command(flatten)]
    pub conversation: ConversationOptions,
}

/// Open the chat.
pub fn run(_args: &ChatArgs) -> Result<()> {
    anyhow::bail!("the screen is not here yet")
}
