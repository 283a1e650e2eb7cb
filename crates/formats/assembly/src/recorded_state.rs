//! An array's newest known state, recorded elsewhere, and the comparison of superblocks with it.
//!
//! Superblocks show which of them are older than others. They do not show that all of them are old,
//! or that only old members are attached. Nor do they show that a superblock within one event of
//! the others is old. The machine that ran the array last may have recorded the newest state. A
//! comparison with that record makes members stale, never fresh.
//!
//! ```text
//!   recorded: events E, time T  a superblock with (e, t) is older if
//!     e < E - 1                   always
//!     e = E - 1                   t <= T   (a later one has stepped back: md, or a sleeping spare)
//!     e = E or E + 1              t < T    (the same count a step back ago, or its "active")
//!     e = E and t = T             its member is not in the record: the other half of an array
//!     e > E + 1                   never    (whatever the clock said)
//! ```
//!
//! The command stores the record; `judge` handles members with equal counts.

use braid_ondisk::{Superblock, Timestamp};

/// A member that took the last update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateMember {
    /// The member's slot.
    pub slot: u16,
    /// The member's device number.
    pub number: u32,
    /// The member's device UUID; zeroes with 0.90.
    pub uuid: [u8; 16],
}

/// An array's last known state: an update that all its members durably took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedState {
    /// The array's UUID in mdadm's order.
    pub uuid: [u8; 16],
    /// The array's creation time. An array made anew under the same UUID has another creation time.
    pub creation_time: Timestamp,
    /// The event count of the superblocks.
    pub events: u64,
    /// The update time of the superblocks.
    pub update_time: Timestamp,
    /// The members that have these superblocks.
    pub members: Vec<StateMember>,
}

impl RecordedState {
    /// Whether this record is about the array of this superblock.
    #[must_use]
    pub fn is_of(&self, superblock: &Superblock) -> bool {
        let array = &superblock.array;
        array.uuid == self.uuid && array.creation_time == self.creation_time
    }

    /// Whether the recorded state is newer than this superblock.
    #[must_use]
    pub fn is_beyond(&self, superblock: &Superblock) -> bool {
        let (events, time) = (superblock.state.events, superblock.state.update_time);
        let is_earlier = match events.checked_sub(self.events) {
            Some(0) if time == self.update_time => !self.has(superblock),
            Some(0 | 1) => time < self.update_time,
            Some(_) => false,
            None if events + 1 == self.events => time <= self.update_time,
            None => true,
        };
        is_earlier && self.is_of(superblock)
    }

    fn has(&self, superblock: &Superblock) -> bool {
        let device = &superblock.device;
        self.members.iter().any(|one| one.number == device.number && one.uuid == device.uuid)
    }
}
