//! Disks that pause: in most runs members are watched, and a disk answers nothing for a while. No
//! read is allowed to wait for it longer than detection takes.
//!
//! Before the disk goes on, all else proceeds until no read is in flight. The checker demands this
//! if the array says that the member sits out and no other fault is known: then every read can be
//! made without it. A read moved here from another member that sat out is not moved again.
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
    /// Members that are read around.
    pub(crate) sitting_out: BTreeSet<MemberId>,
    /// Disks that were read around at any time of this run.
    pub(crate) were_out: BTreeSet<usize>,
    /// A member that sits out is probed: no further probe goes out until the last one returns.
    pub(crate) time_stands: bool,
}
