//! The schedule: which events can happen next, and which of them does.
//!
//! Every pending event is in one of four classes. The seed gives each class a weight for a run.
//! Each step picks a class by weight, and one of its events at random. So any order can come, and
//! in some runs all answers come first, in some all superblocks last. Without a seed
//! ([`Order::Fixed`]) the oldest or newest event of the first class that has one happens, as in the
//! exhaustive worlds.

use std::sync::Arc;

use braid_engine::BadLogWrite;
use braid_engine::array::{BitmapRecord, MemberId, MetadataArea, ParityLogRecord, SuperblockState};
use braid_engine::cause::Cause;
use braid_engine::computation::Computation;
use braid_engine::effect::MemberIoDone;
use braid_engine::request::Piece;
use braid_ondisk::{JournalPiece, JournalRecord, Timestamp};

use crate::elevators::Vector;
use crate::random::Random;

/// An event that has begun and waits to happen.
pub(crate) enum Event {
    Piece { shard: usize, piece: Piece },
    Computation { shard: usize, computation: Computation },
    Io(Vector),
    IoDone { shard: usize, done: MemberIoDone },
    Superblock { member: MemberId, state: Arc<SuperblockState>, time: Timestamp },
    BadBlocks { member: MemberId, write: Arc<BadLogWrite> },
    Bitmap { member: MemberId, record: Arc<BitmapRecord> },
    ParityLog { member: MemberId, record: Arc<ParityLogRecord> },
    Journal { member: MemberId, record: Arc<JournalRecord>, piece: JournalPiece },
    MetadataDone { member: MemberId, area: MetadataArea, written: Result<(), Cause> },
    Flush { member: MemberId },
    FlushDone { member: MemberId, flushed: Result<(), Cause> },
}

const CLASSES: usize = 4;

impl Event {
    fn class(&self) -> usize {
        match self {
            Self::Piece { .. } | Self::Computation { .. } => 0,
            Self::Io(_) => 1,
            Self::IoDone { .. } => 2,
            Self::Superblock { .. }
            | Self::BadBlocks { .. }
            | Self::Bitmap { .. }
            | Self::ParityLog { .. }
            | Self::Journal { .. }
            | Self::MetadataDone { .. }
            | Self::Flush { .. }
            | Self::FlushDone { .. } => 3,
        }
    }

    /// The member whose disk has to act for this event to happen.
    pub(crate) fn waits_for(&self) -> Option<MemberId> {
        match self {
            Self::Io(vector) => Some(vector.member),
            Self::Superblock { member, .. }
            | Self::BadBlocks { member, .. }
            | Self::Bitmap { member, .. }
            | Self::ParityLog { member, .. }
            | Self::Journal { member, .. }
            | Self::Flush { member } => Some(*member),
            _ => None,
        }
    }
}

#[derive(Default)]
pub(crate) struct PendingEvents {
    classes: [Vec<Event>; CLASSES],
}

impl PendingEvents {
    pub(crate) fn push(&mut self, event: Event) {
        self.classes[event.class()].push(event);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(Vec::is_empty)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.classes.iter().flatten()
    }

    /// The event that [`PendingEvents::take`] would take from this class.
    pub(crate) fn peek(&self, class: usize, fixed: &FixedOrder) -> &Event {
        let events = &self.classes[class];
        &events[fixed.index(events)]
    }

    #[cfg(any(test, braid_sim_hooks))]
    pub(crate) fn set_aside(&mut self, is_held: &dyn Fn(&Event) -> bool) -> Vec<Event> {
        let held = self.classes.iter_mut().map(|events| events.extract_if(.., |one| is_held(one)));
        held.flatten().collect()
    }

    pub(crate) fn drain(&mut self) -> Vec<Event> {
        self.classes.iter_mut().flat_map(std::mem::take).collect()
    }

    pub(crate) fn take(&mut self, class: usize, order: &Order, random: &mut Random) -> Event {
        let events = &mut self.classes[class];
        match order {
            Order::Fixed(fixed) => events.remove(fixed.index(events)),
            Order::Seeded(_) => events.swap_remove(random.below(events.len() as u64) as usize),
        }
    }
}

/// A choice for the next step: an event of one class, a message, a client's turn, bytes on a wire,
/// or the passing of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Event(usize),
    Inbox,
    Report,
    Issue,
    Wire,
    Tick,
}

const CHOICES: [Choice; 9] = [
    Choice::Event(0),
    Choice::Event(1),
    Choice::Event(2),
    Choice::Event(3),
    Choice::Inbox,
    Choice::Report,
    Choice::Issue,
    Choice::Wire,
    Choice::Tick,
];

