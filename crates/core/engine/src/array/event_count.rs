//! Counts updates of superblocks.
//!
//! Every update adds one to `events`, and is written twice: the second time with one more event, as
//! soon as nothing else has to be done [check: every_change_is_said_twice]. So a member that is one
//! event behind missed an update during which no write began. A member that was away during a write
//! is two events behind:
//!
//! ```text
//!   events   40 clean ─▶ 41 active ─▶ 42 active ─▶ 43 clean ─▶ 44 clean
//!                          │ writes begin here, at 41   │
//!                          └──── nothing waits for 42 ──────────┘
//!   an old copy says   40: two behind ..........42: two behind
//! ```
//!
//! Only between 41 and 42, and between 43 and 44, each a few milliseconds, does a killed array look
//! like an array whose update was cut short.
//!
//! With a spare, md's rule applies, so that the spare may sleep. A step to clean right after a step
//! to active takes the event back, if nothing else changed and the array is whole. No update is
//! written twice. The spare's superblock stays equal to the members' and need not be written
//! [check: clean_and_active_leave_events_where_they_were]. An old copy of a member may then have
//! the newest count; only the copy's update time differs.

use braid_sim_hooks::{Bug, Mark, reached, spoiled};

/// The event counter, and whether md's rule lets it step back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Events {
    count: u64,
    /// The event count of a member that may have missed a step back; 0 if no member has.
    unrecorded_count: u64,
    may_step_back: bool,
}

/// The changes that an update records, as far as they matter for the event count.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventChange {
    /// A device's role changed; otherwise the update is only a step between clean and active.
    pub(super) devices: bool,
    /// A slot has no member.
    pub(super) degraded: bool,
    /// A spare exists, whose superblock need not record steps between clean and active.
    pub(super) spare_sleeps: bool,
    /// The update says "clean", and redundancy agrees everywhere.
    pub(super) to_clean_and_in_sync: bool,
}

impl Events {
    pub(super) fn new(count: u64) -> Self {
        Self { count, unrecorded_count: 0, may_step_back: false }
    }

    pub(super) fn count(self) -> u64 {
        self.count
    }

    /// Counts one update. True if the update must be written to spares too.
    pub(super) fn advance(&mut self, change: EventChange) -> bool {
        assert!(
            self.unrecorded_count.saturating_sub(1) <= self.count,
            "a member that missed a step back is one event ahead at most"
        );
        let only_toggles = !change.devices && !change.degraded;
        let only_toggles = spoiled(Bug::LossCountsBack, only_toggles, true);
        let steps_back = change.spare_sleeps
            && only_toggles
            && change.to_clean_and_in_sync
            && self.may_step_back
            && self.count != 1;
        if steps_back {
            self.unrecorded_count = self.count;
            reached(Mark::EventsStepBack);
            assert!(self.count > 0, "events do not step below their beginning");
            self.count -= 1;
            self.may_step_back = false;
        } else {
            self.count = self.count.checked_add(1).expect("2^64 updates do not happen");
            self.may_step_back = only_toggles;
        }
        !only_toggles
    }

    /// Whether an update that records a loss has a higher count than the lost member's superblock.
    /// That superblock may have missed a step back, and still carry the higher count. Then the loss
    /// is written twice, one count at a time, so that a power cut leaves no member two events
    /// behind.
    pub(super) fn are_beyond_the_lost(self) -> bool {
        self.count > self.unrecorded_count
    }

    /// Notes that every member has the current event count. A member without that count is lost,
    /// and superblocks record the loss with a count beyond the member's own.
    pub(super) fn note_on_every_member(&mut self) {
        self.unrecorded_count = 0;
    }
}
