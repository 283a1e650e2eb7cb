//! What one member is asked for, in the same words for both back ends.
//!
//! An operation is asked for once ([`crate::executor::submitter`]) and ends once there, whichever back end carries it
//! out. It owns nothing that a back end needs while it works but names: bytes are found, or leased, when it begins.

use braid_dispatch::Ticket;
use braid_engine::array::MetadataArea;
use braid_engine::buffer::Buffer;
use braid_engine::computation::Span;
use braid_engine::effect::{MemberIo, MemberOperation};
use braid_engine::request::ShardIndex;
use braid_member::Deed;

use crate::sync::Mutex;

/// What a shard asked for.
pub(crate) type Item = (ShardIndex, MemberIo);

/// Something for a member to do.
pub(crate) enum Operation {
    /// A flight, as one.
    Io(Flight),
    /// The first part of a flight that failed as one; then the next, and so on.
    Apart(Flight),
    /// Everything written before, durable.
    Flush,
    /// A record of the array's, durably written beside the data.
    Metadata {
        /// Of which area.
        area: MetadataArea,
        /// All of it.
        bytes: Vec<u8>,
        /// Where on the device.
        offset_bytes: u64,
    },
    /// Whether the device is still there: [`braid_member::Member::has_vanished`].
    Look,
    /// To be flushed and to tell its superblock, since it was away and is to come back.
    Rejoin,
}

/// Adjacent transfers of one kind, or one zeroing: out together.
pub(crate) struct Flight {
    /// None for one that did not wait in an elevator.
    pub(crate) ticket: Option<Ticket>,
    /// In the order of sectors.
    pub(crate) parts: Parts,
}

/// The parts of a flight. One by itself, as most are, takes no list.
pub(crate) enum Parts {
    One(Item),
    Many(Vec<Item>),
}

impl Operation {
    /// As what its end counts to the member.
    pub(crate) fn deed(&self) -> Deed {
        match self {
            Self::Io(flight) | Self::Apart(flight) => deed(&flight.first().1),
            Self::Flush | Self::Rejoin => Deed::Flush,
            Self::Metadata { .. } => Deed::Write { durable: true },
            Self::Look => Deed::Read,
        }
    }

    /// Whether it waits for room at the rings. What the array waits for goes past the line.
    pub(crate) fn takes_room(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Apart(_))
    }
}

impl Flight {
    /// Those items, of which there is at least one; in a list of `lists`, if it takes one.
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

    /// All parts that are left.
    pub(crate) fn parts(&self) -> &[Item] {
        match &self.parts {
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// What all parts have in common is seen in the first.
    pub(crate) fn first(&self) -> &Item {
        &self.parts()[0]
    }

    /// Whether it makes zeroes. Zeroing is not merged.
    pub(crate) fn is_zeroing(&self) -> bool {
        matches!(self.first().1.operation, MemberOperation::Zero { .. })
    }

    /// Whether it is to be durable when it ends.
    pub(crate) fn is_forced(&self) -> bool {
        matches!(
            self.first().1.operation,
            MemberOperation::Write { durable: true, .. }
                | MemberOperation::Zero { durable: true, .. }
        )
    }
}

/// As what a request counts to the member. Zeroes are written, and flushed if they are to be durable.
pub(crate) fn deed(io: &MemberIo) -> Deed {
    match io.operation {
        MemberOperation::Read { .. } => Deed::Read,
        MemberOperation::Write { durable, .. } => Deed::Write { durable },
        MemberOperation::Zero { .. } => Deed::Write { durable: false },
    }
}

/// The memory of a transfer of so many bytes.
pub(crate) fn span_of(io: &MemberIo, length_bytes: u64) -> Span {
    let buffer: Buffer = match io.operation {
        MemberOperation::Read { buffer } | MemberOperation::Write { buffer, .. } => buffer,
        MemberOperation::Zero { .. } => panic!("zeroing moves no bytes"),
    };
    let length_bytes = usize::try_from(length_bytes).expect("addresses have 64 bits here");
    Span { buffer, length_bytes }
}

/// Lists for flights' parts, kept for later flights.
#[derive(Default)]
pub(crate) struct PartLists(Mutex<Vec<Vec<Item>>>);

/// As many are kept as flights are out at a member at once, mostly.
const PART_LISTS_MAX: usize = 64;

impl PartLists {
    /// An empty one.
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
