//! A job: its kind, its background work at shards, its progress and its findings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use braid_geometry::{Geometry, LogicalSector, MemberSector, Slot};
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};
use smallvec::SmallVec;

use super::context::JobsContext;
use super::cursor::{Cursor, Run};
use super::{JobEnd, JobKind, JobProgress};
use crate::Instant;
use crate::array::roster::Roster;
use crate::ids::{MemberId, WorkId};
use crate::ranges::{BadBlocks, BadRange, MemberRange};
use crate::sectors::BLOCK_SECTORS;
use crate::work::Class;

/// The most background works in flight at one shard.
const WORKS_EACH: usize = 16;
/// The most background works in flight at all shards together.
const WORKS_MAX: usize = 128;

/// A job sends a notice after each fifth of its range, as md's monitor does.
pub(super) const PARTS: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// The job counts sectors of each member, in bands.
    Bands,
    Array,
    /// The job counts sectors of the member in this slot.
    Member(Slot),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WorkInFlight {
    /// First sector, in the cursor's unit.
    pub(super) start: u64,
    pub(super) sectors: u64,
    pub(super) class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saving {
    No,
    Wanted,
    /// Members are being flushed; then superblocks record this offset.
    Flushing(u64),
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) kind: JobKind,
    /// Whether the job sends no notices. Such a job checks only the ranges in bad-block logs, or
    /// resyncs sectors that were never made to agree. Such resyncs are frequent.
    pub(super) is_quiet: bool,
    /// The job retries ranges in bad-block logs that the other members cannot supply.
    pub(super) retries: bool,
    /// Sectors to retry, in the job's unit, because a first request failed.
    pub(super) to_try: BTreeSet<u64>,
    /// If the job checks only the ranges in bad-block logs: these ranges, in the job's unit.
    pub(super) only: Vec<Range<u64>>,
    /// Ranges that a quiet resync failed to make agree, in the job's unit.
    pub(super) failed: Vec<Range<u64>>,
    pub(super) axis: Axis,
    pub(super) band_sectors: u32,
    pub(super) cursor: Cursor,
    pub(super) from: u64,
    pub(super) targets: SmallVec<[MemberId; 2]>,
    pub(super) works: BTreeMap<WorkId, WorkInFlight>,
    pub(super) saving: Saving,
    pub(super) saved: u64,
    /// Whether the progress at the job's end was saved.
    pub(super) is_saved_whole: bool,
    pub(super) save_at: Instant,
    pub(super) repeat_at: Option<Instant>,
    pub(super) differing: u64,
    pub(super) written: u64,
    pub(super) located: u64,
    pub(super) repaired: u64,
    pub(super) ambiguous: u64,
    pub(super) unmade: u64,
    /// Number of sectors that bad-block logs named when the job last looked.
    pub(super) named: u64,
    /// Bands that clients read ahead of the job; every second background work is one of these
    /// bands.
    pub(super) wanted: VecDeque<u64>,
    pub(super) takes_wanted: bool,
    /// The range that was recovered last ahead of its turn.
    pub(super) ahead: Option<MemberRange>,
    /// Ranges that the work in flight could not compute so far.
    pub(super) lacks: BTreeMap<WorkId, Vec<(MemberId, BadRange)>>,
    /// Ranges that could not be computed: logs name them, will name them, or named them until a
    /// client wrote them.
    pub(super) marked: BTreeMap<MemberId, BadBlocks>,
    pub(super) told: u32,
    /// Number of parts of the job's range whose end was reported.
    pub(super) passed: u64,
    /// The reason why the job cannot continue.
    pub(super) end: Option<JobEnd>,
}

