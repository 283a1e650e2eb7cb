//! The states of a stripe and of its columns.
//!
//! ```text
//!            work queued             all read               job done           all written
//!   Ready ───────────────▶ Fill ───────────────▶ Compute ───────────▶ Write ───────────────▶ Ready
//!     ▲                     │ ▲ a read failed:                          │ some members missed it
//!     │                     └─┘ plan again                              ▼
//!     │◀───────────────────────────────────────────────────────────── Hold
//!     │                                           a view without them arrived
//!     └── no work left: the stripe is free
//! ```
//!
//! A *batch* is what a stripe works on at a time: all the writes that had come by the time it was begun. Its *window* is the set of sectors of the stripe unit that any of them touches, in
//! whatever column, with the gaps that are too small to be worth a request ([`super::sectors`]); every read,
//! every parity byte and every write of the batch stays inside it.
//!
//! What a batch has read or made stays in the stripe's blocks and is used again, until another band
//! gets the stripe: each column says which sectors of its block hold what its member holds, or would
//! hold if it could be read ([`Column::valid`]). From the moment that a batch computes, that is what members will hold
//! when it has written; if it cannot, nothing of it is believed.

use braid_hooks::{Bug, Mark, Point, planted, reached, sometimes};
use std::collections::VecDeque;

use braid_geometry::{MemberSector, RowMap, Slot};

use super::band::{Attachment, Band, Segment};
use super::lists::Links;
use super::plan::Method;
use super::sectors::{Extent, SectorSet};
use crate::Instant;
use crate::array::MemberId;
use crate::effect::MemberFault;
use crate::shard::Common;

/// What a stripe is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Between batches.
    Ready,
    /// Reading what the batch needs.
    Fill,
    /// Copies and parity are being computed.
    Compute,
    /// Members are being written.
    Write,
    /// Written, but a member missed it and is still believed.
    Hold,
}

/// What is under way with a column's member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnState {
    /// Nothing.
    Still,
    /// Reads.
    Reading,
    /// Writes.
    Writing,
}

/// Where a parity column's new content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// There is none.
    Nothing,
    /// It is zeroes throughout.
    Zeroes { may_punch: bool },
    /// In the column's block.
    Block,
}

/// One slot's part of a stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) state: ColumnState,
    /// Requests that are under way with its member.
    pub(super) out: u32,
    /// Parity's new content.
    pub(super) fresh: Fresh,
    /// Sectors of the stripe unit that the batch writes or wants to read.
    pub(super) touched: SectorSet,
    /// Sectors that could not be read in this batch; writing them again may help.
    pub(super) unreadable: SectorSet,
    /// The member that missed this batch's write, and why.
    pub(super) missed: Option<(MemberId, MemberFault)>,
    /// Sectors of the block that hold what the member holds.
    pub(super) valid: SectorSet,
    /// Sectors that queued writes and the batch's writes cover.
    pub(super) queued: SectorSet,
    /// The batch read it.
    pub(super) was_read: bool,
}

impl Column {
    pub(super) const EMPTY: Self = Self {
        state: ColumnState::Still,
        out: 0,
        fresh: Fresh::Nothing,
        touched: SectorSet::EMPTY,
        unreadable: SectorSet::EMPTY,
        missed: None,
        valid: SectorSet::EMPTY,
        queued: SectorSet::EMPTY,
        was_read: false,
    };

    /// Forgets the last batch.
    fn begin(&mut self) {
        let Self { valid, queued, .. } = *self;
        *self = Self { valid, queued, ..Self::EMPTY };
    }
}

/// What a stripe is working on: the first so many of its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    /// It writes every data column whole.
    pub(super) is_full: bool,
    pub(super) count: usize,
    /// Sectors that it touches in any column.
    pub(super) window: SectorSet,
    /// The way to make parity that is taken if there are two; only the simulator has a wish.
    pub(super) preferred: Option<Method>,
}

impl Batch {
    /// It does not write every data column whole.
    pub(super) fn is_part(&self) -> bool {
        !self.is_full
    }
}

/// Where a stripe stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has no work; what it holds of a band may be of use again. In the list of idle stripes.
    Idle,
    /// It works, or is about to.
    Busy,
    /// It waits to fill up. In the list of delayed stripes.
    Delayed,
    /// It stands back behind full-width writes. In the list of held stripes.
    Held,
    /// The cache has been made smaller; it is out of use.
    Retired,
}

/// How long a stripe with work has not begun, and what has become of its waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PutOff {
    /// When it was first put off, if it was.
    pub(super) since: Option<Instant>,
    /// It does not wait to fill up any more.
    pub(super) is_urged: bool,
    /// Nor does it stand back.
    pub(super) is_let_go: bool,
}

