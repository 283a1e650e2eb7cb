//! The exit statuses of the command, as a script sees them.

/// The exit statuses of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// The command has done its work.
    Done,
    /// The command has failed.
    Failed,
    /// The command line was not understood.
    Usage,
    /// The command has finished, but something needs attention.
    Attention,
    /// There is no such array, or no array at all.
    NoSuchArray,
    /// A member is busy, or locked by another process.
    Busy,
    /// A safety check refused the command; nothing was written.
    Refused,
    /// More members are missing than the level tolerates.
    BeyondTolerance,
    /// `status --exit-code`: the array is degraded.
    Degraded,
    /// `status --exit-code`: the array refuses writes.
    Broken,
    /// `status --exit-code`: the array's state is unknown.
    Unknown,
    /// A signal stopped the command before its work was done.
    Interrupted,
}

impl Exit {
    /// All statuses in order, with meanings: the table of `braid help exit`. `status --exit-code`
    /// exits with 0 or one of three statuses of its own; these four statuses are those of `mdadm
    /// --detail --test`.
    pub const TABLE: [(Self, &'static str); 9] = [
        (Self::Done, "done"),
        (Self::Failed, "failed"),
        (Self::Usage, "the command line was not understood"),
        (Self::Attention, "finished, but something needs attention"),
        (Self::NoSuchArray, "no such array"),
        (Self::Busy, "busy or locked"),
        (Self::Refused, "refused by a safety check; nothing was written"),
        (Self::BeyondTolerance, "more members are missing than the level tolerates"),
        (Self::Interrupted, "interrupted"),
    ];

    /// The status as the number that a shell sees.
    pub const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed | Self::Degraded => 1,
            Self::Usage | Self::Broken => 2,
            Self::Attention => 3,
            Self::Unknown => 4,
            Self::NoSuchArray => 10,
            Self::Busy => 11,
            Self::Refused => 12,
            Self::BeyondTolerance => 13,
            Self::Interrupted => 130,
        }
    }
}
