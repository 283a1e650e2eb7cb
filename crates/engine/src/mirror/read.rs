//! Reading a mirror: choose a copy; when it fails, another; then put the bad ones right.

use braid_geometry::{MemberSector, Slot};
use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes};

use super::change::Change;
use super::{Extent, Mirror, Owner, Work};
use crate::array::Gate;
use crate::buffer::{SECOND_SIDE, Side, side_of};
use crate::direct::operation;
use crate::effect::MemberFault;
use crate::ids::IoId;
use crate::request::{Fault, LockKey};
use crate::shard::Common;

/// A read under way.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) extent: Extent,
    /// Copies that could not be read, and whether writing them again may help.
    failed: Vec<(Slot, MemberFault)>,
    /// The range is locked: nothing changes under us.
    locked: bool,
}

impl Read {
    /// The same, now that it holds its range.
    pub(super) fn into_locked(self) -> Self {
        Self { locked: true, ..self }
    }
}

impl Mirror {
    pub(super) fn begin_read(&mut self, common: &mut Common, extent: Extent) {
        let key = self.new_work();
        self.try_next_copy(common, key, Read { extent, failed: Vec::new(), locked: false });
    }

    /// Where copies may differ, what is read at once comes from one of them: cuts the extent at the first sector that is to
    /// be read from another.
    pub(super) fn cut_in_doubt(&self, common: &Common, extent: &mut Extent) {
        if copies_agree(common, extent) || planted(Bug::DoubtUncut) {
            return;
        }
        for (slot, sector) in self.copies(extent) {
            let alike = common.view.readable_alike(slot, sector, u64::from(extent.sectors));
            extent.sectors = u32::try_from(alike).expect("no more than there were");
        }
    }

    /// Reads the best copy that has not failed yet, or gives up.
    pub(super) fn try_next_copy(&mut self, common: &mut Common, key: LockKey, read: Read) {
        let Some((slot, sector)) = self.choose_copy(common, &read) else {
            reached(Mark::NoCopyLeft);
            common.part_done(read.extent.key, Err(Fault::Unreadable));
            if read.locked {
                self.release(common, key);
            }
            return;
        };
        if common.clocks.is_any_out() && !common.clocks.sits_out(slot) {
            common.counters.reads_around += u64::from(self.is_around(common, &read));
        }
        let sectors = read.extent.sectors;
        let (operation, _) = operation(&read.extent.piece, read.extent.done);
        let load = &mut self.balance[usize::from(slot.0)];
        load.reads += 1;
        load.next_sector = sector.0 + u64::from(sectors);
        let io = IoId(self.in_flight.insert((Owner::Work(key), slot)));
        common.submit((io, slot), (sector, sectors), operation);
        self.works.insert(key, Work::Read(read));
    }

    /// Whether a copy of the extent is on a member that sits out: this read goes around it.
    fn is_around(&self, common: &mut Common, read: &Read) -> bool {
        let mut is_around = false;
        for (slot, sector) in self.copies(&read.extent) {
            if common.clocks.sits_out(slot) {
                common.clocks.note_place(slot, sector, read.extent.sectors);
                is_around = true;
            }
        }
        is_around
    }

    /// The copy that goes on where its member's last read ended, else the least busy one.
    ///
    /// Where copies may differ (beyond the resync offset after a crash, or once writes are refused
    /// because one was left half done) it is always the first copy that can be read, in md's order,
    /// so that two reads never tell two stories and md's resync agrees with what was read.
    fn choose_copy(&self, common: &Common, read: &Read) -> Option<(Slot, MemberSector)> {
        let sectors = u64::from(read.extent.sectors);
        let copies_agree = copies_agree(common, &read.extent);
        let mut copies = self.copies(&read.extent);
        let sits_out = |slot: Slot| copies_agree && common.clocks.sits_out(slot);
        if copies_agree && !common.clocks.is_any_out() && sometimes(Point::OtherCopy) {
            copies.retain(|(slot, sector)| {
                let failed = read.failed.iter().any(|(failed, _)| failed == slot);
                !failed && common.view.readable(*slot, *sector, sectors).is_some()
            });
            return copies.pop();
        }
        copies
            .into_iter()
            .enumerate()
            .filter(|(_, (slot, sector))| {
                let failed = read.failed.iter().any(|(failed, _)| failed == slot);
                !failed && common.view.readable(*slot, *sector, sectors).is_some()
            })
            .min_by_key(|(copy, (slot, sector))| {
                let load = self.balance[usize::from(slot.0)];
                let load = copies_agree.then_some((load.next_sector != sector.0, load.reads));
                (sits_out(*slot), load, *copy)
            })
            .map(|(_, place)| place)
    }

