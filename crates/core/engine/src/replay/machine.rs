//! The machine of a log's replay: steps one after the other, then the end.
//!
//! A step is at most [`STEP_SECTORS`] of one part, cut at the edges of members' readable ranges: so
//! a bad or unrecovered sector affects no other sector. All columns of a step are read at once.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use braid_geometry::{MemberSector, Role, RowMap, Slot, StripeGeometry};
use braid_ondisk::PplEntry;
use braid_sim_hooks::{Bug, planted, spoiled};
use rangemap::RangeSet;

use super::decide::{Count, Decision, Facts, Phase, decide};
use super::plan::{Column, EntryError, Part, parts};

/// The most sectors of a step: memory holds this many sectors for each slot.
const STEP_SECTORS: u64 = 256;

/// A member in a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Sectors from the start of the member's data that are up to date.
    pub recovered_sectors: u64,
    /// Ranges of the member that cannot be read.
    pub bad_sectors: Vec<Range<u64>>,
}

impl Member {
    pub(super) fn holds(&self, sectors: &Range<u64>) -> bool {
        let is_bad = |bad: &Range<u64>| bad.start < sectors.end && sectors.start < bad.end;
        sectors.end <= self.recovered_sectors && !self.bad_sectors.iter().any(is_bad)
    }

    /// The sectors of `sectors` to write: without bad sectors, and without the sectors that the
    /// member's recovery will write.
    pub(super) fn writable(&self, sectors: &Range<u64>) -> Vec<Range<u64>> {
        let mut borders: BTreeSet<u64> = self.borders().collect();
        borders.retain(|border| (sectors.start..sectors.end).contains(border));
        borders.extend([sectors.start, sectors.end]);
        let starts = borders.iter().copied();
        let runs = starts.zip(borders.iter().copied().skip(1)).map(|(start, end)| start..end);
        runs.filter(|run| self.holds(run)).collect()
    }

    fn borders(&self) -> impl Iterator<Item = u64> {
        let bad = self.bad_sectors.iter().flat_map(|bad| [bad.start, bad.end]);
        bad.chain([self.recovered_sectors])
    }
}

/// The log of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The log's slot.
    pub slot: Slot,
    /// The log's entries with their numbers, whole, from the oldest record on. For each row, its
    /// last entry counts.
    pub entries: Vec<(u32, PplEntry)>,
}

/// The point at which a replay ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Parity is written, to a member or in memory.
    Written,
    /// Members are flushed; superblocks and logs stay as they are.
    Flushed,
    /// Superblocks say clean and logs are void, if the replay allows that.
    Settled,
}

/// The input of a replay.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The array's geometry.
    pub geometry: StripeGeometry,
    /// The members, by slot.
    pub members: Vec<Option<Member>>,
    /// The readable logs.
    pub logs: Vec<Log>,
    /// The point at which the replay shall end.
    pub finish: Finish,
}

/// A request of the current step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read a column.
    Read {
        /// The column's slot.
        slot: Slot,
        /// Sectors of the member's data.
        sectors: Range<u64>,
    },
    /// Compute parity as the sum of columns and partial parity.
    Compute {
        /// The columns.
        columns: Vec<Slot>,
        /// Partial parity in the log of `parity`: the entry's place in the header, and the sectors.
        partial: Option<(u32, Range<u64>)>,
        /// The slot of the parity.
        parity: Slot,
        /// Q's weights for the columns; `None` to compute P.
        q: Option<Weights>,
        /// The length.
        length_sectors: u64,
    },
    /// Write the parity.
    Write {
        /// The slot of the parity.
        slot: Slot,
        /// Sectors of the member's data.
        sectors: Range<u64>,
    },
    /// Flush a member.
    Flush {
        /// The member's slot.
        slot: Slot,
    },
    /// Have a member's superblock say clean, durably.
    RecordClean {
        /// The member's slot.
        slot: Slot,
    },
    /// Put an empty header in the place of a log, durably.
    Void {
        /// The log's slot.
        slot: Slot,
    },
}

/// The powers of the generator by which columns are multiplied in Q.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The exponent of each column.
    pub exponents: Vec<u16>,
    /// A missing column that P supplies.
    pub solved: Option<SolvedColumn>,
}