impl Job {
    pub(super) fn progress(&self, paused: bool) -> JobProgress {
        let Self { kind, from, differing, written, located, repaired, .. } = *self;
        let Self { ambiguous, unmade, named, retries, .. } = *self;
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
            named,
            retries,
            paused,
        }
    }

    /// Repeats undone work in smaller parts: a band by blocks, a block by sectors.
    pub(super) fn divide(&mut self, start: u64, sectors: u64) {
        let block = u64::from(BLOCK_SECTORS);
        self.cursor.is_divided(start, if sectors > block { block } else { 1 });
    }

    /// Number of parts of the job's range that are done.
    pub(super) fn parts(&self) -> u64 {
        let (done, end) = (u128::from(self.cursor.done()), u128::from(self.cursor.end().max(1)));
        u64::try_from(done * u128::from(PARTS) / end).expect("no more than all of it is done")
    }

    pub(super) fn has_unsaved(&self) -> bool {
        let is_over = self.cursor.done() == self.cursor.end();
        !self.kind.is_check()
            && (self.cursor.done() > self.saved || is_over && !self.is_saved_whole)
    }

    pub(super) fn fills(&self) -> bool {
        matches!(self.kind, JobKind::Recovery | JobKind::Replace)
    }

    /// Whether one of the job's targets is still a replacement, or has taken its slot because it
    /// holds all data.
    pub(super) fn replaces(&self, roster: &Roster) -> bool {
        let has_replaced = |id| self.is_saved_whole && roster.slot_of(id).is_some();
        self.targets.iter().any(|id| roster.slot_to_replace(*id).is_some() || has_replaced(*id))
    }

    /// The next band that a client has read. At most every second background work is such a band,
    /// so that the job reaches its end.
    pub(super) fn wanted(&mut self) -> Option<u64> {
        self.takes_wanted = !self.takes_wanted && !self.wanted.is_empty();
        if !self.takes_wanted {
            return None;
        }
        let cursor = &self.cursor;
        self.wanted.retain(|start| cursor.may_begin_ahead(*start));
        let start = self.wanted.pop_front()?;
        reached(Mark::RecoversWhatIsRead);
        if planted(Bug::AheadBeforeMade) {
            let sectors = u64::from(self.band_sectors);
            self.ahead = Some(MemberRange { start: MemberSector(start), sectors });
        }
        Some(start)
    }

    /// The first range of `only` that ends after `start`.
    pub(super) fn named_from(&self, start: u64) -> Option<&Range<u64>> {
        self.only.get(self.only.partition_point(|range| range.end <= start))
    }

    /// The first sector after `start` that needs the job, or `None` if `start` itself needs the
    /// job. A resync passes over sectors that are not in doubt, a recovery over sectors that all
    /// its target members hold.
    pub(super) fn passes_over(&self, context: &JobsContext<'_>, start: u64) -> Option<u64> {
        let next = match (self.kind, context.doubt) {
            (JobKind::Resync, _) if self.is_quiet => {
                let (due, _) = context.lazy?;
                due.next_sector(start).unwrap_or(u64::MAX)
            }
            (JobKind::Check, _) if self.is_quiet => {
                self.named_from(start).map_or(u64::MAX, |named| named.start.max(start))
            }
            (JobKind::Check | JobKind::Repair, _) => {
                let (_, unsynced) = context.lazy?;
                let unit = if self.axis == Axis::Bands { u64::from(self.band_sectors) } else { 1 };
                let end = (start + unit).min(self.cursor.end());
                let is_apart = !unsynced.has_any(unsynced.of(&(start..end)));
                if is_apart {
                    return None;
                }
                unsynced.next_clear_sector(start).next_multiple_of(unit).max(end)
            }
            (JobKind::Resync, Some(doubt)) => doubt.next_sector(start).unwrap_or(u64::MAX),
            (JobKind::Recovery, _) => {
                let (at, left) = (MemberSector(start), self.cursor.end() - start);
                let held = self.targets.iter().map(|id| context.roster.holds_next(*id, at, left));
                start + held.min().unwrap_or(0)
            }
            _ => return None,
        };
        let next = spoiled(Bug::DoubtSkipped, next, next.saturating_add(1));
        // Bands are requested whole.
        let unit = if self.axis == Axis::Bands { u64::from(self.band_sectors) } else { 1 };
        let next = (next - next % unit).min(self.cursor.end());
        (next > start).then_some(next)
    }

    /// The number of sectors from `start` on that need the job, up to the first that does not; a
    /// band counts whole.
    pub(super) fn needed(&self, context: &JobsContext<'_>, start: u64, sectors: u64) -> u64 {
        let end = start + sectors;
        match (self.kind, self.axis, context.doubt) {
            (_, Axis::Bands, _) => sectors,
            (JobKind::Resync, ..) if self.is_quiet => match context.lazy {
                Some((due, _)) => due.alike_sectors(start, sectors),
                None => sectors,
            },
            (JobKind::Check, ..) if self.is_quiet => match self.named_from(start) {
                Some(named) if named.contains(&start) => (named.end - start).min(sectors),
                _ => sectors,
            },
            (JobKind::Check | JobKind::Repair, ..) => match context.lazy {
                Some((_, unsynced)) => unsynced.alike_sectors(start, sectors),
                None => sectors,
            },
            (JobKind::Resync, _, Some(doubt)) => {
                let bits = doubt.of(&(start..end));
                let first_clear = bits.clone().find(|bit| !doubt.is_set(*bit));
                first_clear
                    .map_or(sectors, |bit| doubt.sectors_of(bit).start.max(start + 1) - start)
            }
            (JobKind::Recovery, ..) => {
                let at = MemberSector(start);
                let lacks =
                    self.targets.iter().map(|id| context.roster.lacks_next(*id, at, sectors));
                // If the work is repeated, members may hold all of its sectors by now. The work's
                // length then stays the same.
                lacks.max().filter(|lacks| *lacks > 0).unwrap_or(sectors)
            }
            _ => sectors,
        }
    }

    pub(super) fn has_room(&self, shards: u16) -> bool {
        self.cursor.under_way() < (WORKS_EACH * usize::from(shards)).min(WORKS_MAX)
    }

    /// Undone work that is due again now. Before a repeat, bad-block logs get the sectors that
    /// could not be computed.
    pub(super) fn to_repeat(&self, now: Instant, context: &JobsContext<'_>) -> Option<Run> {
        let is_time = self.repeat_at.is_none_or(|at| at <= now);
        let is_time = is_time && (self.marked.is_empty() || context.are_logs_settled);
        self.cursor.to_repeat().filter(|_| is_time)
    }

    pub(super) fn has_more(&self, now: Instant, context: &JobsContext<'_>) -> bool {
        let is_left = self.to_repeat(now, context).is_some() || self.cursor.next().is_some();
        self.has_room(context.regions.shards()) && is_left
    }

    /// The array's sector at the job's sector `at`, and the number of sectors from there on for one
    /// background work. `None` if the job's sector holds no data.
    pub(super) fn place(&self, context: &JobsContext<'_>, at: u64) -> Option<(LogicalSector, u64)> {
        let work_sectors = u64::from(context.work_sectors);
        let (first, sectors) = match (context.geometry, self.axis) {
            (Geometry::Mirror(mirror), Axis::Member(slot)) => {
                let (first, _) = mirror.logical(slot, MemberSector(at))?;
                (first, mirror.contiguous_sectors(first))
            }
            (Geometry::Stripe(_), _) => return Some((LogicalSector(at), work_sectors)),
            _ => (LogicalSector(at), work_sectors),
        };
        let in_region = context.regions.left_in_region(first);
        Some((first, sectors.min(work_sectors).min(in_region)))
    }
}

/// The ranges that bad-block logs name, in a job's own unit, in order and disjoint.
pub(super) fn named(context: &JobsContext<'_>, axis: Axis) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for (slot, bad) in context.roster.named() {
        for range in bad.ranges() {
            let (mut at, end) = (range.start.0, range.start.0 + range.sectors);
            while at < end {
                let (start, sectors) = match (context.geometry, axis) {
                    (Geometry::Mirror(mirror), Axis::Array) => {
                        let Some((first, _)) = mirror.logical(slot, MemberSector(at)) else {
                            at += 1; // The array has no data there.
                            continue;
                        };
                        (first.0, mirror.contiguous_sectors(first).min(end - at))
                    }
                    _ => (at, end - at),
                };
                all.push(start..start + sectors);
                at += sectors;
            }
        }
    }
    all.sort_by_key(|range| range.start);
    all.dedup_by(|next, kept| {
        let touches = next.start <= kept.end;
        if touches {
            kept.end = kept.end.max(next.end);
        }
        touches
    });
    all
}
