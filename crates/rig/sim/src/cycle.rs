//! Crash and recover, again and again, on the same disks.
//!
//! ```text
//!   work ──▶ end: power cut of all │ process killed │ orderly stop ──▶ which disks are presented?
//!    ▲                                                                 │
//!    │             rebuilt offline, as md would                        ▼
//!    └──── read everything ◀─────────────────────── started ◀── assemble ──▶ refused: with reason?
//! ```
//!
//! [`World::rebuild`] makes the disks whole while the array is stopped, as the kernel's md does.

use std::collections::BTreeSet;

use braid_assembly::Refusal;
use braid_engine::Instant;
use braid_engine::array::{Gate, MemberView, Notice};
use braid_engine::request::RequestId;
use braid_geometry::{Family, Geometry, Slot};
use braid_ondisk::{Role, SuperblockUpdate};

use crate::bad_blocks::BadLogs;
use crate::bitmaps;
use crate::cache;
use crate::cache_file::CacheFile;
use crate::chances::{Chances, Purpose};
use crate::checker::{layouts, verdicts};
use crate::content::{SECTOR, first_content, image};
use crate::coverage::ArrayAction;
use crate::create::Design;
use crate::cut::{Cut, Number};
use crate::disk::{Disk, DiskFaults};
use crate::fault::{self, ArrayCondition, Mishap};
use crate::lie_plan;
use crate::metadata::Metadata;
use crate::model::Model;
use crate::moments::Moment;
use crate::open::{self, Manner};
use crate::parity_logs;
use crate::random::Random;
use crate::schedule::{Event, Order};
use crate::taint::Taint;
use crate::tally::Tally;
use crate::trace::Trace;
use crate::workload::Workload;
use crate::world::{Clock, Engine, StepResult, Trust, World};

/// An array turns clean after this many milliseconds without writes.
pub(crate) const CLEAN_DELAY_MS: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PowerCut,
    Kill,
    Stop,
}

impl World {
    /// Creates an array on new disks and starts it.
    pub(crate) fn create(design: &Design, chances: Chances, trace: Trace) -> Self {
        let may_lie = lie_plan::is_lying_world(chances.of(Purpose::Lies, 1));
        let mut random = chances.of(Purpose::World, 1);
        let mut disks = design.disks();
        let presented: Vec<usize> = (0..disks.len()).collect();
        let (mut probed, mut assembly) = open::assemble_disks(&disks, &presented);
        let mut bad_logs = BadLogs::default();
        if let Some(array) = assembly.array.as_ref().ok().filter(|_| design.has_bad_blocks) {
            let superblocks = open::superblocks(&probed, assembly.array.as_ref().ok());
            bad_logs = Self::new_bad_logs(&chances, &array.geometry, &superblocks);
            bad_logs.write(&mut disks, &[]);
            (probed, assembly) = open::assemble_disks(&disks, &presented);
        }
        let superblocks = open::superblocks(&probed, assembly.array.as_ref().ok());
        let assembled = assembly.array.expect("a new array can be started");
        let geometry = assembled.geometry.clone();
        layouts::check(design, &geometry);
        let mut manner = manner(&mut random, &chances.cut);
        // Checkers assume that a disk's number is its slot, so the array must not give a spare a
        // slot. Where disks lie, a job writes data derived from lies, which `crate::taint` does
        // not track.
        let may_have_jobs = design.spares == 0 && !may_lie;
        manner.jobs_paused |= !may_have_jobs;
        let machines = open::start(&assembled, superblocks, &presented, manner);
        let data_offset = machines.members[0].data_offset();
        let superblock = machines.members[0].superblock_sectors();
        write_image(
            &mut disks,
            &geometry,
            data_offset,
            &first_content(geometry.capacity_sectors()),
        );
        let mut model = Model::new(geometry.capacity_sectors());
        bitmaps::scramble((&mut disks, data_offset), (design, &geometry), &mut model);
        bad_logs.write(&mut disks, &[]);
        let order = chances.order(Order::seeded(&mut random));
        let now = Instant(1_000_000_000);
        Self {
            model,
            metadata: Metadata::new(design),
            bad_logs,
            keeps_bits: (0..disks.len()).collect(),
            is_unsettled: false,
            was_replayed: false,
            half_written: BTreeSet::new(),
            cache_file: CacheFile::default(),
            has_accepted: false,
            taint: Taint::new(may_lie, disks.len(), (data_offset, superblock)),
            geometry,
            may_have_jobs,
            others_percent: parity_logs::OTHERS_PERCENT,
            disks,
            out: BTreeSet::new(),
            unsure: BTreeSet::new(),
            came: BTreeSet::new(),
            replaced: BTreeSet::new(),
            absent: BTreeSet::new(),
            chances,
            clock: Clock { step: 1, now },
            next_request: RequestId(1),
            trace,
            tally: Tally { worlds: 1, ..Tally::default() },
            engine: Engine::new(machines, order, now),
        }
    }