/// A missing column: the sum of P, Q's columns and, if given, partial parity of P.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SolvedColumn {
    /// The exponent of the missing column.
    pub exponent: u16,
    /// The slot of P.
    pub p_slot: Slot,
    /// Partial parity in the log of P: the entry's place in the header, and the sectors.
    pub partial: Option<(u32, Range<u64>)>,
}

impl Effect {
    /// The effect's slot; for a computation, the slot of its parity.
    #[must_use]
    pub fn slot(&self) -> Slot {
        match self {
            Self::Read { slot, .. }
            | Self::Write { slot, .. }
            | Self::Flush { slot }
            | Self::RecordClean { slot }
            | Self::Void { slot }
            | Self::Compute { parity: slot, .. } => *slot,
        }
    }
}

/// The result of an effect. Each effect has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The effect's slot.
    pub slot: Slot,
    /// Whether the effect succeeded.
    pub is_done: bool,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of entries in the logs.
    pub entries: u64,
    /// Number of member sectors that got new parity.
    pub written_sectors: u64,
    /// Ranges of the array whose write was in flight, and whose member is missing. Parity supplies
    /// their data, which may be neither old nor new. In order, disjoint.
    pub unsettled: Vec<Range<u64>>,
    /// The part of `unsettled` that a present member failed to read, outside its bad-block log.
    /// That member holds the data, or P. If a later read succeeds, the data may not fit the parity.
    pub unread: Vec<Range<u64>>,
    /// Whether superblocks say clean now.
    pub is_settled: bool,
}

/// A replay's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A log has an entry that this array cannot have.
    #[error("entry {index} of the log of slot {slot} makes no sense: {cause}")]
    Entry {
        /// The log's slot.
        slot: Slot,
        /// The place of the entry in the header.
        index: u32,
        /// The error.
        cause: EntryError,
    },
    /// A member failed a request: to write parity, flush, or write a superblock or log.
    #[error("slot {slot} could not be {}", match .phase {
        FailedPhase::Parity => "given its parity", FailedPhase::Flush => "flushed",
        FailedPhase::Superblock => "told that the array is clean",
        FailedPhase::Log => "freed of its old log" })]
    Failed {
        /// The slot.
        slot: Slot,
        /// The request that failed.
        phase: FailedPhase,
    },
}

/// A request that a member failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedPhase {
    /// A write of parity.
    Parity,
    /// A flush.
    Flush,
    /// A write of a superblock.
    Superblock,
    /// A log that had to be made void.
    Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnRead {
    Asked,
    Read,
    Lost,
}

struct Step {
    part: Part,
    reads: Vec<ColumnRead>,
    /// How the read of P ended, if the part computes Q.
    p_read: ColumnRead,
    /// Whether a read of several sectors failed: then some of them may be readable.
    may_split: bool,
}

/// The machine of a replay. The driver polls effects and answers each, until [`Self::end`] returns
/// the result.
pub struct Replay {
    geometry: StripeGeometry,
    members: Vec<Option<Member>>,
    finish: Finish,
    phase: Phase,
    steps: VecDeque<Part>,
    step: Option<Step>,
    /// The parts of P's log.
    of_p: Vec<Part>,
    /// Effects to be polled.
    effects: VecDeque<Effect>,
    /// Slots whose effect is not answered yet.
    asked: BTreeSet<Slot>,
    failed: Option<ReplayError>,
    report: Report,
}

impl Replay {
    /// Makes the machine, which has no effect yet.
    ///
    /// # Errors
    /// If a log has an entry that the array cannot have.
    ///
    /// # Panics
    /// If members and slots differ in number, or a log has no member.
    pub fn new(setup: Setup) -> Result<Self, ReplayError> {
        let Setup { geometry, members, logs, finish } = setup;
        assert_eq!(members.len(), usize::from(geometry.slots()), "one for each slot");
        let is_degraded = members.iter().any(Option::is_none);
        let (mut steps, mut of_p, mut all) = (VecDeque::new(), Vec::new(), Vec::new());
        let mut report = Report::default();
        for log in logs {
            assert!(members[log.slot.index()].is_some(), "a log is on its member");
            let mut found = Vec::new();
            for (index, entry) in &log.entries {
                let failed = |cause| ReplayError::Entry { slot: log.slot, index: *index, cause };
                found.extend(parts(&geometry, log.slot, (*index, entry)).map_err(failed)?);
                report.entries += 1;
            }
            all.extend(newest_of_rows(&found));
        }
        of_p.extend(all.iter().filter(|part| !part.is_q).cloned());
        // The log of P alone may have a newer record of some rows, if that record was never durable
        // in both logs.
        let borders = of_p.iter().flat_map(|part| [part.sectors.start, part.sectors.end]);
        let borders: BTreeSet<u64> = borders.collect();
        steps.extend(all.iter().flat_map(|part| steps_of(part, &members, &borders)));
        if planted(Bug::ReplaySkippedDegraded) && is_degraded {
            steps.clear();
        }
        Ok(Self {
            geometry,
            members,
            finish,
            phase: Phase::Between,
            steps,
            step: None,
            of_p,
            effects: VecDeque::new(),
            asked: BTreeSet::new(),
            failed: None,
            report,
        })
    }

