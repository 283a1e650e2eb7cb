//! The machine of jobs: the current job, its next requests, and their outcomes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use braid_geometry::{Geometry, Level, MemberSector, Slot};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};
use smallvec::SmallVec;

use super::allowance::{JobAllowance, JobFlow, RemainingAllowance};
use super::context::{JobsContext, is_whole};
use super::cursor::{Cursor, Run};
use super::decide::Facts;
use super::job::{Axis, Job, PARTS, Saving, WorkInFlight, named};
use super::{JobEnd, JobKind, JobProgress, JobRequest};
use crate::Instant;
use crate::ids::{MemberId, ShardIndex, WorkId};
use crate::ranges::{BadBlocks, BadRange, MemberRange};
use crate::work::{Fate, Finding, Outcome, Task, Work};

/// Limit of the findings that a job reports one by one; it only counts further findings. A wholly
/// rotten member would otherwise cause a report for each stripe.
const FINDINGS_TOLD_MAX: u32 = 1000;

/// The most ranges that wait to be recovered early because clients read them.
const WANTED_MAX: usize = 16;
/// The most ranges recovered ahead of the job: each is an entry in every view.
const AHEAD_MAX: usize = 1024;

const NO_JOB: &str = "a reshape is a machine of its own, and no job of shards";

/// Milliseconds between two records of a job's progress in superblocks.
const SAVE_EVERY_MS: u64 = 5000;

/// Milliseconds after which the job repeats work that a slow member held up.
const REPEAT_AFTER_MS: u64 = 100;

#[derive(Debug)]
struct Choice {
    kind: JobKind,
    is_quiet: bool,
    retries: bool,
    axis: Axis,
    from: u64,
    end: u64,
    targets: SmallVec<[MemberId; 2]>,
}

/// A sector that a job could not compute, and the members that lack it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct UnmadeSector {
    /// The sector's place, in the job's unit.
    pub(in super::super) at: u64,
    /// The job fills members: ranges that a member holds already do not count.
    pub(in super::super) fills: bool,
    /// The members, and the range that each lacks.
    pub(in super::super) lacks: Vec<(MemberId, BadRange)>,
}

/// A job's progress that is durable, because members have flushed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum SavedProgress {
    /// Redundancy agrees below this offset; `u64::MAX` for everywhere.
    Resync(u64),
    /// Redundancy agrees in due sectors below `to`, except `failed`.
    Lazy {
        /// The job's offset.
        to: u64,
        /// Ranges that the job failed to make agree so far.
        failed: Vec<Range<u64>>,
    },
    /// These members are up to date below this offset; `u64::MAX` for everywhere.
    Recovery(SmallVec<[MemberId; 2]>, u64),
    /// These replacements are up to date below this offset; `u64::MAX` for everywhere.
    Replacement(SmallVec<[MemberId; 2]>, u64),
}

#[derive(Debug, Default)]
pub(in super::super) struct Jobs {
    job: Option<Job>,
    next_work: u64,
    is_paused: bool,
    /// The check or repair that an operator asked for, and whether it retries ranges in logs.
    wanted: Option<(JobKind, bool)>,
    allowance: RemainingAllowance,
    flow: JobFlow,
    /// The kind of a job that failed. No job of that kind begins before members come or go, or the
    /// operator resumes jobs.
    refused: Option<JobKind>,
    /// Members were filled, so the ranges in other members' bad-block logs may be computable now.
    remakes: bool,
}

impl Jobs {
    pub(in super::super) fn new(is_paused: bool) -> Self {
        Self { is_paused, ..Self::default() }
    }

    pub(in super::super) fn handle_request(&mut self, request: JobRequest) {
        match request {
            JobRequest::Check => self.wanted = Some((JobKind::Check, false)),
            JobRequest::Repair => self.wanted = Some((JobKind::Repair, false)),
            JobRequest::RetryBad => self.wanted = Some((JobKind::Check, true)),
            JobRequest::EndCheck => self.wanted = None,
            JobRequest::Pause => self.is_paused = true,
            JobRequest::Resume => {
                self.is_paused = false;
                self.refused = None;
            }
        }
    }

