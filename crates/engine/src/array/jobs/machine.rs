//! The job that is there, what it asks for next, and what came of it.

use std::collections::BTreeMap;

use braid_geometry::{Geometry, Level, LogicalSector, MemberSector, Slot};
use braid_hooks::{Bug, Mark, planted, reached, spoiled};
use smallvec::SmallVec;

use super::allowance::{JobAllowance, JobFlow, Left};
use super::cursor::{Cursor, Run};
use super::decide::Facts;
use super::{JobEnd, JobKind, JobProgress, JobRequest};
use crate::Instant;
use crate::array::roster::Roster;
use crate::badblocks::{BadBlocks, BadRange};
use crate::ids::{MemberId, ShardIndex, WorkId};
use crate::request::Regions;
use crate::sectors::BLOCK_SECTORS;
use crate::work::{Class, Fate, Found, Outcome, Task, Work};

/// So many findings of a job are told one by one; more are counted. A member that is rotten throughout would else be told of
/// once for each of its stripes.
const FINDINGS_TOLD_MAX: u32 = 1000;

/// Works under way for each shard, and at most.
const WORKS_EACH: usize = 16;
const WORKS_MAX: usize = 128;

/// How often superblocks are told how far a job is.
const SAVE_EVERY_MS: u64 = 5000;

/// After how long what a member that sits out held up is asked for again.
const REPEAT_AFTER_MS: u64 = 100;

/// What jobs look at, and is not theirs.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Ground<'a> {
    pub(in super::super) geometry: &'a Geometry,
    pub(in super::super) regions: Regions,
    /// Sectors of one work at most ([`crate::Shard::block_sectors`]).
    pub(in super::super) work_sectors: u32,
    pub(in super::super) roster: &'a Roster,
    /// `u64::MAX` when redundancy agrees everywhere.
    pub(in super::super) resync_offset: u64,
    /// Members and superblocks may be written, and the array goes on.
    pub(in super::super) may_run: bool,
    /// What can be saved may be.
    pub(in super::super) may_save: bool,
    /// Bad-block logs say what they are to.
    pub(in super::super) are_logs_settled: bool,
}

/// What the cursor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    /// Sectors of each member, by bands.
    Bands,
    /// Sectors of the array.
    Array,
    /// Sectors of the member in this slot.
    Member(Slot),
}

/// A job that could begin.
#[derive(Debug)]
struct Choice {
    kind: JobKind,
    axis: Axis,
    from: u64,
    end: u64,
    targets: SmallVec<[MemberId; 2]>,
}

/// A job says when it has passed so much of its way: a fifth, as md's monitor does.
const PARTS: u64 = 5;

/// Work that a shard has.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// In the cursor's sectors.
    start: u64,
    sectors: u64,
    class: Class,
}

/// How far saving is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saving {
    No,
    /// Members are to be flushed.
    Wanted,
    /// They are being flushed; then this is done.
    Flushing(u64),
}

/// One job.
#[derive(Debug)]
struct Job {
    kind: JobKind,
    axis: Axis,
    cursor: Cursor,
    from: u64,
    /// Members that are filled.
    targets: SmallVec<[MemberId; 2]>,
    works: BTreeMap<WorkId, Out>,
    saving: Saving,
    saved: u64,
    /// It was saved that all is done.
    is_saved_whole: bool,
    save_at: Instant,
    /// When what came back undone is asked for again.
    repeat_at: Option<Instant>,
    differing: u64,
    written: u64,
    located: u64,
    repaired: u64,
    ambiguous: u64,
    unmade: u64,
    /// What works that are under way could not make, so far.
    lacks: BTreeMap<WorkId, Vec<(MemberId, BadRange)>>,
    /// What could not be made, and logs name, or are about to; or named, before a client wrote it.
    marked: BTreeMap<MemberId, BadBlocks>,
    /// Findings that have been told.
    told: u32,
    /// Parts of its way that it was seen to have passed.
    passed: u64,
    /// It cannot go on.
    end: Option<JobEnd>,
}

/// A sector that could not be made, and who lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Unmade {
    /// Where it is asked for, in the job's sectors.
    pub(in super::super) at: u64,
    /// The job fills members: what one holds already is not in question.
    pub(in super::super) fills: bool,
    /// Members, and ranges of each.
    pub(in super::super) lacks: Vec<(MemberId, BadRange)>,
}

