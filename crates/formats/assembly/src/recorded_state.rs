//! An array's newest known state, recorded elsewhere, and the comparison of superblocks with it.
//!
//! Superblocks tell which of them are older than the others. They cannot tell that all of them are
//! old, that only old ones are attached, or that one within an event of the others is old. The
//! machine that ran the array last can have recorded the newest state. The comparison makes members
//! stale, never fresh.
//!
//! ```text
//!   known: all said (events E, time T)        a superblock with (e, t) is older if
//!     e < E - 1                                 always
//!     e = E - 1                                 t <= T   (a later one has stepped back: md, or a sleeping spare)
//!     e = E or E + 1                            t < T    (the same count a step back ago, or its "active")
//!     e = E and t = T                           it is not among those that said it: the other half of an array
//!     e > E + 1                                 never    (whatever the clock said)
//! ```
//!
//! The record itself is kept by the command; members with equal counts are judged by `judge`.

use braid_ondisk::{Superblock, Timestamp};

/// A member that took the last update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateMember {
    /// Its slot.
    pub slot: u16,
    /// Its device number.
    pub number: u32,
    /// Its device UUID; zeroes with 0.90.
    pub uuid: [u8; 16],
}

/// An array's last known state: an update that all its members took, durably.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedState {
    /// The array's UUID in mdadm's order.
    pub uuid: [u8; 16],
    /// The array's creation time, which detects an array made anew under the same UUID.
    pub creation_time: Timestamp,
    /// The update's count.
    pub events: u64,
    /// The update's time.
    pub update_time: Timestamp,
    /// The members that had this state.
    pub members: Vec<StateMember>,
}

impl RecordedState {
    /// Whether this record is about the array of this superblock.
    #[must_use]
    pub fn is_of(&self, superblock: &Superblock) -> bool {
        let array = &superblock.array;
        array.uuid == self.uuid && array.creation_time == self.creation_time
    }

    /// Whether the known state is newer than this superblock.
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
