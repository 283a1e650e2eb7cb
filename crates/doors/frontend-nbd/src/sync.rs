//! The primitives by which the threads of a connection synchronize, by `braid-concurrency`'s names;
//! and the flaws that a model can plant.

pub(crate) use braid_concurrency::{Condvar, Mutex, MutexGuard, atomic, thread};

braid_concurrency::flaws! { pub(crate) enum Flaw {
    /// Sent replies do not wake the reader that waits for room.
    EndSilent,
    /// The writer does not learn that no more requests will begin.
    FinishSilent,
    /// A broken connection wakes the writer only.
    CloseForgetsReader,
    /// A dropped completion answers nothing.
    DropUnanswered,
    /// A connection that leaves does not wake the acceptor, or the stop.
    LeaveSilent,
    /// Memory given back to the budget rings no bell.
    GiveSilent,
} }
