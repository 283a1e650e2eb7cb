//! The array's members, and the losses that the survivors' superblocks do not record yet.
//!
//! A failed member leaves `slots` at once, so that no superblock counts it any more. It stays in
//! the *published* slots until the update that records the loss is durable. Until then every shard
//! still sees the member, so no shard acknowledges a write that the member missed (I4).
//!
//! A member that holds all its data may have a *replacement*, as md calls it: one more member for
//! its slot. The replacement takes every write that the member takes, and is filled from the
//! member. If the member or its replacement leaves, shards see both until superblocks record the
//! loss.
//!
//! The superblock of a member that has just come is written last in an update (`told_last`),
//! because older superblocks still call its number faulty. The write journal's device is always
//! last.
//!
//! ```text
//!   spare ──recorded──▶ replacement ──filled, recorded──────▶ in the slot; the old member leaves
//!                           │  └──the old member fails──────▶ in the slot; its recovery goes on
//!                           └──it fails─────────────────────▶ out; the old member stays
//! ```

use braid_sim_hooks::{Mark, reached};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_geometry::{MemberSector, Slot};

use super::update::DeviceRole;
use super::view::MemberView;
use crate::cause::Cause;
use crate::ids::MemberId;
use crate::ranges::{BadBlocks, MemberRange, MemberRanges};

/// A member that is out, until a durable update records it.
#[derive(Debug)]
pub(super) struct UnrecordedLoss {
    pub(super) member: MemberId,
    pub(super) slot: Slot,
    pub(super) why: LossCause,
    /// The member as shards see it in the slot until the loss is recorded.
    view: MemberView,
    /// Whether the superblock update in flight records the loss.
    in_update: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossCause {
    Failed(Cause),
    /// The member left because this up-to-date replacement has taken its slot.
    Replaced(MemberId),
}

/// A spare's purpose, as the operator or the array chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The slot that the spare shall take.
    pub slot: Slot,
    /// Whether the spare shall replace the slot's member.
    pub replaces: bool,
}

/// A member that came into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Member(Slot),
    /// The newcomer replaces this member.
    Replacement(Slot, MemberId),
}

