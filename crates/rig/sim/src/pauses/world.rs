//! The world's pausing disks: before a disk answers again, all other work must have proceeded.

use braid_engine::array::{MemberId, MetadataArea, Notice};
use braid_engine::cause::{Cause, RequestKind};
use braid_engine::effect::{FaultKind, MemberFault};
use braid_engine::request::Operation;
use braid_engine::{Patience, SitOut};

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::disk::Disk;
use crate::fault::{Fault, Mishap};
use crate::schedule::Event;
use crate::world::{StepResult, World};

/// Faults of a cycle are numbered. Numbers from here on are pauses and settings for slow members.
const FIRST_ORDINAL: u64 = 4000;

/// Percentage of runs in which slow members may sit out. In the same percentage of those runs a
/// disk pauses.
const PERCENT: u64 = 60;

/// Far more steps than all reads take. Once the disk's member sits out, steps in which the schedule
/// draws a stalled event do not count, because nearly all draws can be of stalled events.
const STEPS_MAX: u32 = 20_000;
/// Limit for draws of stalled events. A schedule draws another event long before.
const DRAWS_MAX: u32 = 1_000_000;

/// The driver's time limit for a member that answers nothing.
const SILENCE_MS: u64 = 8000;
/// How many steps after its pause a disk whose member was away tries to return.
const RETURN_TRIES: [u64; 3] = [60, 300, 1500];

