//! Who is a member, and which losses the survivors' superblocks do not tell yet.
//!
//! A member that failed leaves `slots` at once, so that no superblock counts it any more, but it
//! stays in the *published* slots until the update that says so is durable. Until then no shard
//! sees it gone, so no shard answers a write that it missed (I4).

use braid_hooks::{Bug, planted};
use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::Slot;

use super::update::DeviceRole;
use super::view::MemberView;
use crate::cause::Cause;
use crate::ids::MemberId;

/// A member that failed, until a durable update tells so.
#[derive(Debug)]
pub(super) struct Unrecorded {
    pub(super) view: MemberView,
    pub(super) slot: Slot,
    /// How it failed.
    pub(super) cause: Cause,
    /// The update that is being written tells so.
    in_update: bool,
}

/// The members of the array.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) slots: Vec<Option<MemberView>>,
    pub(super) device_numbers: BTreeMap<MemberId, u16>,
    pub(super) spares: BTreeSet<MemberId>,
    unrecorded: Vec<Unrecorded>,
}

impl Roster {
    pub(super) fn new(
        slots: Vec<Option<MemberView>>,
        device_numbers: BTreeMap<MemberId, u16>,
        spares: BTreeSet<MemberId>,
    ) -> Self {
        let members = slots.iter().flatten().count();
        assert_eq!(
            device_numbers.len(),
            members + spares.len(),
            "a device is in one slot, or is a spare, and has its place in the table"
        );
        Self { slots, device_numbers, spares, unrecorded: Vec::new() }
    }

    /// Slots without a member.
    pub(super) fn missing_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }

    /// Whether a member waits without a slot.
    pub(super) fn has_spares(&self) -> bool {
        !self.spares.is_empty()
    }

    /// The slot that `member` occupies.
    pub(super) fn slot_of(&self, member: MemberId) -> Option<Slot> {
        let index = self.slots.iter().position(|m| m.as_ref().is_some_and(|m| m.id == member))?;
        Some(Slot(u16::try_from(index).expect("slots are numbered by u16")))
    }

    /// Whether the slot's content cannot be had from its member: it has none, or one whose
    /// recovery is not finished.
    pub(super) fn is_lost(&self, slot: Slot) -> bool {
        self.slots[usize::from(slot.0)].as_ref().is_none_or(|m| m.recovered_sectors != u64::MAX)
    }

    /// Takes the member out of `slot`; the loss is unrecorded from now on.
    pub(super) fn take_out(&mut self, slot: Slot, cause: Cause) {
        assert!(!self.has_unrecorded_in(slot), "a slot is lost once");
        let view = self.slots[usize::from(slot.0)].take().expect("only a member can be taken out");
        self.unrecorded.push(Unrecorded { view, slot, cause, in_update: false });
    }

    fn has_unrecorded_in(&self, slot: Slot) -> bool {
        self.unrecorded.iter().any(|loss| loss.slot == slot)
    }

    pub(super) fn has_unrecorded(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    /// An update is being made; it tells every loss so far.
    pub(super) fn update_begins(&mut self) {
        for loss in &mut self.unrecorded {
            loss.in_update = true;
        }
    }

    /// Whether the update that is being written records every loss so far.
    pub(super) fn records_all(&self) -> bool {
        if planted(Bug::OneLossForAll) {
            return true;
        }
        self.unrecorded.iter().all(|loss| loss.in_update)
    }

    /// The losses so far, which need no further update.
    pub(super) fn take_unrecorded(&mut self) -> Vec<Unrecorded> {
        std::mem::take(&mut self.unrecorded)
    }

    /// The slots as shards may see them.
    pub(super) fn published_slots(&self) -> Vec<Option<MemberView>> {
        let mut slots = self.slots.clone();
        for loss in &self.unrecorded {
            slots[usize::from(loss.slot.0)] = Some(loss.view.clone());
        }
        slots
    }

    /// Every member that is written when the array's superblocks change, by slot, and then the spares.
    pub(super) fn superblock_targets(&self, spares_too: bool) -> impl Iterator<Item = MemberId> {
        let mut slots = self.slots.iter().flatten().map(|member| member.id);
        if planted(Bug::MemberNotWritten) {
            slots.next();
        }
        let spares = self.spares.iter().copied().filter(move |_| spares_too);
        slots.chain(spares)
    }

    /// The role table.
    pub(super) fn device_roles(&self) -> Vec<DeviceRole> {
        let role = |member: MemberId, slot| DeviceRole {
            member,
            device_number: self.device_numbers[&member],
            slot,
        };
        let slots = (0u16..).map(Slot).zip(&self.slots);
        slots
            .filter_map(|(slot, member)| member.as_ref().map(|member| role(member.id, Some(slot))))
            .chain(self.spares.iter().map(|member| role(*member, None)))
            .collect()
    }
}
