//! Lines of this crate that a model can leave out.
//!
//! Where it stands: asked at the few places named below; the runtime's models leave them out as well.

braid_concurrency::flaws! { pub enum Flaw {
    /// The owner does not look at the lists once more after giving ownership up.
    NoLastLook,
    /// It looks, but only reads.
    LastLookReads,
    /// A drain takes the content of the lists first and the marks afterwards.
    UnmarkedLate,
    /// The owner says that it is not at work any more, and then lets go of the machine.
    GivesUpOwned,
    /// What effects push to their own machine is not looked at when they have been carried out.
    OwnUnheard,
    /// Effects are carried out while the machine is still owned.
    EffectsOwned,
    /// A thread that looked at a machine leaves without combining what others left to it.
    LookLeaves,
    /// A scheduler that is switched to `none` does not look at what it holds.
    SwitchSilent,
    /// What was set before replaces what was set after it.
    OlderSet,
    /// A completion frees its tag and lets no entry out.
    DoneSilent,
    /// What a full batch left behind is left behind.
    BatchLeaves,
} }
