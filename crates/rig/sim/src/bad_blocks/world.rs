//! The world's bad-block logs: it creates and damages them, and checks requests against them.

use braid_engine::BadLogWrite;
use braid_engine::array::{ArrayView, MemberId, bad_block_log_for};
use braid_engine::cause::{Cause, RequestKind};
use braid_engine::effect::{FaultKind, MemberIo};
use braid_geometry::{Geometry, MemberSector, Slot};
use braid_ondisk::Superblock;

use super::BadLogs;
use crate::chances::{Chances, Purpose};
use crate::content::{SECTOR, places};
use crate::open::Message;
use crate::world::World;

/// Percentage of restarts at which a bad-block log is damaged.
const DAMAGED_PERCENT: u64 = 3;

/// A record of length zero, which md never writes.
const NONSENSE: u64 = 5 << 10;

impl World {
    /// In some worlds, creates bad-block logs for the members of a new array.
    pub(crate) fn new_bad_logs(
        chances: &Chances,
        geometry: &Geometry,
        superblocks: &[Option<Superblock>],
    ) -> BadLogs {
        BadLogs::any(&mut chances.of(Purpose::BadBlocks, 1), geometry, superblocks)
    }

    /// Sometimes damages a log while the array is stopped.
    pub(crate) fn damage_a_log(&mut self) {
        let mut random = self.chances.of(Purpose::BadBlocks, 2);
        if self.bad_logs.is_empty() || !random.chance(DAMAGED_PERCENT) {
            return;
        }
        let log = random.below(self.bad_logs.logs.len() as u64) as usize;
        let log = &mut self.bad_logs.logs[log];
        if log.is_damaged || log.ranges.is_empty() {
            return;
        }
        log.bytes[..8].copy_from_slice(&NONSENSE.to_le_bytes());
        log.is_damaged = true;
        self.disks[log.disk].put(log.start, &log.bytes, true);
        self.unsure.insert(log.disk);
        self.tally.count("bad-block-log-damaged");
    }

    /// The engine writes a bad-block log. The disk's earlier writes become durable first.
    pub(crate) fn write_bad_blocks(
        &mut self,
        member: MemberId,
        write: &BadLogWrite,
    ) -> Result<(), Cause> {
        self.tally.count("bad-block-log-written");
        let (index, start, data) = self.new_bad_log(member, write);
        let ills = self.disks[index].ills;
        let is_flushed = self.disks[index].flush();
        let is_written = if ills.superblocks_fail && !ills.gone {
            self.disks[index].tear((start, &data), &mut self.chances.disks);
            false
        } else {
            is_flushed && self.write_to(index, (start, &data), true).is_ok()
        };
        self.note("log", [index as u64, write.says.named().sectors(), u64::from(is_written)]);
        if is_written {
            let side = &self.engine.machines.members[usize::from(member.0)];
            let on_disk = &self.disks[index];
            self.bad_logs.rewritten((index, on_disk), side.data_offset(), &self.geometry);
            return Ok(());
        }
        let kind = if ills.gone { FaultKind::Gone } else { FaultKind::Media };
        let place = (start, (data.len() / SECTOR) as u64);
        Err(self.failed(member, (RequestKind::BadBlocks, kind), place))
    }

    pub(crate) fn tear_bad_blocks(&mut self, member: MemberId, write: &BadLogWrite) {
        let (index, start, data) = self.new_bad_log(member, write);
        let ills = self.disks[index].ills;
        if !ills.flushes_fail && !ills.flushes_lie {
            self.disks[index].settle();
        }
        self.disks[index].tear((start, &data), &mut self.chances.disks);
    }

    fn new_bad_log(&mut self, member: MemberId, write: &BadLogWrite) -> (usize, u64, Vec<u8>) {
        let side = &self.engine.machines.members[usize::from(member.0)];
        let (index, superblock) = (side.disk, side.superblock.clone());
        self.bad_logs.rewrite(index, &superblock, &write.says.named());
        let start_sector = superblock.device.data_offset_sectors;
        let (offset_bytes, data) = bad_block_log_for(&superblock, start_sector, write);
        (index, offset_bytes / SECTOR as u64, data)
    }

    /// The array has ended: finds out which of its last writes of bad-block logs reached the disks.
    pub(crate) fn look_at_bad_logs(&mut self) {
        self.bad_logs.look(&self.disks, &self.geometry);
    }

    pub(crate) fn check_bad_logs(&self) {
        self.bad_logs.check_kept(&self.disks);
    }

    pub(crate) fn check_damaged_are_out(&self, chosen: impl Iterator<Item = usize>) {
        for disk in chosen {
            let mut logs = self.bad_logs.logs.iter();
            let is_damaged = logs.any(|log| log.disk == disk && log.is_damaged);
            assert!(!is_damaged, "disk {disk} was chosen with a damaged bad-block log");
        }
    }

    /// Checks that no read covers a logged sector, unless the operator's check tries that sector.
    /// Writes are allowed.
    pub(crate) fn check_logged(&mut self, io: &MemberIo) {
        if self.bad_logs.is_empty() {
            return;
        }
        let disk = self.disk_index(io.member);
        let sectors = io.sector.0..io.sector.0 + u64::from(io.sectors);
        if !self.bad_logs.names(disk, &sectors) {
            return;
        }
        // The sector was logged just now. The view that names the sector has not reached the
        // reading shard yet.
        let is_news = |view: &ArrayView| {
            let named = view.bad_blocks_of(io.slot, io.member);
            named.is_some_and(|bad| bad.touches(io.sector, u64::from(io.sectors)))
        };
        let waits = |message: &Message| matches!(message, Message::View(view) if is_news(view));
        let mut sides = self.engine.machines.shards.iter();
        if sides.any(|side| side.inbox.iter().any(waits)) {
            return;
        }
        let is_well = io.operation.is_write() || self.bad_logs.may_be_tried(io);
        assert!(is_well, "a read covers what the log of disk {disk} names: {io:?}");
        self.tally.count("write-through-bad-blocks");
    }

    /// Counts a client's read if it covers logged sectors.
    pub(crate) fn count_routed(&mut self, (start, sectors): (u64, u64)) {
        if self.bad_logs.is_empty() {
            return;
        }
        let here = |(slot, place): (Slot, MemberSector)| {
            self.bad_logs.names(slot.index(), &(place.0..place.0 + 1))
        };
        let mut all = (start..start + sectors).flat_map(|one| places(&self.geometry, one));
        if all.any(here) {
            self.tally.count("read-around-bad-blocks");
        }
    }
}