    /// Sets the job's allowance until the next call.
    pub(in super::super) fn handle_allowance(&mut self, allowance: JobAllowance) {
        self.allowance.set(allowance);
    }

    pub(in super::super) fn flow(&self) -> JobFlow {
        self.flow
    }

    /// Called when members have come or gone: work that failed may succeed now.
    pub(in super::super) fn membership_changed(&mut self) {
        self.refused = None;
    }

    pub(in super::super) fn is_there(&self) -> bool {
        self.job.is_some()
    }

    pub(in super::super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(in super::super) fn progress(&self) -> Option<JobProgress> {
        self.job.as_ref().map(|job| job.progress(self.is_paused))
    }

    /// The most urgent job, if a job is due.
    fn choice(&self, context: &JobsContext<'_>) -> Option<Choice> {
        let JobsContext { geometry, roster, resync_offset, .. } = *context;
        let may = |kind: JobKind| self.refused != Some(kind);
        let (axis, end) = match geometry {
            Geometry::Direct(_) => return None,
            Geometry::Stripe(stripe) => (Axis::Bands, stripe.used_sectors()),
            Geometry::Mirror(mirror) => (Axis::Array, mirror.capacity_sectors()),
        };
        if resync_offset != u64::MAX {
            let (from, targets) = (resync_offset, SmallVec::new());
            let (kind, is_quiet, retries) = (JobKind::Resync, false, false);
            let end = end.min(context.resync_end);
            let choice = Choice { kind, is_quiet, retries, axis, from, end, targets };
            return may(JobKind::Resync).then_some(choice);
        }
        // Shards compute nothing for a newcomer, which they do not see yet.
        let is_known = |member: MemberId| !roster.is_newcomer(member);
        let fills = |kind: JobKind, lacking: &[(Slot, MemberId, u64)]| {
            let (slot, member, from) = *lacking.iter().min_by_key(|(.., from)| *from)?;
            let moves_together = geometry.level() != Level::Raid10;
            let is_target = |id: &MemberId| moves_together || *id == member;
            let targets = lacking.iter().map(|(_, id, _)| *id).filter(is_target).collect();
            let axis = match geometry {
                Geometry::Stripe(_) => Axis::Bands,
                Geometry::Mirror(_) | Geometry::Direct(_) => Axis::Member(slot),
            };
            let end = geometry.used_sectors(slot);
            let (is_quiet, retries) = (false, false);
            Some(Choice { kind, is_quiet, retries, axis, from, end, targets })
        };
        let known = |(_, member, _): &(Slot, MemberId, u64)| is_known(*member);
        let lacking: SmallVec<[_; 2]> = roster.recovering().filter(known).collect();
        if let Some(choice) = fills(JobKind::Recovery, &lacking) {
            return may(JobKind::Recovery).then_some(choice);
        }
        let lacks = |(.., at): &(Slot, MemberId, u64)| *at != u64::MAX;
        let lacking = roster.replacements().filter(lacks).filter(known);
        let lacking: SmallVec<[_; 2]> = lacking.collect();
        if let Some(choice) = fills(JobKind::Replace, &lacking) {
            return may(JobKind::Replace).then_some(choice);
        }
        let targets = SmallVec::new();
        let is_checking = self.job.as_ref().is_some_and(|job| job.kind.is_check());
        let due = context.lazy.filter(|_| !is_checking && is_whole(roster));
        if let Some(from) = due.and_then(|(due, _)| due.next_sector(0))
            && may(JobKind::Resync)
        {
            return Some(Choice {
                kind: JobKind::Resync,
                is_quiet: true,
                retries: false,
                axis,
                from,
                end,
                targets,
            });
        }
        // A check that the operator requested also does the work of a quiet check.
        if let Some((kind, retries)) = self.wanted.filter(|_| roster.missing_count() == 0) {
            return Some(Choice { kind, is_quiet: false, retries, axis, from: 0, end, targets });
        }
        let is_due = self.remakes && is_whole(roster) && roster.named_sectors() > 0;
        let kind = JobKind::Check;
        let (is_quiet, retries) = (true, false);
        is_due.then_some(Choice { kind, is_quiet, retries, axis, from: 0, end, targets })
    }

    pub(in super::super) fn is_quiet(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_quiet)
    }

