//! Members' volatile caches, and the flushes that clients and the array's other machines ask for.
//!
//! One flush at a time. A member that was not written since its last flush is flushed for no
//! client. It does not know superblocks: the array says what no flush may be answered before.

mod decide;
mod machine;

pub(super) use decide::{
    Action as CachesAction, Facts as CachesFacts, Round, Stage as CachesStage,
    decide as decide_caches,
};
pub(super) use machine::Caches;