    fn count_kind(&mut self) {
        let design = self.metadata.design;
        if design.spares > 0 {
            self.tally.count("with-spares");
        }
        if design.has_bad_blocks {
            self.tally.count("bad-block-logs");
        }
        if design.bit_sectors > 0 {
            self.tally.count("bitmaps");
        }
        if design.lockless.is_some() {
            self.tally.count("bitmaps-lockless");
        }
        if design.log_sectors > 0 {
            self.tally.count("parity-logs");
        }
        if design.log_is_own {
            self.tally.count("own-logs");
        }
        if design.journal_blocks > 0 {
            self.tally.count("journals");
        }
        if design.version == braid_ondisk::Version::V0_90 {
            self.tally.count("superblocks-0.90");
        }
        if design.has_long_superblocks() {
            self.tally.count("long-superblocks");
        }
    }

    /// Runs up to `cycles` cycles; stops early if the array cannot be started any more.
    pub(crate) fn run(&mut self, cycles: u64) {
        self.count_kind();
        let mut random = self.chances.of(Purpose::Elevators, 1);
        self.set_elevators(&mut random);
        for cycle in 0..cycles {
            if !self.chances.begin(cycle) {
                continue;
            }
            self.trace.label(Number { cycle, item: None });
            self.note("cycle", [cycle, 0, 0]);
            self.work();
            let end = self.end();
            self.tally.cycles += 1;
            if !self.recover(end) {
                self.tally.count("world-over");
                return;
            }
        }
    }

    /// Clients submit requests and disks fail, until a drawn step.
    fn work(&mut self) {
        let mut workload = Workload::any(self);
        let mut random = self.chances.of(Purpose::Ends, 0);
        let steps = 1 + random.below(20 + 50 * workload.requests);
        let standing = self.standing();
        let times = (self.clock.step, steps);
        self.engine.plan = fault::plan(&standing, &self.disks, times, &self.chances);
        self.plan_lies(times);
        self.plan_tuning(times);
        self.plan_elevators(times);
        self.plan_pauses(times);
        self.plan_background(times);
        self.plan_joins(times);
        self.plan_bitmap(times);
        self.plan_log_changes(times);
        self.plan_allowances(times);
        self.trust();
        let moment = Moment::any(self);
        let end = self.clock.step + steps;
        let cut_from = self.clock.step + random.below(steps);
        let cuts_superblocks = self.metadata.design.has_long_superblocks() && random.chance(40);
        while self.clock.step < end {
            if cuts_superblocks && self.clock.step > cut_from && self.superblocks_may_tear() {
                break;
            }
            let may_issue =
                workload.is_ready(self) && self.engine.clients.in_flight() < workload.in_flight_max;
            match self.step(may_issue) {
                StepResult::Issue => workload.issue(self),
                StepResult::Nothing if self.engine.plan.faults.is_empty() => break,
                StepResult::Nothing
                | StepResult::Tick
                | StepResult::Stalled
                | StepResult::Something => {}
            }
        }
        if let Some(moment) = moment {
            self.seize(moment);
        }
    }

    pub(crate) fn standing(&self) -> ArrayCondition {
        let view = &self.engine.machines.shards[0].view;
        // A member under recovery does not count as present yet.
        let holds_all = |member: &&MemberView| member.recovered_sectors == u64::MAX;
        let disk = |slot: u16| {
            view.member(Slot(slot)).filter(holds_all).map(|member| self.disk_index(member.id))
        };
        let journal = self.metadata.design.journal_disk();
        ArrayCondition {
            geometry: self.geometry.clone(),
            occupants: (0..self.geometry.slots()).map(disk).collect(),
            spares: self.spares().filter(|disk| Some(*disk) != journal).collect(),
            journal,
            is_dirty: view.resync_offset != u64::MAX,
            logged: self.bad_logs.together().clone(),
        }
    }

