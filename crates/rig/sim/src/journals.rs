//! Write journals in the simulator: how they are written and torn, and replayed at a start.
//!
//! After an unclean end the simulator replays the journal onto the disks as a server does, and a
//! power cut can interrupt the replay. Afterwards the checker of clean arrays must find parity
//! right everywhere, because superblocks of an array with a journal always say clean.
//!
//! # Invariants
//! - No acknowledged write is lost, whichever members are missing
//!   [check: a_journal_loses_nothing_whoever_is_missing].

use std::ops::Range;

use braid_assembly::{AssembledArray, AssembledJournal};
use braid_engine::array::MemberId;
#[cfg(any(test, braid_sim_hooks))]
use braid_engine::array::{JournalSetup, LogRefusal};
use braid_engine::cause::{Cause, RequestKind};
use braid_engine::replay::Finish;
use braid_engine::replay::journal::{Devices, Replay, Setup, run};
use braid_geometry::{Geometry, Slot};
use braid_ondisk::{JournalArea, JournalPiece, JournalRecord};

use crate::content::SECTOR;
#[cfg(any(test, braid_sim_hooks))]
use crate::metadata::JournalPresence;
use crate::open;
#[cfg(any(test, braid_sim_hooks))]
use crate::open::Member;
use crate::slot_disks::{SlotDisks, members};
use crate::world::World;

struct JournalDevices<'a> {
    slot_disks: SlotDisks<'a>,
    area: JournalArea,
    journal: usize,
}

impl Devices for JournalDevices<'_> {
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool {
        self.slot_disks.read(slot, &sectors, bytes)
    }

    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool {
        self.slot_disks.write(slot, &sectors, bytes);
        true
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.slot_disks.flush(slot);
        true
    }

    fn read_journal(&mut self, position: u64, bytes: &mut [u8]) -> bool {
        let sectors = (bytes.len() / SECTOR) as u64;
        let read =
            self.slot_disks.disks[self.journal].read(self.area.start_sector + position, sectors);
        read.map(|read| bytes.copy_from_slice(read)).is_ok()
    }

    fn write_journal(&mut self, position: u64, bytes: &[u8]) -> bool {
        if self.slot_disks.is_powered() {
            self.slot_disks.disks[self.journal].put(
                self.area.start_sector + position,
                bytes,
                false,
            );
        }
        true
    }

    fn flush_journal(&mut self) -> bool {
        if self.slot_disks.is_powered() {
            self.slot_disks.disks[self.journal].settle();
        }
        true
    }

    fn move_tail(&mut self, _: u64) -> bool {
        unreachable!("the array goes on with its journal")
    }
}

impl World {
    /// Replays the journal before anything else, as a server does. False if power was cut
    /// meanwhile.
    ///
    /// # Panics
    /// If the journal names places that the array does not have.
    pub(crate) fn replay_journal(
        &mut self,
        assembled: &mut AssembledArray,
        presented: &[usize],
    ) -> bool {
        let (Some(journal), Geometry::Stripe(geometry)) =
            (assembled.journal.clone(), &assembled.geometry)
        else {
            return true;
        };
        // The replay believed what it read from the journal. A killed process can have left a
        // record in the journal disk's cache, so the cache is made durable.
        self.disks[presented[journal.member]].settle();
        let (geometry, log) = (*geometry, &journal.log);
        let members = members(assembled);
        let (may_return, finish) = (assembled.may_return(), Finish::Flushed);
        let setup = Setup { geometry, members, may_return, log, finish };
        let machine = Replay::new(setup).expect("a journal tells of what the array has");
        let entries = log.entries.len() as u64;
        self.tally.count_many("journal-replayed", u64::from(entries > 0));
        self.tally.count_many("journal-entries", entries);
        self.note("replay-journal", [entries, u64::from(assembled.degraded), 0]);
        let is_cut = entries > 0 && self.chances.openings.chance(15);
        let powered = if is_cut { self.chances.openings.below(12) } else { u64::MAX };
        let (area, uuid) = (log.area, assembled.newest.uuid_as_stored());
        let (data_offset, journal_disk) = (self.taint.data_offset, presented[journal.member]);
        let disks = &mut self.disks[..];
        let slot_disks =
            SlotDisks { disks, assembled, presented, data_offset, powered, is_cut: false };
        let mut on_disks = JournalDevices { slot_disks, area, journal: journal_disk };
        let report = run(machine, &geometry, &uuid, &mut on_disks).expect("disks take all of it");
        if on_disks.slot_disks.is_cut {
            self.tally.count("power-cut-in-replay");
            self.lose_power();
            return false;
        }
        assert!(report.unsettled.is_empty(), "what is written through has its parity");
        let superblock = self.superblock_on(journal_disk).expect("it was just read");
        let log = open::journal(&self.disks[journal_disk], &superblock);
        let log = log.expect("it is a journal").expect("it was just followed");
        assembled.journal = Some(AssembledJournal { member: journal.member, log });
        true
    }

