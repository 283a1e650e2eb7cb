//! Members' volatile caches, and the flushes that clients and the array's other machines ask for.
//!
//! One flush at a time. Clients' flushes skip a member without writes since its last flush. This
//! directory does not know superblocks: the array says which updates a flush's answer has to wait
//! for.

mod decide;
mod machine;

pub(super) use decide::{
    Action as CachesAction, Facts as CachesFacts, Round, Stage as CachesStage,
    decide as decide_caches,
};
pub(super) use machine::Caches;