    pub(in super::super) fn is_due(&self, context: &JobsContext<'_>) -> bool {
        let may_begin = self.job.is_none() && context.may_run && !self.is_paused;
        // Until superblocks record a loss, shards see the lost member, not the next one in its
        // slot.
        may_begin && !context.roster.has_unrecorded() && self.choice(context).is_some()
    }

    pub(in super::super) fn facts(
        &self,
        now: Instant,
        context: &JobsContext<'_>,
        has_unrecorded: bool,
    ) -> Facts {
        let may_run = context.may_run;
        let Some(job) = &self.job else {
            return Facts { is_due: self.is_due(context), ..Facts::default() };
        };
        let is_still_wanted = match job.kind {
            JobKind::Resync if job.is_quiet => {
                let is_due = context.lazy.is_some_and(|(due, _)| !due.is_empty());
                is_whole(context.roster) && (is_due || job.is_saved_whole)
            }
            JobKind::Resync => context.resync_offset != u64::MAX || job.is_saved_whole,
            JobKind::Recovery => job.targets.iter().any(|id| context.roster.slot_of(*id).is_some()),
            JobKind::Replace => job.replaces(context.roster),
            JobKind::Check if job.is_quiet => is_whole(context.roster),
            JobKind::Check | JobKind::Repair => {
                let is_it =
                    |choice: Choice| choice.kind == job.kind && choice.retries == job.retries;
                self.choice(context).is_some_and(is_it)
            }
            JobKind::Reshape => unreachable!("{NO_JOB}"),
        };
        let is_out = !job.works.is_empty();
        let has_unsaved = context.may_save && job.has_unsaved() && is_still_wanted;
        Facts {
            is_due: false,
            is_there: true,
            goes_on: may_run
                && is_still_wanted
                && job.end.is_none()
                && !self.is_joined(job, context),
            is_out,
            has_more: !self.is_paused && job.has_more(now, context),
            is_allowed: self.allowance.is_some(),
            is_over: job.cursor.done() == job.cursor.end(),
            awaits_logs: job.kind.is_check() && !context.are_logs_settled,
            has_unsaved,
            save_is_due: job.save_at <= now || self.is_paused && !is_out,
            is_saving: context.may_save && (job.saving != Saving::No || has_unrecorded),
        }
    }

    /// Whether the job ends because another member needs recovery on the same axis. Then one job
    /// for both members begins at the lower of the two offsets. Ranges that superblocks record for
    /// the first member are not recovered again, and the other members are read once. A job that is
    /// past its half is allowed to finish: until then the level can lose fewer members.
    fn is_joined(&self, job: &Job, context: &JobsContext<'_>) -> bool {
        let is_early = job.cursor.done() < job.cursor.end() / 2;
        if self.is_paused || job.kind != JobKind::Recovery || !is_early {
            return false;
        }
        if context.roster.has_unrecorded() {
            return false;
        }
        let choice = self.choice(context).filter(|choice| choice.kind == job.kind);
        let is_new = |choice: &Choice| choice.targets.iter().any(|id| !job.targets.contains(id));
        let is_joined = job.axis == Axis::Bands && choice.as_ref().is_some_and(is_new);
        if is_joined {
            reached(Mark::JobIsJoined);
        }
        is_joined
    }

