//! What may happen next, and which of it does.
//!
//! Everything that is under way waits in one of four classes; the seed gives each class a weight for
//! a run, picks a class by weight and one of its events at random. So any order can come, and some
//! runs are all answers first, some all superblocks last. Without a seed ([`Order::Plain`]) the
//! oldest event of the first class that has one happens: the schedule of the exhaustive worlds.

use std::sync::Arc;

use braid_engine::array::{MemberId, SuperblockState};
use braid_engine::effect::MemberIoDone;
use braid_engine::job::Job;
use braid_engine::request::Piece;

use crate::elevators::Vector;
use crate::random::Random;

/// Something that has begun and will be done.
pub(crate) enum Event {
    Piece { shard: usize, piece: Piece },
    Job { shard: usize, job: Job },
    Io(Vector),
    IoDone { shard: usize, done: MemberIoDone },
    Superblock { member: MemberId, state: Arc<SuperblockState> },
    SuperblockDone { member: MemberId, written: bool },
    Flush { member: MemberId },
    FlushDone { member: MemberId, flushed: bool },
}

const CLASSES: usize = 4;

impl Event {
    fn class(&self) -> usize {
        match self {
            Self::Piece { .. } | Self::Job { .. } => 0,
            Self::Io(_) => 1,
            Self::IoDone { .. } => 2,
            Self::Superblock { .. }
            | Self::SuperblockDone { .. }
            | Self::Flush { .. }
            | Self::FlushDone { .. } => 3,
        }
    }

    /// The member whose disk has to do something.
    pub(crate) fn waits_for(&self) -> Option<MemberId> {
        match self {
            Self::Io(vector) => Some(vector.member),
            Self::Superblock { member, .. } | Self::Flush { member } => Some(*member),
            _ => None,
        }
    }
}

/// Everything under way.
#[derive(Default)]
pub(crate) struct Pending {
    classes: [Vec<Event>; CLASSES],
}

impl Pending {
    pub(crate) fn push(&mut self, event: Event) {
        self.classes[event.class()].push(event);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.iter().all(Vec::is_empty)
    }

    pub(crate) fn drain(&mut self) -> Vec<Event> {
        self.classes.iter_mut().flat_map(std::mem::take).collect()
    }

    pub(crate) fn take(&mut self, class: usize, order: &Order, random: &mut Random) -> Event {
        let events = &mut self.classes[class];
        match order {
            Order::Plain => events.remove(0),
            Order::Seeded(_) => events.swap_remove(random.below(events.len() as u64) as usize),
        }
    }
}

/// What can be chosen besides the classes of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Event(usize),
    Inbox,
    Report,
    Issue,
    Tick,
}

const CHOICES: [Choice; 8] = [
    Choice::Event(0),
    Choice::Event(1),
    Choice::Event(2),
    Choice::Event(3),
    Choice::Inbox,
    Choice::Report,
    Choice::Issue,
    Choice::Tick,
];

/// How the next event is chosen.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// In the order of [`CHOICES`], oldest first; time passes when nothing else can happen.
    Plain,
    /// By these weights.
    Seeded([u64; 8]),
}

impl Order {
    pub(crate) fn seeded(random: &mut Random) -> Self {
        let mut weights = [0; 8];
        weights.fill_with(|| *random.pick(&[1, 4, 16, 64]));
        // Time is long next to everything else, but now and then it is not.
        weights[7] = *random.pick(&[1, 1, 4, 16]);
        Self::Seeded(weights)
    }
}

/// What besides events could happen now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) inbox: bool,
    pub(crate) report: bool,
    pub(crate) issue: bool,
    pub(crate) tick: bool,
}

/// The next choice; none if nothing can happen.
pub(crate) fn choose(
    pending: &Pending,
    offer: Offer,
    order: &Order,
    random: &mut Random,
) -> Option<Choice> {
    let is_open = |choice: &Choice| match choice {
        Choice::Event(class) => !pending.classes[*class].is_empty(),
        Choice::Inbox => offer.inbox,
        Choice::Report => offer.report,
        Choice::Issue => offer.issue,
        Choice::Tick => offer.tick,
    };
    match order {
        Order::Plain => CHOICES.into_iter().find(is_open),
        Order::Seeded(weights) => {
            let mut open = *weights;
            for (choice, weight) in CHOICES.iter().zip(&mut open) {
                *weight *= u64::from(is_open(choice));
            }
            (open != [0; 8]).then(|| CHOICES[random.weighted(&open)])
        }
    }
}
