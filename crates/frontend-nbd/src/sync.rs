//! Locks: the operating system's, or those of a model checker.
//!
//! Where it stands: what one thread of a connection hands to another goes through the names below. In the product they
//! are the standard library's; under `--cfg shuttle` they are that crate's, and the code that ships is run under very
//! many schedules. [`has`] leaves single lines out on purpose, to show that a model would notice.

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic;
#[cfg(not(shuttle))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub(crate) use std::thread;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic;
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::thread;

/// One thing done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Replies that are out do not wake the reader that waits for room.
    EndSilent,
    /// The writer is not told that no more requests will begin.
    FinishSilent,
    /// A broken connection wakes the writer only.
    CloseForgetsReader,
    /// A completion that is dropped answers nothing.
    DropUnanswered,
    /// A connection that leaves wakes nobody.
    LeaveSilent,
    /// What is given back to the budget calls nobody.
    GiveSilent,
}

#[cfg(not(shuttle))]
pub(crate) const fn has(_: Flaw) -> bool {
    false
}

#[cfg(shuttle)]
mod chosen {
    use std::cell::Cell;

    use super::Flaw;

    thread_local! {
        // All threads of a model run on the thread of its test.
        static CHOSEN: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    pub(crate) fn has(flaw: Flaw) -> bool {
        CHOSEN.get() == Some(flaw)
    }

    /// Leaves something out for the rest of this test.
    #[cfg(test)]
    pub(crate) fn choose(flaw: Flaw) {
        CHOSEN.set(Some(flaw));
    }
}
#[cfg(shuttle)]
pub(crate) use chosen::*;
