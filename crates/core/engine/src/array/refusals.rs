//! Reasons for refusing an operator's request. The caller adds the message and a way out.

/// Reasons for refusing a request about members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberRefusal {
    /// The array has no member of this name.
    #[error("it is no member of the array")]
    NoMember,
    /// The member has a slot, and was not failed before.
    #[error("it is in use")]
    InUse,
    /// Without the member, data would be lost.
    #[error("the array cannot do without it")]
    Needed,
    /// The level has no redundancy.
    #[error("the level keeps nothing twice")]
    NoRedundancy,
    /// The member is being replaced.
    #[error("it is being replaced")]
    Replaced,
    /// The member is being recovered, so its data cannot be copied.
    #[error("it does not hold all that it should yet")]
    Unrecovered,
    /// The device that shall replace the member is no spare.
    #[error("its replacement is not a spare of the array")]
    NoSpare,
    /// The array was opened read-only, has lost too many members, or is being stopped.
    #[error("the array takes no writes")]
    NoWrites,
    /// Parity logs are being created or dropped: whether a new member needs a log is not decided
    /// yet.
    #[error("the array's bitmap or log is being changed")]
    Changing,
}

/// Reasons for refusing to create or drop a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapRefusal {
    /// The array takes no changes.
    #[error(transparent)]
    Array(#[from] MemberRefusal),
    /// The array keeps partial parity logs; a superblock names either a bitmap or such logs.
    #[error("it keeps partial parity logs")]
    ParityLogs,
    /// The array has a write journal: md allows no bitmap together with it.
    #[error("it has a write journal")]
    Journal,
    /// The array has no bitmap.
    #[error("it has no bitmap")]
    HasNone,
    /// Redundancy does not agree everywhere yet, and only the bitmap names the places.
    #[error("it is being resynced, and only its bitmap tells where")]
    InDoubt,
    /// A member is out, or being filled. Only the bitmap names the writes that a returning member
    /// missed.
    #[error(
        "a member is missing or being recovered, and only the bitmap tells what a returning \
         member lacks"
    )]
    Degraded,
    /// The last change of the bitmap is not finished.
    #[error("its bitmap is being changed")]
    Busy,
    /// The array's shape changes, and with it the positions of sectors on members.
    #[error("its shape is being changed")]
    Reshaping,
}

/// Reasons for refusing to create or drop parity logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogRefusal {
    /// The array takes no changes.
    #[error(transparent)]
    Array(#[from] MemberRefusal),
    /// The array's shape changes: a log's area may hold data by now, and entries name sectors of
    /// one shape.
    #[error("its shape is being changed")]
    Reshaping,
    /// The level has no use for partial parity logs, or md has none for this level.
    #[error("its level has no such logs")]
    Level,
    /// The array keeps a bitmap, and so can keep no partial parity logs.
    #[error("it keeps a bitmap, and not such logs beside it")]
    Bitmap,
    /// The array has logs, which must be dropped first.
    #[error("it keeps parity logs")]
    HasLogs,
    /// The array has no logs.
    #[error("it keeps no parity logs")]
    HasNone,
    /// Parity does not agree everywhere yet.
    #[error("it is being resynced")]
    InDoubt,
    /// A member is out, or still being filled.
    #[error("a member is missing or being recovered")]
    Degraded,
    /// The last change of logs is under way.
    #[error("its bitmap or log is being changed")]
    Busy,
}
