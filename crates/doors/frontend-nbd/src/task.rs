//! Carries out a connection's tasks on its export.
//!
//! Where it stands: both transports call this module on the thread that serves the connection, and
//! hold no lock that the export's completion needs. A panic of the export ends in this module.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use braid_nbd_proto::Extent;
use braid_ring::client::{Completion, Receiver, Token};

use crate::connection::Task;
use crate::export::Export;

/// The result of a task, which the caller passes to the connection.
pub(crate) enum TaskResult {
    /// There is no result yet: the export's completion will deliver it.
    Submitted,
    /// The export's extents for the request in `slot`, with the length and the number of extents
    /// that the client asked for.
    Described { slot: u32, extents: Vec<Extent>, asked: (u64, usize) },
    /// The export for a client's claim, or the reason why the claim is refused.
    Claimed(Result<Arc<dyn Export>, String>),
    /// The export panicked. `undone` is the slot of a request that has no completion; a completion
    /// has ended any other request.
    Panicked { undone: Option<u32> },
}

pub(crate) fn slot_of(token: Token) -> u32 {
    u32::try_from(token.request).expect("made from a slot")
}

pub(crate) fn perform(
    task: Task,
    export: &dyn Export,
    receiver: &Arc<dyn Receiver>,
    connection: u64,
) -> TaskResult {
    match task {
        Task::Submit { slot, request } => {
            let completion = Completion::new(
                Arc::clone(receiver),
                Token { client: connection, request: slot.into() },
            );
            match catch_unwind(AssertUnwindSafe(|| export.submit(request, completion))) {
                Ok(()) => TaskResult::Submitted,
                Err(_) => TaskResult::Panicked { undone: None },
            }
        }
        Task::Claim { words, .. } => {
            match catch_unwind(AssertUnwindSafe(|| export.claim(&words))) {
                Ok(claimed) => TaskResult::Claimed(claimed),
                Err(_) => TaskResult::Panicked { undone: None },
            }
        }
        Task::Describe { slot, offset, length, extents_max } => {
            let describe = || export.block_status(offset, length, extents_max);
            match catch_unwind(AssertUnwindSafe(describe)) {
                Ok(extents) => {
                    TaskResult::Described { slot, extents, asked: (length, extents_max) }
                }
                Err(_) => TaskResult::Panicked { undone: Some(slot) },
            }
        }
    }
}
