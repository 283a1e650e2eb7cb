//! What a thread writes down while it drives machines: which to look at, and what their turns ask for.
//!
//! Where it stands: the loop ([`crate::drive`]) takes one, fills and empties it, and gives it back. A thread keeps its
//! own, so that nothing is allocated for a request once they are as large as the load makes them
//! (`tests/allocations.rs`). It needs a second where an answer makes it drive again from within: a client that asks for the
//! next thing when it is answered.

use std::cell::RefCell;
use std::collections::VecDeque;

use braid_engine::array::{MemberId, Notice};
use braid_engine::computation::Computation;
use braid_engine::effect::{MemberIo, PieceReply};
use braid_engine::request::{Fault, RequestId};
use braid_engine::work::Purpose;

use crate::events::{Machine, ShardEvent};
use crate::members::operation::Operation;

/// Those that a thread keeps: as deep as driving from within driving mostly goes.
const SCRATCH_MAX: usize = 8;

/// The lists of one drive; all are empty at its beginning and at its end.
#[derive(Default)]
pub(crate) struct DriveScratch {
    /// To be looked at, in order.
    pub(crate) machines: VecDeque<Machine>,
    pub(crate) shard: ShardEffects,
    pub(crate) array: ArrayEffects,
}

/// What turns of a shard ask for.
#[derive(Default)]
pub(crate) struct ShardEffects {
    /// Some may be left for after the next turn ([`crate::drive`]).
    pub(crate) computations: VecDeque<Computation>,
    /// With what it is for.
    pub(crate) member_ios: Vec<(MemberIo, Purpose)>,
    /// Those of them for members with an elevator, until each member is given its own together.
    pub(crate) ordered: Vec<(MemberIo, Purpose)>,
    pub(crate) replies: Vec<PieceReply>,
    pub(crate) releases: Vec<RequestId>,
    /// The array has something to hear.
    pub(crate) reports: bool,
    /// What has ended while the effects were carried out; for the shard at its next turn.
    pub(crate) ended: RefCell<Vec<ShardEvent>>,
}

/// What turns of the array ask for, beyond what is told to shards under ownership.
#[derive(Default)]
pub(crate) struct ArrayEffects {
    /// Shards that were told something.
    pub(crate) machines: VecDeque<Machine>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) answers: Vec<(RequestId, Result<(), Fault>)>,
    /// For members; at most one flush and one superblock of each at a time, so that their order does not matter.
    pub(crate) operations: Vec<(MemberId, Operation)>,
    /// Members that leave, after that.
    pub(crate) left: Vec<MemberId>,
}

thread_local! {
    static SPARES: RefCell<Vec<DriveScratch>> = const { RefCell::new(Vec::new()) };
}

impl DriveScratch {
    /// An empty one.
    pub(crate) fn take() -> Self {
        // A thread that is ending has none any more.
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop());
        spare.ok().flatten().unwrap_or_default()
    }

    /// Keeps it for the thread's next drive.
    pub(crate) fn keep(self) {
        assert!(
            self.machines.is_empty() && self.shard.computations.is_empty(),
            "all has been done"
        );
        let _ending = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if spares.len() < SCRATCH_MAX {
                spares.push(self);
            }
        });
    }
}
