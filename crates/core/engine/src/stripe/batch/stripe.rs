//! The state of a stripe. Its queue keeps the writes of a band in order of arrival: of two
//! overlapping writes, the later one wins.
//!
//! Only the files of this directory use the fields; other code uses the methods.

use std::collections::VecDeque;
use std::ops::Range;

use braid_geometry::{ChunkRow, MemberSector, RowMap, Slot, StripeGeometry};
use braid_sim_hooks::{Bug, Mark, Point, planted, reached, sometimes};

use super::super::band::{Attachment, Band, BandKey, Run, Segment};
use super::super::plan::{FilledPlan, Method};
use super::super::scheduler::Width;
use super::log::{LogState, can_be_said};
use crate::array::ArrayView;
use crate::cause::RequestKind;
use crate::context::{Clocks, PieceKey};
use crate::effect::{FaultKind, MemberFault};
use crate::ids::MemberId;
use crate::sectors::{BLOCK_SECTORS, Extent, SectorSet};
use braid_ondisk::{JournalRow, LoggedEntry};

/// Queue entries for which a stripe keeps its allocation when it leaves its band.
const QUEUE_KEPT: usize = 16;
/// The number of queued writes after the batch among which a stripe searches for a write that a
/// later one covers.
const SUPERSEDED_LOOKS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Phase {
    Ready,
    /// Reading the sectors that the batch needs.
    Fill,
    /// Copies and parity are being computed.
    Compute,
    Write,
    /// The batch is written, but a member missed it, and no superblock records the miss yet.
    AwaitRecord,
}

/// The kind of the requests in flight at a column's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum ColumnState {
    Still,
    Reading,
    Writing,
}

/// The place of a parity column's new content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewParity {
    Nothing,
    /// The parity column's new content is zeroes throughout.
    Zeroes {
        may_punch: bool,
    },
    Block,
}

/// One slot's part of a stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) state: ColumnState,
    pub(super) out: u32,
    /// The place of the column's new parity; only meaningful for a parity column.
    pub(super) fresh: NewParity,
    /// Sectors of the stripe unit that the batch writes.
    pub(super) touched: SectorSet,
    /// Sectors that could not be read in this batch. A rewrite may mend them.
    pub(super) unreadable: SectorSet,
    /// The member that missed this batch's write, and the kind of its fault.
    pub(super) missed: Option<(MemberId, FaultKind)>,
    /// Sectors of the block whose content equals that of the member.
    pub(super) valid: SectorSet,
    /// Sectors that queued writes and the batch's writes cover.
    pub(super) queued: SectorSet,
    pub(super) was_read: bool,
}

impl Column {
    const EMPTY: Self = Self {
        state: ColumnState::Still,
        out: 0,
        fresh: NewParity::Nothing,
        touched: SectorSet::EMPTY,
        unreadable: SectorSet::EMPTY,
        missed: None,
        valid: SectorSet::EMPTY,
        queued: SectorSet::EMPTY,
        was_read: false,
    };

