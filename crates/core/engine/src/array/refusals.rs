//! Reasons for refusing an operator's request. The caller adds words and a way out.

/// Reasons for which members stay unchanged.
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
    /// The level has no redundancy.
    #[error("the level keeps nothing twice")]
    NoRedundancy,
    /// It is being replaced.
    #[error("it is being replaced")]
    Replaced,
    /// It is being recovered: it cannot be copied from.
    #[error("it does not hold all that it should yet")]
    Unrecovered,
    /// Its replacement is no spare.
    #[error("its replacement is not a spare of the array")]
    NoSpare,
    /// It was opened read-only, has lost too much, or is being stopped.
    #[error("the array takes no writes")]
    NoWrites,
    /// Parity logs are being made or given up: whether who comes needs one is not decided.
    #[error("the array's bitmap or log is being changed")]
    Changing,
}

/// Reasons for which a bitmap is neither made nor dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapRefusal {
    /// The array takes no changes.
    #[error(transparent)]
    Array(#[from] MemberRefusal),
    /// It keeps partial parity logs; a superblock names a bitmap or these.
    #[error("it keeps partial parity logs")]
    ParityLogs,
    /// It has a write journal, beside which md allows no bitmap.
    #[error("it has a write journal")]
    Journal,
    /// It has none.
    #[error("it has no bitmap")]
    HasNone,
    /// Redundancy does not agree everywhere yet, and only the bitmap knows where.
    #[error("it is being resynced, and only its bitmap tells where")]
    InDoubt,
    /// A member is out, or being filled, and only the bitmap knows a returning one's missed writes.
    #[error(
        "a member is missing or being recovered, and only the bitmap tells what a returning \
         member lacks"
    )]
    Degraded,
    /// The last change is not finished.
    #[error("its bitmap is being changed")]
    Busy,
}

/// Reasons for which parity logs are neither made nor dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogRefusal {
    /// The array takes no changes.
    #[error(transparent)]
    Array(#[from] MemberRefusal),
    /// The level has no use for logs of partial parity, or md has none for it.
    #[error("its level has no such logs")]
    Level,
    /// It keeps a bitmap, beside which such logs are not kept.
    #[error("it keeps a bitmap, and not such logs beside it")]
    Bitmap,
    /// It has logs, which must be dropped first.
    #[error("it keeps parity logs")]
    HasLogs,
    /// It has none.
    #[error("it keeps no parity logs")]
    HasNone,
    /// Parity does not agree everywhere yet.
    #[error("it is being resynced")]
    InDoubt,
    /// A member is out, or still being filled.
    #[error("a member is missing or being recovered")]
    Degraded,
    /// The last change is under way.
    #[error("its bitmap or log is being changed")]
    Busy,
}
