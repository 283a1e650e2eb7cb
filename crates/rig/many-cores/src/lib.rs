//! A model of a machine with many cores: the product's locks and atomics in virtual time.
//!
//! Place in the flow: it replaces `braid_concurrency` in code that `crates/rig/many-cores-dispatch`
//! compiles a second time, only in the lab. The product's own code runs; the model adds the time of
//! cache-line transfers, sleeping and waking.
//! ```text
//!   dispatcher ─┐                           ┌─ lines  (the core that has each, waiting cores)
//!   elevator  ──┼─▶ Mutex, atomics, thread ─┼─ queues (which thread holds which lock)
//!   the lab   ──┘                           └─ world  (the thread with the least time goes next)
//! ```
//! The types have `braid_concurrency`'s names. The result is a time for each core.
//!
//! Not modelled: weak memory order (the models in `crates/io/dispatch` do that), two threads on a
//! core, and memory outside these types. Instructions between two accesses take no time, unless the
//! code calls [`work`]. The model is as good as its figures, which name their sources ([`Costs`]).
#![forbid(unsafe_code)]

pub mod atomic;
mod costs;
mod lines;
mod locks;
mod queues;
#[cfg(test)]
mod tests;
pub mod thread;
mod world;

pub use braid_concurrency::flaws;
pub use costs::{COSTS, Cost, Costs, WaitPolicy};
pub use locks::{Content, Mutex, MutexGuard, TryMutex, TryMutexGuard};
pub use std::sync::TryLockError;
pub use thread::{Moment, now_ns, own_line, own_state, thread_number, work, work_ps};
pub use world::run;