    pub(in super::super) fn begin(
        &mut self,
        now: Instant,
        context: &JobsContext<'_>,
    ) -> JobProgress {
        assert!(self.job.is_none(), "one job at a time");
        let choice = self.choice(context).expect("one is due");
        let Choice { kind, is_quiet, retries, axis, from, end, targets } = choice;
        reached(match kind {
            JobKind::Resync => Mark::ResyncBegins,
            JobKind::Recovery => Mark::RecoveryBegins,
            JobKind::Replace => Mark::ReplaceBegins,
            JobKind::Check => Mark::CheckBegins,
            JobKind::Repair => Mark::RepairBegins,
            JobKind::Reshape => unreachable!("{NO_JOB}"),
        });
        let saved = from.min(end);
        // A band is requested whole: md's offset may lie inside a band.
        let from = match axis {
            Axis::Bands => from - from % u64::from(context.work_sectors),
            Axis::Array | Axis::Member(_) => from,
        };
        let mut job = Job {
            kind,
            is_quiet,
            retries,
            to_try: BTreeSet::new(),
            only: if is_quiet && kind.is_check() { named(context, axis) } else { Vec::new() },
            failed: Vec::new(),
            axis,
            band_sectors: context.work_sectors,
            cursor: Cursor::new(from, end),
            from: from.min(end),
            targets,
            works: BTreeMap::new(),
            saving: Saving::No,
            saved,
            is_saved_whole: false,
            save_at: now.plus_milliseconds(SAVE_EVERY_MS),
            repeat_at: None,
            differing: 0,
            written: 0,
            located: 0,
            repaired: 0,
            ambiguous: 0,
            unmade: 0,
            named: context.roster.named_sectors(),
            wanted: VecDeque::new(),
            takes_wanted: false,
            ahead: None,
            lacks: BTreeMap::new(),
            marked: BTreeMap::new(),
            told: 0,
            passed: 0,
            end: None,
        };
        job.passed = job.parts();
        let progress = job.progress(self.is_paused);
        self.job = Some(job);
        self.allowance.forget();
        progress
    }

    /// The next background work, and its shard; `None` if the next sectors hold no data.
    pub(in super::super) fn ask(
        &mut self,
        now: Instant,
        context: &JobsContext<'_>,
    ) -> Option<(ShardIndex, Work)> {
        let id = WorkId(self.next_work);
        let job = self.job.as_mut().expect("a job asks");
        job.named = context.roster.named_sectors();
        let repeated = job.to_repeat(now, context);
        let start =
            repeated.map(|run| run.start).or_else(|| job.wanted()).or_else(|| job.cursor.next());
        let start = start.expect("there is more to ask for");
        if let Some(next) = job.passes_over(context, start).filter(|_| repeated.is_none()) {
            reached(Mark::JobPassesOver);
            job.cursor.skip(next);
            return None;
        }
        let Some((first, sectors)) = job.place(context, start) else {
            let chunk = u64::from(context.geometry.chunk_sectors()).max(1);
            job.cursor.skip(start - start % chunk + chunk);
            return None;
        };
        let left = repeated.map_or(job.cursor.end(), |run| run.end) - start;
        let length = job.needed(context, start, left.min(sectors));
        job.cursor.begin(Run { start, end: start + length });
        if job.cursor.to_repeat().is_none() {
            job.repeat_at = None;
        }
        let class = self.allowance.take(length);
        job.works.insert(id, WorkInFlight { start, sectors: length, class });
        self.next_work += 1;
        let is_tried = job.to_try.contains(&start);
        let task = match job.kind {
            JobKind::Check if is_tried => Task::Retry,
            JobKind::Resync => Task::Resync,
            JobKind::Recovery => Task::Recover,
            JobKind::Replace => Task::Replace,
            JobKind::Check => Task::Compare,
            JobKind::Repair => Task::Repair,
            JobKind::Reshape => unreachable!("{NO_JOB}"),
        };
        let (start, owner) = match (context.geometry, job.axis) {
            (Geometry::Stripe(stripe), _) => {
                (start, stripe.logical(stripe.row_of(MemberSector(start)), 0, 0))
            }
            _ => (first.0, first),
        };
        let sectors = u32::try_from(length).expect("work is short");
        let work = Work { id, class, task, start, sectors };
        self.flow.begins(&work);
        Some((context.regions.shard_of(owner), work))
    }

