//! The world's background work: it asks shards to compare bands, and checks the results.

use std::ops::Range;

use braid_engine::array::{Gate, JobEnd, JobKind, JobProgress, MemberId};
use braid_engine::effect::Report;
use braid_engine::work::{Class, Difference, Finding, Outcome, Task, Work, WorkId};
use braid_geometry::Geometry;

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::open::Message;
use crate::world::World;

/// Faults of a cycle are numbered. Numbers from here on are comparisons of bands.
const FIRST_ORDINAL: u64 = 4000;

/// The first name for work that the simulator requests. The names of jobs' work begin at 0.
const FIRST_ID: u64 = 1 << 63;

/// Percentage of runs in which the simulator requests background work.
const PERCENT: u64 = 30;

impl World {
    /// Adds comparisons of bands to the plan of a run of about `steps` steps from `now` on.
    pub(crate) fn plan_background(&mut self, (now, steps): (u64, u64)) {
        let Geometry::Stripe(stripe) = &self.geometry else { return };
        let rows = stripe.rows();
        let mut random = self.chances.of(Purpose::Background, 0);
        if !random.chance(PERCENT) {
            return;
        }
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + 1 + random.below(24) {
            let step = now + random.below(steps);
            // Only the first rows are compared, so that comparisons meet clients' writes.
            let mishap = Mishap::Compares { row: random.below(rows.min(6)), seed: random.next() };
            if !self.chances.leaves_out(Kind::Fault, ordinal) {
                self.engine.plan.faults.push(Fault { step, disk: 0, mishap, ordinal });
            }
        }
    }

    /// Asks the shard that owns a chunk row to compare one band of that row.
    pub(crate) fn ask_for_comparison(&mut self, row: u64, seed: u64) {
        let Geometry::Stripe(stripe) = &self.geometry else { return };
        let row = braid_geometry::ChunkRow(row);
        let machines = &mut self.engine.machines;
        let shard = machines.regions.shard_of(stripe.logical(row, 0, 0));
        let side = &mut machines.shards[usize::from(shard.0)];
        let unit = u64::from(side.shard.block_sectors());
        let bands = u64::from(stripe.chunk_sectors()) / unit;
        let class = if seed.is_multiple_of(2) { Class::Idle } else { Class::BestEffort };
        let start = stripe.row_start(row).0 + seed / 2 % bands * unit;
        let sectors = side.shard.block_sectors();
        // No comparison during a resync: parity written by the resync would look like rot to work
        // that began before.
        let band = start..start + u64::from(sectors);
        let may_be_synced = side.view.resync_offset != u64::MAX || !side.view.is_synced(&band);
        if self.may_have_jobs && may_be_synced {
            return;
        }
        // A lying disk can mislead a repair (docs/operating.md). Without lies a repair writes
        // nothing.
        let repairs = seed >> 40 & 1 == 1 && !self.engine.plan.lies && self.taint.is_calm();
        let task = if repairs { Task::Repair } else { Task::Compare };
        let background = &mut self.engine.background;
        let id = WorkId(FIRST_ID + background.next);
        background.next += 1;
        let work = Work { id, class, task, start, sectors };
        background.asked.insert(id, work);
        side.inbox.push_back(Message::Work(work));
    }

    pub(crate) fn take_result(&mut self, shard: usize, report: &Report) -> bool {
        if let Report::Found { id, found } = *report {
            return self.take_finding(shard, id, found);
        }
        let Report::WorkDone { id, outcome } = *report else { return false };
        if id.0 < FIRST_ID {
            return false; // A job of the array asked for the work.
        }
        let work = self.engine.background.asked.remove(&id).expect("work has one result");
        self.note("work-done", [id.0, work.start, u64::from(outcome == Outcome::Unreadable)]);
        let sectors = work.start..work.start + u64::from(work.sectors);
        let difference = match outcome {
            Outcome::Compared(difference) => difference,
            Outcome::Checked { differing: 0, .. } => {
                self.tally.count("bands-solved");
                Difference::default()
            }
            Outcome::Checked { .. } => {
                self.tally.count("bands-differ");
                assert!(self.may_differ(shard, &sectors), "parity of {work:?} is wrong");
                return true;
            }
            Outcome::Unreadable => {
                self.tally.count("work-refused");
                return true;
            }
            // A repair met an unreadable sector, and the member failed the rewrite.
            Outcome::Unwritten if work.task == Task::Repair => {
                self.tally.count("work-unwritten");
                return true;
            }
            Outcome::CopiesCompared { .. }
            | Outcome::Done { .. }
            | Outcome::Unmade { .. }
            | Outcome::Unwritten => {
                unreachable!("bands of parity are compared, and nothing is written: {outcome:?}")
            }
            Outcome::SitsOut => {
                self.tally.count("work-sits-out");
                return true;
            }
        };
        self.tally.count("bands-compared");
        if difference != Difference::default() {
            self.tally.count("bands-differ");
            assert!(
                self.may_differ(shard, &sectors),
                "parity of {work:?} is wrong: {difference:?}"
            );
        }
        true
    }