impl World {
    /// Adds pauses to the plan of a run of about `steps` steps from `now` on.
    pub(crate) fn plan_pauses(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::Pauses, 0);
        if !random.chance(PERCENT) {
            return;
        }
        let settings = SitOut {
            is_on: true,
            factor: *random.pick(&[2, 8]),
            min_ms: *random.pick(&[1, 60, 500, 500, 5000]),
            write_slack_ms: *random.pick(&[0, 0, 1000]),
        };
        let mut plan = vec![(now, 0, Mishap::Watches(settings))];
        if random.chance(10) {
            plan.push((now + random.below(steps), 0, Mishap::Watches(SitOut::OFF)));
        }
        let members = &self.engine.machines.members;
        let disk = members[random.below(members.len() as u64) as usize].disk;
        if random.chance(PERCENT) {
            let step = now + random.below(steps);
            plan.push((step, disk, Mishap::Pauses));
            let lasts = 1 + random.below(steps);
            plan.push((step + lasts, disk, Mishap::GoesOn));
            if random.chance(50) {
                plan.push((step + random.below(lasts), disk, Mishap::IsSilent));
            }
        }
        for (ordinal, (step, disk, mishap)) in (FIRST_ORDINAL..).zip(plan) {
            // The beginning and the end of a pause share a number, because a pause without an end
            // lasts forever.
            let number = if mishap == Mishap::GoesOn { ordinal - 1 } else { ordinal };
            if !self.chances.leaves_out(Kind::Fault, number) {
                self.engine.plan.faults.push(Fault { step, disk, mishap, ordinal: number });
            }
        }
    }

    /// A paused disk is about to answer again: checks that no request has to wait for the disk.
    pub(crate) fn goes_on(&mut self, disk: usize) {
        if self.is_away(disk) {
            self.serve_all(disk);
            let member = self.newest_of(disk);
            if self.chances.of(Purpose::Pauses, 2).chance(20) {
                // Sometimes the disk fails the flush that it must do before it returns, and stays
                // away.
                let cause = self.failed(member, (RequestKind::Flush, FaultKind::Gone), (0, 0));
                let now = self.clock.now;
                self.engine.machines.array.handle_stays_away(now, cause);
                self.drain_array();
            }
            // The disk can return once it has completed all its old requests, so it tries several
            // times.
            for steps in RETURN_TRIES {
                let step = self.clock.step + steps;
                let fault = Fault { step, disk, mishap: Mishap::Joins, ordinal: FIRST_ORDINAL };
                self.engine.plan.faults.push(fault);
            }
        } else if self.all_can_be_read_around(disk) {
            self.serve_reads(disk);
        }
        self.disks[disk].ills.stalled = false;
    }

    fn newest_of(&self, disk: usize) -> MemberId {
        let members = (0..).zip(&self.engine.machines.members);
        let of_disk = members.filter(|(_, member)| member.disk == disk);
        of_disk.map(|(id, _)| MemberId(id)).last().expect("a disk is a member")
    }

    /// The driver reports that the stalled disk has been silent for too long.
    pub(crate) fn is_silent(&mut self, disk: usize) {
        if !self.is_alone_in_harm(disk) {
            return;
        }
        let now = self.clock.now;
        let newest = self.newest_of(disk);
        let array = &mut self.engine.machines.array;
        let spare_after_ms =
            if self.chances.of(Purpose::Pauses, 1).chance(50) { 0 } else { 60_000 };
        array.handle_patience(now, Patience { silence_ms: Some(SILENCE_MS), spare_after_ms });
        array.handle_silence(now, &[(newest, SILENCE_MS - 1)]);
        assert!(!array.away().iter().any(|(member, _)| *member == newest), "it is too early");
        array.handle_silence(now, &[(newest, SILENCE_MS)]);
        if array.away().iter().any(|(member, _)| *member == newest) {
            self.engine.plan.victims.insert(disk);
        }
        self.drain_array();
    }

    /// A member leaves: all its requests in flight fail in the engine now, and their results are
    /// ignored later.
    pub(crate) fn member_leaves(&mut self, member: MemberId) {
        assert!(self.engine.left.insert(member), "a member leaves once");
        let now = self.clock.now;
        let array_events = self.engine.pending.iter().filter_map(|event| match *event {
            Event::Superblock { member, .. } => Some((member, Some(MetadataArea::Superblock))),
            Event::BadBlocks { member, .. } => Some((member, Some(MetadataArea::BadBlocks))),
            Event::Bitmap { member, .. } => Some((member, Some(MetadataArea::Bitmap))),
            Event::ParityLog { member, .. } => Some((member, Some(MetadataArea::ParityLog))),
            Event::Journal { member, .. } => Some((member, Some(MetadataArea::Journal))),
            Event::MetadataDone { member, area, .. } => Some((member, Some(area))),
            Event::Flush { member } | Event::FlushDone { member, .. } => Some((member, None)),
            _ => None,
        });
        let of_member = array_events.filter(|(of, _)| *of == member);
        let asked: Vec<Option<MetadataArea>> = of_member.map(|(_, area)| area).collect();
        let cause = Cause::left(member);
        for area in asked {
            self.tally.count("left-by-the-array");
            let array = &mut self.engine.machines.array;
            match area {
                Some(area) => {
                    let fault = MemberFault { kind: FaultKind::Gone, cause };
                    array.handle_metadata_written(now, (member, area), Err(fault));
                }
                None => array.handle_flushed(now, member, Err(cause)),
            }
        }
    }

    /// Whether a disk's member is away (out until it answers), and every shard knows.
    fn is_away(&self, disk: usize) -> bool {
        let machines = &self.engine.machines;
        let mut away = machines.array.away().into_iter().map(|(member, _)| member);
        let Some(member) = away.find(|member| self.disk_index(*member) == disk) else {
            return false;
        };
        machines.shards.iter().all(|side| !side.view.is_used(member))
    }

    /// A paused disk is about to answer again, and its member is away. Runs the world, and checks
    /// that no client's request waits for that disk.
    fn serve_all(&mut self, disk: usize) {
        let mut steps = 0;
        while self.engine.clients.flights.values().any(|flight| flight.call.is_none()) {
            let did = self.step(false);
            if did == StepResult::Nothing || !self.is_alone_in_harm(disk) || !self.disks_are_whole()
            {
                return;
            }
            steps += u32::from(did != StepResult::Stalled);
            assert!(steps < STEPS_MAX, "requests wait for disk {disk}, whose member is away");
        }
        self.tally.count("no-request-waits-for-one-away");
    }

    /// Whether no disk has unreadable sectors. Requests may wait for the rewrite of such sectors.
    fn disks_are_whole(&self) -> bool {
        self.disks.iter().all(|disk| disk.bad.is_empty())
    }

    /// Whether this disk is stalled, no other disk has a fault, and no disk lies.
    fn is_alone_in_harm(&self, disk: usize) -> bool {
        let engine = &self.engine;
        let mut others = self.disks.iter().enumerate().filter(|(index, _)| *index != disk);
        let is_well = |disk: &Disk| !disk.ills.stalled && disk.ills.slow_until_ns == 0;
        let is_alone = engine.plan.victims.iter().all(|victim| *victim == disk);
        self.disks[disk].ills.stalled
            && others.all(|(_, other)| is_well(other))
            && is_alone
            && !engine.plan.lies
            && self.taint.is_calm()
    }

    /// Whether every read can go around this disk, and no other fault can delay it.
    fn all_can_be_read_around(&self, disk: usize) -> bool {
        let engine = &self.engine;
        let mut notices = engine.notices.iter();
        let sits_out = |notice: &Notice| match notice {
            Notice::SitsOut { member, .. } => Some(self.disk_index(*member)),
            _ => None,
        };
        let is_alone = notices.all(|notice| sits_out(notice).is_none_or(|index| index == disk));
        let view = &engine.machines.shards[0].view;
        is_alone
            && self.is_alone_in_harm(disk)
            && engine.plan.victims.is_empty()
            && self.bad_logs.is_empty()
            && view.resync_offset == u64::MAX
    }

    fn serve_reads(&mut self, disk: usize) {
        let (mut unnoticed, mut noticed, mut draws) = (0, 0, 0);
        while unnoticed < STEPS_MAX {
            let flights = &self.engine.clients.flights;
            if !flights.values().any(|flight| flight.request.operation == Operation::Read) {
                self.tally.count("no-read-waits-for-a-pause");
                return;
            }
            let did = self.step(false);
            if did == StepResult::Nothing || !self.all_can_be_read_around(disk) {
                return;
            }
            let out = &self.engine.slow.sitting_out;
            let sits_out = out.iter().any(|member| self.disk_index(*member) == disk);
            match (sits_out, did) {
                (false, _) => unnoticed += 1,
                (true, StepResult::Stalled) => draws += 1,
                (true, _) => noticed += 1,
            }
            let is_served = noticed < STEPS_MAX && draws < DRAWS_MAX;
            assert!(is_served, "reads wait for disk {disk}, which sits out");
        }
        self.tally.count("pause-unnoticed");
    }
}
