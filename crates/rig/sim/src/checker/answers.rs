//! The checker of answers: no error within tolerance, no bytes that never existed, no member lost
//! without cause.

use braid_engine::array::{MemberId, MemberView, Notice};
use braid_engine::effect::MemberIo;
use braid_engine::request::{Fault, Request};
use braid_geometry::Family;

use crate::content::SECTOR;
use crate::model::{ANYTHING, Model};
use crate::open::Message;
use crate::schedule::Event;
use crate::world::{Trust, World};

impl Model {
    /// Checks that a read returned a version that the model allows. Pins that version, if reads pin
    /// versions in this run.
    pub(crate) fn check_read(
        &mut self,
        (start, sectors): (u64, u64),
        data: &[u8],
        (began, now): (u64, u64),
        trust: Trust,
    ) {
        assert_eq!(data.len(), sectors as usize * SECTOR);
        for (sector, data) in (start..).zip(data.chunks_exact(SECTOR)) {
            let version = self.identify(sector, data);
            let is_written = version.is_some_and(|version| self.may_read(sector, version, began));
            if !is_written && self.may_read(sector, ANYTHING, began) {
                continue;
            }
            let Some(version) = version else {
                panic!("sector {sector} reads as nothing that was ever written there");
            };
            if !is_written {
                let allowed = self.readable(sector, began);
                panic!("sector {sector} reads as version {version}, not one of {allowed:?}");
            }
            if trust.pins && began >= trust.pins_from {
                self.pin(sector, version, (began, now), (trust.firmly, trust.lasts));
            }
        }
    }
}

impl World {
    /// Checks a read in a run with lying disks: sectors that a lie may have reached can be wrong,
    /// all others are exact.
    pub(crate) fn check_read_among_lies(&mut self, start: u64, data: &[u8], times: (u64, u64)) {
        for (sector, data) in (start..).zip(data.chunks_exact(SECTOR)) {
            let version = self.model.identify(sector, data);
            let is_right = self.model.may_read(sector, ANYTHING, times.0)
                || version.is_some_and(|version| self.model.may_read(sector, version, times.0));
            if !is_right && self.may_be_wrong(sector, times.0) {
                self.tally.count("wrong-sectors-served");
                continue;
            }
            let trust = self.trust_now();
            let trust = Trust { pins: trust.pins && !self.is_doubtful(sector), ..trust };
            self.model.check_read((sector, 1), data, times, trust);
        }
    }

    pub(crate) fn check_error_allowed(&self, result: Result<(), Fault>, request: &Request) {
        if let Err(fault) = result {
            let allowed = self.engine.trust.errors_allowed;
            assert!(allowed, "{request:?} failed within tolerance: {fault}");
        }
    }

    /// Checks that a member request goes to a member of the view (I6 in docs/write-path.md). The
    /// request must stay within the sectors that the array uses.
    pub(crate) fn check_io(&self, shard: usize, io: &MemberIo) {
        let view = &self.engine.machines.shards[shard].view;
        let is_in = match io.operation.is_write() {
            true => view.has(io.slot, io.member),
            false => view.member(io.slot).is_some_and(|member| member.id == io.member),
        };
        assert!(is_in, "{io:?} goes to a member that is not in the view");
        let end = io.sector.0 + u64::from(io.sectors);
        assert!(io.sectors > 0 && end <= self.geometry.used_sectors(io.slot), "{io:?}");
        if io.operation.is_write() {
            return self.check_alone(io);
        }
        let sectors = u64::from(io.sectors);
        let holds = |member: &MemberView| member.holds(io.sector, sectors);
        let is_tried = self.bad_logs.may_be_tried(io) && view.member(io.slot).is_some_and(holds);
        let readable = view.readable(io.slot, io.sector, sectors);
        assert!(readable.is_some() || is_tried, "{io:?} reads unreadable sectors");
    }

    /// Checks that no other write in flight overlaps this one on its member, because chance would
    /// decide which write is last. Levels without redundancy are exempt: on these, clients order
    /// their own writes.
    fn check_alone(&self, io: &MemberIo) {
        if self.geometry.level().family() == Family::Direct {
            return;
        }
        let end = io.sector.0 + u64::from(io.sectors);
        let meets = |other: &&MemberIo| {
            other.member == io.member
                && other.operation.is_write()
                && other.sector.0 < end
                && io.sector.0 < other.sector.0 + u64::from(other.sectors)
        };
        let out = self.engine.pending.iter().filter_map(|event| match event {
            Event::Io(vector) => Some(vector.parts.iter().map(|(_, other)| other)),
            _ => None,
        });
        let met = out.flatten().chain(self.engine.elevators.waiting()).find(meets);
        assert!(met.is_none(), "{io:?} overlaps {met:?}, in undefined order");
    }

    /// Checks that the array sends no request to a member that it has declared out.
    pub(crate) fn check_is_in(&self, member: MemberId) {
        let is_it = |notice: &Notice| match notice {
            Notice::MemberOut { member: out, .. }
            | Notice::Away { member: out, .. }
            | Notice::Replaced { old: out, .. } => *out == member,
            _ => false,
        };
        let is_out = self.engine.notices.iter().any(is_it);
        assert!(!is_out, "the array sends a request to {member:?}, which is out");
    }

    /// A member begins to sit out: checks that the level can do without all members that sit out.
    fn sits_out(&mut self, member: MemberId) {
        let disk = self.disk_index(member);
        self.note("sits-out", [disk as u64, 0, 0]);
        self.tally.count("sits-out");
        self.engine.slow.were_out.insert(disk);
        assert!(self.engine.slow.sitting_out.insert(member), "disk {disk} sits out twice");
        self.check_rest_suffices();
    }