    /// A shard reports rot that work found: checks that parity of these sectors can be wrong. True
    /// if the simulator, and no job, asked for the work.
    fn take_finding(&mut self, shard: usize, id: WorkId, found: Finding) -> bool {
        self.tally.count("findings");
        if id.0 < FIRST_ID {
            return false;
        }
        let (start, sectors) = match found {
            Finding::Rot { start, sectors, .. } | Finding::Ambiguous { start, sectors, .. } => {
                (start.0, u64::from(sectors))
            }
            Finding::Lost { .. } => unreachable!("only a reshape loses sectors"),
        };
        let may_differ = self.may_differ(shard, &(start..start + sectors));
        assert!(may_differ, "{id:?} reports rot that does not exist: {found:?}");
        true
    }

    /// A job reports progress: checks that it passed another fifth of its range.
    pub(crate) fn job_passed(&mut self, progress: &JobProgress) {
        self.note("job-passes", [progress.kind as u64, progress.done, progress.end]);
        self.tally.count("job-passed-a-fifth");
        let parts = progress.done * 5 / progress.end;
        let before = std::mem::replace(&mut self.engine.background.passed, parts);
        assert!(before < parts && parts < 5, "{parts} fifths after {before}: {progress:?}");
    }

    /// A job begins at an offset. Fifths of its range below that offset count as passed.
    pub(crate) fn job_began(&mut self, progress: &JobProgress) {
        self.engine.background.passed = progress.done * 5 / progress.end.max(1);
        self.note("job", [progress.kind as u64, progress.done, progress.end]);
        self.tally.count(match progress.kind {
            JobKind::Resync => "resync-began",
            JobKind::Recovery => "recovery-began",
            JobKind::Replace => "replace-began",
            JobKind::Check => "check-began",
            JobKind::Repair => "repair-began",
            JobKind::Reshape => "reshape-began",
        });
    }

    pub(crate) fn job_ended(&mut self, progress: &JobProgress, end: JobEnd) {
        self.note("job-over", [progress.kind as u64, progress.done, progress.end]);
        self.tally.count(match (progress.kind, end) {
            (JobKind::Resync, JobEnd::Completed) => "resync-completed",
            (JobKind::Recovery, JobEnd::Completed) => "recovery-completed",
            (JobKind::Replace, JobEnd::Completed) => "replace-completed",
            (JobKind::Check, JobEnd::Completed) => "check-completed",
            (JobKind::Repair, JobEnd::Completed) => "repair-completed",
            (JobKind::Reshape, JobEnd::Completed) => "reshape-completed",
            (_, JobEnd::Interrupted) => "job-interrupted",
            (_, JobEnd::TargetLost) => "job-target-lost",
            (_, JobEnd::Unreadable) => "job-unreadable",
            (_, JobEnd::Unwritten) => "job-unwritten",
        });
    }

    pub(crate) fn recovered(&mut self, member: MemberId) {
        self.note("recovered", [u64::from(member.0), 0, 0]);
        self.tally.count("member-recovered");
    }

    /// Whether parity of these member sectors may differ from the data, or was never computed.
    fn may_differ(&self, shard: usize, sectors: &Range<u64>) -> bool {
        let view = &self.engine.machines.shards[shard].view;
        let was_in_sync = view.resync_offset == u64::MAX && view.is_synced(sectors);
        let is_honest = self.taint.is_calm() && !self.engine.plan.lies;
        let lost_nothing = self.engine.lost.is_empty();
        let goes_on = matches!(view.gate, Gate::Open | Gate::Closed);
        !(was_in_sync && is_honest && lost_nothing && goes_on)
    }
}
