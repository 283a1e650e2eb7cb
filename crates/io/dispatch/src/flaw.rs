//! Flaws: lines of this crate that a model can leave out.
//!
//! Each line asks `has` for its variant below. The runtime's models leave these lines out as well.

braid_concurrency::flaws! { pub enum Flaw {
    /// The owner does not check the lists once more after giving ownership up.
    NoLastLook,
    /// The last look only reads the atomic word, instead of changing it.
    LastLookReads,
    /// A drain takes the content of the lists first and the marks afterwards.
    UnmarkedLate,
    /// The owner clears its at-work bit before it releases the machine.
    GivesUpOwned,
    /// The inbox is not checked again for events that effects push to their own machine.
    OwnUnheard,
    /// Effects are carried out while the machine is still owned.
    EffectsOwned,
    /// A thread that looked at a machine leaves without draining the events left to it.
    LookLeaves,
    /// A scheduler that is switched to `none` does not dispatch held entries.
    SwitchSilent,
    /// Older settings replace newer settings.
    OlderSet,
    /// A completion frees its tag and dispatches no waiting entry.
    DoneSilent,
    /// Entries that did not fit into a full batch are not dispatched afterwards.
    BatchLeaves,
} }
