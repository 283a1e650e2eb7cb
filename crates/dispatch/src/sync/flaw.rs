//! Lines that a model can leave out, to show that it would notice.
//!
//! Where it stands: asked at the few places named below. In the product the answer is a constant `false`, and nothing of
//! this is left after compilation.

/// One thing done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The owner does not look at the lists once more after giving ownership up.
    NoLastLook,
    /// It looks, but only reads.
    LastLookReads,
    /// A drain takes the content of the lists first and the marks afterwards.
    UnmarkedLate,
    /// Effects are carried out while the machine is still owned.
    EffectsOwned,
    /// Whoever looked at a machine leaves without combining what others left to it.
    LookLeaves,
    /// A scheduler that is switched to `none` does not look at what it holds.
    SwitchSilent,
    /// What was set before replaces what was set after it.
    OlderSet,
    /// A completion frees its tag and lets nobody out.
    DoneSilent,
    /// What a full batch left behind is left behind.
    BatchLeaves,
}

#[cfg(not(any(loom, shuttle)))]
#[inline]
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
    pub fn choose(flaw: Flaw) {
        CHOSEN.set(Some(flaw));
    }
}
#[cfg(any(loom, shuttle))]
pub use chosen::*;
