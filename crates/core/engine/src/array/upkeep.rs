//! Carries out work that no client asked for: jobs' results, bad-block logs, slots without a
//! member. [`super::jobs`] decides the next step.

use braid_geometry::MemberSector;
use braid_sim_hooks::{Bug, Mark, reached, spoiled};
use smallvec::SmallVec;

use super::effect::{ArrayEffect, MetadataRecord, Notice};
use super::jobs::{JobAction, SavedProgress, UnmadeSector, UpkeepAction, decide_job};
use super::machine::Array;
use super::order::{Activity, FlushPurpose};
use super::superblocks::UpdateReason;
use crate::Instant;
use crate::cause::Cause;
use crate::ids::{MemberId, WorkId};
use crate::ranges::BadRange;
use crate::work::Outcome;

impl Array {
    pub(super) fn act_on_upkeep(&mut self, action: UpkeepAction, now: Instant) {
        match action {
            UpkeepAction::TreatErring => self.treat_erring(now),
            UpkeepAction::TakeSpare => self.take_spare(now),
            // The array records the replacement as a loss of the old member. Before that,
            // superblocks must have recorded that the new member holds all data. Otherwise a power
            // cut could leave some superblocks that call the old member out. The new member's own
            // superblock would still say that it holds little.
            UpkeepAction::Replace => {
                let filled = self.roster.filled().expect("one holds all");
                let is_said = self.tells_all();
                let is_said = spoiled(Bug::ReplacesEarly, is_said, true);
                assert!(is_said, "superblocks say so");
                let old = self.roster.replace(filled);
                self.out.push(ArrayEffect::Leave { member: old });
            }
            UpkeepAction::WriteBadBlocks => self.write_bad_blocks(),
            UpkeepAction::FlushForJob => self.flush(FlushPurpose::Job),
            UpkeepAction::Job => self.job_step(now),
        }
    }

    /// Called when a flush for a job has ended: the job's flushed progress is durable.
    pub(super) fn note_offsets(&mut self, now: Instant) {
        let Some(saved) = self.jobs.flush_ended(now) else { return };
        let is_news = match saved {
            SavedProgress::Resync(to) => {
                let is_further = to >= self.condition.resync_offset;
                let is_further = spoiled(Bug::OffsetAhead, is_further, true);
                assert!(is_further, "I7: what was in sync stays so");
                let is_said = self.superblocks.on_disk() == Activity::Clean;
                self.condition.resync_offset = to;
                if to == u64::MAX {
                    self.consistency.is_resynced();
                }
                // Active superblocks request a resync of the whole array: only clean ones record
                // the offset.
                self.out.publish_if(!is_said);
                is_said
            }
            // The bitmap records this progress, superblocks do not.
            SavedProgress::Lazy { to, failed } => {
                self.consistency.is_synced(to, &failed, &mut self.out);
                false
            }
            SavedProgress::Recovery(members, to) => {
                let mut is_news = false;
                for member in members {
                    is_news |= self.roster.is_recovered(member, to);
                    let slot = self.roster.slot_of(member).filter(|_| to == u64::MAX);
                    if let Some(slot) = slot {
                        self.superblocks.is_recovered(member, slot);
                    }
                }
                is_news
            }
            SavedProgress::Replacement(members, to) => {
                let mut is_news = false;
                for member in members {
                    is_news |= self.roster.is_filled(member, to);
                }
                is_news
            }
        };
        self.out.change_if(is_news);
    }

    /// Writes every bad-block log that differs from its wanted content.
    fn write_bad_blocks(&mut self) {
        let due: SmallVec<[MemberId; 2]> = self.due_bad_blocks().collect();
        assert!(!due.is_empty(), "one is to be written");
        for member in due {
            let record = MetadataRecord::BadBlocks(self.bad_logs.begin(member));
            self.out.push(ArrayEffect::WriteMetadata { member, record });
        }
    }

    /// Members of the array whose bad-block log must be written.
    pub(super) fn due_bad_blocks(&self) -> impl Iterator<Item = MemberId> {
        self.roster.superblock_targets(false).filter(|member| self.bad_logs.is_due(*member))
    }

    /// Called when the write of a bad-block log is durable, or has failed.
    pub(super) fn bad_blocks_written(&mut self, member: MemberId, is_written: bool) {
        // Superblocks record whether a log names any range.
        let is_news = self.bad_logs.ended(member, is_written);
        self.out.change_if(is_news);
        self.tell_bad_blocks(member);
    }