    /// Takes the outcome of a background work. Returns a sector that the work could not compute.
    pub(in super::super) fn work_done(
        &mut self,
        now: Instant,
        id: WorkId,
        outcome: Outcome,
    ) -> Option<UnmadeSector> {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        let WorkInFlight { start, sectors, class } =
            job.works.remove(&id).expect("work has one result");
        self.flow.of(class).ended_sectors += sectors;
        let lacks = job.lacks.remove(&id).unwrap_or_default();
        let is_unmade = matches!(outcome, Outcome::Unmade { .. });
        if planted(Bug::UnmadeForgotten) && is_unmade {
            job.cursor.is_done(start);
            return None;
        }
        let is_done = false;
        let is_done = spoiled(Bug::JobSkipsUndone, is_done, true);
        // The run stays unsynced: parity still supplies the sectors that clients wrote. These
        // sectors would be lost if the run's other sectors, which disagree, made the whole run bad.
        let is_lazy = job.is_quiet && job.kind == JobKind::Resync;
        if is_lazy && matches!(outcome, Outcome::Unmade { .. } | Outcome::Unreadable) {
            reached(Mark::LazyLeavesOut);
            job.failed.push(start..start + sectors);
            job.cursor.is_done(start);
            return None;
        }
        match outcome {
            Outcome::Done { written } => {
                job.written += u64::from(written);
                job.cursor.is_done(start);
                if job.cursor.is_ahead(start) {
                    job.ahead = Some(MemberRange { start: MemberSector(start), sectors });
                }
            }
            Outcome::Compared(found) => {
                job.differing += u64::from(found.p.sectors() + found.q.sectors());
                job.cursor.is_done(start);
            }
            Outcome::CopiesCompared { differing } => {
                job.differing += u64::from(differing);
                job.cursor.is_done(start);
            }
            Outcome::Checked { differing, written } => {
                job.differing += u64::from(differing);
                job.written += u64::from(written);
                job.cursor.is_done(start);
            }
            _ if is_done => job.cursor.is_done(start),
            // The work has more than one sector: smaller requests show which parts can be computed.
            Outcome::Unmade { written } if sectors > 1 => {
                reached(Mark::JobAsksByBlocks);
                job.written += u64::from(written);
                job.divide(start, sectors);
            }
            Outcome::Unmade { written } => {
                job.written += u64::from(written);
                job.cursor.is_undone(start);
                return Some(UnmadeSector { at: start, fills: job.fills(), lacks });
            }
            Outcome::SitsOut => {
                job.cursor.is_undone(start);
                // All undone work waits for the same time, including earlier work that was not
                // repeated yet.
                let later = job.repeat_at.filter(|at| *at > now);
                job.repeat_at = later.or(Some(now.plus_milliseconds(REPEAT_AFTER_MS)));
            }
            // Unreadable sectors that cannot be computed are not compared; the other sectors of the
            // work can be compared.
            Outcome::Unreadable if job.kind.is_check() && sectors > 1 => {
                reached(Mark::JobAsksByBlocks);
                job.divide(start, sectors);
            }
            // No member can supply the sector, because logs name it: the job tries it once in spite
            // of the logs.
            Outcome::Unreadable if job.retries && job.to_try.insert(start) => {
                job.cursor.is_undone(start);
            }
            Outcome::Unreadable if job.kind.is_check() => job.cursor.is_done(start),
            Outcome::Unreadable => {
                job.cursor.is_undone(start);
                job.end = Some(JobEnd::Unreadable);
            }
            Outcome::Unwritten => {
                job.cursor.is_undone(start);
                job.end = Some(JobEnd::Unwritten);
            }
        }
        None
    }

    /// Notes that a client reads a range which is not recovered yet. The job recovers the range
    /// before its turn, so that the next read needs one member only. Only on levels with parity: on
    /// other levels a read always needs one member.
    pub(in super::super) fn is_read(&mut self, start: MemberSector, ranges_ahead: usize) {
        let Some(job) = &mut self.job else { return };
        if job.kind != JobKind::Recovery || job.axis != Axis::Bands {
            return;
        }
        let start = start.0 - start.0 % u64::from(job.band_sectors);
        let has_room = job.wanted.len() < WANTED_MAX && ranges_ahead < AHEAD_MAX;
        if has_room && job.cursor.may_begin_ahead(start) && !job.wanted.contains(&start) {
            job.wanted.push_back(start);
        }
    }

