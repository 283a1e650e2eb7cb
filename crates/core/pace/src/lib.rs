//! How fast a job goes, and how long it will take.
//!
//! Where it stands: beside `elevator`, which orders what is asked of one member and divides it between reads and
//! write-back. This divides an array between clients and a job, by what clients feel, and knows nothing of members, of
//! order, or of an elevator: members without one have jobs as well. That is why it is a crate of its own: the runtime feeds it from
//! threads, the simulator and the lab from virtual time, the command shows what it says, and none of them needs the other's.
//!
//! | module | in | out |
//! |---|---|---|
//! | [`Governor`] | latencies of clients, what the job began and ended, the time | how many bytes may begin, when to ask again |
//! | [`Progress`] | how far the job has come, the time | bytes for each second, time left, in words as well |
//!
//! No clock, no I/O, no threads, no chance: time is an argument, in nanoseconds of a clock that does not go back.

#![forbid(unsafe_code)]

mod governor;
mod latencies;
mod progress;
mod words;

pub use governor::{Allowance, Class, Governor, GovernorSettings, Look, Phase};
pub use latencies::Latencies;
pub use progress::{Estimate, Left, Progress};
