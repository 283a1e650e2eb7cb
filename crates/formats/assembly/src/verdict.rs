//! Verdicts on members, and their reasons, in stable words.
//!
//! [`Verdict::code`] is for programs and never changes; the sentences of [`Reason`] are for people
//! and may change.

use std::fmt;

use braid_ondisk::{BadBlockLogError, ForeignKind, SuperblockError, Timestamp, format_uuid};

/// A member's part in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The member occupies its slot, and is fully recovered.
    Fresh {
        /// The member's slot.
        slot: u16,
    },
    /// The member occupies its slot, and is recovered up to a sector of its data area.
    Recovering {
        /// The member's slot.
        slot: u16,
        /// Sectors that may be read.
        recovered_sectors: u64,
    },
    /// The member waits for a slot.
    Spare,
    /// The member replaces a member that is still present. The replacement takes every write, and
    /// is not read.
    Replacement {
        /// The slot of both members.
        slot: u16,
    },
    /// The device with the array's write journal.
    Journal,
    /// The member missed updates of the array, and is never read.
    Stale {
        /// The number of events that the member is behind.
        behind: u64,
    },
    /// The array marked the member faulty.
    Faulty,
    /// The member is of another array.
    Foreign,
    /// The device has no md superblock, or only one that may be its last partition's.
    NotAMember,
    /// The device has a superblock that is not valid.
    Damaged,
    /// The device is smaller than its superblock says.
    Truncated,
    /// The same device or the same member is given twice.
    Duplicate,
    /// The member is as new as another member, but has a different role table.
    Contradictory,
}

impl Verdict {
    /// The verdict in a stable word for programs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Fresh { .. } => "fresh",
            Self::Recovering { .. } => "recovering",
            Self::Spare => "spare",
            Self::Replacement { .. } => "replacement",
            Self::Journal => "journal",
            Self::Stale { .. } => "stale",
            Self::Faulty => "faulty",
            Self::Foreign => "foreign",
            Self::NotAMember => "not-a-member",
            Self::Damaged => "damaged",
            Self::Truncated => "truncated",
            Self::Duplicate => "duplicate",
            Self::Contradictory => "contradictory",
        }
    }

    /// The slot that the member occupies.
    #[must_use]
    pub const fn slot(self) -> Option<u16> {
        match self {
            Self::Fresh { slot } | Self::Recovering { slot, .. } => Some(slot),
            _ => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())?;
        match self {
            Self::Fresh { slot } | Self::Recovering { slot, .. } | Self::Replacement { slot } => {
                write!(f, " (slot {slot})")
            }
            _ => Ok(()),
        }
    }
}