    /// Sets which rules of the model hold in this run, by the faults that the run plans.
    pub(crate) fn trust(&mut self) {
        let is_dirty = self.standing().is_dirty;
        let is_mirror = self.geometry.level().family() == Family::Mirror;
        let plan = &self.engine.plan;
        let in_doubt = is_dirty && is_mirror || self.is_unsettled;
        let is_lying = plan.lies || !self.taint.is_calm();
        if in_doubt && is_lying {
            self.model.unpin();
        }
        let (errors_allowed, firmly) = (plan.errors_allowed, !in_doubt);
        let pins = !(errors_allowed || in_doubt && is_lying);
        self.engine.trust = Trust { errors_allowed, pins, pins_from: 0, firmly, lasts: firmly };
        self.tally.count(match (is_lying, errors_allowed) {
            (true, _) => "run-lying",
            (false, true) => "run-beyond",
            (false, false) => "run-within",
        });
        if !plan.victims.is_empty() {
            self.tally.count("run-with-faults");
        }
    }

    /// A disk fails. A dirty mirror returns one version of a sector while the copy that the mirror
    /// reads exists. After a fault it can return another version: from now on, or until it has
    /// handled the fault.
    pub(crate) fn doubt_copies(&mut self, mishap: Mishap) {
        if self.engine.trust.firmly {
            return;
        }
        match mishap {
            Mishap::BadSectors { .. } => self.engine.trust.pins_from = self.clock.step + 1,
            Mishap::Dies
            | Mishap::PowerCut
            | Mishap::WritesFail
            | Mishap::FlushesFail
            | Mishap::SuperblocksFail => self.engine.trust.pins = false,
            _ => return,
        }
        self.model.unpin();
    }

    /// The rules of the model for a read that ends now. The array rewrites an unreadable sector
    /// from another copy, which makes both copies alike. But a power cut can undo a rewrite that is
    /// in a disk's cache.
    pub(crate) fn trust_now(&self) -> Trust {
        let trust = self.engine.trust;
        Trust { lasts: trust.firmly || self.disks.iter().all(Disk::is_flushed), ..trust }
    }

    fn end(&mut self) -> End {
        let end = match self.chances.of(Purpose::Ends, 1).below(20) {
            0..13 => End::PowerCut,
            13..17 => End::Kill,
            _ => End::Stop,
        };
        let is_broken = |notice: &Notice| matches!(notice, Notice::Broken { .. });
        if self.engine.notices.iter().any(is_broken) && self.clock.step.is_multiple_of(2) {
            // A broken array takes no more writes, but its reads must still be right or fail.
            self.settle();
            self.read_all();
        }
        self.visit(match end {
            End::PowerCut => ArrayAction::PowerCut,
            End::Kill => ArrayAction::Kill,
            End::Stop => ArrayAction::Stop,
        });
        match end {
            End::PowerCut | End::Kill => self.crash(end == End::PowerCut),
            End::Stop => _ = self.stop(),
        }
        self.unsure.extend(self.engine.plan.victims.iter().copied());
        end
    }

    pub(crate) fn crash(&mut self, power: bool) {
        self.tally.count(if power { "power-cut" } else { "process-killed" });
        self.note(if power { "power-cut" } else { "killed" }, [0, 0, 0]);
        for event in self.engine.pending.drain() {
            if self.chances.disks.chance(50) {
                self.half_do(event);
            }
        }
        self.end_process(power);
        if power {
            self.lose_power();
        } else if self.engine.has_lost_cache {
            self.model.lose_power(false);
        }
        self.note_half_written();
    }

    pub(crate) fn lose_power(&mut self) {
        self.lose_cache_file();
        for (index, disk) in (0..).zip(&mut self.disks) {
            let mut random = self.chances.of(Purpose::PowerCuts, index);
            self.tally.sectors_undone += disk.lose_power(&mut random);
        }
        (0..self.disks.len()).for_each(|disk| self.check_confined(disk));
        self.taint.forget_asked();
        self.model.lose_power(true);
    }

