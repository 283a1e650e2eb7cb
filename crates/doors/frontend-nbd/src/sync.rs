//! The primitives by which the threads of a connection synchronize, by `braid-concurrency`'s names;
//! and the flaws that a shuttle model can plant to test itself.

pub(crate) use braid_concurrency::{Condvar, Mutex, MutexGuard, atomic, thread};

braid_concurrency::flaws! { pub(crate) enum Flaw {
    /// Flaw: sent replies do not wake the reader that waits for room.
    EndSilent,
    /// Flaw: the writer thread is not told that no more requests will begin.
    FinishSilent,
    /// Flaw: a broken connection wakes the writer only.
    CloseForgetsReader,
    /// Flaw: a request whose completion is dropped gets no answer.
    DropUnanswered,
    /// Flaw: a connection that ends wakes neither the acceptor nor the stop.
    LeaveSilent,
    /// Flaw: memory given back to the budget rings no bell.
    GiveSilent,
} }
