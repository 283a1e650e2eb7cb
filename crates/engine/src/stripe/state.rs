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
//! A *batch* is what a stripe works on at a time: either reads or writes, all that had come by the
//! time it was begun. Its *window* is the run of sectors of the stripe unit that any of them
//! touches; every read, every parity byte and every write of the batch stays inside it.
//!
//! What a batch has read or made stays in the stripe's blocks and is used again, until another band
//! gets the stripe: each column says which sectors of its block hold what its member holds, or would
//! hold if it could be read ([`Column::valid`]).

use braid_hooks::{Bug, Point, planted, sometimes};
use std::collections::VecDeque;

use braid_geometry::{MemberSector, RowMap, Slot};

use super::band::{Attachment, Band, Segment};
use super::lists::Links;
use super::plan::Method;
use crate::Instant;
use crate::array::MemberId;
use crate::buffer::Half;
use crate::effect::MemberFault;
use crate::request::RequestId;

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

/// What a column's blocks hold, inside the batch's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnState {
    /// Nothing.
    Empty,
    /// A read is under way.
    Reading,
    /// What the member holds, or would hold if it could be read.
    Clean,
    /// New content that the member does not hold yet.
    Dirty,
    /// A write is under way.
    Writing,
}

/// Where a column's new content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    /// There is none.
    Nothing,
    /// In one client's payload, which covers the window.
    Payload { request: RequestId, offset_sectors: u32 },
    /// It is zeroes throughout.
    Zeroes { may_punch: bool },
    /// In one of the column's blocks.
    Block(Half),
}

/// One slot's part of a stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) state: ColumnState,
    pub(super) fresh: Fresh,
    /// Sectors of the stripe unit that the batch writes or wants to read.
    pub(super) touched: SectorSet,
    /// Reading it failed in this batch; writing it again may help.
    pub(super) unreadable: bool,
    /// The member that missed this batch's write, and why.
    pub(super) missed: Option<(MemberId, MemberFault)>,
    /// Sectors of the old block that hold what the member holds.
    pub(super) valid: SectorSet,
    /// Sectors that queued writes and the batch's writes cover.
    pub(super) queued: SectorSet,
    /// Which of the two blocks is the old one.
    pub(super) is_swapped: bool,
    /// The batch read it.
    pub(super) was_read: bool,
}

impl Column {
    pub(super) const EMPTY: Self = Self {
        state: ColumnState::Empty,
        fresh: Fresh::Nothing,
        touched: SectorSet::EMPTY,
        unreadable: false,
        missed: None,
        valid: SectorSet::EMPTY,
        queued: SectorSet::EMPTY,
        is_swapped: false,
        was_read: false,
    };

    /// Forgets the last batch: what is valid in `window` counts as read.
    fn begin(&mut self, window: Window) {
        let state =
            if self.valid.contains(window.set()) { ColumnState::Clean } else { ColumnState::Empty };
        let Self { valid, queued, is_swapped, .. } = *self;
        *self = Self { state, valid, queued, is_swapped, ..Self::EMPTY };
    }

    /// The batch's content is on the member: what the blocks hold now.
    pub(super) fn settle(&mut self, window: Window) {
        match self.fresh {
            Fresh::Nothing | Fresh::Block(Half::Old) => {}
            Fresh::Payload { .. } | Fresh::Zeroes { .. } => {
                if !planted(Bug::PayloadKeepsValid) {
                    self.valid = self.valid.without(window.set());
                }
            }
            Fresh::Block(Half::New) => {
                self.is_swapped = !self.is_swapped;
                self.valid = window.set();
            }
        }
    }
}

/// A set of the sectors of a stripe unit, which has at most 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectorSet(u128);

impl SectorSet {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) fn run(offset: u32, sectors: u32) -> Self {
        assert!(sectors <= 128 && offset + sectors <= 128, "a stripe unit has 128 sectors at most");
        let ones = if sectors == 128 { u128::MAX } else { (1 << sectors) - 1 };
        Self(ones << offset)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A run of sectors of the stripe unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) offset: u32,
    pub(super) sectors: u32,
}

impl Window {
    /// The smallest window around all segments; none for none.
    pub(super) fn around(segments: impl Iterator<Item = Segment>) -> Option<Self> {
        let bounds = segments.map(|segment| (segment.offset, segment.offset + segment.sectors));
        let (start, end) = bounds.reduce(|a, b| {
            let end = if planted(Bug::WindowEndsEarly) { b.1 } else { a.1.max(b.1) };
            (a.0.min(b.0), end)
        })?;
        Some(Self { offset: start, sectors: end - start })
    }

    pub(super) fn set(self) -> SectorSet {
        SectorSet::run(self.offset, self.sectors)
    }
}

/// What a stripe is working on: the first so many of its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) is_write: bool,
    /// It writes every data column whole.
    pub(super) is_full: bool,
    pub(super) count: usize,
    pub(super) window: Window,
    /// The way to make parity that is taken if there are two; only the simulator has a wish.
    pub(super) preferred: Option<Method>,
}

impl Batch {
    /// It writes, but not every data column whole.
    pub(super) fn is_part(&self) -> bool {
        self.is_write && !self.is_full
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

    pub(super) fn window(&self) -> Window {
        self.batch.as_ref().expect("a batch is under way").window
    }

    /// The member sectors that the batch's window covers on every slot.
    pub(super) fn range(&self) -> (MemberSector, u32) {
        let window = self.window();
        (MemberSector(self.band().start.0 + u64::from(window.offset)), window.sectors)
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
        if !attachment.want.is_write() {
            return;
        }
        let band = *self.band();
        for index in 0..self.map.data_slots() {
            if let Some(segment) = band.segment(&attachment.run, index) {
                let column = self.column_mut(self.map.data_slot(index));
                let set = SectorSet::run(segment.offset, segment.sectors);
                column.queued = column.queued.union(set);
            }
        }
    }

    /// Takes the next batch: the longest run of like requests at the queue's head, `count_max` of
    /// them at most.
    pub(super) fn begin_batch(&mut self, unit_sectors: u32, count_max: usize) {
        let whole = Window { offset: 0, sectors: unit_sectors };
        assert!(self.batch.is_none() && self.outstanding == 0, "one batch at a time");
        let is_write = self.queue.front().expect("a batch has work").want.is_write();
        let count = self.queue.iter().take_while(|next| next.want.is_write() == is_write).count();
        let count_max = if sometimes(Point::OneRequestBatch) { 1 } else { count_max };
        let count = count.min(count_max);
        let preferred = match () {
            () if sometimes(Point::PreferRmw) => Some(Method::Rmw),
            () if sometimes(Point::PreferRcw) => Some(Method::Rcw),
            () => None,
        };
        let batch = Batch { is_write, is_full: false, count, window: whole, preferred };
        self.batch = Some(batch);
        let data = self.map.data_slots();
        let segments = (0..data).flat_map(|index| self.segments(index)).map(|(_, segment)| segment);
        let window = Window::around(segments).expect("an attachment has segments");
        let window = if sometimes(Point::WholeWindow) { whole } else { window };
        self.columns.iter_mut().for_each(|column| column.begin(window));
        for index in 0..data {
            let sets = self.segments(index).map(|(_, s)| SectorSet::run(s.offset, s.sectors));
            let touched = sets.fold(SectorSet::EMPTY, SectorSet::union);
            self.column_mut(self.map.data_slot(index)).touched = touched;
        }
        let covers = |slot: Slot| self.column(slot).touched.contains(whole.set());
        let is_full = is_write && self.data_slots().all(covers);
        self.batch = Some(Batch { window, is_full, ..batch });
    }
}
