//! Carries out the mirror's decisions: this file continues the work on extents, and emits its
//! effects. [`super::machine`] begins the work, and abandons its reads.

use braid_geometry::{MemberSector, Slot};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::decide::{Action, Range, Stage, decide};
use super::machine::{Extent, Mirror, Owner, Work};
use crate::buffer::Buffer;
use crate::context::Common;
use crate::effect::{FaultKind, MemberFault, MemberOperation};
use crate::ids::IoId;
use crate::request::{Fault, LockKey};

impl Work {
    pub(super) fn note_read(
        &mut self,
        common: &mut Common,
        slot: Slot,
        result: Result<(), MemberFault>,
    ) {
        self.outstanding -= 1;
        match result {
            Ok(()) => {
                common.counters.direct_reads += u64::from(self.range == Range::NotAsked);
                self.was_read = true;
            }
            Err(fault) => {
                reached(Mark::CopyFails);
                common.note_cause(self.extent.key, result);
                common.note_read_fault(slot, fault);
                self.halves = self.is_to_be_halved(common, fault.kind);
                self.failed.push((slot, fault.kind));
            }
        }
    }

    pub(super) fn note_written(
        &mut self,
        common: &mut Common,
        slot: Slot,
        result: Result<(), MemberFault>,
    ) {
        self.outstanding -= 1;
        common.note_written(slot);
        common.note_cause(self.extent.key, result);
        let result = spoiled(Bug::CopyErrorIgnored, result, Ok(()));
        match result {
            Ok(()) => self.written += 1,
            // The copy could not be mended, and stays bad.
            Err(_) if self.stage == Stage::Mend => {}
            Err(fault) => {
                // The member that got the request; its slot may have another member by now.
                let member = fault.cause.member;
                if common.still_in(slot, member) {
                    self.is_full |= fault.kind == FaultKind::NoSpace;
                    common.report_failed(fault);
                    self.missed.push((slot, member));
                }
            }
        }
    }
}

impl Mirror {
    /// Continues all work that has become ready.
    pub(super) fn settle(&mut self, common: &mut Common) {
        while let Some(key) = self.ready.pop_front() {
            self.step(common, key);
        }
    }

    /// Continues the work on an extent until the work waits for an event, or ends.
    fn step(&mut self, common: &mut Common, key: LockKey) {
        while let Some(work) = self.works.get(key.0) {
            let (facts, copy) = self.facts(common, work);
            match decide(&facts) {
                Action::Wait => return,
                Action::Lock => self.lock(key),
                Action::Read => self.read(common, key, copy.expect("a copy was chosen")),
                Action::Halve => self.halve(common, key),
                Action::Mend => self.mend(common, key),
                Action::Write => self.write(common, key),
                Action::Finish => self.end(common, key, Ok(())),
                Action::Refuse => {
                    let fault = match work.stage {
                        Stage::Read => Fault::Unreadable,
                        Stage::Write | Stage::Mend if facts.missed && work.is_full => {
                            Fault::NoSpace
                        }
                        Stage::Write | Stage::Mend => Fault::Unwritable,
                    };
                    self.end(common, key, Err(fault));
                }
            }
        }
    }

    fn work_mut(&mut self, key: LockKey) -> &mut Work {
        self.works.get_mut(key.0).expect("the work is under way")
    }

    fn lock(&mut self, key: LockKey) {
        assert_eq!(self.work_mut(key).range, Range::NotAsked, "a range is asked for once");
        assert_eq!(
            self.work_mut(key).outstanding,
            0,
            "no copy is asked while a range is waited for"
        );
        let Extent { sectors, .. } = self.work_mut(key).extent;
        let start = self.work_mut(key).extent.start().0;
        let is_free = self.lock.acquire(key, start, u64::from(sectors));
        self.work_mut(key).range = if is_free { Range::Locked } else { Range::Waiting };
    }

    fn submit(
        &mut self,
        common: &mut Common,
        key: LockKey,
        (slot, start): (Slot, MemberSector),
        operation: MemberOperation,
    ) {
        let io = IoId(self.in_flight.insert((Owner::Work(key), slot)));
        let work = self.work_mut(key);
        work.outstanding += 1;
        common.submit((io, slot), (start, work.extent.sectors), operation);
    }