    /// The next effect; `None` while answers are due, and at the end.
    pub fn poll(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                self.asked.insert(effect.slot());
                return Some(effect);
            }
            match decide(&self.facts()) {
                Decision::Wait => return None,
                decision => self.act(decision),
            }
        }
    }

    /// Takes the result of an effect.
    ///
    /// # Panics
    /// If no effect is in flight at the slot.
    pub fn handle(&mut self, event: Event) {
        let Event { slot, is_done } = event;
        assert!(self.asked.remove(&slot), "nothing was asked of slot {slot}");
        let phase = match self.phase {
            Phase::Read => return self.note_read(slot, is_done),
            Phase::Write => FailedPhase::Parity,
            Phase::Flush => FailedPhase::Flush,
            Phase::Record => FailedPhase::Superblock,
            Phase::Void => FailedPhase::Log,
            Phase::Between | Phase::Compute | Phase::Done => return,
        };
        if !is_done {
            self.failed.get_or_insert(ReplayError::Failed { slot, phase });
        }
    }

    /// The result, at the end.
    pub fn end(&mut self) -> Option<Result<Report, ReplayError>> {
        let is_over = self.phase == Phase::Done;
        is_over.then(|| match self.failed {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.report)),
        })
    }

    fn note_read(&mut self, slot: Slot, is_done: bool) {
        let step = self.step.as_mut().expect("it is being read");
        let of_slot = step.part.columns.iter().position(|column| column.slot == slot);
        let read = match of_slot {
            Some(place) => &mut step.reads[place],
            None => &mut step.p_read,
        };
        assert_eq!(*read, ColumnRead::Asked, "it was asked for a column, or for P");
        *read = if is_done { ColumnRead::Read } else { ColumnRead::Lost };
        let sectors = &step.part.sectors;
        step.may_split |= !is_done && sectors.end - sectors.start > 1;
    }

    fn facts(&self) -> Facts {
        let lacks = |is_written: bool| {
            let count = |step: &Step| {
                let columns = step.part.columns.iter().zip(&step.reads);
                let is_lost = |(column, read): &(&Column, &ColumnRead)| {
                    column.is_written == is_written && **read == ColumnRead::Lost
                };
                columns.filter(is_lost).count()
            };
            Count::of(self.step.as_ref().map_or(0, count))
        };
        let has_p = self.step.as_ref().is_some_and(|step| step.p_read == ColumnRead::Read);
        let p_partial = || self.p_partial(&self.step.as_ref()?.part);
        let partial = self.step.as_ref().and_then(|step| step.part.partial_sector);
        Facts {
            phase: self.phase,
            is_pending: !self.asked.is_empty(),
            has_failed: self.failed.is_some(),
            has_step: !self.steps.is_empty(),
            may_split: self.step.as_ref().is_some_and(|step| step.may_split),
            lacks_written: lacks(true),
            lacks_kept: lacks(false),
            has_partial: partial.is_some(),
            has_p,
            has_p_partial: has_p && p_partial().is_some(),
            is_durable: self.finish != Finish::Written,
            may_settle: self.may_settle(),
        }
    }

    /// Whether superblocks may say clean: all members must be present. A member that returns brings
    /// its own log, and data that does not fit the parity.
    fn may_settle(&self) -> bool {
        let is_whole = |member: &Option<Member>| {
            member.as_ref().is_some_and(|member| member.recovered_sectors == u64::MAX)
        };
        let is_whole = self.members.iter().all(is_whole) && self.report.unsettled.is_empty();
        let is_whole = spoiled(Bug::ReplaySettlesDegraded, is_whole, true);
        self.finish == Finish::Settled && is_whole
    }

    fn act(&mut self, decision: Decision) {
        match decision {
            Decision::Wait => {}
            Decision::Begin => self.begin(),
            Decision::Split => self.split(),
            Decision::Recompute => self.compute(false, false),
            Decision::FromPartial => self.compute(true, false),
            Decision::FromP => self.compute(false, true),
            Decision::FromPAndPartials => self.compute(true, true),
            Decision::Leave => self.leave(),
            Decision::Write => self.write(),
            Decision::Next => self.next(),
            Decision::Flush => self.of_everybody(Phase::Flush, |slot| Effect::Flush { slot }),
            Decision::Record => {
                self.of_everybody(Phase::Record, |slot| Effect::RecordClean { slot });
            }
            Decision::Void => self.of_everybody(Phase::Void, |slot| Effect::Void { slot }),
            Decision::Finish => {
                self.report.is_settled = self.phase == Phase::Void;
                self.phase = Phase::Done;
            }
            Decision::Fail => self.phase = Phase::Done,
        }
    }

    fn begin(&mut self) {
        let part = self.steps.pop_front().expect("there is a step");
        self.phase = Phase::Read;
        let mut reads = Vec::new();
        for column in &part.columns {
            let member = self.members[column.slot.index()].as_ref();
            let is_there = member.is_some_and(|member| member.holds(&part.sectors));
            reads.push(if is_there { ColumnRead::Asked } else { ColumnRead::Lost });
            if is_there {
                let (slot, sectors) = (column.slot, part.sectors.clone());
                self.effects.push_back(Effect::Read { slot, sectors });
            }
        }
        let p_slot = part.is_q.then(|| self.map(&part).p_slot());
        let is_there = |slot: &Slot| {
            let member = self.members[slot.index()].as_ref();
            member.is_some_and(|member| member.holds(&part.sectors))
        };
        let p_slot = p_slot.filter(is_there);
        let read = |slot| Effect::Read { slot, sectors: part.sectors.clone() };
        self.effects.extend(p_slot.map(read));
        let p_read = if p_slot.is_some() { ColumnRead::Asked } else { ColumnRead::Lost };
        self.step = Some(Step { part, reads, p_read, may_split: false });
    }

    fn split(&mut self) {
        let Step { part, .. } = self.step.take().expect("it was read");
        let length = part.sectors.end - part.sectors.start;
        for sector in (0..length).rev() {
            self.steps.push_front(part.some(sector..sector + 1));
        }
        self.phase = Phase::Between;
    }

    fn map(&self, part: &Part) -> RowMap {
        self.geometry.row_map(self.geometry.row_of(MemberSector(part.sectors.start)))
    }

    /// Partial parity of P for the sectors of Q's part, if P's log has the same columns.
    fn p_partial(&self, part: &Part) -> Option<(u32, Range<u64>)> {
        let Range { start, end } = part.sectors;
        let is_of = |one: &&Part| {
            one.sectors.start <= start && end <= one.sectors.end && one.columns == part.columns
        };
        let of_p = self.of_p.iter().find(is_of)?;
        let first = of_p.partial_sector? + (start - of_p.sectors.start);
        Some((of_p.entry, first..first + (end - start)))
    }

    /// Computes parity as the sum of all data, or of the columns being written and partial parity.
    /// For Q, computes from P a missing column that was being written.
    fn compute(&mut self, from_partial: bool, from_p: bool) {
        if from_p {
            self.note_unsettled();
        }
        let Step { part, reads, .. } = self.step.as_ref().expect("it was read");
        let counts_kept = !from_partial;
        let counted = part.columns.iter().zip(reads).filter(|(column, read)| {
            (column.is_written || counts_kept) && **read == ColumnRead::Read
        });
        let columns: Vec<Slot> = counted.map(|(column, _)| column.slot).collect();
        let length_sectors = part.sectors.end - part.sectors.start;
        let start = part.partial_sector.filter(|_| from_partial);
        let start = spoiled(Bug::ReplayForgetsPartial, start, None);
        let partial = start.map(|start| (part.entry, start..start + length_sectors));
        let parity = part.parity;
        let map = self.map(part);
        let exponent = |slot: Slot| match map.role(slot) {
            Role::Data(index) => map.exponent(index),
            Role::P | Role::Q => unreachable!("only data is added up"),
        };
        let exponents = || columns.iter().map(|slot| exponent(*slot)).collect();
        let lost = || {
            let mut columns = part.columns.iter().zip(reads);
            let is_lost = |(column, read): &(&Column, &ColumnRead)| {
                column.is_written && **read == ColumnRead::Lost
            };
            columns.find(is_lost).map(|(column, _)| column.slot)
        };
        let solved = || SolvedColumn {
            exponent: exponent(lost().expect("one is not there")),
            p_slot: map.p_slot(),
            partial: if from_partial { self.p_partial(part) } else { None },
        };
        let solved = from_p.then(solved);
        let q = part.is_q.then(|| Weights { exponents: exponents(), solved });
        self.phase = Phase::Compute;
        self.effects.push_back(Effect::Compute { columns, partial, parity, q, length_sectors });
    }

    fn write(&mut self) {
        let part = &self.step.as_ref().expect("it was computed").part;
        self.phase = Phase::Write;
        self.effects.push_back(Effect::Write { slot: part.parity, sectors: part.sectors.clone() });
    }

    fn next(&mut self) {
        let Step { part, .. } = self.step.take().expect("it was written");
        self.report.written_sectors += part.sectors.end - part.sectors.start;
        self.phase = Phase::Between;
    }

    fn leave(&mut self) {
        self.note_unsettled();
        self.step = None;
        self.phase = Phase::Between;
    }

    /// Notes the missing columns that were being written: parity gives these columns their value.
    fn note_unsettled(&mut self) {
        let Step { part, reads, p_read, .. } = self.step.as_ref().expect("it was read");
        let is_there = |slot: Slot| {
            let member = self.members[slot.index()].as_ref();
            member.is_some_and(|member| member.holds(&part.sectors))
        };
        // An unreadable P supplies no column. If a later read of P succeeds, P may not agree with
        // Q.
        let lacks_p = part.is_q && *p_read == ColumnRead::Lost && is_there(self.map(part).p_slot());
        let columns = part.columns.iter().zip(reads);
        let lost = columns.filter(|(column, read)| column.is_written && **read == ColumnRead::Lost);
        for (column, _) in lost {
            let range = array_sectors(&self.geometry, column.slot, &part.sectors);
            let is_unread = is_there(column.slot) || lacks_p;
            if is_unread {
                add(&mut self.report.unread, range.clone());
            }
            add(&mut self.report.unsettled, range);
        }
    }

    fn of_everybody(&mut self, phase: Phase, effect: impl Fn(Slot) -> Effect) {
        self.phase = phase;
        let slots = (0..self.geometry.slots()).map(Slot);
        let there = slots.filter(|slot| self.members[slot.index()].is_some());
        self.effects.extend(there.map(effect));
    }
}

