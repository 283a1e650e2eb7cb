//! Lines that a model can leave out, to show that it would notice.
//!
//! Where it stands: asked at the few places named below. In the product the answer is a constant
//! `false`, and nothing of this is left after compilation.

/// One thing done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Leaving the turnstile begins nobody.
    LeaveSilent,
    /// Nobody waits at the turnstile.
    EnterAtOnce,
    /// A member's queue ends as soon as it is stopped, with work still in it.
    QueueEndsEarly,
    /// Whoever finds a request's pieces used up does not note it.
    CutTwice,
    /// A request whose payload was kept beyond its answer stays for ever.
    PayloadStays,
    /// The memory of a request is kept for the next while somebody still has it.
    KeptInUse,
    /// Setting the alarm does not wake its thread.
    AlarmSilent,
    /// The alarm rings until it is set anew.
    AlarmRingsOn,
    /// A moment that has come at a worker still counts as armed.
    ArmedStays,
    /// A request is counted as in flight only after it was seen that the volume is not stopping.
    CheckBeforeCount,
    /// The last answer does not wake whoever waits for it.
    LastAnswerSilent,
    /// Whoever ends a request does not wake its caller.
    CallerSleepsOn,
    /// The end of the array wakes only one of those that wait for it.
    EndWakesOne,
    /// Notices are told after ownership of the array was given up.
    NoticesUnowned,
    /// The watcher is not told that no notice will come any more.
    WatchNotEnded,
    /// Stopping does not end the members' threads.
    MembersNotStopped,
    /// Whoever leaves a ring does not look at the line.
    LineForgotten,
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) const fn has(_: Flaw) -> bool {
    false
}

#[cfg(any(loom, shuttle))]
mod chosen {
    use std::cell::Cell;

    use super::Flaw;

    thread_local! {
        // Both checkers run all threads of a model on the thread of its test.
        static CHOSEN: Cell<Option<Flaw>> = const { Cell::new(None) };
    }

    pub(crate) fn has(flaw: Flaw) -> bool {
        CHOSEN.get() == Some(flaw)
    }

    /// Leaves something out for the rest of this test.
    pub(crate) fn choose(flaw: Flaw) {
        CHOSEN.set(Some(flaw));
    }
}
#[cfg(any(loom, shuttle))]
pub(crate) use chosen::*;
