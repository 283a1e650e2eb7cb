//! Parity logs, md's or our own, or a write journal, are made or given up while the array runs.
//!
//! ```text
//!            a person asks          superblocks say clean             superblocks say so            heads of our own are wiped out
//!   settled ───────────────▶ wanted ──────────────────────▶ to be said ─────────────────▶ left ───────────────────────────────────▶ settled
//!      ▲                                                        │  (logs that are made)
//!      └────────────────────────────────────────────────────────┘
//! ```
//!
//! It happens while nothing is written. The gate closes, shards finish what they began, members are
//! flushed and superblocks say clean, as when an array rests; and it opens when the change is over.
//! Clients wait for that long. So no write is under way that is logged in part, or not at all
//! though superblocks say that all is: whatever was begun before is on the members, and what begins
//! later goes by a view that was made after superblocks told of the change.
//! [check: a_log_comes_and_goes_while_clients_write]
//!
//! A log that is made is durable on every member before a superblock names it
//! ([`super::parity_logs`]), and counts from the next time on that superblocks say active. One that
//! is given up is named by no superblock before any write goes without it. Our own is named by none
//! when they say clean: it is there as long as its heads are, which are wiped out then. Power may
//! be cut at any moment: what is found is an array that is clean, with the log or without.
//! [check: what_is_cut_off_while_a_log_comes_or_goes_is_found]
//!
//! A journal that is made has an empty block, and then its own superblock, before any member's
//! superblock names it. As long as none does its device may fail, and nothing has been changed. One
//! that is given up is empty, and named by none; on its device nothing is written any more.
//! [check: a_journal_comes_and_goes_while_clients_write]

use std::collections::BTreeMap;

use braid_ondisk::LogPlace;

use crate::array::setup::JournalSetup;
use crate::ids::MemberId;

/// What is to be.
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
    /// They say so. What is left to be found of our own is to be wiped out.
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

    /// The file that the log is in cannot be written: it is given up, whatever was wanted, and in
    /// the midst of writes: those that wait for it go on when superblocks say that it does not
    /// count.
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
