//! Members that do not answer: they are *away*, out of the array until they answer again.
//!
//! A slow member sits out: reads avoid the member, and writes do not ([`super::sitting_out`]). A
//! member that is silent for longer delays every write. The array puts a silent member out like a
//! failed one, if the level tolerates the loss and the bitmap records the missed writes. The driver
//! keeps the member open, and adds it again under a new name once it has answered all its requests.
//!
//! ```text
//!   in ──slow──▶ sits out ──silent──▶ away ──it has answered──▶ in; what it missed is copied
//!    ▲              │                  │
//!    └──well again──┘                  ├──▶ a person removes it
//!                                      └──▶ a spare takes its slot
//! ```
//!
//! A member goes away when it is silent for `Patience::silence_ms`. A spare may take the slot after
//! `Patience::spare_after_ms`.
//!
//! # Invariants
//! - No member goes away if the level needs it, or if no bitmap records its missed writes
//!   [check: only_a_member_that_can_come_back_goes_away].
//! - No spare takes an away member's slot before its time [check: a_slot_waits_for_its_member].

use std::collections::BTreeMap;

use braid_geometry::Slot;

use crate::Instant;
use crate::ids::MemberId;
use crate::tuning::Patience;

#[derive(Debug)]
pub(super) struct Away {
    pub(super) patience: Patience,
    pub(super) members: BTreeMap<MemberId, AwayMember>,
}

/// A member that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwayMember {
    /// The slot that the member had.
    pub slot: Slot,
    /// When the member was put out.
    pub since: Instant,
    /// When a spare may take the slot; `None` if it may now.
    pub spare_at: Option<Instant>,
}

impl Away {
    pub(super) fn new() -> Self {
        Self { patience: Patience::ENDLESS, members: BTreeMap::new() }
    }

    pub(super) fn has(&self, member: MemberId) -> bool {
        self.members.contains_key(&member)
    }

    pub(super) fn begins(&mut self, member: MemberId, away: AwayMember) {
        self.members.insert(member, away);
    }

    /// Forgets an away member, because it came back or the operator removed it.
    pub(super) fn ends(&mut self, member: MemberId) -> Option<AwayMember> {
        self.members.remove(&member)
    }

    /// Whether the slot waits for its away member, so that no spare may take the slot yet.
    pub(super) fn keeps(&self, slot: Slot, now: Instant) -> bool {
        let mut of_slot = self.members.values().filter(|away| away.slot == slot);
        of_slot.any(|away| away.spare_at.is_some_and(|at| now < at))
    }

    /// The next time at which a slot stops waiting for its member.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.members.values().filter_map(|away| away.spare_at).min()
    }

    /// Ends a slot's wait for its away member, if a spare may take the slot now.
    pub(super) fn look(&mut self, now: Instant) {
        for away in self.members.values_mut() {
            away.spare_at = away.spare_at.filter(|at| now < *at);
        }
    }
}
