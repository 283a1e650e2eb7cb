//! Superblocks: the state that durable ones record, and the update that is being written.
//!
//! One update at a time. Its content is made when it begins, and counts when all its members have
//! it. This directory does not know shards: the array publishes the state of a finished update.

mod decide;
mod machine;

pub(super) use decide::{
    Action as SuperblocksAction, Facts as SuperblocksFacts, Stage as SuperblocksStage,
    decide as decide_superblocks,
};
pub(super) use machine::{Completed, Standing, Superblocks, Telling, Why};
