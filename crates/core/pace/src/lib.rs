//! The pace of a job, and its remaining time.
//!
//! The crate `elevator` orders one member's requests and divides the member between reads and
//! write-back. This crate divides an array between clients and a job, by clients' latency. It knows
//! neither members nor the order of requests nor an elevator, since a job also runs on members
//! without an elevator. So it is a crate of its own. The runtime feeds it from threads, the
//! simulator and the lab from virtual time, and the command shows its figures. None of them needs
//! the others' code.
//!
//! | module | in | out |
//! |---|---|---|
//! | [`Governor`] | latencies of clients, bytes that the job began and ended, the time | how many bytes may begin, when to ask again |
//! | [`Progress`] | how far the job has come, the time | bytes for each second, time left, in words as well |
//!
//! No clock, no I/O, no threads, no randomness: time is an argument, in monotonic nanoseconds.

#![forbid(unsafe_code)]

mod governor;
mod latencies;
mod progress;
mod words;

pub use governor::{Allowance, Class, Governor, GovernorSettings, GovernorState, Phase};
pub use latencies::Latencies;
pub use progress::{Estimate, Progress, RemainingTime};
