//! Operations of one member, in the same terms for both back ends.
//!
//! An operation begins and ends in [`crate::executor::submitter`], whichever back end carries it
//! out. An operation holds only names of bytes; a back end finds or leases the bytes when it
//! begins.

use braid_dispatch::Ticket;
use braid_engine::array::MetadataArea;
use braid_engine::buffer::Buffer;
use braid_engine::computation::Span;
use braid_engine::effect::{MemberIo, MemberOperation};
use braid_engine::request::ShardIndex;
use braid_member::RawOperation;

use crate::sync::Mutex;

/// A member operation, with the shard that requested it.
pub(crate) type Item = (ShardIndex, MemberIo);

pub(crate) enum Operation {
    /// A flight, carried out as one transfer.
    Io(Flight),
    /// A flight that failed as a whole and is retried part by part, one part after the other.
    Apart(Flight),
    /// A flush of all earlier writes.
    Flush,
    /// A durable write of a record of the array, outside the data.
    Metadata {
        area: MetadataArea,
        /// The whole record.
        bytes: Vec<u8>,
        /// Offset on the device.
        offset_bytes: u64,
    },
    /// Checks whether the device still exists: [`braid_member::Member::has_vanished`].
    Look,
    /// Flush a member that was away and shall come back, and read its superblock.
    Rejoin,
}

/// Adjacent transfers of one kind, or one zeroing, as one request to the device.
pub(crate) struct Flight {
    /// The ticket to return to the elevator; `None` if the flight did not wait in one.
    pub(crate) ticket: Option<Ticket>,
    /// The parts, in the order of sectors.
    pub(crate) parts: Parts,
}

/// The parts of a flight. A single part, the usual case, takes no list.
pub(crate) enum Parts {
    One(Item),
    Many(Vec<Item>),
}

impl Operation {
    /// The kind under which the member counts the operation.
    pub(crate) fn raw_operation(&self) -> RawOperation {
        match self {
            Self::Io(flight) | Self::Apart(flight) => raw_operation(&flight.first().1),
            Self::Flush | Self::Rejoin => RawOperation::Flush,
            Self::Metadata { .. } => RawOperation::Write { durable: true },
            Self::Look => RawOperation::Read,
        }
    }

    /// Whether the operation waits for room on rings. Operations for which the array waits bypass
    /// the line.
    pub(crate) fn takes_room(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Apart(_))
    }
}

impl Flight {
    /// A flight of one item or more. Several items take a list from `lists`.
    pub(crate) fn new(
        ticket: Option<Ticket>,
        mut items: impl Iterator<Item = Item>,
        lists: &PartLists,
    ) -> Self {
        let first = items.next().expect("a flight has a part");
        let Some(second) = items.next() else { return Self { ticket, parts: Parts::One(first) } };
        let mut parts = lists.take();
        parts.extend([first, second]);
        parts.extend(items);
        Self { ticket, parts: Parts::Many(parts) }
    }

    /// All parts that have not been answered.
    pub(crate) fn parts(&self) -> &[Item] {
        match &self.parts {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// The first part, which shows what all parts have in common.
    pub(crate) fn first(&self) -> &Item {
        &self.parts()[0]
    }

    /// Whether the flight zeroes a range. Zeroing is not merged.
    pub(crate) fn is_zeroing(&self) -> bool {
        matches!(self.first().1.operation, MemberOperation::Zero { .. })
    }

    /// Whether the flight must be durable when it ends.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(
            self.first().1.operation,
            MemberOperation::Write { durable: true, .. }
                | MemberOperation::Zero { durable: true, .. }
        )
    }
}

/// The kind of an operation, for the member's counts. Durable zeroes count as written and flushed.
pub(crate) fn raw_operation(io: &MemberIo) -> RawOperation {
    match io.operation {
        MemberOperation::Read { .. } => RawOperation::Read,
        MemberOperation::Write { durable, .. } => RawOperation::Write { durable },
        MemberOperation::Zero { .. } => RawOperation::Write { durable: false },
    }
}

/// The span of memory of a transfer of `length_bytes`.
pub(crate) fn span_of(io: &MemberIo, length_bytes: u64) -> Span {
    let buffer: Buffer = match io.operation {
        MemberOperation::Read { buffer } | MemberOperation::Write { buffer, .. } => buffer,
        MemberOperation::Zero { .. } => panic!("zeroing moves no bytes"),
    };
    let length_bytes = usize::try_from(length_bytes).expect("addresses have 64 bits here");
    Span { buffer, length_bytes }
}

/// Empty lists for the parts of flights, kept for reuse.
#[derive(Default)]
pub(crate) struct PartLists(Mutex<Vec<Vec<Item>>>);

/// Maximum lists to keep: about as many as a member has flights in flight at once.
const PART_LISTS_MAX: usize = 64;

impl PartLists {
    fn take(&self) -> Vec<Item> {
        self.0.lock().expect("keeping does not panic").pop().unwrap_or_default()
    }

    pub(crate) fn keep(&self, mut parts: Vec<Item>) {
        parts.clear();
        let mut lists = self.0.lock().expect("keeping does not panic");
        if lists.len() < PART_LISTS_MAX {
            lists.push(parts);
        }
    }
}