/// What is done of a job counts from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Saved {
    /// Redundancy agrees below this; `u64::MAX` when everywhere.
    Resync(u64),
    /// These members hold what they should below this; `u64::MAX` when everywhere.
    Recovery(SmallVec<[MemberId; 2]>, u64),
    /// The same of replacements.
    Replacement(SmallVec<[MemberId; 2]>, u64),
}

/// Jobs of one array.
#[derive(Debug, Default)]
pub(in super::super) struct Jobs {
    job: Option<Job>,
    next_work: u64,
    is_paused: bool,
    /// A check or a repair, if a person has asked for one.
    wanted: Option<JobKind>,
    allowance: Left,
    flow: JobFlow,
    /// A job that could not be finished: not begun again before something has changed.
    refused: Option<JobKind>,
}

impl Jobs {
    pub(in super::super) fn new(is_paused: bool) -> Self {
        Self { is_paused, ..Self::default() }
    }

    pub(in super::super) fn handle_request(&mut self, request: JobRequest) {
        match request {
            JobRequest::Check => self.wanted = Some(JobKind::Check),
            JobRequest::Repair => self.wanted = Some(JobKind::Repair),
            JobRequest::EndCheck => self.wanted = None,
            JobRequest::Pause => self.is_paused = true,
            JobRequest::Resume => {
                self.is_paused = false;
                self.refused = None;
            }
        }
    }

    /// From now on the job asks for no more than this, until it is told again.
    pub(in super::super) fn handle_allowance(&mut self, allowance: JobAllowance) {
        self.allowance.set(allowance);
    }

    pub(in super::super) fn flow(&self) -> JobFlow {
        self.flow
    }

    /// Members have come or gone: what could not be done may be done now.
    pub(in super::super) fn membership_changed(&mut self) {
        self.refused = None;
    }

    pub(in super::super) fn is_there(&self) -> bool {
        self.job.is_some()
    }

