//! Who is a member, and which losses the survivors' superblocks do not tell yet.
//!
//! A member that failed leaves `slots` at once, so that no superblock counts it any more, but it
//! stays in the *published* slots until the update that says so is durable. Until then no shard
//! sees it gone, so no shard answers a write that it missed (I4).

use braid_hooks::{Bug, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    /// They have a slot, and no durable superblock says so yet: no shard knows them.
    newcomers: BTreeSet<MemberId>,
    /// They came while the array ran, and not all older members' superblocks name them yet.
    unnamed: BTreeSet<MemberId>,
    /// They hold all, and no shard knows yet.
    untold: BTreeSet<MemberId>,
    /// Spares that are to have a certain slot.
    wanted: BTreeMap<MemberId, Slot>,
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
        let newcomers = BTreeSet::new();
        Self {
            slots,
            device_numbers,
            spares,
            newcomers,
            unnamed: BTreeSet::new(),
            untold: BTreeSet::new(),
            wanted: BTreeMap::new(),
            unrecorded: Vec::new(),
        }
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

    /// A device comes that is no member yet; it waits, and is to have this slot if it can.
    pub(super) fn join(&mut self, member: MemberId, device_number: u16, wanted: Option<Slot>) {
        assert!(!self.numbers_in_use().contains(&device_number), "a number is used once at a time");
        let is_new = self.slot_of(member).is_none() && self.spares.insert(member);
        assert!(is_new, "a name is used once");
        self.device_numbers.insert(member, device_number);
        self.unnamed.insert(member);
        self.wanted.extend(wanted.map(|slot| (member, slot)));
    }

    /// A spare goes. False if it was none.
    pub(super) fn leave(&mut self, member: MemberId) -> bool {
        self.wanted.remove(&member);
        self.spares.remove(&member)
    }

    fn numbers_in_use(&self) -> BTreeSet<u16> {
        let members = self.slots.iter().flatten().map(|member| member.id);
        members.chain(self.spares.iter().copied()).map(|id| self.device_numbers[&id]).collect()
    }

    /// The lowest place in the role table that no device of the array has.
    pub(super) fn free_number(&self) -> u16 {
        let used = self.numbers_in_use();
        (0..).find(|number| !used.contains(number)).expect("md's limit is far lower")
    }

    /// A slot that has no member gets a spare, which holds nothing of it yet: the one that wants it, or else the first; and it the slot
    /// that it wants, or else the lowest.
    pub(super) fn take_in_spare(&mut self) {
        let is_free = |slot: Slot| self.slots.get(usize::from(slot.0)).is_some_and(Option::is_none);
        let mut wishes = self.wanted.iter().filter(|(_, slot)| is_free(**slot));
        let wish = wishes.next().map(|(member, slot)| (*member, usize::from(slot.0)));
        let first = || self.spares.first().copied().expect("there is a spare");
        let lowest = || self.slots.iter().position(Option::is_none).expect("a slot is free");
        let (member, slot) = wish.unwrap_or_else(|| (first(), lowest()));
        self.leave(member);
        let slot = &mut self.slots[slot];
        *slot = Some(MemberView { id: member, recovered_sectors: 0, bad_blocks: Arc::default() });
        self.newcomers.insert(member);
    }

    /// Members that have a slot, and of which no superblock says so yet.
    pub(super) fn newcomers(&self) -> impl Iterator<Item = MemberId> {
        self.newcomers.iter().copied()
    }

    /// Superblocks say that the member is in: its slot, if it still is.
    pub(super) fn has_come(&mut self, member: MemberId) -> Option<Slot> {
        self.newcomers.remove(&member).then(|| self.slot_of(member)).flatten()
    }

    /// Members whose superblocks come last in an update: older ones still call their numbers faulty. One that said first that it
    /// is in would be the newest, and called out by all others.
    pub(super) fn unnamed(&self) -> BTreeSet<MemberId> {
        self.unnamed.clone()
    }

    /// Every superblock names these.
    pub(super) fn are_named(&mut self, members: &BTreeSet<MemberId>) {
        self.unnamed.retain(|member| !members.contains(member));
    }

    /// Whether no shard knows the member yet.
    pub(super) fn is_newcomer(&self, member: MemberId) -> bool {
        self.newcomers.contains(&member)
    }

    /// Takes a member out that no shard knows.
    pub(super) fn forget_newcomer(&mut self, member: MemberId) {
        let slot = self.slot_of(member).expect("it has a slot");
        self.slots[usize::from(slot.0)] = None;
        self.newcomers.remove(&member);
    }

    /// Shards are being told what members hold.
    pub(super) fn are_told(&mut self) {
        self.untold.clear();
    }

    /// Whether shards cannot have the slot's content from its member, by what they know.
    pub(super) fn is_lost_to_shards(&self, slot: Slot) -> bool {
        let member = self.slots[usize::from(slot.0)].as_ref();
        self.is_lost(slot) || member.is_some_and(|member| self.untold.contains(&member.id))
    }

    /// Takes the member out of `slot`; the loss is unrecorded from now on.
    pub(super) fn take_out(&mut self, slot: Slot, cause: Cause) {
        assert!(!self.has_unrecorded_in(slot), "a slot is lost once");
        let view = self.slots[usize::from(slot.0)].take().expect("only a member can be taken out");
        self.unrecorded.push(Unrecorded { view, slot, cause, in_update: false });
    }

    /// Members that do not hold all yet, and how far they are.
    pub(super) fn recovering(&self) -> impl Iterator<Item = (Slot, MemberId, u64)> {
        let slots = (0u16..).map(Slot).zip(&self.slots);
        slots.filter_map(|(slot, member)| {
            let member = member.as_ref().filter(|member| member.recovered_sectors != u64::MAX)?;
            Some((slot, member.id, member.recovered_sectors))
        })
    }

    /// A member holds what it should below this, durably. True if that is more than was known.
    pub(super) fn is_recovered(&mut self, member: MemberId, below: u64) -> bool {
        let Some(slot) = self.slot_of(member) else { return false };
        let view = self.slots[usize::from(slot.0)].as_mut().expect("it is there");
        let is_more = view.recovered_sectors < below;
        if is_more && below == u64::MAX {
            self.untold.insert(member);
        }
        view.recovered_sectors = view.recovered_sectors.max(below);
        is_more
    }

    fn has_unrecorded_in(&self, slot: Slot) -> bool {
        self.unrecorded.iter().any(|loss| loss.slot == slot)
    }

    /// Whether the member is out and no durable superblock says so.
    pub(super) fn is_unrecorded(&self, member: MemberId) -> bool {
        self.unrecorded.iter().any(|loss| loss.view.id == member)
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
        let is_known = |member: &MemberView| !self.newcomers.contains(&member.id);
        let known = |slot: &Option<MemberView>| slot.clone().filter(is_known);
        let mut slots: Vec<Option<MemberView>> = self.slots.iter().map(known).collect();
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