    /// Power failed while a disk was doing a request: the disk does any part of the request,
    /// without an answer.
    fn half_do(&mut self, event: Event) {
        let id = event.waits_for();
        if id.is_none_or(|id| self.disks[self.disk_index(id)].ills.gone) {
            return;
        }
        self.tally.count("torn-request");
        match event {
            Event::Io(vector) => {
                for (shard, io) in vector.parts {
                    if io.operation.is_write() {
                        let (disk, start) = self.place_of(&io);
                        let (data, _) = self.bytes_to_write(shard, &io);
                        self.disks[disk].tear((start, &data), &mut self.chances.disks);
                        self.assess_write(disk, (start, u64::from(io.sectors)));
                    }
                }
            }
            Event::Superblock { member, state, time } => {
                self.bits_may_be_left_behind();
                let side = &mut self.engine.machines.members[usize::from(member.0)];
                side.superblock_for(&self.disks, member, (&state, time));
                let (disk, superblock) = (side.disk, side.superblock.clone());
                self.tear_superblock(disk, &superblock, Purpose::Disks);
            }
            Event::BadBlocks { member, write } => self.tear_bad_blocks(member, &write),
            Event::Bitmap { member, record } => self.tear_bitmap(member, &record),
            Event::ParityLog { member, record } => self.tear_parity_log(member, &record),
            Event::Journal { member, record, piece } => {
                self.tear_journal(member, &record, piece);
            }
            Event::Flush { member } => {
                let disk = self.disk_index(member);
                if !self.disks[disk].ills.flushes_lie {
                    self.disks[disk].settle();
                }
            }
            _ => {}
        }
    }

    /// Stops the array in order; returns whether it is clean.
    pub(crate) fn stop(&mut self) -> bool {
        self.tally.count("orderly-stop");
        self.settle();
        self.engine.machines.array.handle_stop(self.clock.now);
        self.drain_array();
        self.settle();
        self.has_stopped()
    }

    /// Checks an array that has stopped, with nothing in flight; returns whether it is clean. The
    /// array's disks then lose power and keep only flushed data.
    pub(crate) fn has_stopped(&mut self) -> bool {
        let stopped = self.engine.notices.iter().find_map(|notice| match notice {
            Notice::Stopped { clean } => Some(*clean),
            _ => None,
        });
        let clean = stopped.expect("a stopping array stops");
        assert!(clean || self.engine.trust.errors_allowed, "an orderly stop is clean");
        self.check_nothing_held();
        // A run without writes flushes nothing, so writes of an earlier, killed process can still
        // be in the disks' caches.
        if clean && self.engine.has_written {
            self.model.flushed(self.clock.step, u64::MAX);
        }
        self.lose_power();
        self.note_half_written();
        clean
    }

    /// Assembles the array, starts it and reads all of it; false if it cannot be started.
    fn recover(&mut self, end: End) -> bool {
        let mut can_be_read_again = false;
        for disk in &mut self.disks {
            disk.ills = DiskFaults::default();
            if self.chances.openings.chance(50) {
                can_be_read_again |= !disk.bad.is_empty();
                disk.bad.clear();
            }
        }
        if can_be_read_again {
            // Reads of an unreadable copy returned the other copy, and the array has not compared
            // the two copies.
            self.model.unpin();
        }
        self.look_at_bad_logs();
        self.check_bad_logs();
        self.damage_a_log();
        self.find_torn();
        self.check_spares_are_untouched();
        let presented = self.who_is_presented();
        let was_whole = end == End::Stop && self.engine.has_written && !self.standing().is_dirty;
        let is_told = !(0..self.disks.len()).any(|disk| self.is_superblock_tainted(disk));
        let must_be_clean = was_whole && is_told && !self.engine.trust.errors_allowed;
        if let Err(refusal) = self.open(&presented, must_be_clean) {
            let machines = &self.engine.machines;
            // A shard learns late that the array drops its parity logs, and begins no unlogged
            // write before it has learned that.
            let had_logs = machines.array.parity_logs().is_some();
            // A broken array has lost members, and can have lost their parity logs.
            let view = &machines.shards[0].view;
            let was_logged = had_logs && view.keeps_parity_logs && view.gate != Gate::Broken;
            let is_own = self.metadata.design.log_is_own;
            let is_in_doubt = matches!(refusal, Refusal::DirtyAndDegraded(_));
            let lacks_log =
                matches!(refusal, Refusal::PplNotReplayed { .. }) || is_own && is_in_doubt;
            // A refusal that the operator overrode recurs at each start until superblocks have
            // recorded "clean" once.
            let was_logged = was_logged && !self.has_accepted;
            assert!(!(lacks_log && was_logged), "the log is on disk: {refusal:?}");
            self.note("refused", [presented.len() as u64, 0, 0]);
            self.tally.count(match refusal {
                Refusal::DirtyAndDegraded(_) => "refused-write-hole",
                Refusal::PplNotReplayed { .. } => "refused-without-a-log",
                Refusal::RolesContradict { .. } => "refused-contradictory",
                Refusal::NoMembers { .. } => "refused-all-torn",
                Refusal::JournalMissing { .. } => "refused-without-its-journal",
                _ => "refused-too-few",
            });
            let mut all: Vec<usize> = (0..self.disks.len()).collect();
            self.chances.openings.shuffle(&mut all);
            let accepted = self.may_accept(&refusal);
            if accepted.is_some() && self.open_accepting(&presented, false, accepted).is_ok() {
                self.tally.count("risk-accepted");
            } else if presented.len() == all.len() || self.open(&all, must_be_clean).is_err() {
                return false;
            }
        }
        self.visit(ArrayAction::Reopen);
        let content = self.read_all();
        let standing = self.standing();
        let is_whole = !standing.is_dirty && standing.occupants.iter().all(Option::is_some);
        if let Some(content) = content.filter(|_| !is_whole && self.chances.openings.chance(60)) {
            self.rebuild(&content);
        }
        true
    }