    pub(in super::super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// How far the job is.
    pub(in super::super) fn progress(&self) -> Option<JobProgress> {
        self.job.as_ref().map(|job| job.progress(self.is_paused))
    }

    /// What is to be done first.
    fn choice(&self, ground: &Ground<'_>) -> Option<Choice> {
        let Ground { geometry, roster, resync_offset, .. } = *ground;
        let may = |kind: JobKind| self.refused != Some(kind);
        let (axis, end) = match geometry {
            Geometry::Direct(_) => return None,
            Geometry::Stripe(stripe) => (Axis::Bands, stripe.used_sectors()),
            Geometry::Mirror(mirror) => (Axis::Array, mirror.capacity_sectors()),
        };
        if resync_offset != u64::MAX {
            let (from, targets) = (resync_offset, SmallVec::new());
            let choice = Choice { kind: JobKind::Resync, axis, from, end, targets };
            return may(JobKind::Resync).then_some(choice);
        }
        // What no shard knows yet is not asked for: nothing would be made of it.
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
            Some(Choice { kind, axis, from, end: geometry.used_sectors(slot), targets })
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
        let kind = self.wanted.filter(|_| roster.missing_count() == 0)?;
        Some(Choice { kind, axis, from: 0, end, targets: SmallVec::new() })
    }

    /// Whether a job is to begin.
    pub(in super::super) fn is_due(&self, ground: &Ground<'_>) -> bool {
        let may_begin = self.job.is_none() && ground.may_run && !self.is_paused;
        may_begin && self.choice(ground).is_some()
    }

    /// The job at a glance.
    pub(in super::super) fn facts(
        &self,
        now: Instant,
        ground: &Ground<'_>,
        has_unrecorded: bool,
    ) -> Facts {
        let may_run = ground.may_run;
        let Some(job) = &self.job else {
            return Facts { is_due: self.is_due(ground), ..Facts::default() };
        };
        let is_still_wanted = match job.kind {
            JobKind::Resync => ground.resync_offset != u64::MAX || job.is_saved_whole,
            JobKind::Recovery => job.targets.iter().any(|id| ground.roster.slot_of(*id).is_some()),
            JobKind::Replace => job.replaces(ground.roster),
            JobKind::Check | JobKind::Repair => {
                self.choice(ground).is_some_and(|choice| choice.kind == job.kind)
            }
        };
        let is_out = !job.works.is_empty();
        let has_unsaved = ground.may_save && job.has_unsaved() && is_still_wanted;
        Facts {
            is_due: false,
            is_there: true,
            goes_on: may_run && is_still_wanted && job.end.is_none(),
            is_out,
            has_more: !self.is_paused && job.has_more(now, ground),
            is_allowed: self.allowance.is_some(),
            is_over: job.cursor.done() == job.cursor.end(),
            has_unsaved,
            save_is_due: job.save_at <= now || self.is_paused && !is_out,
            is_saving: ground.may_save && (job.saving != Saving::No || has_unrecorded),
        }
    }

    pub(in super::super) fn begin(&mut self, now: Instant, ground: &Ground<'_>) -> JobProgress {
        assert!(self.job.is_none(), "one job at a time");
        let Choice { kind, axis, from, end, targets } = self.choice(ground).expect("one is due");
        reached(match kind {
            JobKind::Resync => Mark::ResyncBegins,
            JobKind::Recovery => Mark::RecoveryBegins,
            JobKind::Replace => Mark::ReplaceBegins,
            JobKind::Check => Mark::CheckBegins,
            JobKind::Repair => Mark::RepairBegins,
        });
        let saved = from.min(end);
        // A band is asked for whole: an offset of md's may lie inside of one.
        let from = match axis {
            Axis::Bands => from - from % u64::from(ground.work_sectors),
            Axis::Array | Axis::Member(_) => from,
        };
        let mut job = Job {
            kind,
            axis,
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

    /// The next work, and whose it is; none where the sectors that come next hold nothing.
    pub(in super::super) fn ask(
        &mut self,
        now: Instant,
        ground: &Ground<'_>,
    ) -> Option<(ShardIndex, Work)> {
        let id = WorkId(self.next_work);
        let job = self.job.as_mut().expect("a job asks");
        let repeated = job.to_repeat(now, ground);
        let start = repeated.map(|run| run.start).or_else(|| job.cursor.next());
        let start = start.expect("there is more to ask for");
        let Some((first, sectors)) = job.place(ground, start) else {
            let chunk = u64::from(ground.geometry.chunk_sectors()).max(1);
            job.cursor.skip(start - start % chunk + chunk);
            return None;
        };
        let left = repeated.map_or(job.cursor.end(), |run| run.end) - start;
        let length = left.min(sectors);
        job.cursor.begin(Run { start, end: start + length });
        if job.cursor.to_repeat().is_none() {
            job.repeat_at = None;
        }
        let class = self.allowance.take(length);
        job.works.insert(id, Out { start, sectors: length, class });
        self.next_work += 1;
        let task = match job.kind {
            JobKind::Resync => Task::Resync,
            JobKind::Recovery => Task::Recover,
            JobKind::Replace => Task::Replace,
            JobKind::Check => Task::Compare,
            JobKind::Repair => Task::Repair,
        };
        let (start, owner) = match (ground.geometry, job.axis) {
            (Geometry::Stripe(stripe), _) => {
                (start, stripe.logical(stripe.row_of(MemberSector(start)), 0, 0))
            }
            _ => (first.0, first),
        };
        let sectors = u32::try_from(length).expect("work is short");
        let work = Work { id, class, task, start, sectors };
        self.flow.begins(&work);
        Some((ground.regions.shard_of(owner), work))
    }

    /// A shard has done what it was asked, or has not. Gives a block that it could not make.
    pub(in super::super) fn work_done(
        &mut self,
        now: Instant,
        id: WorkId,
        outcome: Outcome,
    ) -> Option<Unmade> {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        let Out { start, sectors, class } = job.works.remove(&id).expect("work has one result");
        self.flow.of(class).ended_sectors += sectors;
        let lacks = job.lacks.remove(&id).unwrap_or_default();
        let is_unmade = matches!(outcome, Outcome::Unmade { .. });
        if planted(Bug::UnmadeForgotten) && is_unmade {
            job.cursor.is_done(start);
            return None;
        }
        let is_done = false;
        let is_done = spoiled(Bug::JobSkipsUndone, is_done, true);
        match outcome {
            Outcome::Done { written } => {
                job.written += u64::from(written);
                job.cursor.is_done(start);
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
            // More than a sector: what of it can be made is seen when less is asked for.
            Outcome::Unmade { written } if sectors > 1 => {
                reached(Mark::JobAsksByBlocks);
                job.written += u64::from(written);
                let block = u64::from(BLOCK_SECTORS);
                job.cursor.is_divided(start, if sectors > block { block } else { 1 });
            }
            Outcome::Unmade { written } => {
                job.written += u64::from(written);
                job.cursor.is_undone(start);
                return Some(Unmade { at: start, fills: job.fills(), lacks });
            }
            Outcome::SitsOut => {
                job.cursor.is_undone(start);
                let at = now.plus_milliseconds(REPEAT_AFTER_MS);
                job.repeat_at.get_or_insert(at);
            }
            // What cannot be read is not compared; other bands can.
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

    /// A shard cannot make a range that a member lacks.
    pub(in super::super) fn lacks(&mut self, id: WorkId, member: MemberId, range: BadRange) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        job.lacks.entry(id).or_default().push((member, range));
    }

    /// Whether a range of a member has been named for the job: it was asked for again since, and there is no more to be done
    /// about it. What the log does not name any more has been written by a client.
    pub(in super::super) fn has_marked(&self, member: MemberId, range: BadRange) -> bool {
        let marked = self.job.as_ref().and_then(|job| job.marked.get(&member));
        marked.is_some_and(|marked| marked.contains(range.start, range.sectors))
    }

    /// A range of a member is named from now on.
    pub(in super::super) fn marks(&mut self, member: MemberId, range: BadRange) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        let marked = job.marked.entry(member).or_default();
        *marked = marked.union(&BadBlocks::new(vec![range]));
    }

    /// What could not be made at `at` is named in the logs of all that lack it, durably, and counts as done.
    pub(in super::super) fn gives_up(&mut self, at: u64, sectors: u64) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        job.unmade += sectors;
        job.cursor.is_given_up(at);
    }

    /// What could not be made cannot be noted down.
    pub(in super::super) fn cannot_go_on(&mut self) {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        job.end = Some(JobEnd::Unreadable);
    }

    /// How far the job is, if it has passed another part of its way since this was asked.
    pub(in super::super) fn passed(&mut self) -> Option<JobProgress> {
        let job = self.job.as_mut()?;
        let parts = job.parts();
        let is_news = parts > job.passed && parts < PARTS;
        job.passed = parts.max(job.passed);
        let progress = job.progress(self.is_paused);
        is_news.then_some(progress)
    }

    /// A shard has found something wrong; whether that is told.
    pub(in super::super) fn found(&mut self, found: &Found) -> bool {
        let job = self.job.as_mut().expect("a job lasts as long as its work");
        match *found {
            Found::Rot { sectors, fate, .. } => {
                job.located += u64::from(sectors);
                job.repaired += if fate == Fate::Repaired { u64::from(sectors) } else { 0 };
            }
            Found::Ambiguous { sectors, .. } => job.ambiguous += u64::from(sectors),
        }
        let is_told = job.told < FINDINGS_TOLD_MAX;
        job.told += u32::from(is_told);
        is_told
    }

    /// What is done is to be flushed and saved.
    pub(in super::super) fn save(&mut self) {
        let job = self.job.as_mut().expect("a job is saved");
        assert_eq!(job.saving, Saving::No, "one flush of a job at a time");
        job.saving = Saving::Wanted;
    }

    pub(in super::super) fn wants_flush(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.saving == Saving::Wanted)
    }

    /// Members are being flushed for the job: gives those that it has written, if that is not all.
    pub(in super::super) fn flush_begins(&mut self) -> Option<SmallVec<[MemberId; 2]>> {
        let job = self.job.as_mut().expect("a job is flushed");
        assert_eq!(job.saving, Saving::Wanted, "it was asked for");
        job.saving = Saving::Flushing(job.cursor.done());
        if planted(Bug::OffsetAhead) {
            job.saving = Saving::Flushing(job.cursor.next().unwrap_or(job.cursor.end()));
        }
        job.fills().then(|| job.targets.clone())
    }

    /// The flush has ended well: what was done when it began counts.
    pub(in super::super) fn flush_ended(&mut self, now: Instant) -> Option<Saved> {
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
            JobKind::Resync => Some(Saved::Resync(to)),
            JobKind::Recovery => Some(Saved::Recovery(job.targets.clone(), to)),
            JobKind::Replace => Some(Saved::Replacement(job.targets.clone(), to)),
            JobKind::Check | JobKind::Repair => None,
        }
    }

    /// The job is no more; how it was, and how it ended.
    pub(in super::super) fn end(&mut self, ground: &Ground<'_>) -> (JobProgress, JobEnd) {
        let job = self.job.take().expect("a job ends");
        assert!(job.works.is_empty(), "shards have nothing of it any more");
        let is_over = job.cursor.done() == job.cursor.end();
        let is_target_lost = match job.kind {
            JobKind::Recovery => job.targets.iter().all(|id| ground.roster.slot_of(*id).is_none()),
            JobKind::Replace => !job.replaces(ground.roster),
            JobKind::Resync | JobKind::Check | JobKind::Repair => false,
        };
        let end = match job.end {
            _ if is_target_lost => JobEnd::TargetLost,
            // The member that did not take it is lost, and so there is nothing to repair.
            Some(_) if job.kind.is_check() && ground.roster.missing_count() > 0 => {
                JobEnd::Interrupted
            }
            Some(end) => end,
            None if is_over && (job.is_saved_whole || job.kind.is_check()) => JobEnd::Completed,
            None => JobEnd::Interrupted,
        };
        match end {
            JobEnd::Completed => {
                reached(Mark::JobCompleted);
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

    /// When there is something to do though nothing else happens.
    pub(in super::super) fn poll_timeout(&self, ground: &Ground<'_>) -> Option<Instant> {
        let job = self.job.as_ref().filter(|job| job.end.is_none() && ground.may_run)?;
        let can_save = job.saving == Saving::No && job.has_unsaved();
        let saves = can_save.then_some(job.save_at);
        let has_room = !self.is_paused && job.has_room(ground.regions.shards());
        // Where nothing is allowed, the next allowance finds that its time has come.
        let is_noted = job.marked.is_empty() || ground.are_logs_settled;
        let has_undone = is_noted && job.cursor.to_repeat().is_some();
        let can_repeat = has_room && self.allowance.is_some() && has_undone;
        let repeats = job.repeat_at.filter(|_| can_repeat);
        saves.into_iter().chain(repeats).min()
    }
}

impl Job {
    fn progress(&self, paused: bool) -> JobProgress {
        let Self { kind, from, differing, written, located, repaired, .. } = *self;
        let Self { ambiguous, unmade, .. } = *self;
        let (done, end) = (self.cursor.done(), self.cursor.end());
        JobProgress {
            kind,
            from,
            done,
            end,
            differing,
            written,
            located,
            repaired,
            ambiguous,
            unmade,
            paused,
        }
    }

    /// Parts of its way that are done.
    fn parts(&self) -> u64 {
        let (done, end) = (u128::from(self.cursor.done()), u128::from(self.cursor.end().max(1)));
        u64::try_from(done * u128::from(PARTS) / end).expect("no more than all of it is done")
    }

    fn has_unsaved(&self) -> bool {
        let is_over = self.cursor.done() == self.cursor.end();
        !self.kind.is_check()
            && (self.cursor.done() > self.saved || is_over && !self.is_saved_whole)
    }

    /// It fills members.
    fn fills(&self) -> bool {
        matches!(self.kind, JobKind::Recovery | JobKind::Replace)
    }

    /// One of its targets still is to replace another, or holds all and has done so.
    fn replaces(&self, roster: &Roster) -> bool {
        let has_replaced = |id| self.is_saved_whole && roster.slot_of(id).is_some();
        self.targets.iter().any(|id| roster.slot_to_replace(*id).is_some() || has_replaced(*id))
    }

    fn has_room(&self, shards: u16) -> bool {
        self.cursor.under_way() < (WORKS_EACH * usize::from(shards)).min(WORKS_MAX)
    }

    /// What came back undone and is to be asked for now. Where it could not be made, logs name it first.
    fn to_repeat(&self, now: Instant, ground: &Ground<'_>) -> Option<Run> {
        let is_time = self.repeat_at.is_none_or(|at| at <= now);
        let is_time = is_time && (self.marked.is_empty() || ground.are_logs_settled);
        self.cursor.to_repeat().filter(|_| is_time)
    }

    fn has_more(&self, now: Instant, ground: &Ground<'_>) -> bool {
        let is_left = self.to_repeat(now, ground).is_some() || self.cursor.next().is_some();
        self.has_room(ground.regions.shards()) && is_left
    }

    /// The sector of the array that `at` is about, and how many follow in one work. None where nothing lies.
    fn place(&self, ground: &Ground<'_>, at: u64) -> Option<(LogicalSector, u64)> {
        let work_sectors = u64::from(ground.work_sectors);
        let (first, sectors) = match (ground.geometry, self.axis) {
            (Geometry::Mirror(mirror), Axis::Member(slot)) => {
                let (first, _) = mirror.logical(slot, MemberSector(at))?;
                (first, mirror.contiguous_sectors(first))
            }
            (Geometry::Stripe(_), _) => return Some((LogicalSector(at), work_sectors)),
            _ => (LogicalSector(at), work_sectors),
        };
        let in_region = ground.regions.left_in_region(first);
        Some((first, sectors.min(work_sectors).min(in_region)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Geometry, Shape};
    use std::collections::{BTreeMap as Map, BTreeSet};

    use crate::array::view::MemberView;

    const NOW: Instant = Instant(1_000_000_000);

    fn roster(slots: u16, recovering: &[(u16, u64)]) -> Roster {
        let view = |slot: u16| {
            let found = recovering.iter().find(|(one, _)| *one == slot);
            Some(MemberView {
                id: MemberId(slot),
                replacement: None,
                recovered_sectors: found.map_or(u64::MAX, |(_, at)| *at),
                bad_blocks: std::sync::Arc::default(),
                replacement_bad_blocks: std::sync::Arc::default(),
            })
        };
        let numbers: Map<MemberId, u16> = (0..slots).map(|slot| (MemberId(slot), slot)).collect();
        Roster::new((0..slots).map(view).collect(), numbers, BTreeSet::new())
    }

    fn geometry(level: Level, layout: u32, slots: u16) -> Geometry {
        let shape = Shape {
            level,
            layout,
            chunk_sectors: if level == Level::Raid1 { 0 } else { 128 },
            slots,
            member_sectors: vec![1024; usize::from(slots)],
        };
        Geometry::new(&shape).expect("a plain shape")
    }

    fn ground<'a>(geometry: &'a Geometry, roster: &'a Roster, resync_offset: u64) -> Ground<'a> {
        let regions = Regions::new(geometry, 2);
        Ground {
            geometry,
            regions,
            work_sectors: 128,
            roster,
            resync_offset,
            may_run: true,
            may_save: true,
            are_logs_settled: true,
        }
    }

    fn ask_all(jobs: &mut Jobs, ground: &Ground<'_>) -> Vec<Work> {
        let mut works = Vec::new();
        while matches!(
            jobs.facts(NOW, ground, false),
            Facts { has_more: true, is_allowed: true, .. }
        ) {
            works.extend(jobs.ask(NOW, ground).map(|(_, work)| work));
        }
        works
    }

    #[test]
    fn an_offset_counts_when_it_was_flushed() {
        let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[]));
        let ground = ground(&geometry, &roster, 200);
        let mut jobs = Jobs::default();
        assert!(jobs.facts(NOW, &ground, false).is_due);
        assert_eq!(jobs.begin(NOW, &ground).from, 128, "a band is done whole");
        let works = ask_all(&mut jobs, &ground);
        let starts: Vec<u64> = works.iter().map(|work| work.start).collect();
        assert_eq!(starts, [128, 256, 384, 512, 640, 768, 896]);
        let done = Outcome::Done { written: 1 };
        jobs.work_done(NOW, works[0].id, done);
        jobs.work_done(NOW, works[2].id, done);
        jobs.save();
        assert!(jobs.wants_flush());
        assert_eq!(jobs.flush_begins(), None, "parity lies on every member");
        // It is done after the flush began: it may not be durable.
        jobs.work_done(NOW, works[1].id, done);
        assert_eq!(jobs.flush_ended(NOW), Some(Saved::Resync(256)));
        for work in &works[3..] {
            jobs.work_done(NOW, work.id, done);
        }
        assert!(jobs.facts(NOW, &ground, false).is_over);
        jobs.save();
        jobs.flush_begins();
        assert_eq!(jobs.flush_ended(NOW), Some(Saved::Resync(u64::MAX)));
        let (progress, end) = jobs.end(&ground);
        assert_eq!((progress.written, end), (7, JobEnd::Completed));
    }

    #[test]
    fn a_job_ends_when_its_work_is_back() {
        let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[(1, 0)]));
        let ground = ground(&geometry, &roster, u64::MAX);
        let mut jobs = Jobs::default();
        jobs.begin(NOW, &ground);
        let works = ask_all(&mut jobs, &ground);
        assert!(works.iter().all(|work| work.task == Task::Recover));
        assert_eq!(jobs.work_done(NOW, works[0].id, Outcome::Unwritten), None);
        let facts = jobs.facts(NOW, &ground, false);
        assert!(!facts.goes_on && facts.is_out, "{facts:?}");
        for work in &works[1..] {
            jobs.work_done(NOW, work.id, Outcome::Done { written: 1 });
        }
        let facts = jobs.facts(NOW, &ground, false);
        assert!(!facts.is_out && !facts.has_unsaved, "the first was not done: {facts:?}");
        assert_eq!(jobs.end(&ground).1, JobEnd::Unwritten);
        assert!(!jobs.facts(NOW, &ground, false).is_due, "nothing has changed since");
        jobs.membership_changed();
        assert!(jobs.facts(NOW, &ground, false).is_due);
    }

    #[test]
    fn a_job_says_once_that_it_has_passed_a_part_of_its_way() {
        let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[]));
        // From 256 of 1024 on.
        let ground = ground(&geometry, &roster, 256);
        let mut jobs = Jobs::default();
        jobs.begin(NOW, &ground);
        let works = ask_all(&mut jobs, &ground);
        let mut said = Vec::new();
        for work in &works {
            jobs.work_done(NOW, work.id, Outcome::Done { written: 0 });
            said.extend(jobs.passed().map(|progress| progress.done));
            assert_eq!(jobs.passed(), None, "once");
        }
        assert_eq!(said, [512, 640, 896], "beyond 410, 615 and 820");
    }

