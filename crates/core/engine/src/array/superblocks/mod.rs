//! Superblocks: their durable state, and the update in flight.
//!
//! One update runs at a time. An update's content is fixed when the update begins, and holds when
//! all its members have it. This directory handles no shards: the array publishes the state of a
//! finished update.

mod decide;
mod machine;

pub(super) use decide::{
    Action as SuperblocksAction, Facts as SuperblocksFacts, Stage as SuperblocksStage,
    decide as decide_superblocks,
};
pub(super) use machine::{StageFacts, Superblocks, UpdateContent, UpdateReason, UpdateResult};