/// The newest part for each row. `parts` are in the order of their records.
fn newest_of_rows(parts: &[Part]) -> Vec<Part> {
    let mut said = RangeSet::new();
    let mut newest = Vec::new();
    for part in parts.iter().rev() {
        let start = part.sectors.start;
        let gaps = said.gaps(&part.sectors);
        newest.extend(gaps.map(|gap: Range<u64>| part.some(gap.start - start..gap.end - start)));
        said.insert(part.sectors.clone());
    }
    newest.reverse();
    newest
}

/// Cuts a part into steps, and leaves out steps whose parity is missing.
fn steps_of(part: &Part, members: &[Option<Member>], of_p: &BTreeSet<u64>) -> Vec<Part> {
    let Range { start, end } = part.sectors;
    let mut borders: BTreeSet<u64> = members.iter().flatten().flat_map(Member::borders).collect();
    borders.extend(of_p.range(start..end).filter(|_| part.is_q));
    borders.retain(|border| (start..end).contains(border));
    let count = (end - start).div_ceil(STEP_SECTORS);
    borders.extend((0..count).map(|step| start + step * STEP_SECTORS));
    borders.insert(end);
    let starts = borders.iter().copied();
    let steps = starts.zip(borders.iter().copied().skip(1));
    let steps = steps.map(|(from, to)| part.some(from - start..to - start));
    let parity = members[part.parity.index()].as_ref();
    steps.filter(|step| parity.is_some_and(|member| member.holds(&step.sectors))).collect()
}