    #[test]
    fn what_cannot_be_made_is_asked_for_by_blocks_and_sectors_and_then_given_up() {
        let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[(1, 0)]));
        let mut ground = ground(&geometry, &roster, u64::MAX);
        let mut jobs = Jobs::default();
        jobs.begin(NOW, &ground);
        let works = ask_all(&mut jobs, &ground);
        let unmade = Outcome::Unmade { written: 0 };
        assert_eq!(jobs.work_done(NOW, works[2].id, unmade), None);
        let ranges = |works: &[Work]| -> Vec<(u64, u32)> {
            works.iter().map(|work| (work.start, work.sectors)).collect()
        };
        let blocks = ask_all(&mut jobs, &ground);
        let expected: Vec<(u64, u32)> = (0..16).map(|index| (256 + 8 * index, 8)).collect();
        assert_eq!(ranges(&blocks), expected);
        assert_eq!(jobs.work_done(NOW, blocks[3].id, unmade), None);
        let sectors = ask_all(&mut jobs, &ground);
        assert_eq!(ranges(&sectors), (280..288).map(|at| (at, 1)).collect::<Vec<_>>());
        let lost = BadRange { start: MemberSector(283), sectors: 1 };
        jobs.lacks(sectors[3].id, MemberId(1), lost);
        let lacks = vec![(MemberId(1), lost)];
        let expected = Some(Unmade { at: 283, fills: true, lacks });
        assert_eq!(jobs.work_done(NOW, sectors[3].id, unmade), expected);
        assert!(!jobs.has_marked(MemberId(1), lost));
        jobs.marks(MemberId(1), lost);
        // Not before logs name it.
        ground.are_logs_settled = false;
        assert!(ask_all(&mut jobs, &ground).is_empty());
        ground.are_logs_settled = true;
        let again = ask_all(&mut jobs, &ground);
        assert_eq!(ranges(&again), [(283, 1)]);
        jobs.lacks(again[0].id, MemberId(1), lost);
        assert_eq!(jobs.work_done(NOW, again[0].id, unmade), expected);
        assert!(jobs.has_marked(MemberId(1), lost));
        jobs.gives_up(283, 1);
        let left = [&works[..2], &works[3..], &blocks[..3], &blocks[4..]].concat();
        let sectors = [&sectors[..3], &sectors[4..]].concat();
        for work in left.iter().chain(&sectors) {
            jobs.work_done(NOW, work.id, Outcome::Done { written: work.sectors });
        }
        let facts = jobs.facts(NOW, &ground, false);
        assert!(facts.is_over && facts.goes_on, "{facts:?}");
        assert_eq!(jobs.progress().expect("it is there").unmade, 1);
    }

    #[test]
    fn what_a_slow_member_held_up_is_asked_for_again_later() {
        let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[]));
        let ground = ground(&geometry, &roster, 0);
        let mut jobs = Jobs::default();
        jobs.begin(NOW, &ground);
        let works = ask_all(&mut jobs, &ground);
        assert_eq!(works.len(), 8);
        jobs.work_done(NOW, works[3].id, Outcome::SitsOut);
        assert!(!jobs.facts(NOW, &ground, false).has_more);
        let at = jobs.poll_timeout(&ground).expect("the clock ends it");
        assert!(at > NOW && jobs.facts(at, &ground, false).has_more);
        let (_, work) = jobs.ask(at, &ground).expect("a band lies there");
        assert_eq!((work.start, work.id > works[7].id), (works[3].start, true));
        assert_eq!(jobs.poll_timeout(&ground), None, "the shards end what comes");
    }

    /// What a job is allowed it asks for, no more, and in the class that it was allowed for.
    #[test]
    fn a_job_asks_for_what_it_is_allowed() {
        let (geometry, roster) = (geometry(Level::Raid5, 2, 3), roster(3, &[(1, 0)]));
        let ground = ground(&geometry, &roster, u64::MAX);
        let mut jobs = Jobs::default();
        let allow = |jobs: &mut Jobs, idle_sectors, owed_sectors| {
            jobs.handle_allowance(JobAllowance { idle_sectors, owed_sectors });
        };
        allow(&mut jobs, 1 << 20, 0);
        jobs.begin(NOW, &ground);
        let facts = jobs.facts(NOW, &ground, false);
        assert!(facts.has_more && !facts.is_allowed, "what was allowed before it began is not its");
        allow(&mut jobs, 256, 128);
        let works = ask_all(&mut jobs, &ground);
        let classes: Vec<Class> = works.iter().map(|work| work.class).collect();
        assert_eq!(classes, [Class::BestEffort, Class::Idle, Class::Idle]);
        jobs.work_done(NOW, works[0].id, Outcome::Done { written: 1 });
        jobs.work_done(NOW, works[1].id, Outcome::SitsOut);
        assert!(!jobs.facts(NOW, &ground, false).is_allowed);
        let JobFlow { idle, owed } = jobs.flow();
        assert_eq!([idle.begun_sectors, idle.ended_sectors], [256, 128]);
        assert_eq!([owed.begun_sectors, owed.ended_sectors], [128, 128]);
        // What is to be repeated is no reason to be woken while nothing is allowed.
        let at = NOW.plus_milliseconds(REPEAT_AFTER_MS);
        assert!(jobs.poll_timeout(&ground).is_none_or(|due| due > at));
        allow(&mut jobs, 128, 0);
        assert_eq!(jobs.poll_timeout(&ground), Some(at));
    }

    /// Every sector that the member in the slot is to hold is asked for once, whatever the layout.
    #[test]
    fn copies_are_asked_for_in_the_order_of_the_member() {
        for (level, layout) in [
            (Level::Raid1, 0),
            (Level::Raid10, 0x102),
            (Level::Raid10, 0x201),
            (Level::Raid10, 0x10201),
        ] {
            let (geometry, roster) = (geometry(level, layout, 4), roster(4, &[(2, 0)]));
            let Geometry::Mirror(mirror) = &geometry else { unreachable!("a mirror") };
            let ground = ground(&geometry, &roster, u64::MAX);
            let mut jobs = Jobs::default();
            jobs.begin(NOW, &ground);
            let mut next = 0;
            for work in ask_all(&mut jobs, &ground) {
                let (first, _) = mirror.logical(Slot(2), MemberSector(next)).expect("it is there");
                assert_eq!(work.start, first.0, "{level:?} {layout:#x}");
                next += u64::from(work.sectors);
            }
            assert_eq!(next, mirror.used_sectors(), "{level:?} {layout:#x}");
        }
    }

    /// Members of RAID-10 lie each in their own way: they are recovered one after the other.
    #[test]
    fn members_that_lie_alike_are_recovered_together() {
        let two = [(1, 0), (2, 256)];
        for (level, layout, together) in
            [(Level::Raid6, 2, true), (Level::Raid1, 0, true), (Level::Raid10, 0x102, false)]
        {
            let (geometry, roster) = (geometry(level, layout, 5), roster(5, &two));
            let ground = ground(&geometry, &roster, u64::MAX);
            let mut jobs = Jobs::default();
            jobs.begin(NOW, &ground);
            jobs.save();
            let targets = jobs.flush_begins().expect("only targets are flushed");
            assert_eq!(targets.len(), if together { 2 } else { 1 }, "{level:?}");
        }
    }
}
