//! The lists of a thread that drives machines: the machines to drive, and their effects.
//!
//! Place in the flow: the loop ([`crate::drive`]) takes a set of lists, fills and empties it, and
//! gives it back. A thread keeps its own sets, so that requests allocate nothing once the lists
//! have grown to the load (`tests/allocations.rs`). A thread needs a second set if an answer makes
//! it drive from within: a client may send its next request when it is answered.

use std::cell::RefCell;
use std::collections::VecDeque;

use braid_engine::array::{MemberId, MovedPiece, Notice};
use braid_engine::computation::Computation;
use braid_engine::effect::{MemberIo, PieceReply};
use braid_engine::request::{Fault, RequestId};
use braid_engine::work::Purpose;

use crate::border::BorderTurn;
use crate::events::{Machine, ShardEvent};
use crate::members::operation::Operation;

/// Maximum sets of lists that a thread keeps: the usual depth of nested drives.
const SCRATCH_MAX: usize = 8;

/// The lists that one drive uses; all are empty when the drive begins and when it ends.
#[derive(Default)]
pub(crate) struct DriveScratch {
    pub(crate) machines: VecDeque<Machine>,
    pub(crate) shard: ShardEffects,
    pub(crate) array: ArrayEffects,
}

#[derive(Default)]
pub(crate) struct ShardEffects {
    /// Computations to run. Some may wait until after the next turn ([`crate::drive`]).
    pub(crate) computations: VecDeque<Computation>,
    pub(crate) member_ios: Vec<(MemberIo, Purpose)>,
    /// Member operations for members with an elevator, until each member gets its own operations
    /// together.
    pub(crate) ordered: Vec<(MemberIo, Purpose)>,
    pub(crate) replies: Vec<PieceReply>,
    pub(crate) releases: Vec<RequestId>,
    /// Whether the shard has reports for the array.
    pub(crate) reports: bool,
    /// Events of operations that ended while effects were carried out, for the shard's next turn.
    pub(crate) ended: RefCell<Vec<ShardEvent>>,
}

/// Effects of the array's turns, except effects sent to shards while the array is owned.
#[derive(Default)]
pub(crate) struct ArrayEffects {
    pub(crate) machines: VecDeque<Machine>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) answers: Vec<(RequestId, Result<(), Fault>)>,
    /// Operations for members. Each member has at most one flush and one superblock write in the
    /// list, so the order of the operations does not matter.
    pub(crate) operations: Vec<(MemberId, Operation)>,
    /// Members that leave the array after `operations` have begun.
    pub(crate) left: Vec<MemberId>,
    /// Requests that a reshape's border has released, and pieces that move.
    pub(crate) borders: Vec<BorderTurn>,
    pub(crate) pieces: Vec<MovedPiece>,
    /// Windows of a reshape to copy: first sector and number of sectors.
    pub(crate) copies: Vec<(u64, u64)>,
}

thread_local! {
    static SPARES: RefCell<Vec<DriveScratch>> = const { RefCell::new(Vec::new()) };
}

impl DriveScratch {
    pub(crate) fn take() -> Self {
        // A thread that is ending keeps no lists any more.
        let spare = SPARES.try_with(|spares| spares.borrow_mut().pop());
        spare.ok().flatten().unwrap_or_default()
    }

    /// Keeps the lists for the thread's next drive.
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