    fn begin(&mut self) {
        let Self { valid, queued, .. } = *self;
        *self = Self { valid, queued, ..Self::EMPTY };
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    /// The batch writes every data column whole.
    pub(super) is_full: bool,
    pub(super) count: usize,
    /// The data columns that the batch may touch: the first, and the end.
    pub(super) columns: (u16, u16),
    /// Sectors that the batch touches, in any column.
    pub(super) window: SectorSet,
    /// The method to use if both methods are possible; only the simulator sets it.
    pub(super) preferred: Option<Method>,
}

#[derive(Debug)]
pub(in super::super) struct Stripe {
    /// The stripe's band; `None` while the stripe is blank.
    pub(super) band: Option<Band>,
    pub(super) map: RowMap,
    pub(super) phase: Phase,
    pub(super) columns: Box<[Column]>,
    pub(super) batch: Option<Batch>,
    /// The plan with which the batch continues once its reads have ended; `None` if the batch must
    /// be planned again.
    pub(super) filled: Option<FilledPlan>,
    /// The sector of the stripe unit at which the stripe's blocks begin.
    shift_sectors: u32,
    /// Work in order of arrival; the batch's work is at the front.
    pub(super) queue: VecDeque<Attachment>,
    /// The stripe has ended a batch since it was last idle.
    pub(super) has_served: bool,
    /// The stripe's blocks may be of use to the next write of its band, because the stripe wrote
    /// only a part of the band.
    pub(super) is_worth_keeping: bool,
    /// Number of queued works whose client waits.
    pub(super) awaited: u32,
    /// Failed requests of this batch, in order. They show why a column missed the batch, or why the
    /// batch was refused. Usually empty, so kept outside the columns.
    pub(super) faults: Vec<MemberFault>,
    /// The state of the batch's log entries.
    pub(super) logged: LogState,
    /// Log entries of the batch, until they are submitted.
    pub(super) entries: Vec<LoggedEntry>,
    /// Blocks of the batch for a journal, until they are submitted. The computation supplies their
    /// bytes.
    pub(super) rows: Vec<JournalRow>,
    /// Number of member requests and computations in flight.
    pub(super) outstanding: u32,
    pub(super) copies: u32,
    /// A member left while the batch was reading from it, and may still fill a block of the frame.
    pub(super) is_left: bool,
}

/// Methods for other modules.
impl Stripe {
    /// A stripe without a band.
    pub(in super::super) fn new(geometry: &StripeGeometry) -> Self {
        Self {
            band: None,
            map: geometry.row_map(ChunkRow(0)),
            phase: Phase::Ready,
            columns: vec![Column::EMPTY; usize::from(geometry.slots())].into_boxed_slice(),
            batch: None,
            filled: None,
            shift_sectors: 0,
            queue: VecDeque::new(),
            has_served: false,
            is_worth_keeping: false,
            awaited: 0,
            faults: Vec::new(),
            logged: LogState::Needless,
            entries: Vec::new(),
            rows: Vec::new(),
            outstanding: 0,
            copies: 0,
            is_left: false,
        }
    }

    /// Forgets parity in the blocks, because background work is writing the band's parity.
    pub(in super::super) fn forget_parity(&mut self) {
        // A plan may rely on the forgotten content.
        self.filled = None;
        let map = self.map;
        for slot in [Some(map.p_slot()), map.q_slot()].into_iter().flatten() {
            self.column_mut(slot).valid = SectorSet::EMPTY;
        }
    }

    /// Forgets all columns in the blocks, because background work is writing the band.
    pub(in super::super) fn forget_columns(&mut self) {
        assert!(self.batch.is_none(), "no batch goes by them");
        self.columns.iter_mut().for_each(|column| column.valid = SectorSet::EMPTY);
    }

    pub(in super::super) fn assign(&mut self, band: Band, map: RowMap) {
        assert!(self.queue.is_empty() && self.batch.is_none(), "a blank stripe has no work");
        assert!(self.outstanding == 0 && self.copies == 0, "nothing of the old band is under way");
        self.map = map;
        self.band = Some(band);
        if planted(Bug::OldBandBelieved) {
            return;
        }
        self.columns.fill(Column::EMPTY);
    }

    pub(in super::super) fn leave_band(&mut self) -> BandKey {
        assert!(self.queue.is_empty() && self.batch.is_none(), "a band with work has its stripe");
        // A stripe is never freed, so the memory of a long queue is freed here.
        if self.queue.capacity() > QUEUE_KEPT {
            self.queue.shrink_to(QUEUE_KEPT);
        }
        self.band.take().expect("it has one").key
    }

    /// Called when the stripe's work is done: from now on it counts as a stripe that has served no
    /// batch.
    pub(in super::super) fn rest(&mut self) {
        assert!(
            self.queue.is_empty() && self.batch.is_none(),
            "a stripe rests when it has no work"
        );
        assert!(self.outstanding == 0 && self.awaited == 0, "nor is any under way, or waited for");
        self.has_served = false;
    }

    pub(in super::super) fn band(&self) -> &Band {
        self.band.as_ref().expect("a stripe with work has a band")
    }

    pub(in super::super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the stripe has ended a batch since it was last idle.
    pub(in super::super) fn has_served(&self) -> bool {
        self.has_served
    }

    /// Whether the stripe's blocks may be of use to the next write of its band.
    pub(in super::super) fn is_worth_keeping(&self) -> bool {
        self.is_worth_keeping
    }

    pub(in super::super) fn has_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Whether the batch writes the whole band or only a part; `None` without a batch.
    pub(in super::super) fn width(&self) -> Option<Width> {
        let width = |batch: &Batch| if batch.is_full { Width::Full } else { Width::Part };
        self.batch.as_ref().map(width)
    }

    pub(in super::super) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a client waits for queued work.
    pub(in super::super) fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Epochs of the dirty references in the queue.
    pub(in super::super) fn dirty_epochs(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|work| work.dirty_epoch)
    }

