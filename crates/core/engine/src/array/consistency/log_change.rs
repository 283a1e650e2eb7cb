//! Makes or drops parity logs, md's or our own, or a write journal, while the array runs.
//!
//! ```text
//!            operator asks           superblocks say clean             superblocks say so            heads of our own are wiped out
//!   settled ───────────────▶ wanted ──────────────────────▶ to be said ─────────────────▶ left ───────────────────────────────────▶ settled
//!      ▲                                                        │  (logs that are made)
//!      └────────────────────────────────────────────────────────┘
//! ```
//!
//! The change happens while no write is in flight. The gate closes, shards finish their writes,
//! members are flushed and superblocks say clean, as when an array rests. The gate opens when the
//! change is over; clients wait for that long. So no write is logged in part, or unlogged while
//! superblocks say that all are logged: earlier writes are on the members, and later writes use a
//! view made after superblocks recorded the change.
//! [check: a_log_comes_and_goes_while_clients_write]
//!
//! A new log is durable on every member before a superblock names it ([`super::parity_logs`]), and
//! counts from the next time on that superblocks say active. No superblock names a dropped log
//! before any write goes without it. Clean superblocks never name our own log: it exists as long as
//! its heads do, so these are wiped out then. At any power cut the next start finds a clean array,
//! with the log or without. [check: what_is_cut_off_while_a_log_comes_or_goes_is_found]
//!
//! A new journal gets an empty block, and then its own superblock, before any member's superblock
//! names it. Until one does, its device may fail without a trace. A dropped journal is empty, and
//! no superblock names it; its device is never written again.
//! [check: a_journal_comes_and_goes_while_clients_write]

use std::collections::BTreeMap;

use braid_ondisk::LogPlace;

use crate::array::setup::JournalSetup;
use crate::ids::MemberId;

/// The logs after the change.
#[derive(Clone, Debug)]
pub(super) enum LogWish {
    /// Logs at these places.
    Logs(BTreeMap<MemberId, LogPlace>),
    Journal(JournalSetup),
    /// None of them.
    Nothing,
}

/// The change, if there is one.
#[derive(Clone, Debug)]
pub(super) enum LogChange {
    Settled,
    Wanted(LogWish),
    /// Superblocks are to say that there are logs now.
    Made,
    /// They are to say that there are none.
    GivenUp,
    /// They are to say that there is a journal; whether members may say so already.
    JournalMade {
        is_told: bool,
    },
    /// They are to say that there is none.
    JournalGivenUp,
    /// Superblocks say so. The remaining heads of our own log must be wiped out.
    Left,
}

/// How it stands, for the table of the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Changing {
    /// Nothing is to be changed.
    #[default]
    No,
    /// It begins when superblocks say clean: logs are made, or given up.
    Wanted { makes: bool },
    /// Superblocks are to say it, or members are writing.
    UnderWay,
    /// Members are to wipe out what is left.
    ToWipe,
    /// Nothing is left.
    Over,
}

impl LogChange {
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Settled)
    }

    /// It has not begun.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted(_))
    }

    /// Logs are there, and superblocks are not to name them.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Self::GivenUp | Self::Left)
    }

    /// Logs are there, and superblocks are to name them.
    pub(super) fn is_made(&self) -> bool {
        matches!(self, Self::Made)
    }

    pub(super) fn is_left(&self) -> bool {
        matches!(self, Self::Left)
    }

    pub(super) fn want(&mut self, wish: LogWish) {
        assert!(self.is_settled(), "one change at a time");
        *self = Self::Wanted(wish);
    }

    /// Superblocks are to say it next, of an array that has a journal or has none.
    pub(super) fn begin(&mut self, has_journal: bool) -> LogWish {
        let Self::Wanted(wish) = std::mem::replace(self, Self::Settled) else {
            panic!("only what was asked for is done")
        };
        *self = match &wish {
            LogWish::Logs(_) => Self::Made,
            LogWish::Journal(_) => Self::JournalMade { is_told: false },
            LogWish::Nothing if has_journal => Self::JournalGivenUp,
            LogWish::Nothing => Self::GivenUp,
        };
        wish
    }

    /// Members' superblocks are being written.
    pub(super) fn members_are_told(&mut self) {
        if let Self::JournalMade { is_told } = self {
            *is_told = true;
        }
    }

    /// Superblocks are to say that there is a journal.
    pub(super) fn is_journal_made(&self) -> bool {
        matches!(self, Self::JournalMade { .. })
    }

    /// The same, and no member's says so.
    pub(super) fn is_journal_untold(&self) -> bool {
        matches!(self, Self::JournalMade { is_told: false })
    }

    /// The log's file failed a write: the log is dropped, whatever was wanted, and while writes are
    /// in flight. Writes that wait for it go on when superblocks say that it does not count.
    pub(super) fn is_lost(&mut self) {
        *self = Self::GivenUp;
    }

    /// Superblocks say it.
    pub(super) fn is_said(&mut self) {
        match self {
            Self::Made | Self::JournalMade { .. } | Self::JournalGivenUp => *self = Self::Settled,
            Self::GivenUp => *self = Self::Left,
            Self::Settled | Self::Wanted(_) | Self::Left => {}
        }
    }

    /// All is as it was, or as it was to be.
    pub(super) fn is_over(&mut self) {
        *self = Self::Settled;
    }
}
