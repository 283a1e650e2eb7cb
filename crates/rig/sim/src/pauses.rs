//! Disks that pause: in most runs slow members may sit out, and a disk answers nothing for a while.
//! No read is allowed to wait for the disk longer than the engine needs to notice.
//!
//! Before the disk answers again, the simulator runs all other events until no read is in flight.
//! The checker demands that all reads end if the member sits out and no other fault is known: then
//! every read can go around the member. The engine does not move a read twice: a read that went to
//! this disk because another member sat out stays.
//!
//! # Invariants
//! - A read that can avoid a pausing disk does not wait for it
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].

mod world;

use std::collections::BTreeSet;

use braid_engine::array::MemberId;

/// The array's reports about slow members.
#[derive(Default)]
pub(crate) struct SlowReports {
    /// Members that sit out now: reads go around them.
    pub(crate) sitting_out: BTreeSet<MemberId>,
    /// Disks whose members sat out at any time of this run.
    pub(crate) were_out: BTreeSet<usize>,
    /// A probe of a member that sits out is in flight. Time stands still, so that no further probe
    /// is sent before this probe returns.
    pub(crate) time_stands: bool,
}