/// Converts sectors of a slot, inside one chunk, to sectors of the array.
fn array_sectors(geometry: &StripeGeometry, slot: Slot, sectors: &Range<u64>) -> Range<u64> {
    let row = geometry.row_of(MemberSector(sectors.start));
    let Role::Data(index) = geometry.row_map(row).role(slot) else {
        unreachable!("only data is being written")
    };
    let offset = sectors.start - geometry.row_start(row).0;
    let offset = u32::try_from(offset).expect("within a chunk");
    let start = geometry.logical(row, index, offset).0;
    start..start + (sectors.end - sectors.start)
}

/// Adds a range to ordered, disjoint ranges.
pub(super) fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    let at = ranges.partition_point(|one| one.end < range.start);
    let to = ranges.partition_point(|one| one.start <= range.end);
    let touched = ranges.drain(at..to);
    let whole =
        touched.fold(range, |whole, one| whole.start.min(one.start)..whole.end.max(one.end));
    ranges.insert(at, whole);
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_geometry::{Geometry, Level, Shape, default_layout};

    use crate::stripe::tests::geometry;

    /// An entry for a column of the first row of chunks. A chunk has 64 sectors.
    fn entry((column, offset): (u64, u64), sectors: u32, parity_slot: u32) -> PplEntry {
        let bytes = sectors * 512;
        let data_sector = column * 64 + offset;
        PplEntry { data_sector, parity_bytes: bytes, data_bytes: bytes, parity_slot, checksum: 0 }
    }

    fn raid6() -> StripeGeometry {
        let shape = Shape::uniform(Level::Raid6, default_layout(Level::Raid6), 64, 6, 256);
        match Geometry::new(&shape) {
            Ok(Geometry::Stripe(geometry)) => geometry,
            other => unreachable!("a plain shape: {other:?}"),
        }
    }

    /// The partial parities that a successful replay uses; a replay of Q also uses those of P.
    fn taken(geometry: StripeGeometry, logs: Vec<Log>, missing: &[usize]) -> Vec<String> {
        let member = |slot: usize| {
            let recovered_sectors = u64::MAX;
            (!missing.contains(&slot)).then_some(Member { recovered_sectors, bad_sectors: vec![] })
        };
        let members = (0..usize::from(geometry.slots())).map(member).collect();
        let finish = Finish::Flushed;
        let mut replay = Replay::new(Setup { geometry, members, logs, finish }).expect("sound");
        let mut taken = Vec::new();
        while let Some(effect) = replay.poll() {
            if let Effect::Compute { partial, parity, q, .. } = &effect {
                let of_p = q.as_ref().and_then(|q| q.solved.as_ref()?.partial.clone());
                taken.push(format!("{parity}: {partial:?} {of_p:?}"));
            }
            replay.handle(Event { slot: effect.slot(), is_done: true });
        }
        assert!(replay.end().expect("it ends").is_ok());
        taken
    }

    #[test]
    fn of_rows_that_two_records_name_the_newer_one_counts() {
        // Parity is in slot 4. The entries: column 0 of rows 0 to 16, then column 1 of rows 8 to
        // 16.
        let entries = vec![(0, entry((0, 0), 16, 4)), (148, entry((1, 8), 8, 4))];
        let logs = vec![Log { slot: Slot(4), entries }];
        let expected = ["4: Some((0, 0..8)) None", "4: Some((148, 0..8)) None"];
        assert_eq!(taken(geometry(5, 64, 4), logs, &[3]), expected);
    }

    #[test]
    fn a_newer_record_that_only_p_has_leaves_q_its_own() {
        // P is in slot 5, Q in slot 0, data from slot 1 on. P alone has a second record of some of
        // the rows: a power cut came before Q had it.
        let of_p = vec![(0, entry((0, 0), 16, 5)), (148, entry((0, 4), 4, 5))];
        let of_q = vec![(0, entry((0, 0), 16, 0))];
        let log = |slot, entries| Log { slot: Slot(slot), entries };
        let logs = vec![log(0, of_q), log(5, of_p)];
        // A written and a kept column are missing: Q is computed from both partial parities.
        let all = taken(raid6(), logs, &[1, 4]);
        let expected = [
            "0: Some((0, 0..4)) Some((0, 0..4))",
            "0: Some((0, 4..8)) Some((148, 0..4))",
            "0: Some((0, 8..16)) Some((0, 8..16))",
        ];
        assert_eq!(all, expected);
    }
}
