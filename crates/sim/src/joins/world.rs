//! What the world does for it.

use braid_engine::array::{Gate, MemberId, SpareSetup, Wish};
use braid_engine::open::bad_block_records;
use braid_geometry::Slot;

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::disk::Disk;
use crate::fault::{Fault, Mishap};
use crate::open::Member;
use crate::world::World;

/// Ordinals among the faults of a cycle: behind those of background work.
const FIRST_ORDINAL: u64 = 5000;

/// Runs, of a hundred, in which disks come.
const PERCENT: u64 = 40;

/// What a new disk is full of.
const GARBAGE: u8 = 0xA7;

impl World {
    /// Adds disks that come to the plan of a run of about `steps` steps from `now` on.
    pub(crate) fn plan_joins(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::Joins, 0);
        if !self.may_have_jobs || !random.chance(PERCENT) {
            return;
        }
        let slots = u64::from(self.geometry.slots());
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + 1 + random.below(3) {
            let step = now + random.below(2 * steps);
            let disk = random.below(slots) as usize;
            if !self.chances.leaves_out(Kind::Fault, ordinal) {
                self.engine.plan.faults.push(Fault { step, disk, mishap: Mishap::Joins, ordinal });
            }
        }
    }

    /// A new disk comes for the slot of this one, if that is empty, and nothing of the old one is under way.
    pub(crate) fn a_disk_joins(&mut self, disk: usize) {
        let slot = Slot(disk as u16);
        let machines = &self.engine.machines;
        let is_of_disk = |member: MemberId| machines.members[usize::from(member.0)].disk == disk;
        let mut views = machines.shards.iter().map(|side| &side.view);
        let is_empty = views.all(|view| view.member(slot).is_none());
        let is_asked =
            self.engine.pending.iter().any(|event| event.waits_for().is_some_and(is_of_disk));
        let is_waiting = machines.array.spares().into_iter().any(is_of_disk);
        let may_write = machines.shards[0].view.gate != Gate::Broken;
        let is_plain = self.bad_logs.is_none() && self.engine.elevators.is_empty();
        // One that is withheld is said to be out with the first update.
        let is_known = self.out.contains(&disk);
        if !is_empty || is_asked || is_waiting || !may_write || !is_plain || !is_known {
            return;
        }
        let room = machines.members.len() < self.engine.elevators.members();
        if !room {
            return;
        }
        let sectors = self.disks[disk].size_bytes() / crate::content::SECTOR as u64;
        let mut new = Disk::new(sectors);
        new.seen.fill(GARBAGE);
        self.disks[disk] = new;
        self.metadata.is_blank(disk);
        self.bad_logs.forget(disk, &self.geometry);
        // Superblocks may say that it is in before the array does.
        self.out.remove(&disk);
        self.absent.remove(&disk);
        self.engine.unflushed.remove(&disk);
        self.unsure.insert(disk);
        let (design, now) = (self.metadata.design, self.clock.now);
        let machines = &mut self.engine.machines;
        let id = MemberId(machines.members.len() as u16);
        machines.members.push(Member { disk, superblock: design.superblock(disk) });
        let number = design.number(disk);
        let tears = design.has_long_superblocks();
        let bad_block_records = bad_block_records(&design.superblock(disk));
        let newcomer = SpareSetup { id, device_number: number, bad_block_records, tears };
        let wanted = Some(Wish { slot, replaces: false });
        let array = &mut self.engine.machines.array;
        let added = array.handle_member_added(now, newcomer, wanted);
        if added.is_err() {
            // It takes no writes any more: the disk is none of the array's.
            self.tally.count("join-refused");
            return;
        }
        self.tally.count("disk-joins");
        self.note("joins", [disk as u64, u64::from(id.0), 0]);
        self.came.insert(id);
        self.drain_array();
    }
}