/// The reason of a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The member has the most events.
    Newest {
        /// Events of the member.
        events: u64,
    },
    /// The member is one event behind: a power cut kept an update from the member, and no data is
    /// written during an update. An old copy looks the same, if it is from a run of md or from
    /// braid's last milliseconds.
    OneBehind {
        /// Events of the member.
        events: u64,
    },
    /// The member's recovery is unfinished.
    RecoveryUnfinished {
        /// Sectors recovered.
        recovered_sectors: u64,
    },
    /// The member's superblock says that it is a spare.
    SaysSpare,
    /// The member says that it is a spare, but the newest table has an active device under its
    /// number.
    NumberTaken {
        /// The label of the member with the newest superblock.
        newest: String,
    },
    /// Two spares have the same number: one is a clone.
    SpareTwice {
        /// The label of the spare that is used.
        used: String,
    },
    /// The newest superblock does not have the member in this slot.
    NotInNewestTable {
        /// The slot that the member claims.
        slot: u16,
        /// The label of the member with the newest superblock.
        newest: String,
    },
    /// The member is a replacement, and the member that it replaces is present.
    OriginalPresent {
        /// The label of the replaced member.
        original: String,
    },
    /// The device's superblock says that it is the journal device.
    SaysJournal,
    /// The member has too few events.
    EventsBehind {
        /// Events of the member.
        events: u64,
        /// The newest member's events.
        newest_events: u64,
    },
    /// The member has as many events as the newest member, but from an older update: counts step
    /// back when the array turns clean.
    OlderUpdate {
        /// Events of the member, and of the newest member.
        events: u64,
        /// The time of the member's update.
        updated: Timestamp,
        /// The time of the newest update.
        newest_updated: Timestamp,
    },
    /// The member is older than the recorded state of the array.
    OlderThanKnown {
        /// Events of the member.
        events: u64,
        /// Events of the recorded state.
        known_events: u64,
    },
    /// The member and the newest member ran without each other, and call each other faulty.
    RanApart {
        /// Events of the member.
        events: u64,
        /// The newest member's events.
        newest_events: u64,
        /// The label of the newest member.
        newest: String,
    },
    /// The newest superblock calls the member faulty.
    MarkedFaulty {
        /// The label of the member with the newest superblock.
        newest: String,
    },
    /// The device says that it is the journal device, but the newest superblock has no journal.
    NoJournal {
        /// The label of the member with the newest superblock.
        newest: String,
    },
    /// The member's own superblock calls it faulty.
    SaysFaulty,
    /// The member belongs to another array than the assembled one, or to one of several arrays.
    OtherArray {
        /// The UUID of the member's array.
        uuid: [u8; 16],
        /// The name of the member's array.
        name: String,
    },
    /// Nothing was recognised on the device.
    Blank,
    /// The device holds content of another format.
    Holds(ForeignKind),
    /// The device has a partition table, so its 0.90 superblock may be its last partition's.
    LastPartition,
    /// The member's superblock is invalid.
    Superblock(SuperblockError),
    /// The member's bad-block log is invalid, so its bad sectors are unknown.
    BadBlockLog(BadBlockLogError),
    /// The device is smaller than the array needs.
    TooShort {
        /// The number of bytes that are missing.
        missing_bytes: u64,
    },
    /// The same device is given under another label.
    SameDevice {
        /// The device's first label in sort order, which assembly uses.
        used: String,
    },
    /// Another member with the same number has the same slot, and no rule tells which member is
    /// newer.
    SlotContested {
        /// The slot that both members claim.
        slot: u16,
        /// The label of the other member.
        by: String,
    },
    /// An equally new member has a different role table.
    TablesDiffer {
        /// The label of the other member.
        other: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest { events } => write!(f, "events {events}, the newest"),
            Self::OneBehind { events } => {
                write!(
                    f,
                    "events {events}, one behind the newest: an update was cut short before anything was written, \
                     unless this is an old copy"
                )
            }
            Self::RecoveryUnfinished { recovered_sectors } => {
                write!(f, "its recovery reached sector {recovered_sectors}")
            }
            Self::SaysSpare => f.write_str("its superblock says it waits as a spare"),
            Self::NumberTaken { newest } => {
                write!(
                    f,
                    "it says it waits, but the newest superblock ({newest}) has its number active"
                )
            }
            Self::SpareTwice { used } => {
                write!(f, "it is a spare with the same number as {used}: one is a clone")
            }
            Self::NotInNewestTable { slot, newest } => {
                write!(f, "it claims slot {slot}, which the newest superblock ({newest}) denies")
            }
            Self::OriginalPresent { original } => {
                write!(f, "it is to replace {original}, which is still there")
            }
            Self::SaysJournal => f.write_str("its superblock says it is the write journal"),
            Self::EventsBehind { .. }
            | Self::OlderUpdate { .. }
            | Self::OlderThanKnown { .. }
            | Self::RanApart { .. } => self.fmt_stale(f),
            Self::MarkedFaulty { newest } => {
                write!(f, "the newest superblock ({newest}) calls it faulty")
            }
            Self::LastPartition => f.write_str(
                "it has a partition table, and its 0.90 superblock could be its last partition's: name the partition",
            ),
            Self::NoJournal { newest } => {
                write!(f, "the newest superblock ({newest}) knows of no write journal")
            }
            Self::SaysFaulty => f.write_str("its own superblock calls it faulty"),
            Self::OtherArray { uuid, name } if name.is_empty() => {
                write!(f, "it belongs to array {}", format_uuid(uuid))
            }
            Self::OtherArray { uuid, name } => {
                write!(f, "it belongs to array {name} ({})", format_uuid(uuid))
            }
            Self::Blank => f.write_str("no superblock was found on it"),
            Self::Holds(kind) => write!(f, "no superblock was found on it, but {kind}"),
            Self::Superblock(error) => error.fmt(f),
            Self::BadBlockLog(error) => write!(f, "its bad-block log cannot be read: {error}"),
            Self::TooShort { missing_bytes } => {
                write!(f, "it is {missing_bytes} bytes too short for its part of the array")
            }
            Self::SameDevice { used } => write!(f, "it is the same device as {used}"),
            Self::SlotContested { slot, by } => {
                write!(f, "{by} claims slot {slot}, too, and braid cannot tell which is right")
            }
            Self::TablesDiffer { other } => {
                write!(f, "it and {other} are equally new and disagree about who is in the array")
            }
        }
    }
}

impl Reason {
    fn fmt_stale(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EventsBehind { events, newest_events } => {
                write!(f, "events {events}, the newest are {newest_events}: it has missed writes")
            }
            Self::OlderUpdate { events, updated, newest_updated } => write!(
                f,
                "events {events} as the newest, but last updated {} before it: an old copy, which has missed writes",
                apart(*updated, *newest_updated)
            ),
            Self::OlderThanKnown { events, known_events } => write!(
                f,
                "events {events}, and the array is known to have had {known_events}: an old copy, which has missed \
                 writes"
            ),
            Self::RanApart { events, newest_events, newest } => write!(
                f,
                "the array ran in two halves: this one has events {events} and calls {newest} faulty, which has \
                 events {newest_events} and is believed"
            ),
            _ => unreachable!("the others have not"),
        }
    }
}

fn apart(from: Timestamp, to: Timestamp) -> String {
    let microseconds =
        |time: Timestamp| u128::from(time.seconds) * 1_000_000 + u128::from(time.microseconds);
    match microseconds(to).saturating_sub(microseconds(from)) {
        apart if apart >= 2_000_000 => format!("{} s", apart / 1_000_000),
        apart => format!("{} ms", apart.div_ceil(1000)),
    }
}