#[derive(Debug)]
pub(super) struct Roster {
    /// The member of each slot, without replacements.
    pub(super) slots: Vec<Option<MemberView>>,
    /// The replacement in each slot that has one.
    replacements: BTreeMap<Slot, MemberView>,
    pub(super) device_numbers: BTreeMap<MemberId, u16>,
    pub(super) spares: BTreeSet<MemberId>,
    /// The device of the write journal: it has no slot, and takes superblocks like a member.
    journal: Option<MemberId>,
    /// Members with a slot that no durable superblock records yet: no shard sees them.
    newcomers: BTreeSet<MemberId>,
    /// Members that came while the array ran, as long as some older superblocks do not name them.
    unnamed: BTreeSet<MemberId>,
    /// Members that became up to date since shards got their last view.
    untold: BTreeSet<MemberId>,
    /// Spares with a wanted slot.
    wanted: BTreeMap<MemberId, Wish>,
    /// Spares in `wanted` whose purpose the array itself chose, not the operator.
    wanted_by_itself: BTreeSet<MemberId>,
    /// Members that are read only if no other copy exists.
    pub(super) write_mostly: BTreeSet<MemberId>,
    /// Slots whose member, which is being filled, holds one shape of a reshape.
    pub(super) half_held: BTreeSet<Slot>,
    unrecorded: Vec<UnrecordedLoss>,
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
            replacements: BTreeMap::new(),
            device_numbers,
            spares,
            journal: None,
            newcomers,
            unnamed: BTreeSet::new(),
            write_mostly: BTreeSet::new(),
            half_held: BTreeSet::new(),
            untold: BTreeSet::new(),
            wanted: BTreeMap::new(),
            wanted_by_itself: BTreeSet::new(),
            unrecorded: Vec::new(),
        }
    }

    pub(super) fn has_journal(&mut self, member: MemberId, number: u16) {
        assert!(!self.numbers_in_use().contains(&number), "a number is used once at a time");
        self.device_numbers.insert(member, number);
        self.journal = Some(member);
    }

    pub(super) fn has_no_journal(&mut self) {
        self.journal = None;
    }

    pub(super) fn is_journal(&self, member: MemberId) -> bool {
        self.journal == Some(member)
    }

    pub(super) fn missing_count(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }

    pub(super) fn has_spares(&self) -> bool {
        !self.spares.is_empty()
    }

    /// The member in a slot, and its replacement.
    pub(super) fn members_of(&self, slot: Slot) -> impl Iterator<Item = MemberId> {
        let member = self.slots[usize::from(slot.0)].as_ref().map(|member| member.id);
        member.into_iter().chain(self.replacements.get(&slot).map(|one| one.id))
    }

    pub(super) fn slot_of(&self, member: MemberId) -> Option<Slot> {
        let index = self.slots.iter().position(|m| m.as_ref().is_some_and(|m| m.id == member))?;
        Some(Slot(u16::try_from(index).expect("slots are numbered by u16")))
    }

    /// Whether the slot is without a member, or its member is in recovery and holds no shape of a
    /// reshape.
    pub(super) fn is_lost(&self, slot: Slot) -> bool {
        let is_half_held = self.half_held.contains(&slot);
        let is_filled = |member: &MemberView| member.recovered_sectors == u64::MAX || is_half_held;
        !self.slots[usize::from(slot.0)].as_ref().is_some_and(is_filled)
    }

    /// Adds a new device as a spare, with the slot that the operator wants for it.
    pub(super) fn join(&mut self, member: MemberId, device_number: u16, wanted: Option<Wish>) {
        assert!(!self.numbers_in_use().contains(&device_number), "a number is used once at a time");
        let is_new = self.slot_of(member).is_none() && self.spares.insert(member);
        assert!(is_new, "a name is used once");
        self.device_numbers.insert(member, device_number);
        self.unnamed.insert(member);
        self.wanted.extend(wanted.map(|wish| (member, wish)));
    }

    pub(super) fn has_replacement(&mut self, slot: Slot, replacement: MemberView, number: u16) {
        assert!(!self.is_lost(slot), "only a member that holds all has a replacement");
        assert!(!self.numbers_in_use().contains(&number), "a number is used once at a time");
        self.device_numbers.insert(replacement.id, number);
        let before = self.replacements.insert(slot, replacement);
        assert!(before.is_none(), "a slot has one replacement");
    }

    pub(super) fn wish_to_replace(&mut self, spare: MemberId, slot: Slot) {
        assert!(self.spares.contains(&spare), "a spare takes its place");
        self.wanted.insert(spare, Wish { slot, replaces: true });
        self.wanted_by_itself.remove(&spare);
    }

    /// Notes the array's own choice that `spare` shall replace the member in `slot`. The choice has
    /// no effect if a slot without a member needs the spare.
    pub(super) fn wish_by_itself(&mut self, spare: MemberId, slot: Slot) {
        self.wish_to_replace(spare, slot);
        self.wanted_by_itself.insert(spare);
    }

    /// The replacement of the member in `slot`, or the spare that shall become it.
    pub(super) fn replacement_of(&self, slot: Slot) -> Option<MemberId> {
        let is_it = |wish: &Wish| wish.replaces && wish.slot == slot;
        let wished = self.wanted.iter().find(|(_, wish)| is_it(wish)).map(|(member, _)| *member);
        self.replacements.get(&slot).map(|one| one.id).or(wished)
    }

    /// The slot whose member `member` replaces, or shall replace.
    pub(super) fn slot_wanted_to_replace(&self, member: MemberId) -> Option<Slot> {
        let wish = self.wanted.get(&member).filter(|wish| wish.replaces);
        self.slot_to_replace(member).or(wish.map(|wish| wish.slot))
    }

    pub(super) fn slot_to_replace(&self, member: MemberId) -> Option<Slot> {
        let mut ones = self.replacements.iter();
        ones.find(|(_, one)| one.id == member).map(|(slot, _)| *slot)
    }

    pub(super) fn replacements(&self) -> impl Iterator<Item = (Slot, MemberId, u64)> {
        self.replacements.iter().map(|(slot, one)| (*slot, one.id, one.recovered_sectors))
    }

    /// Removes a spare. False if `member` was no spare.
    pub(super) fn leave(&mut self, member: MemberId) -> bool {
        self.wanted.remove(&member);
        self.wanted_by_itself.remove(&member);
        self.spares.remove(&member)
    }

    fn numbers_in_use(&self) -> BTreeSet<u16> {
        self.all().map(|id| self.device_numbers[&id]).collect()
    }

    /// Members in a slot, members about to get a slot, spares, and the journal's device.
    pub(super) fn all(&self) -> impl Iterator<Item = MemberId> {
        let in_slots = self.slots.iter().flatten().map(|member| member.id);
        let replacements = self.replacements.values().map(|one| one.id);
        in_slots.chain(replacements).chain(self.spares.iter().copied()).chain(self.journal)
    }

    /// The lowest free index in the role table.
    pub(super) fn free_number(&self) -> u16 {
        let used = self.numbers_in_use();
        (0..).find(|number| !used.contains(number)).expect("md's limit is far lower")
    }

    /// Gives an empty slot a spare, which is still to be filled. A spare that wants an empty slot
    /// comes first; otherwise the first spare goes to the slot that it wants, or to the lowest. If
    /// no slot is empty, a spare that shall replace a member shares that member's slot. A slot that
    /// `is_kept` for its own member goes only to a spare that wants that slot.
    pub(super) fn take_in_spare(&mut self, is_kept: impl Fn(Slot) -> bool) {
        if let Some((member, slot)) = self.due_for_a_free_slot(is_kept) {
            self.leave(member);
            self.slots[usize::from(slot.0)] = Some(MemberView::new(member, 0));
            self.newcomers.insert(member);
        } else {
            let (member, slot) = self.due_replacement().expect("one is wanted");
            self.leave(member);
            self.replacements.insert(slot, MemberView::new(member, 0));
            self.newcomers.insert(member);
        }
    }

    /// A spare that does not wait to replace a member, if no slot is empty.
    pub(super) fn idle_spare(&self) -> Option<MemberId> {
        let replaces = |spare: &MemberId| self.wanted.get(spare).is_some_and(|wish| wish.replaces);
        let is_whole = self.missing_count() == 0;
        self.spares.iter().copied().find(|spare| is_whole && !replaces(spare))
    }

    pub(super) fn has_due_spare(&self, is_kept: impl Fn(Slot) -> bool) -> bool {
        self.due_for_a_free_slot(is_kept).is_some() || self.due_replacement().is_some()
    }

    fn due_for_a_free_slot(&self, is_kept: impl Fn(Slot) -> bool) -> Option<(MemberId, Slot)> {
        let is_free_slot =
            |slot: Slot| self.slots.get(usize::from(slot.0)).is_some_and(Option::is_none);
        let mut wishes = self.wanted.iter().filter(|(_, wish)| is_free_slot(wish.slot));
        if let Some((member, wish)) = wishes.next() {
            return Some((*member, wish.slot));
        }
        // The operator has another purpose for a spare in `wanted`. A spare that shall only replace
        // an erring member is free.
        let is_free = |spare: &&MemberId| {
            let replaces = self.wanted.get(spare).is_some_and(|wish| wish.replaces);
            !replaces || self.wanted_by_itself.contains(spare)
        };
        let is_open = |slot: &Slot| is_free_slot(*slot) && !is_kept(*slot);
        let lowest = (0u16..).map(Slot).take(self.slots.len()).find(is_open)?;
        self.spares.iter().find(is_free).map(|spare| (*spare, lowest))
    }

    fn due_replacement(&self) -> Option<(MemberId, Slot)> {
        let is_due = |wish: &Wish| {
            let is_free = !self.replacements.contains_key(&wish.slot);
            wish.replaces && is_free && !self.is_lost(wish.slot)
        };
        let mut wishes = self.wanted.iter().filter(|(_, wish)| is_due(wish));
        wishes.next().map(|(member, wish)| (*member, wish.slot))
    }

    /// Members with a slot that no superblock records yet.
    pub(super) fn newcomers(&self) -> impl Iterator<Item = MemberId> {
        self.newcomers.iter().copied()
    }

    /// Notes that superblocks record a newcomer. Returns its slot, if the newcomer still has one.
    pub(super) fn has_come(&mut self, member: MemberId) -> Option<Arrival> {
        if !self.newcomers.remove(&member) {
            return None;
        }
        let replaces = self.slot_to_replace(member).map(|slot| {
            let old = self.slots[usize::from(slot.0)].as_ref();
            Arrival::Replacement(slot, old.expect("only a member that is there is replaced").id)
        });
        self.slot_of(member).map(Arrival::Member).or(replaces)
    }

    /// Members whose superblocks are written last in an update: older superblocks still call their
    /// numbers faulty. If such a member's superblock were written first, it would be the newest,
    /// and all other superblocks would call the member out.
    ///
    /// The journal's device is always among them. Its new tail drops writes that a member may have
    /// missed; all other superblocks must call that member out first.
    pub(super) fn told_last(&self) -> BTreeSet<MemberId> {
        self.unnamed.iter().copied().chain(self.journal).collect()
    }

    pub(super) fn are_named(&mut self, members: &BTreeSet<MemberId>) {
        self.unnamed.retain(|member| !members.contains(member));
    }

    pub(super) fn is_newcomer(&self, member: MemberId) -> bool {
        self.newcomers.contains(&member)
    }

    pub(super) fn forget_newcomer(&mut self, member: MemberId) {
        self.newcomers.remove(&member);
        if let Some(slot) = self.slot_to_replace(member) {
            self.replacements.remove(&slot);
        } else {
            let slot = self.slot_of(member).expect("it has a slot");
            self.slots[usize::from(slot.0)] = None;
        }
    }

    /// Notes that shards get a new view, which shows every member that became up to date.
    pub(super) fn are_told(&mut self) {
        self.untold.clear();
    }

    /// Whether, as shards see it, the slot is without a member or its member is in recovery.
    pub(super) fn is_lost_to_shards(&self, slot: Slot) -> bool {
        let member = self.slots[usize::from(slot.0)].as_ref();
        self.is_lost(slot) || member.is_some_and(|member| self.untold.contains(&member.id))
    }

    /// Takes the member out of `slot`; the loss is unrecorded from now on. The slot's replacement
    /// takes the slot.
    pub(super) fn take_out(&mut self, slot: Slot, why: LossCause) {
        let view = self.shown(slot).expect("only a member can be taken out");
        let member =
            self.slots[usize::from(slot.0)].take().expect("only a member can be taken out").id;
        self.unrecorded.push(UnrecordedLoss { member, slot, why, view, in_update: false });
        let Some(replacement) = self.replacements.remove(&slot) else { return };
        if self.newcomers.remove(&replacement.id) {
            // No shard has written to the replacement: it becomes a spare, and can be recovered
            // like any other spare.
            self.spares.insert(replacement.id);
        } else {
            reached(match why {
                LossCause::Failed(_) => Mark::ReplacementStepsIn,
                LossCause::Replaced(_) => Mark::Replaced,
            });
            self.slots[usize::from(slot.0)] = Some(MemberView {
                recovered_sectors: replacement.recovered_sectors,
                ..replacement
            });
        }
    }

    /// Takes the replacement in `slot` out; the loss is unrecorded from now on.
    pub(super) fn take_out_replacement(&mut self, slot: Slot, cause: Cause) {
        let view = self.shown(slot).expect("only a member that is there has a replacement");
        let replacement = self.replacements.remove(&slot).expect("it has one");
        let member = replacement.id;
        let why = LossCause::Failed(cause);
        self.unrecorded.push(UnrecordedLoss { member, slot, why, view, in_update: false });
    }

    /// Notes that the replacement `member` is filled below this offset, durably. True if that is
    /// progress.
    pub(super) fn is_filled(&mut self, member: MemberId, below: u64) -> bool {
        let Some(slot) = self.slot_to_replace(member) else { return false };
        let one = self.replacements.get_mut(&slot).expect("just seen");
        let is_more = one.recovered_sectors < below;
        one.recovered_sectors = one.recovered_sectors.max(below);
        is_more
    }

    /// A slot with a filled replacement.
    pub(super) fn filled(&self) -> Option<Slot> {
        let mut filled = self.replacements().filter(|(.., sectors)| *sectors == u64::MAX);
        filled.find(|(_, member, _)| !self.newcomers.contains(member)).map(|(slot, ..)| slot)
    }

    /// Puts the filled replacement in `slot` into the slot of its member. Returns the old member.
    pub(super) fn replace(&mut self, slot: Slot) -> MemberId {
        let replacement = self.replacements.get(&slot).expect("the slot has a replacement");
        assert_eq!(replacement.recovered_sectors, u64::MAX, "it holds all");
        let member = replacement.id;
        self.untold.insert(member);
        let old = self.slots[usize::from(slot.0)].as_ref().expect("it is there").id;
        self.take_out(slot, LossCause::Replaced(member));
        old
    }

    /// The member in `slot` and its replacement as shards see them: newcomers are not shown.
    fn shown(&self, slot: Slot) -> Option<MemberView> {
        let is_known = |member: &MemberId| !self.newcomers.contains(member);
        let view = self.slots[usize::from(slot.0)].as_ref().filter(|one| is_known(&one.id))?;
        let replacement = self.replacements.get(&slot).filter(|one| is_known(&one.id));
        let replacement_bad_blocks = replacement.map(|one| Arc::clone(&one.bad_blocks));
        Some(MemberView {
            replacement: replacement.map(|one| one.id),
            replacement_bad_blocks: replacement_bad_blocks.unwrap_or_default(),
            is_write_mostly: self.write_mostly.contains(&view.id),
            ..view.clone()
        })
    }

    /// Members that are still being filled, with their slot and their recovery offset.
    pub(super) fn recovering(&self) -> impl Iterator<Item = (Slot, MemberId, u64)> {
        let slots = (0u16..).map(Slot).zip(&self.slots);
        slots.filter_map(|(slot, member)| {
            let member = member.as_ref().filter(|member| member.recovered_sectors != u64::MAX)?;
            Some((slot, member.id, member.recovered_sectors))
        })
    }

    /// Sectors that a member in recovery, or a replacement, holds; `None` for other members.
    pub(super) fn held(&self, member: MemberId) -> Option<u64> {
        let mut filled = self.recovering().chain(self.replacements());
        filled.find(|(_, id, _)| *id == member).map(|(.., sectors)| sectors)
    }

    /// Whether a member in a slot holds all of a range, below its recovery offset or in ranges
    /// ahead.
    pub(super) fn holds(&self, member: MemberId, range: MemberRange) -> bool {
        let mut views = self.slots.iter().flatten();
        views.any(|view| view.id == member && view.holds(range.start, range.sectors))
    }

    /// The number of ranges ahead that all members hold together.
    pub(super) fn ranges_ahead(&self) -> usize {
        self.slots.iter().flatten().map(|view| view.ahead.ranges().len()).sum()
    }

    /// Sets a member's bad ranges. True if shards need a new view.
    pub(super) fn set_bad_blocks(&mut self, member: MemberId, bad: BadBlocks) -> bool {
        let mut all = self.slots.iter_mut().flatten().chain(self.replacements.values_mut());
        let Some(view) = all.find(|view| view.id == member && *view.bad_blocks != bad) else {
            return false;
        };
        view.bad_blocks = Arc::new(bad);
        true
    }

    /// The bad ranges of each member in a slot, as its bad-block log names them.
    pub(super) fn named(&self) -> impl Iterator<Item = (Slot, &BadBlocks)> {
        let slots = (0..).map(Slot).zip(&self.slots);
        slots.filter_map(|(slot, view)| Some((slot, &*view.as_ref()?.bad_blocks)))
    }

    pub(super) fn named_sectors(&self) -> u64 {
        self.named().map(|(_, bad)| bad.sectors()).sum()
    }

    /// Notes that a member is recovered below this offset, durably. True if that is progress.
    pub(super) fn is_recovered(&mut self, member: MemberId, below: u64) -> bool {
        let Some(slot) = self.slot_of(member) else { return false };
        let view = self.slots[usize::from(slot.0)].as_mut().expect("it is there");
        let is_more = view.recovered_sectors < below;
        if is_more && below == u64::MAX {
            self.untold.insert(member);
        }
        view.recovered_sectors = view.recovered_sectors.max(below);
        if is_more && !view.ahead.is_empty() {
            let below = MemberRange { start: MemberSector(0), sectors: below };
            view.ahead = Arc::new(view.ahead.without(below));
        }
        is_more
    }

    /// Notes that members that hold one shape of a reshape are filled below this offset.
    pub(super) fn holds_half(&mut self, below: u64) {
        for slot in &self.half_held {
            if let Some(view) = &mut self.slots[usize::from(slot.0)]
                && view.recovered_sectors < below
            {
                view.recovered_sectors = below;
            }
        }
    }

    /// Whether the member holds no more than one shape of a reshape.
    pub(super) fn is_half_held(&self, member: MemberId) -> bool {
        self.slot_of(member).is_some_and(|slot| self.half_held.contains(&slot))
    }

    /// Notes that a member in recovery holds a range beyond its recovery offset. True if shards
    /// need a new view.
    pub(super) fn holds_ahead(&mut self, member: MemberId, range: MemberRange) -> bool {
        let views = self.slots.iter_mut().flatten();
        let mut lacking =
            views.filter(|view| view.recovered_sectors < range.start.0 + range.sectors);
        let Some(view) = lacking.find(|view| view.id == member) else { return false };
        view.ahead = Arc::new(view.ahead.union(&MemberRanges::new(vec![range])));
        true
    }

    /// Notes the ranges that a member which has just come to `slot` holds from its former
    /// membership.
    pub(super) fn holds_from_before(&mut self, slot: Slot, held: MemberRanges) {
        let view = self.slots[usize::from(slot.0)].as_mut().expect("it has just come");
        assert!(view.ahead.is_empty(), "it has just come");
        let below = MemberRange { start: MemberSector(0), sectors: view.recovered_sectors };
        view.ahead = Arc::new(if below.sectors > 0 { held.without(below) } else { held });
    }

    /// The number of sectors, from `start` on and up to `sectors`, that the member holds already.
    pub(super) fn holds_next(&self, member: MemberId, start: MemberSector, sectors: u64) -> u64 {
        let mut views = self.slots.iter().flatten();
        let Some(view) = views.find(|view| view.id == member) else { return 0 };
        view.lacks_from(start, sectors).map_or(sectors, |lacks| lacks.0 - start.0)
    }

    /// The number of sectors, from `start` on, to the next sector that the member holds.
    pub(super) fn lacks_next(&self, member: MemberId, start: MemberSector, sectors: u64) -> u64 {
        let mut views = self.slots.iter().flatten();
        let Some(view) = views.find(|view| view.id == member) else { return 0 };
        if view.holds(start, 1) { 0 } else { view.ahead.alike(start, sectors) }
    }

    /// Whether the member is out and no durable superblock records the loss.
    pub(super) fn is_unrecorded(&self, member: MemberId) -> bool {
        self.unrecorded.iter().any(|loss| loss.member == member)
    }

    pub(super) fn has_unrecorded(&self) -> bool {
        !self.unrecorded.is_empty()
    }

    /// Notes that a superblock update begins; the update records every loss so far.
    pub(super) fn update_begins(&mut self) {
        for loss in &mut self.unrecorded {
            loss.in_update = true;
        }
    }

    /// Whether the update that is being written records every loss so far.
    pub(super) fn records_all(&self) -> bool {
        self.unrecorded.iter().all(|loss| loss.in_update)
    }

    /// Removes and returns the losses so far, which need no further update.
    pub(super) fn take_unrecorded(&mut self) -> Vec<UnrecordedLoss> {
        std::mem::take(&mut self.unrecorded)
    }

    /// The members of slots as shards may see them: a lost member stays until the loss is recorded.
    pub(super) fn published_slots(&self) -> Vec<Option<MemberView>> {
        let numbers = (0u16..).map(Slot).take(self.slots.len());
        let mut slots: Vec<Option<MemberView>> = numbers.map(|slot| self.shown(slot)).collect();
        // If two members are out of one slot, the slot looks to shards as it was before the first
        // left.
        for loss in self.unrecorded.iter().rev() {
            slots[usize::from(loss.slot.0)] = Some(loss.view.clone());
        }
        slots
    }

    /// Members whose superblocks an update writes: members by slot, then replacements, then the
    /// spares if `spares_too`.
    pub(super) fn superblock_targets(&self, spares_too: bool) -> impl Iterator<Item = MemberId> {
        let slots = self.slots.iter().flatten().map(|member| member.id);
        let replacements = self.replacements.values().map(|one| one.id);
        let spares = self.spares.iter().copied().filter(move |_| spares_too);
        slots.chain(replacements).chain(spares)
    }

    /// Members whose superblocks an update writes, and the journal's device.
    pub(super) fn update_targets(&self, spares_too: bool) -> impl Iterator<Item = MemberId> {
        self.superblock_targets(spares_too).chain(self.journal)
    }

    /// Members that are still being filled, and the sectors that they hold, as superblocks record
    /// them.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = (MemberId, u64)> {
        let recovering = self.recovering().map(|(_, member, sectors)| (member, sectors));
        let replacements = self.replacements().map(|(_, member, sectors)| (member, sectors));
        recovering.chain(replacements.filter(|(_, sectors)| *sectors != u64::MAX))
    }

    pub(super) fn device_roles(&self) -> Vec<DeviceRole> {
        let role = |member: MemberId, slot, is_replacement| {
            let device_number = self.device_numbers[&member];
            DeviceRole { member, device_number, slot, is_replacement }
        };
        let slots = (0u16..).map(Slot).zip(&self.slots);
        let members = slots.filter_map(|(slot, member)| member.as_ref().map(|one| (slot, one.id)));
        let members = members.map(|(slot, member)| role(member, Some(slot), false));
        let replacements =
            self.replacements().map(|(slot, member, _)| role(member, Some(slot), true));
        let spares = self.spares.iter().map(|member| role(*member, None, false));
        members.chain(replacements).chain(spares).collect()
    }
}