    /// Lets go of reads of members that sit out, and reads other copies instead, where there are any that
    /// may be believed.
    pub(crate) fn handle_attention(&mut self, common: &mut Common) {
        if !common.clocks.is_any_out() {
            return;
        }
        let under_way = self.in_flight.iter_mut();
        let slow = under_way.filter(|(_, (_, slot))| common.clocks.sits_out(*slot));
        let slow: Vec<u64> = slow.map(|(name, _)| name).collect();
        for name in slow {
            let Some((Owner::Work(key), _)) = self.in_flight.get_mut(name).copied() else {
                continue;
            };
            let Some(Work::Read(read)) = self.works.get(&key) else { continue };
            let (side, offset_sectors) = side_of(read.extent.piece.payload_offset_sectors);
            let other = self.choose_copy(common, read).map(|(slot, _)| slot);
            if side == Side::Second || other.is_none_or(|slot| common.clocks.sits_out(slot)) {
                continue;
            }
            let Some(Work::Read(mut read)) = self.works.remove(&key) else { unreachable!() };
            reached(Mark::ReadForsaken);
            common.forsake(read.extent.key);
            self.in_flight.get_mut(name).expect("just seen").0 = Owner::Forsaken;
            if !planted(Bug::ForsakenSameMemory) {
                read.extent.piece.payload_offset_sectors = offset_sectors + SECOND_SIDE;
            }
            if planted(Bug::ForsakenForgotten) {
                continue;
            }
            self.try_next_copy(common, key, read);
        }
    }

    pub(super) fn read_done(
        &mut self,
        common: &mut Common,
        (key, mut read): (LockKey, Read),
        slot: Slot,
        result: Result<(), MemberFault>,
    ) {
        self.balance[usize::from(slot.0)].reads -= 1;
        match result {
            Ok(()) if read.locked => self.repair(common, key, read),
            Ok(()) => {
                common.counters.direct_reads += 1;
                common.part_done(read.extent.key, Ok(()));
            }
            Err(_) if planted(Bug::ReadErrorServed) => {
                common.part_done(read.extent.key, Ok(()));
            }
            Err(fault) => {
                reached(Mark::CopyFails);
                common.note_read_fault(slot, fault);
                if is_halved(common, &read, fault) {
                    reached(Mark::DoubtHalved);
                    return self.read_halves(common, read.extent);
                }
                let was_locked = read.locked;
                read.failed.push((slot, fault));
                if was_locked || !common.may_repair() {
                    self.try_next_copy(common, key, read);
                } else {
                    let extent = read.extent;
                    self.acquire(common, key, Work::Read(read), &extent);
                }
            }
        }
    }

    /// Some of it cannot be read, and the next copy may say something else of the rest.
    fn read_halves(&mut self, common: &mut Common, extent: Extent) {
        let sectors = extent.sectors / 2;
        let (first, second) = (
            Extent { sectors, ..extent },
            Extent { done: extent.done + sectors, sectors: extent.sectors - sectors, ..extent },
        );
        common.add_part(extent.key);
        self.begin_read(common, first);
        self.begin_read(common, second);
    }

    /// The payload holds good bytes and the range is ours: write them over the copies that failed,
    /// unless the array has come to take no writes while the range was waited for.
    fn repair(&mut self, common: &mut Common, key: LockKey, read: Read) {
        let may_help = |fault| fault == MemberFault::Media && common.may_repair();
        // The client waits for it: a member that sits out is repaired by a later read.
        let is_in = |slot: &Slot| !common.clocks.sits_out(*slot);
        let bad = read.failed.iter().filter(|(_, fault)| may_help(*fault));
        let slots: Vec<Slot> = bad.map(|(slot, _)| *slot).filter(is_in).collect();
        if !slots.is_empty() {
            reached(Mark::CopyRepaired);
        }
        common.counters.read_repairs += u64::from(!slots.is_empty());
        self.submit_change(common, key, Change::repair(read.extent, slots));
    }
}

/// Whether all copies of an extent are alike: they were when the array was started, and no write was left half done.
fn copies_agree(common: &Common, extent: &Extent) -> bool {
    let end = extent.start().0 + u64::from(extent.sectors);
    end <= common.view.resync_offset && common.view.gate != Gate::Broken
        || planted(Bug::CopiesBelieved)
}

/// Whether a read that failed is made again in halves: where copies may differ, until only what cannot be read itself is
/// left. A member that is gone has nothing.
fn is_halved(common: &Common, read: &Read, fault: MemberFault) -> bool {
    let is_first = read.failed.is_empty() && !read.locked;
    let may_have_some = fault == MemberFault::Media && read.extent.sectors > 1;
    is_first && may_have_some && !copies_agree(common, &read.extent) && !planted(Bug::DoubtWhole)
}
