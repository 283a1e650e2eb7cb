//! The pace of a job, and its remaining time.
//!
//! The crate `elevator` orders one member's requests and divides the member between reads and
//! write-back. This crate divides an array between clients and a job, by clients' latency. This
//! crate sees neither members nor the order of requests nor an elevator, since a job also runs on
//! members without an elevator. So the pace is a crate of its own. The runtime feeds it from
//! threads, the simulator and the lab from virtual time, and the command shows its figures. None of
//! them needs the others' code.
//!
//! | module | in | out |
//! |---|---|---|
//! | [`Governor`] | latencies, bytes begun and ended, time | bytes that may begin, time to ask |
//! | [`Progress`] | the job's position, the time | bytes for each second, time left, in words too |
//!
//! The latencies are clients', and the bytes are the job's.
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