#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// A fixed order, without random draws.
    Fixed(FixedOrder),
    /// At random, with a weight for each of `CHOICES`.
    Seeded([u64; 9]),
}

/// A schedule without chance: it takes the first possible one of `choices`. Time passes only if no
/// other choice is possible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedOrder {
    choices: [Choice; 9],
    /// Of the events in a class the newest happens first, instead of the oldest.
    is_newest_first: bool,
    /// The disk of this member acts only when nothing else can happen.
    slow: Option<MemberId>,
}

impl FixedOrder {
    /// Classes of events in order, then messages, then time; of each class the oldest event first.
    pub(crate) const PLAIN: Self = Self { choices: CHOICES, is_newest_first: false, slow: None };

    pub(crate) fn newest_first(self) -> Self {
        Self { is_newest_first: true, ..self }
    }

    pub(crate) fn slow(self, member: MemberId) -> Self {
        Self { slow: Some(member), ..self }
    }

    /// Answers arrive before any disk acts, so that one disk acts at a time.
    pub(crate) fn answers_first() -> Self {
        let events = [2, 0, 3, 1].map(Choice::Event);
        Self::in_order([events[0], events[1], Choice::Inbox, Choice::Report, events[2], events[3]])
    }

    pub(crate) fn superblocks_first() -> Self {
        let events = [3, 0, 1, 2].map(Choice::Event);
        Self::in_order([events[0], Choice::Inbox, Choice::Report, events[1], events[2], events[3]])
    }

    /// Disks do all that they can before any message arrives, and superblocks and flushes come
    /// last.
    pub(crate) fn superblocks_last() -> Self {
        let events = [0, 1, 2, 3].map(Choice::Event);
        Self::in_order([events[0], events[1], events[2], Choice::Inbox, Choice::Report, events[3]])
    }

    fn in_order([a, b, c, d, e, f]: [Choice; 6]) -> Self {
        Self {
            choices: [a, b, c, d, e, f, Choice::Issue, Choice::Wire, Choice::Tick],
            ..Self::PLAIN
        }
    }

    fn is_slow(&self, event: &Event) -> bool {
        self.slow.is_some() && event.waits_for() == self.slow
    }

    fn index(&self, events: &[Event]) -> usize {
        let is_prompt = |event: &Event| !self.is_slow(event);
        let (prompt, otherwise) = if self.is_newest_first {
            (events.iter().rposition(is_prompt), events.len() - 1)
        } else {
            (events.iter().position(is_prompt), 0)
        };
        prompt.unwrap_or(otherwise)
    }

    /// The next choice; `None` if nothing can happen.
    pub(crate) fn choose(&self, pending: &PendingEvents, offer: Offer) -> Option<Choice> {
        let is_prompt = |choice: &Choice| match choice {
            Choice::Event(class) => {
                pending.classes[*class].iter().any(|event| !self.is_slow(event))
            }
            Choice::Tick => false,
            other => is_open(other, pending, offer),
        };
        let prompt = self.choices.into_iter().find(is_prompt);
        prompt.or_else(|| self.choices.into_iter().find(|one| is_open(one, pending, offer)))
    }
}

fn is_open(choice: &Choice, pending: &PendingEvents, offer: Offer) -> bool {
    match choice {
        Choice::Event(class) => !pending.classes[*class].is_empty(),
        Choice::Inbox => offer.inbox,
        Choice::Report => offer.report,
        Choice::Issue => offer.issue,
        Choice::Wire => offer.wire,
        Choice::Tick => offer.tick,
    }
}

impl Order {
    pub(crate) fn seeded(random: &mut Random) -> Self {
        let mut weights = [0; 9];
        weights.fill_with(|| *random.pick(&[1, 4, 16, 64]));
        // Time mostly has a small weight compared with other events, but not always.
        weights[8] = *random.pick(&[1, 1, 4, 16]);
        Self::Seeded(weights)
    }
}

/// Which choices other than pending events are possible in a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) inbox: bool,
    pub(crate) report: bool,
    pub(crate) issue: bool,
    pub(crate) wire: bool,
    pub(crate) tick: bool,
}

/// The next choice by `order`; `None` if nothing can happen.
pub(crate) fn choose(
    pending: &PendingEvents,
    offer: Offer,
    order: &Order,
    random: &mut Random,
) -> Option<Choice> {
    match order {
        Order::Fixed(fixed) => fixed.choose(pending, offer),
        Order::Seeded(weights) => {
            let mut open = *weights;
            for (choice, weight) in CHOICES.iter().zip(&mut open) {
                *weight *= u64::from(is_open(choice, pending, offer));
            }
            (open != [0; 9]).then(|| CHOICES[random.weighted(&open)])
        }
    }
}
