//! The world's joining disks: it adds new or returning disks to the running array.

use braid_engine::array::{Gate, MemberId, ReturningMember, SpareSetup, Wish};
use braid_engine::open::{bad_log_sectors, returns};
use braid_geometry::Slot;
use braid_ondisk::Role;

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::disk::{Disk, DiskFaults};
use crate::fault::{Fault, Mishap};
use crate::open::{self, Member};
use crate::world::World;

/// Faults of a cycle are numbered. Numbers from here on are joining disks.
const FIRST_ORDINAL: u64 = 5000;

/// Percentage of runs in which disks join.
const PERCENT: u64 = 40;

/// The byte that fills a new disk.
const GARBAGE: u8 = 0xA7;

impl World {
    /// Adds joining disks to the plan of a run of about `steps` steps from `now` on.
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

    fn away(&self, disk: usize) -> Option<MemberId> {
        let mut away = self.engine.machines.array.away().into_iter().map(|(member, _)| member);
        away.find(|member| self.disk_index(*member) == disk)
    }

    /// Which data the old disk still holds, for the case that it returns; `None` if it cannot
    /// return.
    fn what_is_held(&self, disk: usize) -> Option<ReturningMember> {
        let probed = open::probe_disk(&self.disks[disk], disk);
        let found = probed.probe.newest()?;
        let view = &self.engine.machines.shards[0].view;
        let members = &self.engine.machines.members;
        let seated: Vec<(Slot, &Member)> = (0..self.geometry.slots())
            .filter_map(|slot| Some((Slot(slot), view.member(Slot(slot))?)))
            .map(|(slot, member)| (slot, &members[usize::from(member.id.0)]))
            .collect();
        let newest = &seated.first()?.1.superblock;
        let number = |member: &Member| self.metadata.design.number(member.disk);
        returns(found, newest, seated.iter().map(|(slot, member)| (*slot, number(member))))
    }

    /// A new disk joins for the slot of this disk, or this disk returns. Nothing happens unless the
    /// slot is empty and the old disk is idle.
    pub(crate) fn a_disk_joins(&mut self, disk: usize) {
        let has_bitmap = self.metadata.design.bit_sectors > 0;
        let may_return = has_bitmap && self.chances.of(Purpose::Joins, 2).chance(60);
        let may_return = may_return || self.away(disk).is_some();
        self.joins(disk, may_return);
    }

    /// A new disk joins for the slot of this disk; with `may_return` the old disk itself, if it
    /// can.
    pub(crate) fn joins(&mut self, disk: usize, may_return: bool) {
        let slot = Slot(disk as u16);
        let machines = &self.engine.machines;
        let is_of_disk = |member: MemberId| machines.members[usize::from(member.0)].disk == disk;
        let mut views = machines.shards.iter().map(|side| &side.view);
        let is_empty = views.all(|view| view.member(slot).is_none());
        let is_asked =
            self.engine.pending.iter().any(|event| event.waits_for().is_some_and(is_of_disk));
        let is_waiting = machines.array.spares().into_iter().any(is_of_disk);
        let may_write = machines.shards[0].view.gate != Gate::Broken;
        // The array accepts no disk while parity logs are being created or dropped.
        let may_write = may_write && machines.array.are_logs_settled();
        let is_plain = self.bad_logs.is_none() && self.engine.elevators.is_empty();
        // A disk that was withheld at the start is not out before the first update says so.
        let is_known = self.out.contains(&disk);
        if !is_empty || is_asked || is_waiting || !may_write || !is_plain || !is_known {
            return;
        }
        let room = machines.members.len() < self.engine.elevators.members();
        if !room {
            return;
        }
        let returns = if may_return { self.what_is_held(disk) } else { None };
        let away = self.away(disk).filter(|_| returns.is_some());
        if returns.is_some() {
            self.tally.count("disk-comes-back");
            self.disks[disk].ills = DiskFaults::default();
            self.disks[disk].bad.clear();
            // The returning disk kept power meanwhile, or lost it.
            let mut random = self.chances.of(Purpose::Joins, 3);
            if random.chance(50) {
                self.disks[disk].lose_power(&mut random);
            } else {
                self.disks[disk].settle();
            }
        } else {
            let sectors = self.disks[disk].size_bytes() / crate::content::SECTOR as u64;
            let mut new = Disk::new(sectors);
            new.seen.fill(GARBAGE);
            self.disks[disk] = new;
        }
        self.metadata.is_blank(disk);
        self.bad_logs.forget(disk, &self.geometry);
        // Superblocks can say that the disk is in before the array reports that.
        self.out.remove(&disk);
        self.absent.remove(&disk);
        self.engine.unflushed.remove(&disk);
        self.unsure.insert(disk);
        let (design, now) = (self.metadata.design, self.clock.now);
        let machines = &mut self.engine.machines;
        let id = MemberId(machines.members.len() as u16);
        // The new disk's superblock calls it a spare until the array writes another superblock.
        let mut superblock = design.superblock(disk);
        superblock.state.role = Role::Spare;
        machines.members.push(Member { disk, superblock });
        let number = design.number(disk);
        let tears = design.has_long_superblocks();
        let bad_log_sectors = bad_log_sectors(&design.superblock(disk));
        let parity_log = design.log_place(&design.superblock(disk));
        let newcomer =
            SpareSetup { id, device_number: number, bad_log_sectors, tears, returns, parity_log };
        let wanted = Some(Wish { slot, replaces: false });
        let array = &mut self.engine.machines.array;
        let added = match away {
            Some(old) => array.handle_member_returned(now, old, newcomer),
            None => array.handle_member_added(now, newcomer, wanted),
        };
        // Even if the array refuses the disk: from now on an acknowledged write does not prove that
        // this disk is a member.
        self.came.insert(id);
        if added.is_err() {
            // The array takes no more writes, so it refused the disk.
            self.tally.count("join-refused");
            return;
        }
        self.tally.count("disk-joins");
        self.note("joins", [disk as u64, u64::from(id.0), 0]);
        self.drain_array();
    }
}