    /// Gives shards the ranges of a member that its bad-block log names, or is about to name.
    pub(super) fn tell_bad_blocks(&mut self, member: MemberId) {
        let Some(bad) = self.bad_logs.bad_blocks(member) else { return };
        let is_news = self.roster.set_bad_blocks(member, bad);
        self.out.publish_if(is_news);
    }

    /// Handles a member's failed rewrite of bad sectors: the member's bad-block log gets the
    /// sectors. If the log has no room, the member is lost.
    pub(super) fn is_unmended(&mut self, cause: Cause, range: BadRange) {
        let has_room = self.bad_logs.mark(cause.member, range);
        if !has_room {
            return self.fail_member(cause);
        }
        self.tell_bad_blocks(cause.member);
    }

    /// Takes the outcome of a job's work. If some sectors cannot be computed, the logs of members
    /// that lack the sectors name them. When the logs are durable the job repeats the work, since
    /// clients may have written the sectors meanwhile; then the job gives the sectors up.
    pub(super) fn work_done(&mut self, now: Instant, id: WorkId, outcome: Outcome) {
        let unmade = self.jobs.work_done(now, id, outcome);
        let passed = self.jobs.passed();
        self.out.extend(passed.map(|far| ArrayEffect::Notice(Notice::JobPassed(far))));
        if let Some((targets, range)) = self.jobs.take_ahead() {
            for target in targets {
                let is_news = self.roster.holds_ahead(target, range);
                self.out.publish_if(is_news);
            }
        }
        let Some(UnmadeSector { at, fills, lacks }) = unmade else { return };
        let (mut sectors, mut is_new) = (0, false);
        for (member, range) in lacks {
            let Some(range) = self.lacked(member, range, fills) else { continue };
            sectors += range.sectors;
            if self.jobs.has_marked(member, range) {
                continue;
            }
            if !self.bad_logs.mark(member, range) {
                return self.jobs.cannot_go_on();
            }
            self.jobs.marks(member, range);
            self.tell_bad_blocks(member);
            is_new = true;
        }
        if !is_new {
            self.jobs.gives_up(at, sectors);
        }
    }

    /// The part of a range that a member lacks. For a member that a job fills, only the sectors
    /// past its recovery offset; for any other member, the whole range.
    fn lacked(&self, member: MemberId, range: BadRange, fills: bool) -> Option<BadRange> {
        let is_held = fills && self.roster.holds(member, range);
        if is_held {
            return None;
        }
        let is_in = self.roster.slot_of(member).is_some();
        let held = if fills { self.roster.held(member) } else { is_in.then_some(0) };
        let (start, end) = (range.start.0, range.start.0 + range.sectors);
        let from = start.max(held?);
        (from < end).then(|| BadRange { start: MemberSector(from), sectors: end - from })
    }

    fn job_step(&mut self, now: Instant) {
        let has_unrecorded = !self.tells_all();
        let mut jobs = std::mem::take(&mut self.jobs);
        let context = self.jobs_context();
        let mut effects = SmallVec::<[ArrayEffect; 2]>::new();
        match decide_job(&jobs.facts(now, &context, has_unrecorded)) {
            JobAction::Wait => {}
            JobAction::Begin => {
                let progress = jobs.begin(now, &context);
                let is_told = !jobs.is_quiet();
                effects.extend(is_told.then_some(ArrayEffect::Notice(Notice::JobBegan(progress))));
            }
            JobAction::Ask => {
                let asked = jobs.ask(now, &context);
                effects.extend(asked.map(|(shard, work)| ArrayEffect::Work { shard, work }));
            }
            JobAction::Save => jobs.save(),
            JobAction::End => {
                let is_told = !jobs.is_quiet();
                let (progress, end) = jobs.end(&context);
                let ended = Notice::JobEnded { progress, end };
                effects.extend(is_told.then_some(ArrayEffect::Notice(ended)));
            }
        }
        self.jobs = jobs;
        self.out.extend(effects);
    }

    /// Gives a spare to a slot without a member, or to a slot whose member must be replaced.
    /// Superblocks record the spare's role before any shard writes to it.
    fn take_spare(&mut self, now: Instant) {
        reached(Mark::SpareTaken);
        let Self { roster, away, .. } = self;
        roster.take_in_spare(|slot| away.keeps(slot, now));
        self.write_superblocks(self.superblocks.on_disk(), UpdateReason::Devices);
    }
}
