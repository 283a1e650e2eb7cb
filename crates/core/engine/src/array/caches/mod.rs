//! Members' volatile caches, and the flushes that clients and the array's other machines ask for.
//!
//! One flush runs at a time. A client's flush skips each member without writes since that member's
//! last flush. This directory handles no superblocks: the array decides which updates the answer to
//! a flush waits for.

mod decide;
mod machine;

pub(super) use decide::{
    Action as CachesAction, Facts as CachesFacts, Round, Stage as CachesStage,
    decide as decide_caches,
};
pub(super) use machine::Caches;
