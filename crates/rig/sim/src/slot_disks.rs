//! The disks of an array by slot, for a replay of a log, with power for a limited number of
//! operations.

use std::ops::Range;

use braid_assembly::{AssembledArray, Occupant};
use braid_engine::replay::Member;
use braid_geometry::Slot;

use crate::disk::Disk;

pub(crate) struct SlotDisks<'a> {
    pub(crate) disks: &'a mut [Disk],
    pub(crate) assembled: &'a AssembledArray,
    pub(crate) presented: &'a [usize],
    pub(crate) data_offset: u64,
    /// Operations that disks still do before power fails.
    pub(crate) powered: u64,
    /// An operation came after power had failed.
    pub(crate) is_cut: bool,
}

impl SlotDisks<'_> {
    /// Counts an operation; returns whether power lasts for that operation.
    pub(crate) fn is_powered(&mut self) -> bool {
        self.is_cut |= self.powered == 0;
        self.powered = self.powered.saturating_sub(1);
        !self.is_cut
    }

    /// The disk of the member in a slot, then the disk of any replacement.
    fn of(&self, slot: Slot) -> Vec<usize> {
        let replacements = self.assembled.replacements.iter().filter(|(of, _)| *of == slot);
        let member = self.assembled.slots[slot.index()].iter();
        let members = member.chain(replacements.map(|(_, one)| one));
        members.map(|one| self.presented[one.member]).collect()
    }

    pub(crate) fn read(&self, slot: Slot, sectors: &Range<u64>, bytes: &mut [u8]) -> bool {
        let disk = &self.disks[self.of(slot)[0]];
        let read = disk.read(self.data_offset + sectors.start, sectors.end - sectors.start);
        read.map(|read| bytes.copy_from_slice(read)).is_ok()
    }

    pub(crate) fn write(&mut self, slot: Slot, sectors: &Range<u64>, bytes: &[u8]) {
        for disk in self.of(slot) {
            if self.is_powered() {
                self.disks[disk].put(self.data_offset + sectors.start, bytes, false);
            }
        }
    }

    pub(crate) fn flush(&mut self, slot: Slot) {
        for disk in self.of(slot) {
            if self.is_powered() {
                self.disks[disk].settle();
            }
        }
    }
}

/// The member of each slot, as a replay needs it: recovery offset and bad sectors.
pub(crate) fn members(assembled: &AssembledArray) -> Vec<Option<Member>> {
    let member = |occupant: &Occupant| Member {
        recovered_sectors: occupant.recovered_until,
        bad_sectors: occupant.bad_sectors(),
    };
    assembled.slots.iter().map(|slot| slot.as_ref().map(member)).collect()
}
