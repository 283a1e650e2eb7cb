//! The exit statuses of the command: what a script sees.

/// The exit statuses of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line was not understood.
    Usage = 2,
    /// Finished, but something needs attention.
    Attention = 3,
    /// No such array, or no array at all.
    NoSuchArray = 10,
    /// Busy, or locked by another process.
    Busy = 11,
    /// Refused by a safety check; nothing was written.
    Refused = 12,
    /// More is missing than the level tolerates.
    BeyondTolerance = 13,
    /// Stopped by a signal before the work was done.
    Interrupted = 130,
}

impl Exit {
    /// Every status, in order, with its meaning: the table that `braid help exit` prints.
    pub(crate) const TABLE: [(Self, &'static str); 9] = [
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

    /// The number a shell sees.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }
}
