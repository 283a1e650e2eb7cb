//! Carrying out what a connection asks of its export.
//!
//! Where it stands: called by both transports, on the thread that serves the connection, with nothing locked that the
//! export's completion needs. A panic of the export ends here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use braid_nbd_proto::Extent;

use crate::connection::Task;
use crate::export::{Completion, Export, Receiver, Token};

/// What is left to tell the connection.
#[derive(Debug)]
pub(crate) enum Done {
    /// Nothing: the completion will.
    Submitted,
    /// Extents, for the slot, with the length and the number that were asked for.
    Described { slot: u32, extents: Vec<Extent>, asked: (u64, usize) },
    /// The export panicked; its completion, if it had one, has been told.
    Panicked { undone: Option<u32> },
}

/// Carries out one task of `connection`.
pub(crate) fn perform(
    task: Task,
    export: &dyn Export,
    receiver: &Arc<dyn Receiver>,
    connection: u64,
) -> Done {
    match task {
        Task::Submit { slot, operation } => {
            let completion = Completion::new(Arc::clone(receiver), Token { connection, slot });
            match catch_unwind(AssertUnwindSafe(|| export.submit(operation, completion))) {
                Ok(()) => Done::Submitted,
                Err(_) => Done::Panicked { undone: None },
            }
        }
        Task::Describe { slot, offset, length, extents_max } => {
            let describe = || export.block_status(offset, length, extents_max);
            match catch_unwind(AssertUnwindSafe(describe)) {
                Ok(extents) => Done::Described { slot, extents, asked: (length, extents_max) },
                Err(_) => Done::Panicked { undone: Some(slot) },
            }
        }
    }
}
