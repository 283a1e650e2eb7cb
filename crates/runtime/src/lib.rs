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
//!                                               ▼   │                     ▼      │
//!                                            a queue and a few threads per member
//! ```
//!
//! No thread ever waits for a shard: whoever has an event for one leaves it in the shard's inbox
//! and tries to become its owner ([`combiner`]); who fails goes on with other work.
#![deny(unsafe_code)]

mod arena;
mod clock;
mod combiner;
mod core;
mod edges;
mod member_threads;
mod open;
mod options;
mod requests;
mod timer;
mod volume;
mod watch;

pub use open::{OpenError, OpenMember};
pub use options::Options;
pub use volume::{Done, Outcome, Stopped, Volume, VolumeError, VolumeOperation};

pub use braid_engine::Counters;
pub use braid_engine::array::Notice;
