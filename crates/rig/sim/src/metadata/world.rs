//! The world's superblocks: it writes, tears and reads them on the disks.

use std::collections::BTreeSet;

use braid_engine::array::MemberId;
use braid_engine::cause::{Cause, RequestKind};
use braid_engine::effect::FaultKind;
use braid_geometry::Slot;
use braid_ondisk::{Role, Superblock};

use crate::chances::Purpose;
use crate::content::{SECTOR, bytes};
use crate::create::SPARE_BYTE;
use crate::open;
use crate::schedule::Event;
use crate::world::World;

impl World {
    /// The engine writes a metadata area of a member other than the superblock. `index`, `start`
    /// and `data` are the disk, the first sector and the bytes to store. With `fails` the disk
    /// stores any part of the data.
    pub(crate) fn write_area(
        &mut self,
        member: MemberId,
        (index, start, data): &(usize, u64, Vec<u8>),
        (asked, fails): (RequestKind, bool),
        ([well, ill], words): ([&'static str; 2], [u64; 3]),
    ) -> Result<(), Cause> {
        let disk = &mut self.disks[*index];
        let is_gone = disk.ills.gone;
        let written = if fails && !is_gone {
            disk.tear((*start, data), &mut self.chances.disks);
            false
        } else {
            disk.write((*start, data), true, &mut self.chances.disks).is_ok()
        };
        self.note(if written { well } else { ill }, words);
        if written {
            return Ok(());
        }
        let kind = if is_gone { FaultKind::Gone } else { FaultKind::Media };
        let place = (*start, (data.len() / SECTOR) as u64);
        Err(self.failed(member, (asked, kind), place))
    }

    /// A disk stores any sectors of a superblock, and the array gets no answer.
    pub(crate) fn tear_superblock(
        &mut self,
        disk: usize,
        superblock: &Superblock,
        purpose: Purpose,
    ) {
        let (start, data) = (superblock.offset_bytes() / SECTOR as u64, superblock.to_bytes());
        let random = match purpose {
            Purpose::Openings => &mut self.chances.openings,
            _ => &mut self.chances.disks,
        };
        self.disks[disk].tear((start, &data), random);
        self.metadata.told(disk, superblock, false);
        let is_cut = purpose == Purpose::Openings || !self.disks[disk].ills.superblocks_fail;
        if is_cut && data.len() > SECTOR && !self.is_spare(disk) {
            self.metadata.torn_together.insert(disk);
            if purpose != Purpose::Openings {
                self.metadata.missing = self.metadata.missing_in(superblock);
            }
        }
    }

    /// Checks that superblocks torn by a power cut cost at most the members that the level
    /// tolerates, or a single member.
    fn check_torn_together(&mut self) {
        let torn = std::mem::take(&mut self.metadata.torn_together);
        let victims = &self.engine.plan.victims;
        let is_gone = |disk: &usize| !victims.contains(disk) && self.superblock_on(*disk).is_none();
        let gone: BTreeSet<u16> =
            torn.into_iter().filter(is_gone).map(|disk| disk as u16).collect();
        if gone.is_empty() {
            return;
        }
        let missing = &self.metadata.missing;
        let is_lost = |slot: Slot| missing.contains(&slot.0) || gone.contains(&slot.0);
        let is_borne = self.geometry.survives(&is_lost);
        assert!(
            is_borne || gone.len() == 1,
            "superblocks {gone:?} tore together; {missing:?} missing"
        );
        self.tally.count(if is_borne {
            "superblock-tear-survived"
        } else {
            "superblock-tear-fatal"
        });
    }

    /// Whether a superblock in flight changes more than its first sector, so that it can tear.
    pub(crate) fn superblocks_may_tear(&self) -> bool {
        self.engine.pending.iter().any(|event| {
            let Event::Superblock { member, state, time } = event else { return false };
            let mut side = self.engine.machines.members[usize::from(member.0)].clone();
            let before = side.superblock.to_bytes();
            let (_, data) = side.superblock_for(&self.disks, *member, (state, *time));
            data.iter().zip(&before).skip(SECTOR).any(|(one, other)| one != other)
        })
    }

    /// Finds disks with torn superblocks. Assembly may choose these disks or not.
    pub(crate) fn find_torn(&mut self) {
        self.check_torn_together();
        for disk in self.metadata.torn.clone() {
            if self.superblock_on(disk).is_none() {
                self.tally.count("superblock-torn");
                self.unsure.insert(disk);
            }
        }
    }

    /// The superblock on a disk, if its checksum fits.
    pub(crate) fn superblock_on(&self, disk: usize) -> Option<Superblock> {
        open::probe_disk(&self.disks[disk], disk).probe.newest().cloned()
    }

    pub(crate) fn is_spare(&self, disk: usize) -> bool {
        disk >= usize::from(self.geometry.slots())
    }

    /// Disks of the running array that have no slot of their own.
    pub(crate) fn spares(&self) -> impl Iterator<Item = usize> {
        let members = self.engine.machines.members.iter().map(|member| member.disk);
        let file = self.metadata.design.file_disk();
        members.filter(move |disk| self.is_spare(*disk) && Some(*disk) != file)
    }

    /// Checks that the data area of every spare is unwritten.
    pub(crate) fn check_spares_are_untouched(&self) {
        let sectors = self.geometry.used_sectors(Slot(0));
        let journal = self.metadata.design.journal_disk();
        let spares = usize::from(self.geometry.slots())..self.disks.len();
        let file = self.metadata.design.file_disk();
        for disk in spares.filter(|disk| Some(*disk) != journal && Some(*disk) != file) {
            let data = &self.disks[disk].seen[bytes(self.taint.data_offset, sectors)];
            let is_untouched = data.iter().all(|byte| *byte == SPARE_BYTE);
            assert!(is_untouched, "data was written to spare {disk}");
        }
    }

    /// The array publishes the loss of a member: checks that the superblocks of sound spares record
    /// the loss already.
    pub(crate) fn check_spares_are_told(&mut self, lost: MemberId) {
        let number = usize::from(self.metadata.design.number(self.disk_index(lost)));
        let spares: Vec<usize> = self.spares().collect();
        for disk in spares.into_iter().filter(|disk| !self.engine.plan.victims.contains(disk)) {
            let superblock = self.superblock_on(disk);
            let superblock = superblock.unwrap_or_else(|| panic!("spare {disk} has no superblock"));
            let role = superblock.state.roles[number];
            assert_eq!(role, Role::Faulty, "spare {disk} does not record that {number} is out");
            self.tally.count("spare-told-of-a-loss");
        }
    }
}