    /// Draws the disks to present, and their order: mostly all disks, at least one without faults.
    fn who_is_presented(&mut self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.disks.len()).collect();
        self.chances.openings.shuffle(&mut all);
        if self.chances.openings.chance(65) {
            return all;
        }
        let is_mirror = self.geometry.level().family() == Family::Mirror;
        let several = if all.len() > 3 || is_mirror && all.len() == 3 { 2 } else { 1 };
        let withheld = 1 + self.chances.openings.below(several) as usize;
        let mut rest: Vec<usize> = all[withheld.min(all.len())..].to_vec();
        if self.chances.openings.chance(40) {
            // A dirty, degraded array starts only if the missing members hold parity alone.
            let members =
                all.iter().copied().filter(|disk| *disk < usize::from(self.geometry.slots()));
            let without_data = |disk: &usize| !verdicts::holds_data(&self.geometry, *disk as u16);
            let spared: Vec<usize> = members.filter(without_data).collect();
            if !spared.is_empty() {
                let count = 1 + self.chances.openings.below(spared.len() as u64) as usize;
                rest = all.iter().copied().filter(|one| !spared[..count].contains(one)).collect();
            }
        }
        let is_sure = |disk: &usize| {
            let is_told = !self.out.contains(disk) && !self.is_superblock_tainted(*disk);
            is_told && !self.unsure.contains(disk) && !self.is_spare(*disk)
        };
        if !rest.iter().any(is_sure) {
            return all;
        }
        self.tally.count("disks-withheld");
        rest
    }

    /// Gives every disk the right content while the array is stopped, as md's resync and recovery
    /// do. Then starts the array again.
    pub(crate) fn rebuild(&mut self, content: &[u8]) {
        self.tally.count("rebuilt-offline");
        self.note("rebuilt", [0, 0, 0]);
        let data_offset = self.engine.machines.members[0].data_offset();
        self.agree_on(content);
        write_image(&mut self.disks, &self.geometry, data_offset, content);
        let design = self.metadata.design;
        let keeps_logs = self.chances.of(Purpose::BadBlocks, 3).chance(60);
        // If false, bitmaps stay unchanged, as if a server without bitmaps had rebuilt the array.
        let keeps_bitmaps = self.chances.of(Purpose::Bitmaps, 1).chance(70);
        // If false, own logs stay unchanged, and the superblocks no longer call them valid.
        let keeps_own_logs = self.chances.of(Purpose::ParityLogs, 1).chance(50);
        let update = SuperblockUpdate {
            events: self.engine.machines.array.events() + 2,
            update_time: self.engine.machines.times.next(),
            resync_offset: u64::MAX,
            roles: design.roles(),
            recovery_offset: None,
            is_replacement: false,
            role_of_this: Role::Spare,
        };
        // The newest superblock says whether the array has a bitmap or a log. Older superblocks can
        // be outdated.
        let found = self.disks.iter().enumerate();
        let found = found.map(|(index, disk)| open::probe_disk(disk, index).probe);
        let newest = found.filter_map(|probe| probe.newest().cloned());
        let newest = newest.max_by_key(|superblock| superblock.state.events);
        let intent = newest.map(|superblock| superblock.intent);
        let bitmap = intent.map(|intent| intent.bitmap_offset_sectors);
        let ppl = intent.map(|intent| intent.ppl);
        self.keeps_bits.clear();
        for (index, disk) in self.disks.iter_mut().enumerate() {
            // If the disk lied about its superblock, `heal` restores the true superblock.
            disk.heal(self.taint.superblock.clone());
            let probed = open::probe_disk(disk, index);
            let found = probed.probe.newest().cloned();
            let mut superblock = found.unwrap_or_else(|| design.superblock(index));
            let role_of_this = design.role(index);
            superblock.apply(&SuperblockUpdate { role_of_this, ..update.clone() });
            if let Some(place) = ppl {
                superblock.name_ppl(place);
            }
            if bitmap.is_some_and(|offset| offset != superblock.intent.bitmap_offset_sectors) {
                superblock.set_bitmap(bitmap.flatten());
            }
            if Some(index) == design.journal_disk() {
                // With this sequence number, a replay does not take old blocks in the ring for
                // successors of the new first block.
                design.put_empty_journal(disk, &superblock, 1_000_000 * update.events);
                superblock.set_journal_tail(0, update.events);
            }
            self.bad_logs.renew((index, disk), &mut superblock, keeps_logs);
            if keeps_bitmaps {
                self.keeps_bits.insert(index);
                bitmaps::renew(disk, &superblock, (&design, true), &self.geometry);
            }
            if keeps_own_logs || !design.log_is_own {
                design.put_empty_log(disk, &superblock);
            }
            disk.put(superblock.offset_bytes() / SECTOR as u64, &superblock.to_bytes(), true);
            disk.bad.clear();
        }
        self.bad_logs.gather(&self.geometry);
        self.out.clear();
        self.unsure.clear();
        self.half_written.clear();
        self.was_replayed = false;
        self.metadata.forget();
        let mut all: Vec<usize> = (0..self.disks.len()).collect();
        self.chances.openings.shuffle(&mut all);
        let assembled = self.open(&all, true);
        assert!(assembled.is_ok_and(|array| array.degraded == 0), "a rebuilt array is whole");
    }
}

