//! What the world does with a disk that pauses: before it goes on, everything else does.

use braid_engine::SitOut;
use braid_engine::array::Notice;
use braid_engine::request::Operation;

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::world::{Did, World};

/// Ordinals among the faults of a cycle: behind those of elevators.
const FIRST_ORDINAL: u64 = 4000;

/// Runs, of a hundred, in which members are watched; and of those, in which a disk pauses.
const PERCENT: u64 = 60;

/// Steps in which everything that can be read has been: far more than it takes. Once the disk sits out, those in which the schedule
/// draws what waits for it are not among them: it may draw that nearly always.
const STEPS_MAX: u32 = 20_000;
/// How often it may: a schedule draws something else long before.
const DRAWS_MAX: u32 = 1_000_000;

impl World {
    /// Adds to the plan of a run of about `steps` steps from `now` on.
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
            plan.push((step + 1 + random.below(steps), disk, Mishap::GoesOn));
        }
        for (ordinal, (step, disk, mishap)) in (FIRST_ORDINAL..).zip(plan) {
            // Without its end a pause would be for ever.
            let number = if mishap == Mishap::GoesOn { ordinal - 1 } else { ordinal };
            if !self.chances.leaves_out(Kind::Fault, number) {
                self.engine.plan.faults.push(Fault { step, disk, mishap, ordinal: number });
            }
        }
    }

    /// The disk is about to go on: no read has waited for it.
    pub(crate) fn goes_on(&mut self, disk: usize) {
        if self.all_can_be_read_around(disk) {
            self.serve_reads(disk);
        }
        self.disks[disk].ills.stalled = false;
    }

    /// Whether every read can be made without this disk, and nothing else but time is in its way.
    fn all_can_be_read_around(&self, disk: usize) -> bool {
        let engine = &self.engine;
        let others = self.disks.iter().enumerate().filter(|(index, _)| *index != disk);
        let mut notices = engine.notices.iter();
        let sits_out = |notice: &Notice| match notice {
            Notice::SitsOut { member, .. } => Some(self.disk_index(*member)),
            _ => None,
        };
        let is_alone = notices.all(|notice| sits_out(notice).is_none_or(|index| index == disk));
        let view = &engine.machines.shards[0].view;
        is_alone
            && self.disks[disk].ills.stalled
            && others
                .into_iter()
                .all(|(_, other)| !other.ills.stalled && other.ills.slow_until_ns == 0)
            && engine.plan.victims.is_empty()
            && !engine.plan.lies
            && self.taint.is_calm()
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
            if did == Did::Nothing || !self.all_can_be_read_around(disk) {
                return;
            }
            let out = &self.engine.slow.sitting_out;
            let sits_out = out.iter().any(|member| self.disk_index(*member) == disk);
            match (sits_out, did) {
                (false, _) => unnoticed += 1,
                (true, Did::Stalled) => draws += 1,
                (true, _) => noticed += 1,
            }
            let is_served = noticed < STEPS_MAX && draws < DRAWS_MAX;
            assert!(is_served, "reads wait for disk {disk}, which sits out");
        }
        self.tally.count("pause-unnoticed");
    }
}
