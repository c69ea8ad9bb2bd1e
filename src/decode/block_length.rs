//! How long the next block is.

use super::session::RoundRecord;
use crate::event::{BlockSize, PlannedBy};
use crate::model::networks::Proposal;

/// What bounds the next block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The draft's block size, anchor included; 1 where nothing can be drafted.
    pub block: usize,
    /// Answer tokens that may still be added.
    pub budget: usize,
    /// Positions that are left.
    pub room: usize,
    /// Positions in the cache.
    pub context: usize,
}

/// How many drafts, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Drafts to propose or to verify; 0 is a plain step.
    pub drafts: usize,
    /// Why that many.
    pub planned_by: PlannedBy,
    /// Tokens that the round is expected to commit.
    pub expected: Option<f32>,
}

/// Chooses block lengths.
#[derive(Debug, Clone, Default)]
pub struct Planner {}

impl Planner {
    /// How many slots the draft shall fill.
    pub fn plan(&mut self, asked: BlockSize, limits: &Limits) -> Plan {
        let wanted = match asked {
            BlockSize::Auto => limits.block,
            BlockSize::Fixed(n) => n.min(limits.block),
        };
        let planned_by = match asked {
            _ if limits.budget < wanted.min(limits.room) => PlannedBy::Budget,
            _ if limits.room < wanted => PlannedBy::Room,
            BlockSize::Auto => PlannedBy::Auto,
            BlockSize::Fixed(_) => PlannedBy::Fixed,
        };
        let block = wanted.min(limits.budget).min(limits.room).max(1);
        Plan { drafts: block - 1, planned_by, expected: None }
    }

    /// How many of the proposed drafts shall be verified.
    pub fn trim(&mut self, plan: &Plan, _drafted: &[Proposal], _limits: &Limits) -> Plan {
        *plan
    }

    /// Learn from a round; `matched` drafts agreed with the target, cut by nothing.
    pub fn observe(&mut self, _round: &RoundRecord, _matched: usize) {}
}
