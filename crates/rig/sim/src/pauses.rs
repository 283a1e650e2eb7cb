//! Disks that pause: in most runs members are watched, and a disk answers nothing for a while. No read may wait
//! for it longer than it takes to notice.
//!
//! Before the disk goes on, everything else does until no read is under way. That has to come about whenever the array
//! says that the member sits out, and nothing else is known to be wrong: then every read can be made without it. Where
//! another member sat out before, a read may have been moved to this one, and is not moved again.
//!
//! # Invariants
//! - A read that can be made around a disk that pauses does not wait for it [check: random_worlds_hold_and_meet_every_kind_of_fault].

mod world;

use std::collections::BTreeSet;

use braid_engine::array::MemberId;

/// What the array makes of slow members.
#[derive(Default)]
pub(crate) struct Slow {
    /// Members that are read around.
    pub(crate) sitting_out: BTreeSet<MemberId>,
    /// Disks that were read around at any time of this run.
    pub(crate) were_out: BTreeSet<usize>,
    /// Who sits out is probed for as long as he does: until the last probe is back there is no further one.
    pub(crate) time_stands: bool,
}
