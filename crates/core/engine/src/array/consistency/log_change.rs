//! Makes or drops parity logs, md's or our own, or a write journal, while the array runs.
//!
//! ```text
//!            operator asks           superblocks say clean              superblocks say so
//!   settled ───────────────▶ wanted ───────────────────────▶ to be said ───────────────────▶ left
//!      ▲                                                         │  logs that are made        │
//!      ├─────────────────────────────────────────────────────────┘                            │
//!      └──────────────────── heads of our own are wiped out ──────────────────────────────────┘
//! ```
//!
//! The states are those of `LogChange`; *to be said* means that superblocks must record the change.
//! The change happens while no write is in flight. The gate closes, shards finish their writes,
//! members are flushed and superblocks say clean, as when an array rests. The gate opens when the
//! change is over; clients wait for that long. So no write is logged in part, or unlogged while
//! superblocks say that all writes are logged. Earlier writes are on the members, and later writes
//! use a view made after superblocks recorded the change.
//! [check: a_log_comes_and_goes_while_clients_write]
//!
//! A new log is durable on every member before a superblock names it ([`super::parity_logs`]), and
//! is valid when superblocks next say active. Superblocks stop naming a dropped log before any
//! write begins without it. Clean superblocks never name our own log, which exists as long as its
//! heads do: so members wipe out the heads. At any power cut the next start finds a clean array,
//! with or without the log. [check: what_is_cut_off_while_a_log_comes_or_goes_is_found]
//!
//! A new journal gets an empty block, and then its own superblock, before any member's superblock
//! names it. Until a member's superblock does, the journal's device may fail without a trace. A
//! dropped journal is empty, and no superblock names it; its device is never written again.
//! [check: a_journal_comes_and_goes_while_clients_write]

use std::collections::BTreeMap;

use braid_ondisk::LogPlace;

use crate::array::setup::JournalSetup;
use crate::ids::MemberId;

#[derive(Clone, Debug)]
pub(super) enum LogWish {
    Logs(BTreeMap<MemberId, LogPlace>),
    Journal(JournalSetup),
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) enum LogChange {
    Settled,
    Wanted(LogWish),
    /// Superblocks must name the new logs.
    Made,
    /// Superblocks must name no logs.
    GivenUp,
    /// Superblocks must name the new journal. The field says whether members' superblocks may name
    /// the journal already.
    JournalMade {
        is_told: bool,
    },
    /// Superblocks must name no journal.
    JournalGivenUp,
    /// Superblocks name no logs. Members must wipe out the remaining heads of braid's own log.
    Left,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum LogChangeStage {
    #[default]
    No,
    /// The change of logs begins when superblocks say clean. The change creates logs if `makes`, or
    /// else drops them.
    Wanted { makes: bool },
    /// Superblocks must record the change of logs, or log writes to members are in flight.
    UnderWay,
    /// Members must wipe out the remaining heads of braid's own log.
    ToWipe,
    /// No heads of braid's own log remain.
    Over,
}

impl LogChange {
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Settled)
    }

    pub(super) fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted(_))
    }

    /// Whether logs exist that superblocks must not name.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self, Self::GivenUp | Self::Left)
    }

    /// Whether logs were created that superblocks must name.
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

    /// Begins the wanted change of logs, which the next superblocks record. `has_journal`: the
    /// array has a journal.
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

    pub(super) fn members_are_told(&mut self) {
        if let Self::JournalMade { is_told } = self {
            *is_told = true;
        }
    }

    /// Whether superblocks must name a new journal.
    pub(super) fn is_journal_made(&self) -> bool {
        matches!(self, Self::JournalMade { .. })
    }

    /// Whether a new journal is not yet in any member's superblock.
    pub(super) fn is_journal_untold(&self) -> bool {
        matches!(self, Self::JournalMade { is_told: false })
    }

    /// Drops the log, whatever the operator wanted, because its file failed a write. Writes may be
    /// in flight. Writes that wait for the log continue when no superblock marks it as valid.
    pub(super) fn is_lost(&mut self) {
        *self = Self::GivenUp;
    }

    /// Notes that superblocks record the change of logs.
    pub(super) fn is_said(&mut self) {
        match self {
            Self::Made | Self::JournalMade { .. } | Self::JournalGivenUp => *self = Self::Settled,
            Self::GivenUp => *self = Self::Left,
            Self::Settled | Self::Wanted(_) | Self::Left => {}
        }
    }

    /// Notes that the change of logs is done, or undone.
    pub(super) fn is_over(&mut self) {
        *self = Self::Settled;
    }
}