    /// If `makes`, the operator creates the journal on its disk, which may have old content.
    /// Otherwise the operator drops the journal.
    #[cfg(any(test, braid_sim_hooks))]
    pub(crate) fn changes_journal(&mut self, makes: bool) -> Result<(), LogRefusal> {
        let (design, now) = (self.metadata.design, self.clock.now);
        let disk = design.journal_disk().expect("it was made with one");
        let machines = &mut self.engine.machines;
        let changed = if makes {
            let superblock = design.superblock(disk);
            let area = superblock.journal_area().expect("it is to have a journal");
            let member = MemberId(machines.members.len() as u16);
            assert!(machines.members.len() < self.engine.elevators.members(), "there is room");
            let (device_number, is_used) = (design.number(disk), false);
            // With this sequence number, a replay does not take old blocks on the disk for
            // successors.
            let end_sequence = 1_000_000 * machines.array.events();
            let setup =
                JournalSetup { member, device_number, area, end_sectors: 0, end_sequence, is_used };
            machines.members.push(Member { disk, superblock });
            machines.array.handle_journal_added(now, setup).inspect_err(|_| {
                machines.members.pop();
            })
        } else {
            machines.array.handle_log_request(now, None)
        };
        if changed.is_ok() {
            self.metadata.journal = JournalPresence::Either;
        }
        self.tally.count(if changed.is_ok() { "journal-changes" } else { "journal-stays" });
        self.drain_array();
        changed
    }

    /// Whether the array has a journal. Replaces `Either`; nothing may be in flight.
    #[cfg(any(test, braid_sim_hooks))]
    pub(crate) fn has_journal(&mut self) -> bool {
        let array = &self.engine.machines.array;
        assert!(array.are_logs_settled(), "nothing is under way");
        let is_there = array.journal().is_some();
        self.metadata.journal =
            if is_there { JournalPresence::Kept } else { JournalPresence::Without };
        is_there
    }

    pub(crate) fn write_journal(
        &mut self,
        member: MemberId,
        record: &JournalRecord,
        piece: JournalPiece,
    ) -> Result<(), Cause> {
        self.tally.count("journal-written");
        let area = self.new_journal(member, record, piece);
        let words = [record.position, record.sequence, record.sectors()];
        let ills = self.disks[area.0].ills;
        let fails = ills.superblocks_fail || ills.writes_fail;
        let asked = (RequestKind::Journal, fails);
        self.write_area(member, &area, asked, (["journal", "journal-fails"], words))
    }

    pub(crate) fn tear_journal(
        &mut self,
        member: MemberId,
        record: &JournalRecord,
        piece: JournalPiece,
    ) {
        let (index, start, data) = self.new_journal(member, record, piece);
        self.disks[index].tear((start, &data), &mut self.chances.disks);
    }

    fn new_journal(
        &self,
        member: MemberId,
        record: &JournalRecord,
        piece: JournalPiece,
    ) -> (usize, u64, Vec<u8>) {
        let side = &self.engine.machines.members[usize::from(member.0)];
        let (offset_bytes, data) = side.superblock.journal_bytes(record, piece);
        (side.disk, offset_bytes / SECTOR as u64, data)
    }
}