    /// Removes and returns the range that was recovered last ahead of its turn, and the members
    /// that hold it now.
    pub(in super::super) fn take_ahead(
        &mut self,
    ) -> Option<(SmallVec<[MemberId; 2]>, MemberRange)> {
        let job = self.job.as_mut()?;
        let range = job.ahead.take()?;
        Some((job.targets.clone(), range))
    }

    /// Notes that a shard cannot compute a range for a member.
    pub(in super::super) fn lacks(&mut self, id: WorkId, member: MemberId, range: BadRange) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        job.lacks.entry(id).or_default().push((member, range));
    }

    /// Whether the job has already marked a range of a member. The job has tried a marked range
    /// again since, so nothing more is possible. If the log no longer names the range, a client has
    /// written it.
    pub(in super::super) fn has_marked(&self, member: MemberId, range: BadRange) -> bool {
        let marked = self.job.as_ref().and_then(|job| job.marked.get(&member));
        marked.is_some_and(|marked| marked.contains(range.start, range.sectors))
    }

    /// Notes that a member's bad-block log will name a range.
    pub(in super::super) fn marks(&mut self, member: MemberId, range: BadRange) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        let marked = job.marked.entry(member).or_default();
        *marked = marked.union(&BadBlocks::new(vec![range]));
    }

    /// Called when the logs of all members that lack the range at `at` name it durably: the range
    /// counts as done.
    pub(in super::super) fn gives_up(&mut self, at: u64, sectors: u64) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        job.unmade += sectors;
        job.cursor.is_given_up(at);
    }

    /// Ends the job: a bad-block log has no room for a range that could not be computed.
    pub(in super::super) fn cannot_go_on(&mut self) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        job.end = Some(JobEnd::Unreadable);
    }

    /// The job's progress, if the job has passed another fifth of its range since the last call.
    pub(in super::super) fn passed(&mut self) -> Option<JobProgress> {
        let job = self.job.as_mut().filter(|job| !job.is_quiet)?;
        let parts = job.parts();
        let is_news = parts > job.passed && parts < PARTS;
        job.passed = parts.max(job.passed);
        let progress = job.progress(self.is_paused);
        is_news.then_some(progress)
    }

    /// Counts a shard's finding; true if it must be reported.
    pub(in super::super) fn found(&mut self, found: &Finding) -> bool {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        match *found {
            Finding::Rot { sectors, fate, .. } => {
                job.located += u64::from(sectors);
                job.repaired += if fate == Fate::Repaired { u64::from(sectors) } else { 0 };
            }
            Finding::Ambiguous { sectors, .. } => job.ambiguous += u64::from(sectors),
            Finding::Lost { .. } => unreachable!("only a reshape loses sectors"),
        }
        let is_told = job.told < FINDINGS_TOLD_MAX && !job.is_quiet;
        job.told += u32::from(is_told);
        is_told
    }

    /// Begins to flush and save the job's progress.
    pub(in super::super) fn save(&mut self) {
        let job = self.job.as_mut().expect("a job is saved");
        assert_eq!(job.saving, Saving::No, "one flush of a job at a time");
        job.saving = Saving::Wanted;
    }

    pub(in super::super) fn wants_flush(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.saving == Saving::Wanted)
    }

    /// Called when a flush for the job begins. Returns the members that the job has written; `None`
    /// for all.
    pub(in super::super) fn flush_begins(&mut self) -> Option<SmallVec<[MemberId; 2]>> {
        let job = self.job.as_mut().expect("a job is flushed");
        assert_eq!(job.saving, Saving::Wanted, "it was asked for");
        job.saving = Saving::Flushing(job.cursor.done());
        if planted(Bug::OffsetAhead) {
            job.saving = Saving::Flushing(job.cursor.next().unwrap_or(job.cursor.end()));
        }
        job.fills().then(|| job.targets.clone())
    }

    /// Called when the flush has succeeded: returns the progress as it was when the flush began,
    /// which is durable now.
    pub(in super::super) fn flush_ended(&mut self, now: Instant) -> Option<SavedProgress> {
        let job = self.job.as_mut()?;
        let Saving::Flushing(to) = job.saving else { return None };
        let is_done = to <= job.cursor.done();
        let is_done = spoiled(Bug::OffsetAhead, is_done, true);
        assert!(is_done, "no offset is ahead of what is done");
        job.saving = Saving::No;
        job.save_at = now.plus_milliseconds(SAVE_EVERY_MS);
        job.saved = to;
        job.is_saved_whole = to == job.cursor.end();
        let to = if job.is_saved_whole { u64::MAX } else { to };
        match job.kind {
            JobKind::Resync if job.is_quiet => {
                Some(SavedProgress::Lazy { to, failed: job.failed.clone() })
            }
            JobKind::Resync => Some(SavedProgress::Resync(to)),
            JobKind::Recovery => Some(SavedProgress::Recovery(job.targets.clone(), to)),
            JobKind::Replace => Some(SavedProgress::Replacement(job.targets.clone(), to)),
            JobKind::Check | JobKind::Repair | JobKind::Reshape => None,
        }
    }

    /// Ends the job. Returns its progress, and how it ended.
    pub(in super::super) fn end(&mut self, context: &JobsContext<'_>) -> (JobProgress, JobEnd) {
        let mut job = self.job.take().expect("a job ends");
        job.named = context.roster.named_sectors();
        assert!(job.works.is_empty(), "shards have nothing of it any more");
        let is_over = job.cursor.done() == job.cursor.end();
        let is_target_lost = match job.kind {
            JobKind::Recovery => job.targets.iter().all(|id| context.roster.slot_of(*id).is_none()),
            JobKind::Replace => !job.replaces(context.roster),
            JobKind::Resync | JobKind::Check | JobKind::Repair | JobKind::Reshape => false,
        };
        let end = match job.end {
            _ if is_target_lost => JobEnd::TargetLost,
            // The member that failed the write is lost, so the check has nothing to repair on it.
            Some(_) if job.kind.is_check() && context.roster.missing_count() > 0 => {
                JobEnd::Interrupted
            }
            Some(end) => end,
            None if is_over && (job.is_saved_whole || job.kind.is_check()) => JobEnd::Completed,
            None => JobEnd::Interrupted,
        };
        if job.is_quiet && job.kind.is_check() {
            self.remakes &= end == JobEnd::Interrupted;
            return (job.progress(self.is_paused), end);
        }
        match end {
            JobEnd::Completed => {
                reached(Mark::JobCompleted);
                let remakes = job.fills();
                self.remakes |= remakes;
                if job.kind.is_check() {
                    self.wanted = None;
                }
            }
            JobEnd::Unreadable | JobEnd::Unwritten if job.kind.is_check() => {
                reached(Mark::JobRefused);
                self.wanted = None;
            }
            JobEnd::Unreadable | JobEnd::Unwritten => {
                reached(Mark::JobRefused);
                self.refused = Some(job.kind);
            }
            JobEnd::Interrupted | JobEnd::TargetLost => reached(Mark::JobInterrupted),
        }
        (job.progress(self.is_paused), end)
    }

    /// The next time at which a job acts without an event.
    pub(in super::super) fn poll_timeout(&self, context: &JobsContext<'_>) -> Option<Instant> {
        let job = self.job.as_ref().filter(|job| job.end.is_none() && context.may_run)?;
        if !job.works.is_empty() && self.is_joined(job, context) {
            return None; // The job ends when the shards have finished its works.
        }
        let can_save = job.saving == Saving::No && job.has_unsaved();
        let saves = can_save.then_some(job.save_at);
        let has_room = !self.is_paused && job.has_room(context.regions.shards());
        // Without an allowance the clock need not wake the job: the next allowance does.
        let is_noted = job.marked.is_empty() || context.are_logs_settled;
        let has_undone = is_noted && job.cursor.to_repeat().is_some();
        let can_repeat = has_room && self.allowance.is_some() && has_undone;
        let repeats = job.repeat_at.filter(|_| can_repeat);
        saves.into_iter().chain(repeats).min()
    }
}

#[cfg(test)]
mod tests;
