//! What the threads of one connection hand to each other, by `braid-concurrency`'s names; and the lines of this crate that a model
//! can leave out.

pub(crate) use braid_concurrency::{Condvar, Mutex, MutexGuard, atomic, thread};

braid_concurrency::flaws! { pub(crate) enum Flaw {
    /// Replies that are out do not wake the reader that waits for room.
    EndSilent,
    /// The writer is not told that no more requests will begin.
    FinishSilent,
    /// A broken connection wakes the writer only.
    CloseForgetsReader,
    /// A completion that is dropped answers nothing.
    DropUnanswered,
    /// A connection that leaves does not wake the acceptor, or the stop.
    LeaveSilent,
    /// What is given back to the budget rings no bell.
    GiveSilent,
} }