    /// Whether queued writes cover every data column whole.
    pub(in super::super) fn is_full(&self, unit_sectors: u32) -> bool {
        let whole = SectorSet::run(0, unit_sectors);
        self.data_slots().all(|slot| self.column(slot).queued.contains(whole))
    }

    /// Whether the queue, including the batch, touches any of these sectors of a data column.
    pub(in super::super) fn has_queued(&self, data_index: u16, sectors: SectorSet) -> bool {
        self.column(self.map.data_slot(data_index)).queued.meets(sectors)
    }

    /// The queue in order of arrival, the batch's work first.
    pub(in super::super) fn queue(&self) -> impl DoubleEndedIterator<Item = &Attachment> {
        self.queue.iter()
    }

    /// Whether the first queued work has its intent (I3). Either all writes of a batch have their
    /// intent, or none has.
    pub(in super::super) fn has_intent(&self) -> bool {
        self.queue.front().is_none_or(|first| !first.lacks_intent)
    }

    /// Called when a member left with the batch's request in flight. Returns the payloads that the
    /// member may still read.
    pub(in super::super) fn leave(&mut self) -> Vec<PieceKey> {
        match self.phase {
            Phase::Fill => {
                self.is_left = true;
                Vec::new()
            }
            Phase::Write => self.attachments().map(|work| work.piece).collect(),
            Phase::Ready | Phase::Compute | Phase::AwaitRecord => {
                unreachable!("no request is out")
            }
        }
    }

    /// Whether any queued work lacks its intent.
    pub(in super::super) fn lacks_intent(&self) -> bool {
        self.queue.iter().any(|work| work.lacks_intent)
    }

    /// Called when superblocks allow writes to the region. Returns the queued work that waited for
    /// superblocks.
    pub(in super::super) fn grant_intent(
        &mut self,
        has_intent: impl Fn(PieceKey) -> bool,
    ) -> Vec<Attachment> {
        let mut granted = Vec::new();
        let is_granted = |work: &&mut Attachment| work.lacks_intent && has_intent(work.piece);
        for work in self.queue.iter_mut().filter(is_granted) {
            work.lacks_intent = false;
            granted.push(*work);
        }
        granted
    }

    /// Whether requests or computations are in flight, or copies from the payloads of a batch that
    /// has begun.
    pub(in super::super) fn is_outstanding(&self) -> bool {
        self.outstanding > 0 || self.phase != Phase::Ready && self.copies > 0
    }

    /// Whether member requests or computations are in flight.
    pub(in super::super) fn has_outstanding(&self) -> bool {
        self.outstanding > 0
    }

    /// Whether copies from the stripe's queued payloads are in flight.
    pub(in super::super) fn has_copies(&self) -> bool {
        self.copies > 0
    }

    /// Begins a copy from the stripe's queued payloads, which are kept until the copy ends.
    pub(in super::super) fn begin_copy(&mut self) {
        if planted(Bug::CopyUnguarded) {
            return;
        }
        assert!(!self.queue.is_empty(), "what is copied is queued");
        self.copies += 1;
    }

    pub(in super::super) fn end_copy(&mut self) {
        if planted(Bug::CopyUnguarded) {
            return;
        }
        assert!(self.copies > 0, "a copy ends once");
        self.copies -= 1;
    }

    /// Whether a column's member is changing or stale in this band: the batch writes that member,
    /// or the member missed the write.
    pub(in super::super) fn is_changing(&self, slot: Slot) -> bool {
        let column = self.column(slot);
        column.missed.is_some() || column.state == ColumnState::Writing
    }

    /// Slots whose member has requests of the kind `state` in flight.
    pub(in super::super) fn slots_at(&self, state: ColumnState) -> impl Iterator<Item = Slot> {
        self.slots().filter(move |slot| self.column(*slot).state == state)
    }

    /// Whether a request of the batch is at a member that sits out, or the batch's answer waits for
    /// superblocks, which members that sit out must write too.
    pub(in super::super) fn is_stuck(&self, clocks: &Clocks) -> bool {
        if self.batch.is_none() || !clocks.is_any_out() {
            return false;
        }
        let has_out = |slot| self.column(slot).state != ColumnState::Still;
        let waits = self.phase == Phase::AwaitRecord || self.awaits_log();
        waits || clocks.slots_out().any(has_out)
    }