/// Writes the bytes that members must hold for `content`, durably.
fn write_image(disks: &mut [Disk], geometry: &Geometry, data_offset: u64, content: &[u8]) {
    for (disk, data) in disks.iter_mut().zip(image(geometry, content)) {
        disk.put(data_offset, &data, false);
        disk.settle();
    }
}

pub(crate) fn manner(random: &mut Random, cut: &Cut) -> Manner {
    let shards = *random.pick(&[1, 1, 2]);
    Manner {
        read_only: false,
        shards: if cut.one_shard { 1 } else { shards },
        cache: cache::any(random, cut),
        jobs_paused: random.chance(50),
        zero_is_fast: random.chance(50),
        clean_delay_ms: CLEAN_DELAY_MS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::version_of;
    use crate::create::smallest;

    /// Proves that a checker can fail: the checker notices old bytes where a write was flushed.
    #[test]
    #[should_panic(expected = "reads as version 1, not one of")]
    fn a_disk_that_loses_a_flushed_write_is_noticed() {
        let mut world =
            World::create(&smallest(), Chances::new(1, Cut::default()), Trace::new(false));
        let old = world.disks.clone();
        world.issue(braid_engine::request::Operation::Write { durable: false }, 0, 1);
        world.settle();
        world.flush();
        world.settle();
        world.stop();
        let (disk, start) = (0..4)
            .find_map(|disk| {
                let differs = |sector: &u64| {
                    let range = crate::content::bytes(*sector, 1);
                    old[disk].seen[range.clone()] != world.disks[disk].seen[range]
                        && version_of(0, &old[disk].seen[crate::content::bytes(*sector, 1)])
                            == Some(1)
                };
                (0..168).find(differs).map(|sector| (disk, sector))
            })
            .expect("the write is on a disk");
        let range = crate::content::bytes(start, 1);
        world.disks[disk].seen[range.clone()].copy_from_slice(&old[disk].seen[range]);
        world.read_all();
    }
}
