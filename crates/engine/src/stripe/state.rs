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

use braid_hooks::{Bug, Point, planted, sometimes};
use std::collections::VecDeque;

use braid_geometry::{MemberSector, RowMap, Slot};

use super::plan::Method;
use crate::array::MemberId;
use crate::buffer::Half;
use crate::effect::MemberFault;
use crate::request::RequestId;
use crate::shard::PieceKey;

/// Which run of member sectors a stripe covers: the member sector divided by the stripe unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BandKey(pub(super) u64);

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
}

impl Column {
    pub(super) const EMPTY: Self = Self {
        state: ColumnState::Empty,
        fresh: Fresh::Nothing,
        touched: SectorSet::EMPTY,
        unreadable: false,
        missed: None,
    };
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

    pub(super) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Part of a piece inside one column of one stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) data_index: u16,
    /// Sectors into the stripe unit.
    pub(super) offset: u32,
    pub(super) sectors: u32,
    /// Sectors into the request's payload; without meaning for zeroes.
    pub(super) payload_offset: u32,
}

/// What a piece wants of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Read,
    Write { durable: bool },
    Zero { may_punch: bool, durable: bool },
}

impl Want {
    pub(super) fn is_write(self) -> bool {
        self != Self::Read
    }

    pub(super) fn is_durable(self) -> bool {
        matches!(self, Self::Write { durable: true } | Self::Zero { durable: true, .. })
    }
}

/// A piece's business with one stripe.
#[derive(Clone, Debug)]
pub(super) struct Attachment {
    pub(super) piece: PieceKey,
    pub(super) request: RequestId,
    pub(super) want: Want,
    pub(super) segments: Vec<Segment>,
}

/// A run of sectors of the stripe unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) offset: u32,
    pub(super) sectors: u32,
}

impl Window {
    /// The smallest window around all segments; none for none.
    pub(super) fn around<'a>(segments: impl Iterator<Item = &'a Segment>) -> Option<Self> {
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

/// What a stripe is working on.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) is_write: bool,
    pub(super) attachments: Vec<Attachment>,
    pub(super) window: Window,
    /// The way to make parity that is taken if there are two; only the simulator has a wish.
    pub(super) preferred: Option<Method>,
}

/// One stripe of the pool.
#[derive(Debug)]
pub(super) struct Stripe {
    pub(super) key: BandKey,
    pub(super) map: RowMap,
    /// First sector of the band on every member.
    pub(super) start: MemberSector,
    pub(super) phase: Phase,
    pub(super) columns: Vec<Column>,
    pub(super) batch: Option<Batch>,
    pub(super) queue: VecDeque<Attachment>,
    /// It has ended a batch for this band.
    pub(super) has_served: bool,
    /// Member requests and jobs that are out.
    pub(super) outstanding: u16,
}

impl Stripe {
    /// The member sectors that the batch's window covers on every slot.
    pub(super) fn range(&self) -> (MemberSector, u32) {
        let window = self.batch.as_ref().expect("only a batch has a range").window;
        (MemberSector(self.start.0 + u64::from(window.offset)), window.sectors)
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

    /// Takes the next batch off the queue: the longest run of like requests at its head.
    pub(super) fn begin_batch(&mut self, unit_sectors: u32) {
        let whole = Window { offset: 0, sectors: unit_sectors };
        assert!(self.batch.is_none() && self.outstanding == 0, "one batch at a time");
        let is_write = self.queue.front().expect("a batch has work").want.is_write();
        let count = self.queue.iter().take_while(|next| next.want.is_write() == is_write).count();
        let count = if sometimes(Point::OneRequestBatch) { 1 } else { count };
        let attachments: Vec<Attachment> = self.queue.drain(..count).collect();
        let segments = || attachments.iter().flat_map(|attachment| &attachment.segments);
        let window = Window::around(segments()).expect("an attachment has segments");
        let window = if sometimes(Point::WholeWindow) { whole } else { window };
        self.columns.fill(Column::EMPTY);
        for segment in segments() {
            let touched = SectorSet::run(segment.offset, segment.sectors);
            let column = self.column_mut(self.map.data_slot(segment.data_index));
            column.touched = column.touched.union(touched);
        }
        let preferred = match () {
            () if sometimes(Point::PreferRmw) => Some(Method::Rmw),
            () if sometimes(Point::PreferRcw) => Some(Method::Rcw),
            () => None,
        };
        self.batch = Some(Batch { is_write, attachments, window, preferred });
    }
}