    /// Whether the batch is computed and waits for the log.
    pub(in super::super) fn awaits_log(&self) -> bool {
        self.logged == LogState::Asked
    }

    /// Notes that the batch's log entries are durable.
    pub(in super::super) fn is_logged(&mut self) {
        assert_eq!(self.logged, LogState::Asked, "what was asked for is logged, and once");
        self.logged = LogState::Durable;
    }

    pub(in super::super) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..u16::try_from(self.columns.len()).expect("slots are numbered by u16")).map(Slot)
    }

    pub(in super::super) fn join(&mut self, work: Attachment) {
        assert!(!(work.is_answered && work.lacks_intent), "I3: no answer before the intent");
        assert!(
            !work.is_answered || work.dirty_epoch.is_some(),
            "I8: a flush waits for each write that is answered before it is written"
        );
        self.awaited += u32::from(!work.is_answered);
        self.note_queued(&work);
        self.queue.push_back(work);
    }

    /// Notes that a queued write was answered; `work` is its new state.
    pub(in super::super) fn note_answered(&mut self, work: &Attachment) {
        let is_it = |queued: &&mut Attachment| {
            queued.piece == work.piece && queued.run == work.run && !queued.is_answered
        };
        assert!(work.dirty_epoch.is_some(), "I8: a flush waits for it from now on");
        let queued = self.queue.iter_mut().find(is_it).expect("it is queued");
        *queued = *work;
        self.awaited -= 1;
    }

    /// Removes from the queue and returns an answered write that `run` covers, if one of the first
    /// writes after the batch is such a write. `None` while payloads are in use.
    pub(in super::super) fn take_covered(&mut self, run: &Run) -> Option<Attachment> {
        // A copy from the covered write's payload may be in flight.
        if self.outstanding > 0 || self.copies > 0 {
            return None;
        }
        let first = self.batch.as_ref().map_or(0, |batch| batch.count);
        let last = self.queue.len();
        let from = first.max(last.saturating_sub(SUPERSEDED_LOOKS_MAX));
        let is_covered = |older: &Attachment| older.is_answered && run.covers(&older.run);
        let place = (from..last).rev().find(|place| is_covered(&self.queue[*place]))?;
        self.queue.remove(place)
    }
}

/// Methods for the files of the batch.
impl Stripe {
    pub(super) fn window(&self) -> SectorSet {
        self.batch.as_ref().expect("a batch is under way").window
    }

    /// Whether a member that missed the write is still in the array's view, so that its loss is
    /// unrecorded.
    pub(super) fn is_missed(&self, view: &ArrayView) -> bool {
        self.slots().any(|slot| {
            let missed = self.column(slot).missed.map(|(member, _)| member);
            missed.is_some_and(|member| view.has(slot, member))
        })
    }

    /// The member sectors of an extent, on every slot.
    pub(super) fn range(&self, extent: Extent) -> (MemberSector, u32) {
        self.band().range(extent)
    }

    /// The batch's work.
    pub(super) fn attachments(&self) -> impl DoubleEndedIterator<Item = &Attachment> {
        self.queue.range(..self.batch.as_ref().expect("a batch is under way").count)
    }

    /// The fault by which a column's member missed the batch.
    ///
    /// # Panics
    /// If the member did not miss the batch.
    pub(super) fn fault_of(&self, missed: (MemberId, FaultKind)) -> MemberFault {
        let is_it = |fault: &&MemberFault| {
            (fault.cause.member, fault.kind) == missed && fault.cause.asked != RequestKind::Read
        };
        *self.faults.iter().find(is_it).expect("a write that was missed has failed")
    }

    /// The batch's segments in one data column.
    pub(super) fn segments(
        &self,
        index: u16,
    ) -> impl DoubleEndedIterator<Item = (&Attachment, Segment)> {
        let band = self.band();
        self.attachments().filter_map(move |attachment| {
            band.segment(&attachment.run, index).map(|segment| (attachment, segment))
        })
    }

    pub(super) fn column(&self, slot: Slot) -> &Column {
        &self.columns[usize::from(slot.0)]
    }

    pub(super) fn column_mut(&mut self, slot: Slot) -> &mut Column {
        &mut self.columns[usize::from(slot.0)]
    }

    /// The range of data columns that the batch touches.
    pub(super) fn touched_columns(&self) -> Range<u16> {
        let (first, end) = self.batch.as_ref().expect("a batch is under way").columns;
        first..end
    }

