//! Superblocks: what all of them say, and the update that is being written.

mod decide;

pub(super) use decide::{
    Action as SuperblocksAction, Facts as SuperblocksFacts, Stage as SuperblocksStage,
    decide as decide_superblocks,
};