    fn read(&mut self, common: &mut Common, key: LockKey, (slot, start): (Slot, MemberSector)) {
        assert_eq!(self.work_mut(key).outstanding, 0, "one copy is read at a time");
        let extent = self.work_mut(key).extent;
        if common.clocks.is_any_out() && !common.clocks.sits_out(slot) {
            common.counters.reads_around += u64::from(self.is_around(common, &extent));
        }
        self.loads.begin(slot, start, extent.sectors);
        let operation = MemberOperation::of_piece(&extent.piece, extent.done);
        self.submit(common, key, (slot, start), operation);
    }

    /// Whether a copy of the extent is on a member that sits out, so that this read avoids that
    /// member.
    fn is_around(&self, common: &mut Common, extent: &Extent) -> bool {
        let mut is_around = false;
        for (slot, sector) in self.copies(extent) {
            if common.clocks.sits_out(slot) {
                common.clocks.note_place(slot, sector, extent.sectors);
                is_around = true;
            }
        }
        is_around
    }

    /// Splits a read in halves: part of it cannot be read, and the next copy may differ in the
    /// other part.
    fn halve(&mut self, common: &mut Common, key: LockKey) {
        reached(Mark::DoubtHalved);
        let extent = self.work_mut(key).extent;
        assert!(extent.sectors > 1, "a sector has no halves");
        let sectors = extent.sectors / 2;
        let second =
            Extent { done: extent.done + sectors, sectors: extent.sectors - sectors, ..extent };
        common.add_part(extent.key);
        assert_eq!(self.work_mut(key).range, Range::NotAsked, "only the first try is halved");
        *self.work_mut(key) = Work::new(Extent { sectors, ..extent }, Stage::Read);
        self.begin(Work::new(second, Stage::Read));
    }

    /// Writes the payload's good bytes to the copies that failed, with the range locked.
    fn mend(&mut self, common: &mut Common, key: LockKey) {
        let work = self.work_mut(key);
        assert!(
            work.was_read && work.range == Range::Locked,
            "good bytes, and nothing changes them"
        );
        assert!(common.may_repair(), "a copy is not mended in an array that takes no writes");
        work.stage = Stage::Mend;
        let (extent, slots) = (work.extent, work.to_mend(common));
        reached(Mark::CopyRepaired);
        common.counters.read_repairs += 1;
        let offset_sectors = extent.piece.payload_offset_sectors + extent.done;
        let buffer = Buffer::Payload { request: extent.piece.request, offset_sectors };
        for copy in self.copies(&extent).into_iter().filter(|(slot, _)| slots.contains(slot)) {
            self.submit(common, key, copy, MemberOperation::Write { buffer, durable: false });
        }
    }

    fn write(&mut self, common: &mut Common, key: LockKey) {
        let work = self.work_mut(key);
        assert_eq!(work.range, Range::Locked, "overlapping writes reach all copies in one order");
        assert!(!work.begun && work.outstanding == 0, "copies are asked once to take a write");
        work.begun = true;
        let extent = work.extent;
        assert!(common.has_intent(extent.key), "I3: superblocks say so before copies are written");
        let operation = MemberOperation::of_piece(&extent.piece, extent.done);
        let mut copies = self.copies(&extent);
        if planted(Bug::CopyMissed) {
            copies.pop();
        }
        for (slot, start) in copies {
            if common.view.member(slot).is_some() {
                self.submit(common, key, (slot, start), operation);
            }
        }
    }

    /// Answers the work's piece, and admits work that waits for the range.
    fn end(&mut self, common: &mut Common, key: LockKey, result: Result<(), Fault>) {
        let work = self.works.remove(key.0).expect("the work is under way");
        assert_eq!(work.outstanding, 0, "nothing of it is under way when it ends");
        let is_told = work.stage == Stage::Write && result.is_ok();
        let is_recorded = !is_told || !work.is_missed(common);
        let is_recorded = spoiled(Bug::MirrorAnswersEarly, is_recorded, true);
        assert!(is_recorded, "I4: the loss of a copy is recorded before the answer");
        if !work.missed.is_empty() && !work.is_missed(common) {
            reached(Mark::MirrorFinishesHeld);
        }
        common.part_done(work.extent.key, result);
        assert_ne!(work.range, Range::Waiting, "what waits for its range is not over");
        if work.range == Range::Locked {
            for granted in self.lock.release(key) {
                self.grant(common, granted);
            }
        }
    }
}
