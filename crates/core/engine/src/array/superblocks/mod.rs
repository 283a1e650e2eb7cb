//! Superblocks: what durable ones say of the array, and the update that is being written.
//!
//! One update at a time; what it says is made when it begins, and counts when all members that it
//! is for have it. It does not know shards: the array publishes what an update has made so.

mod decide;
mod machine;

pub(super) use decide::{
    Action as SuperblocksAction, Facts as SuperblocksFacts, Stage as SuperblocksStage,
    decide as decide_superblocks,
};
pub(super) use machine::{Completed, Standing, Superblocks, Telling, Why};
