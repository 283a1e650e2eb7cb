//! When superblocks change and how events are counted.
//!
//! The rule is md's, so that arrays can go back and forth: every update adds one to `events`,
//! except that going clean right after going active takes that one back, when nothing else changed
//! and the array is whole. A spare that sleeps meanwhile stays equal to the others and need not be
//! woken [check: clean_and_active_leave_events_where_they_were].

use std::sync::Arc;

use braid_geometry::Slot;

use super::MemberId;

/// Role of one device as the superblocks' table shall say. Devices not listed are faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRole {
    /// The member.
    pub member: MemberId,
    /// Its index in the table.
    pub device_number: u16,
    /// Its slot; none for a spare.
    pub slot: Option<Slot>,
}

/// What all superblocks of the array shall say after an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockState {
    /// The event counter.
    pub events: u64,
    /// Zero while active; where redundancy agrees up to otherwise (`u64::MAX`: everywhere).
    pub resync_offset: u64,
    /// Every device that is part of the array.
    pub roles: Arc<[DeviceRole]>,
}

/// The event counter with md's memory of whether it may step back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    count: u64,
    /// The highest count any superblock may carry.
    highest: u64,
    may_step_back: bool,
}

/// What an update is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// A device's role changed; otherwise it is only a step between clean and active.
    pub(super) devices: bool,
    /// A slot has no member.
    pub(super) degraded: bool,
    /// The update says "clean", and redundancy agrees everywhere.
    pub(super) to_clean_and_in_sync: bool,
}

impl Events {
    pub(super) fn new(count: u64) -> Self {
        Self { count, highest: count, may_step_back: false }
    }

    pub(super) fn count(self) -> u64 {
        self.count
    }

    /// Counts one update. True when spares must be written too.
    pub(super) fn advance(&mut self, change: Change) -> bool {
        let only_toggles = !change.devices && !change.degraded;
        let steps_back =
            only_toggles && change.to_clean_and_in_sync && self.may_step_back && self.count != 1;
        if steps_back {
            self.count -= 1;
            self.may_step_back = false;
        } else {
            // A member may have missed the step back and carry the higher count still. An update
            // that tells of a loss must be newer than anything that member says.
            let from = if change.devices { self.highest } else { self.count };
            self.count = from.checked_add(1).expect("2^64 updates do not happen");
            self.may_step_back = only_toggles;
        }
        self.highest = self.highest.max(self.count);
        !only_toggles
    }
}