    fn comes_back(&mut self, member: MemberId) {
        let disk = self.disk_index(member);
        self.note("comes-back", [disk as u64, 0, 0]);
        self.tally.count("comes-back");
        assert!(self.engine.slow.sitting_out.remove(&member), "disk {disk} did not sit out");
    }

    /// Checks that the level can do without the members that sit out or are missing.
    fn check_rest_suffices(&self) {
        let side = &self.engine.machines.shards[0];
        // The array decides by the view that it published last. That view can still be in a shard's
        // inbox.
        let published = side.inbox.iter().rev().find_map(|message| match message {
            Message::View(view) => Some(view),
            _ => None,
        });
        let view = published.unwrap_or(&side.view);
        let is_away = |slot: braid_geometry::Slot| {
            view.member(slot).is_none_or(|member| {
                member.recovered_sectors != u64::MAX
                    || self.engine.slow.sitting_out.contains(&member.id)
            })
        };
        let out = &self.engine.slow.sitting_out;
        assert!(self.geometry.survives(&is_away), "{out:?} sit out, and the level needs one");
    }

    pub(crate) fn heard(&mut self, notice: Notice) {
        match notice {
            Notice::MemberOut { member, cause, .. } => {
                self.check_loss(member, &cause);
                self.engine.slow.sitting_out.remove(&member);
                let disk = self.disk_index(member);
                self.note("out", [disk as u64, 0, 0]);
                let harmed = self.engine.plan.victims.contains(&disk);
                assert!(harmed, "disk {disk} is out, but had no fault");
                self.out.insert(disk);
                self.check_spares_are_told(member);
                self.tally.count("member-out");
            }
            Notice::Away { member, .. } => {
                self.engine.slow.sitting_out.remove(&member);
                let disk = self.disk_index(member);
                self.note("away", [disk as u64, 0, 0]);
                self.out.insert(disk);
                self.check_spares_are_told(member);
                self.tally.count("member-away");
            }
            Notice::Returned { member, slot, .. } => {
                self.note("returned", [u64::from(member.0), u64::from(slot.0), 0]);
                self.tally.count("member-returned");
            }
            Notice::Broken { member, cause } => {
                self.check_loss(member, &cause);
                self.note("broken", [u64::from(member.0), 0, 0]);
                assert!(self.engine.trust.errors_allowed, "the array broke within tolerance");
                self.tally.count("array-broken");
            }
            Notice::WriteLost { start, sectors, cause } => {
                self.check_error_cause(cause.as_ref());
                self.note("lost-answered", [start.0, sectors, 0]);
                let allowed = self.engine.trust.errors_allowed;
                assert!(allowed, "an acknowledged write was lost within tolerance");
                self.engine.held.has_lost = true;
                self.tally.count("answered-write-lost");
            }
            Notice::JournalLost { member, .. } => {
                self.note("journal-lost", [u64::from(member.0), 0, 0]);
                let disk = self.disk_index(member);
                let harmed = self.engine.plan.victims.contains(&disk);
                assert!(harmed, "the array dropped the journal, which had no fault");
                assert!(self.engine.trust.errors_allowed, "the array ends writes too early");
                self.tally.count("journal-lost");
            }
            Notice::BitmapFileLost { member, .. } => {
                self.note("bitmap-file-lost", [u64::from(member.0), 0, 0]);
                let disk = self.disk_index(member);
                let harmed = self.engine.plan.victims.contains(&disk);
                assert!(harmed, "the array dropped the bitmap file, which had no fault");
                self.tally.count("bitmap-file-lost");
            }
            Notice::OutOfSpace { cause, .. } => panic!("no disk here is sparse: {cause:?}"),
            Notice::WriteProtected { cause, .. } => panic!("every disk is writable: {cause:?}"),
            Notice::SpareLost { member, cause } => {
                self.note("spare-lost", [u64::from(member.0), 0, 0]);
                self.check_loss(member, &cause);
                self.tally.count("spare-lost");
            }
            Notice::SitsOut { member, .. } => self.sits_out(member),
            Notice::Back { member, .. } => self.comes_back(member),
            Notice::Errs { member, errors, .. } => {
                self.note("errs", [u64::from(member.0), u64::from(errors), 0]);
                self.tally.count("errs");
            }
            Notice::JobBegan(progress) => self.job_began(&progress),
            Notice::JobPassed(progress) => self.job_passed(&progress),
            Notice::JobEnded { progress, end } => self.job_ended(&progress, end),
            Notice::Found(_) => self.note("found", [0; 3]),
            Notice::SpareTaken { member, slot, kept_sectors: _ } => {
                self.note("spare-taken", [u64::from(member.0), u64::from(slot.0), 0]);
                self.tally.count("spare-taken");
            }
            Notice::Replacing { member, slot, old } => {
                let numbers = [member.0, slot.0, old.0];
                self.note("replacing", numbers.map(u64::from));
                self.tally.count("replacing");
            }
            Notice::Replaced { member, slot, old } => {
                let numbers = [member.0, slot.0, old.0];
                self.note("replaced", numbers.map(u64::from));
                self.tally.count("replaced");
                self.engine.slow.sitting_out.remove(&old);
                let old = self.disk_index(old);
                self.out.insert(old);
            }
            Notice::Recovered { member, .. } => self.recovered(member),
            Notice::Recorded { events } => self.note("told", [events, 0, 0]),
            Notice::ShapeRecorded => self.note("shape-recorded", [0; 3]),
            Notice::Stopped { clean } => self.note("stopped", [u64::from(clean), 0, 0]),
        }
        self.engine.notices.push(notice);
    }
}
