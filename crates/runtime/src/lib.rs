//! Threads around the engine: combiners, payload memory, member I/O, and the [`Volume`].
//!
//! Where it stands: front ends call [`Volume`]; the runtime turns requests into events for
//! `braid_engine`'s machines, carries their effects out on `braid_member`s, and feeds the results
//! back. It decides nothing about RAID and knows no protocol.
//!
//! ```text
//!   front end ──submit──▶ Volume ──pieces──▶ shard combiners ◀──views── array combiner
//!                                               │   ▲                     │      ▲
//!                                       member I/O  results     superblocks, flushes
//!                                               ▼   │                     │      │
//!                             a scheduler for each member (braid_dispatch)│      │
//!                                               ▼   │                     ▼      │
//!                              workers with a ring each, or a queue and a few threads per member
//! ```
//!
//! No thread ever waits for a shard: whoever has an event for one leaves it in the shard's inbox
//! and tries to become its owner ([`braid_dispatch::Combiner`]); who fails goes on with other work.
#![deny(unsafe_code)]
// The hand-overs that loom explores need no more than the modules they are in.
#![cfg_attr(loom, allow(dead_code))]

// The models and the executor's tests share the tests' kit, which names this crate from outside.
#[cfg(all(test, not(loom)))]
extern crate self as braid_runtime;

mod arena;
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod cause;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod core;
mod edges;
#[cfg(not(loom))]
mod executor;
#[cfg(not(loom))]
mod extents;
#[cfg(not(loom))]
mod log;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
mod options;
mod requests;
#[cfg(not(loom))]
mod scheduling;
#[cfg(not(loom))]
mod slate;
mod sync;
#[cfg(not(loom))]
mod telling;
#[cfg(not(loom))]
mod timer;
#[cfg(not(loom))]
mod turns;
#[cfg(not(loom))]
mod volume;
#[cfg(not(loom))]
mod waiter;
#[cfg(not(loom))]
mod walk;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod workers;

#[cfg(not(loom))]
pub use cache::Cache;
#[cfg(not(loom))]
pub use cause::{AnswerWords, CauseWords};
#[cfg(not(loom))]
pub use extents::Extent;
#[cfg(not(loom))]
pub use open::{OpenError, OpenMember};
#[cfg(not(loom))]
pub use options::{Direct, Io, Options};
#[cfg(not(loom))]
pub use scheduling::{Elevator, ElevatorState, ElevatorTuning, Multiplex, Scheduling};
#[cfg(not(loom))]
pub use telling::{Told, ToldMember};
#[cfg(not(loom))]
pub use volume::{Done, Outcome, Stopped, Volume, VolumeError, VolumeOperation};

pub use braid_dispatch::{
    Counters as ElevatorCounters, Depth, Policy, Settings as ElevatorSettings,
};
pub use braid_elevator::{MultiplexerSettings, Slice};
pub use braid_engine::array::{MemberId, Notice};
pub use braid_engine::cause::{Answer, Asked, Cause};
pub use braid_engine::{CacheMode, Counters, SitOut};
pub use braid_ring::{Payload, Workers};
