//! A machine of many cores, as a model: the locks and atomics that the product names, in virtual time.
//!
//! Where it stands: in the place of `braid_concurrency`, for code that is compiled a second time (`crates/rig/many-cores-dispatch`). In the
//! lab only. What runs is the product's own code; what is modelled is what it takes: who has which cache line, what it takes
//! to have it, who sleeps, who is woken when.
//!
//! ```text
//!   dispatcher ─┐                           ┌─ lines  (who has it, who stands behind)
//!   elevator  ──┼─▶ Mutex, atomics, thread ─┼─ queues (who holds which lock)         ─▶ a time for each core
//!   the lab   ──┘   (names of braid_concurrency)   └─ world  (whose time is least goes next)
//! ```
//!
//! What it does not do: order memory weakly (the models in `crates/io/dispatch` do), run two threads on a core, or know of
//! anything that was not named to it; instructions between two accesses take no time unless somebody says so ([`work`]).
//! It is as good as its figures ([`Costs`]), each of which says where it is from.
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
pub use costs::{COSTS, Cost, Costs, Waiting};
pub use locks::{Content, Mutex, MutexGuard, TryMutex, TryMutexGuard};
pub use std::sync::TryLockError;
pub use thread::{Moment, now_ns, own_line, own_state, thread_number, work, work_ps};
pub use world::run;
