//! The suites, one file or folder each.

mod bdevperf;
mod cores;
mod cost;
mod doors;
mod elevator;
mod growth;
mod hand_over;
pub mod ledger;
mod lookup;
mod multiplexer;
mod nbd;
mod parity;
mod paths;
mod peers;
mod policies;
mod priority;
mod read;
mod rebuild;
mod seeds;
mod share;
mod slow;
mod small_writes;
mod wait;
mod write;

use crate::frame::Suite;

/// All suites, in the order in which "all" runs them.
pub const SUITES: &[Suite] = &[
    lookup::SUITE,
    parity::SUITE,
    wait::SUITE,
    priority::SUITE,
    elevator::SUITE,
    cores::SUITE,
    multiplexer::SUITE,
    slow::SUITE,
    read::SUITE,
    write::SUITE,
    ledger::SUITE,
    rebuild::SUITE,
    policies::SUITE,
    small_writes::SUITE,
    cost::SUITE,
    growth::SUITE,
    hand_over::SUITE,
    doors::SUITE,
    peers::SUITE,
    seeds::SUITE,
];
