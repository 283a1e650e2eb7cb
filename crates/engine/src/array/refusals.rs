//! Why the array does not do what a person asks of it. Whoever shows it to people finds words, and a way out.

/// Why members are left as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberRefusal {
    /// The array has no member of this name.
    #[error("it is no member of the array")]
    NoMember,
    /// It has a slot, and was not failed before.
    #[error("it is in use")]
    InUse,
    /// Without it data would be lost.
    #[error("the array cannot do without it")]
    Needed,
    /// Nothing makes up for a member here.
    #[error("the level keeps nothing twice")]
    NoRedundancy,
    /// It is being replaced.
    #[error("it is being replaced")]
    Replaced,
    /// It is being recovered: it cannot be copied from.
    #[error("it does not hold all that it should yet")]
    Unrecovered,
    /// What is to take its place is no spare.
    #[error("what is to take its place is no spare of the array")]
    NoSpare,
    /// It was opened for reading, has lost too much, or is being stopped.
    #[error("the array takes no writes")]
    NoWrites,
}

/// Why a bitmap is neither made nor given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapRefusal {
    /// The array takes no changes.
    #[error(transparent)]
    Array(#[from] MemberRefusal),
    /// It keeps partial parity logs; a superblock names a bitmap or these.
    #[error("it keeps partial parity logs")]
    ParityLogs,
    /// It has none.
    #[error("it has no bitmap")]
    HasNone,
    /// Redundancy does not agree everywhere yet, and only the bitmap tells where.
    #[error("it is being resynced, and only its bitmap tells where")]
    InDoubt,
    /// A member is out, or does not hold all yet, and only the bitmap tells what one lacks that comes back.
    #[error(
        "a member is missing or being recovered, and only its bitmap tells what one lacks that comes back"
    )]
    Degraded,
    /// The last change is under way.
    #[error("its bitmap is being changed")]
    Busy,
}