/// One stripe of the pool.
#[derive(Debug)]
pub(super) struct Stripe {
    /// None until it has had one.
    pub(super) band: Option<Band>,
    pub(super) map: RowMap,
    pub(super) phase: Phase,
    pub(super) columns: Box<[Column]>,
    pub(super) batch: Option<Batch>,
    /// Work in order of arrival; the batch's is at the front.
    pub(super) queue: VecDeque<Attachment>,
    pub(super) place: Place,
    pub(super) links: Links,
    /// It is among those that are about to be looked at.
    pub(super) is_ready: bool,
    /// It has ended a batch since it was last idle.
    pub(super) has_served: bool,
    /// What it holds may be of use to the next write of its band: it wrote a part of it.
    pub(super) is_worth_keeping: bool,
    pub(super) put_off: PutOff,
    /// Work in the queue whose client waits for it.
    pub(super) awaited: u32,
    /// Member requests and jobs that are out.
    pub(super) outstanding: u32,
    /// Copies out of its payloads that are out.
    pub(super) copies: u32,
}

impl Stripe {
    pub(super) fn new(map: RowMap, slots: u16) -> Self {
        Self {
            band: None,
            map,
            phase: Phase::Ready,
            columns: vec![Column::EMPTY; usize::from(slots)].into_boxed_slice(),
            batch: None,
            queue: VecDeque::new(),
            place: Place::Retired,
            links: Links::NONE,
            is_ready: false,
            has_served: false,
            is_worth_keeping: false,
            put_off: PutOff::default(),
            awaited: 0,
            outstanding: 0,
            copies: 0,
        }
    }

    pub(super) fn band(&self) -> &Band {
        self.band.as_ref().expect("a stripe with work has a band")
    }

    pub(super) fn window(&self) -> SectorSet {
        self.batch.as_ref().expect("a batch is under way").window
    }

    /// The member sectors of an extent, on every slot.
    pub(super) fn range(&self, extent: Extent) -> (MemberSector, u32) {
        self.band().range(extent)
    }

    /// Whether a request of the batch is with a member that sits out, or its answer waits for superblocks, which every
    /// member is to have.
    pub(super) fn is_stuck(&self, common: &Common) -> bool {
        if self.batch.is_none() || !common.clocks.is_any_out() {
            return false;
        }
        let has_out = |slot| self.column(slot).state != ColumnState::Still;
        self.phase == Phase::Hold || common.clocks.slots_out().any(has_out)
    }

    /// What the batch works on.
    pub(super) fn attachments(&self) -> impl DoubleEndedIterator<Item = &Attachment> {
        self.queue.range(..self.batch.as_ref().expect("a batch is under way").count)
    }

    /// What the batch works on in one data column.
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

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..u16::try_from(self.columns.len()).expect("slots are numbered by u16")).map(Slot)
    }

    /// Slots of data columns, by data index.
    pub(super) fn data_slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let map = self.map;
        (0..map.data_slots()).map(move |index| map.data_slot(index))
    }

    /// Whether queued writes cover every data column whole.
    pub(super) fn is_full(&self, unit_sectors: u32) -> bool {
        let whole = SectorSet::run(0, unit_sectors);
        self.data_slots().all(|slot| self.column(slot).queued.contains(whole))
    }

    /// Adds to the sectors that queued writes cover.
    pub(super) fn note_queued(&mut self, attachment: &Attachment) {
        let band = *self.band();
        for index in 0..self.map.data_slots() {
            if let Some(segment) = band.segment(&attachment.run, index) {
                let column = self.column_mut(self.map.data_slot(index));
                let set = SectorSet::run(segment.offset, segment.sectors);
                column.queued = column.queued.union(set);
            }
        }
    }

    /// Takes the next batch: what is queued, `count_max` writes of it at most.
    pub(super) fn begin_batch(&mut self, unit_sectors: u32, count_max: usize) {
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
        let batch = Batch { is_full: false, count, window: whole, preferred };
        self.batch = Some(batch);
        self.columns.iter_mut().for_each(Column::begin);
        let (mut window, mut last_end) = (SectorSet::EMPTY, 0);
        let mut is_full = true;
        for index in 0..self.map.data_slots() {
            let mut touched = SectorSet::EMPTY;
            for (_, segment) in self.segments(index) {
                touched = touched.union(SectorSet::run(segment.offset, segment.sectors));
                last_end = segment.offset + segment.sectors;
            }
            self.column_mut(self.map.data_slot(index)).touched = touched;
            window = window.union(touched);
            is_full &= touched.contains(whole);
        }
        assert!(!window.is_empty(), "an attachment has segments");
        if planted(Bug::WindowEndsEarly) {
            window = window.common(SectorSet::run(0, last_end));
        }
        let window = if sometimes(Point::WholeWindow) { whole } else { window.joined(whole) };
        if window.extents().count() > 1 {
            reached(Mark::WindowHasGaps);
        }
        self.batch = Some(Batch { window, is_full, ..batch });
    }
}
