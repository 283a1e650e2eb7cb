//! Members' volatile caches, and clients' flushes.

mod decide;

pub(super) use decide::{
    Action as CachesAction, Facts as CachesFacts, Round, Stage as CachesStage,
    decide as decide_caches,
};