    /// Slots of data columns, by data index.
    pub(super) fn data_slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let map = self.map;
        (0..map.data_slots()).map(move |index| map.data_slot(index))
    }

    /// Adds a write to the sectors that the queue covers.
    pub(super) fn note_queued(&mut self, attachment: &Attachment) {
        let band = *self.band();
        for index in band.columns(&attachment.run) {
            if let Some(segment) = band.segment(&attachment.run, index) {
                let column = self.column_mut(self.map.data_slot(index));
                let set = SectorSet::run(segment.offset, segment.sectors);
                column.queued = column.queued.union(set);
            }
        }
    }

    /// The number of queued writes, at most `count_max`, that partial parity entries can express
    /// together.
    pub(super) fn can_be_logged(&self, count_max: usize) -> usize {
        let columns = usize::from(self.map.data_slots());
        let mut touched = vec![SectorSet::EMPTY; columns];
        for (place, work) in self.queue.iter().take(count_max).enumerate() {
            for (index, column) in (0..).zip(&mut touched) {
                if let Some(segment) = self.band().segment(&work.run, index) {
                    *column = column.union(SectorSet::run(segment.offset, segment.sectors));
                }
            }
            if !can_be_said(touched.iter().copied()) {
                reached(Mark::LogCutsBatch);
                assert!(place > 0, "one write can always be said");
                return place;
            }
        }
        count_max
    }

    /// Begins the next batch, of at most `count_max` writes. A batch for a journal covers whole
    /// blocks.
    pub(super) fn begin_batch(&mut self, unit_sectors: u32, count_max: usize, is_journaled: bool) {
        let whole = SectorSet::run(0, unit_sectors);
        assert!(self.batch.is_none() && self.outstanding == 0, "one batch at a time");
        assert!(!self.queue.is_empty(), "a batch has work");
        let count_max = if sometimes(Point::OneRequestBatch) { 1 } else { count_max };
        let count = self.queue.len().min(count_max);
        let preferred = match () {
            () if sometimes(Point::PreferRmw) => Some(Method::Rmw),
            () if sometimes(Point::PreferRcw) => Some(Method::Rcw),
            () => None,
        };
        let band = *self.band();
        let columns = self.queue.range(..count).map(|work| band.columns(&work.run));
        let columns = columns.fold((u16::MAX, 0), |(first, end), columns| {
            (first.min(columns.start), end.max(columns.end))
        });
        let batch = Batch { is_full: false, count, columns, window: whole, preferred };
        self.batch = Some(batch);
        self.filled = None;
        assert_eq!(self.logged, LogState::Needless, "what was logged is over");
        self.faults.clear();
        self.columns.iter_mut().for_each(Column::begin);
        let mut window = SectorSet::EMPTY;
        let mut is_full = self.touched_columns().len() == usize::from(self.map.data_slots());
        for index in self.touched_columns() {
            let mut touched = SectorSet::EMPTY;
            for (_, segment) in self.segments(index) {
                touched = touched.union(SectorSet::run(segment.offset, segment.sectors));
            }
            self.column_mut(self.map.data_slot(index)).touched = touched;
            window = window.union(touched);
            is_full &= touched.contains(whole);
        }
        assert!(!window.is_empty(), "an attachment has segments");
        let window = if sometimes(Point::WholeWindow) { whole } else { window.joined(whole) };
        let window = if is_journaled { window.blocks() } else { window };
        assert!(whole.contains(window), "a window lies in its stripe unit");
        if window.extents().count() > 1 {
            reached(Mark::WindowHasGaps);
        }
        self.batch = Some(Batch { window, is_full, ..batch });
        self.shift_to(window);
    }

    /// Makes empty blocks begin at the window. If the blocks begin after the window's start and
    /// hold content, that content is dropped once. The blocks then begin at the start of the stripe
    /// unit.
    fn shift_to(&mut self, window: SectorSet) {
        let first = window.first_from(0).expect("a window has sectors");
        let first = first / BLOCK_SECTORS * BLOCK_SECTORS;
        if self.columns.iter().all(|column| column.valid.is_empty()) {
            self.shift_sectors = first;
        } else if first < self.shift_sectors {
            reached(Mark::BlocksShiftedBack);
            self.columns.iter_mut().for_each(|column| column.valid = SectorSet::EMPTY);
            self.shift_sectors = 0;
        }
    }

    /// The sector of the stripe unit at which the stripe's blocks begin.
    pub(super) fn shift_sectors(&self) -> u32 {
        self.shift_sectors
    }
}
