//! (to come)
pub mod template;
