//! Refusals, with all facts that the operator needs to act.

use std::fmt;
use std::ops::Range;

use braid_geometry::{GeometryError, Slot};
use braid_ondisk::{BitmapError, BitmapFileError, JournalLogError, PplLogError, format_uuid};

use crate::recorded_state::StateMember;

/// An array of which members were found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArrayName {
    /// The array's UUID, in mdadm's order.
    pub uuid: [u8; 16],
    /// The array's name; empty for 0.90.
    pub name: String,
    /// The number of members that were found.
    pub members: usize,
}

impl fmt::Display for ArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{} ", self.name)?;
        }
        write!(f, "{} ({} here)", format_uuid(&self.uuid), self.members)
    }
}

/// Sectors that may read wrong if a dirty and degraded array starts: sectors of missing members,
/// computed from parity that may not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtRisk {
    /// Missing or unrecovered slots with data.
    pub slots: Vec<u16>,
    /// The number of chunk rows in flight.
    pub stripes: u64,
    /// The places of the chunk rows, in order, with adjacent ones merged.
    pub ranges: Vec<RangeAtRisk>,
}

/// Consecutive stripes at risk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeAtRisk {
    /// Sectors of each member's data area.
    pub member_sectors: Range<u64>,
    /// Sectors of the array, as a client counts them.
    pub array_sectors: Range<u64>,
}

/// Why an array may be read but not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReadOnlyReason {
    /// A member has no parity log, or a log without room for a band.
    #[error("its members have no separate room for their parity logs")]
    Ppl,
    /// The array has a journal that braid cannot write. Writes must go through the journal, or md's
    /// next start would undo them. The journal is missing, is too small for a few batches, or its
    /// meta blocks cannot name the array's blocks.
    #[error(
        "it has a write journal that cannot be written: its device is not here, or is too small for the array"
    )]
    Journal,
    /// The array has a bitmap of a kind that braid does not maintain.
    #[error("it has a bitmap of a kind that braid does not keep yet ({0})")]
    BitmapKind(&'static str),
    /// The array's bitmap has a version newer than braid knows.
    #[error("it has a bitmap of a version that braid does not know")]
    BitmapUnknown,
    /// On some member the array's bitmap would overlap data or other metadata.
    #[error("a member has no room for its bitmap at the place in its superblock")]
    BitmapPlace,
    /// Several devices replace one member, or a member that was not recovered itself.
    #[error("slot {slot} has replacements that braid cannot continue")]
    Replacement {
        /// The slot with the replacements.
        slot: u16,
    },
}

/// Why braid cannot continue a reshape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReshapeFault {
    /// The old or the new level is not 4, 5 or 6.
    #[error("braid goes on with reshapes of levels 4, 5 and 6 only")]
    Level,
    /// The next part of the data was overwritten while it moved, and the state folder has no copy
    /// of it.
    #[error("its next part may be half moved: only a copy (mdadm's backup file) has it whole")]
    NoCopy,
    /// More members are missing or being filled than one of the shapes tolerates. md has such
    /// arrays while a RAID-0 grows.
    #[error("too few of its members are whole in both shapes")]
    Members,
    /// The superblocks describe shapes that no reshape joins.
    #[error("its superblocks contradict each other about the shapes")]
    Shapes,
}

/// Why the journal of an array does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalFault {
    /// The journal's device was not given, or is older than the array.
    #[error("its device ({}) is not here, or is too old", number_words(.number))]
    Absent {
        /// The number of the journal device in the newest superblock, if that superblock still has
        /// a journal.
        number: Option<u32>,
    },
    /// Several devices claim to be the journal.
    #[error("several devices say that they are the journal: {}", .labels.join(", "))]
    Several {
        /// The labels of the devices that claim to be the journal.
        labels: Vec<String>,
    },
    /// The journal device took updates that no member here took, so the journal's stripes are newer
    /// than the members'.
    #[error(
        "{label} counts {events} events, and the members here {newest_events}: they lack its \
         writes, and more"
    )]
    Ahead {
        /// The label of the journal device.
        label: String,
        /// Events of the journal device.
        events: u64,
        /// The newest member's events.
        newest_events: u64,
    },
    /// The journal cannot be replayed.
    #[error("of {label}, {cause}")]
    Unusable {
        /// The label of the journal device.
        label: String,
        /// The cause.
        cause: JournalLogError,
    },
}

/// Why a bitmap file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BitmapFileFault {
    /// The file is no bitmap file.
    #[error("{0}")]
    NotOne(BitmapFileError),
    /// The file is of another array.
    #[error("it belongs to another array")]
    OtherArray,
    /// The file holds no valid bitmap.
    #[error("{0}")]
    Unreadable(BitmapError),
    /// The bitmap is of a kind that md does not keep in a file.
    #[error("its bitmap is of another kind ({0}) than md keeps in files")]
    Kind(&'static str),
    /// The file is too short for the bitmap of the array's present size.
    #[error(
        "its bitmap was made for an array of another size, and has no room for the bits of this one"
    )]
    NoRoom,
    /// The array's level has no redundancy.
    #[error("the array has no redundancy, so it needs no bitmap")]
    Level,
    /// The array's members have a bitmap themselves.
    #[error("the array already has a bitmap on its members")]
    Internal,
    /// The array has a PPL or a write journal.
    #[error("the array has an md log, and keeps no bitmap beside it")]
    OtherLog,
    /// The file was written when the array had more events than any member here.
    #[error(
        "it counts {events} events, and the members here {newest_events}: they lack writes of \
         members that are not here"
    )]
    Ahead {
        /// Events of the file's bitmap.
        events: u64,
        /// The newest member's events.
        newest_events: u64,
    },
}

fn number_words(number: &Option<u32>) -> String {
    number.map_or("none that its superblocks name".to_owned(), |number| format!("number {number}"))
}

/// Why no array can be assembled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No device is an active member of an array (or of the wanted array).
    #[error("none of these devices is an active member of {}", match .wanted {
        Some(wanted) => wanted.as_str(),
        None => "an array",
    })]
    NoMembers {
        /// The wanted name or UUID.
        wanted: Option<String>,
    },
    /// The members are of several arrays, and none of the arrays was chosen.
    #[error("these devices belong to several arrays: {}", list(.arrays))]
    SeveralArrays {
        /// All arrays that have members here.
        arrays: Vec<ArrayName>,
    },
    /// Equally new members that contradict each other: the array ran in two halves.
    #[error("equally new members disagree about who is in the array: {}", .labels.join(", "))]
    RolesContradict {
        /// The members that disagree.
        labels: Vec<String>,
    },
    /// Several members claim one slot: one is a clone, whatever their event counts.
    #[error("several devices claim slot {slot}: {}", .labels.join(", "))]
    SlotClaimedTwice {
        /// The slot that several members claim.
        slot: u16,
        /// The members that claim the slot.
        labels: Vec<String>,
    },
    /// Features that neither braid nor any known md has.
    #[error("it has features that braid does not know (bits {bits:#x})")]
    UnknownFeatures {
        /// The unknown feature bits.
        bits: u32,
    },
    /// Bytes that md writes as zero are not zero, so the format is newer.
    #[error("its superblock has a newer format than braid knows")]
    NewerFormat,
    /// A reshape of the array is under way, and braid cannot continue it.
    #[error("a reshape is under way (at sector {position_sectors}), and {fault}")]
    Reshaping {
        /// The array sector that the reshape has reached.
        position_sectors: u64,
        /// Why braid cannot continue the reshape.
        fault: ReshapeFault,
    },
    /// The array's write journal does not count.
    #[error(
        "it has a write journal, and {fault}; writes that are only in the journal may be missing \
         anywhere in its {array_sectors} sectors"
    )]
    JournalMissing {
        /// Why the journal does not count.
        fault: JournalFault,
        /// Slots without a member that is up to date.
        missing: Vec<u16>,
        /// Sectors of the array, all of which are at risk.
        array_sectors: u64,
    },
    /// The array belongs to a cluster.
    #[error("it belongs to a cluster (clustered bitmap), which braid cannot serve")]
    Clustered,
    /// Members with damaged superblocks may have writes that all sound members missed.
    #[error(
        "{} may be newer than all the others (events {events} against {sound_events}), but {} superblock is damaged",
        .labels.join(", "), if .labels.len() == 1 { "its" } else { "their" }
    )]
    NewestDamaged {
        /// The members with damaged superblocks.
        labels: Vec<String>,
        /// The most events that a damaged superblock claims.
        events: u64,
        /// The most events of a sound superblock.
        sound_events: u64,
    },
    /// No member here is as new as the recorded state of the array.
    #[error(
        "the array is known to have been newer: it had events {known_events}, the newest here has {events}; \
         {} had them", members_words(.members)
    )]
    OlderThanKnown {
        /// The most events of a member here.
        events: u64,
        /// Events of the recorded state.
        known_events: u64,
        /// Members that had the recorded state.
        members: Vec<StateMember>,
    },
    /// Two members of one array have different facts about the array.
    #[error("{label} and {other} are of one array and disagree about its {field}")]
    ConflictingGeometry {
        /// The label of one of the two members.
        label: String,
        /// The label of the other member, which has the newest superblock.
        other: String,
        /// The field in which they differ.
        field: &'static str,
    },
    /// The numbers in the superblock describe no valid geometry.
    #[error("its geometry cannot be served: {0}")]
    Geometry(#[from] GeometryError),
    /// More members are missing than the level tolerates.
    #[error(
        "too few members: {have} of {slots} are up to date, at least {need} are needed; missing: slot {}",
        list(.missing)
    )]
    TooFewMembers {
        /// The number of members that are up to date.
        have: u16,
        /// The fewest members with which the array may run. A raid10 can need more, depending on
        /// which members are missing.
        need: u16,
        /// Slots of the array.
        slots: u16,
        /// Slots without a member that is up to date.
        missing: Vec<u16>,
    },
    /// Members are missing and the array was not stopped cleanly.
    #[error(
        "it was interrupted while writing and slot {} is missing: {} stripes could read wrong",
        list(&.0.slots), .0.stripes
    )]
    DirtyAndDegraded(AtRisk),
    /// As for [`Refusal::DirtyAndDegraded`], but the array has parity logs, and they do not cover
    /// everything at risk.
    #[error(
        "it was interrupted while writing, slot {} is missing, and its partial parity log does \
         not help: {}",
        list(.missing), unread_words(.unread)
    )]
    PplNotReplayed {
        /// Slots without a member that is up to date.
        missing: Vec<u16>,
        /// Unreadable logs, each with the reason. Empty if a resync was not finished, since logs do
        /// not cover a resync.
        unread: Vec<(Slot, PplLogError)>,
        /// The number of stripes that may read wrong.
        stripes: u64,
    },
    /// The bitmap file does not belong to this array.
    #[error("{label} cannot be its bitmap file: {fault}")]
    BitmapFile {
        /// The operator's name for the file.
        label: String,
        /// Why the file is not used.
        fault: BitmapFileFault,
    },
    /// The array can be read but not written, and the options ask for writing.
    #[error("it can only be read: {0}")]
    ReadOnlyOnly(#[from] ReadOnlyReason),
}

impl Refusal {
    /// The refusal in one word for programs; the word never changes.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoMembers { .. } => "no-members",
            Self::SeveralArrays { .. } => "several-arrays",
            Self::RolesContradict { .. } => "roles-contradict",
            Self::SlotClaimedTwice { .. } => "slot-claimed-twice",
            Self::UnknownFeatures { .. } => "unknown-features",
            Self::NewerFormat => "newer-format",
            Self::Reshaping { .. } => "reshaping",
            Self::JournalMissing { .. } => "journal",
            Self::Clustered => "clustered",
            Self::NewestDamaged { .. } => "newest-damaged",
            Self::OlderThanKnown { .. } => "older-than-known",
            Self::ConflictingGeometry { .. } => "conflicting-geometry",
            Self::Geometry(_) => "geometry",
            Self::TooFewMembers { .. } => "too-few-members",
            Self::DirtyAndDegraded(_) => "dirty-and-degraded",
            Self::PplNotReplayed { .. } => "ppl-not-replayed",
            Self::BitmapFile { .. } => "bitmap-file",
            Self::ReadOnlyOnly(_) => "read-only-only",
        }
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn unread_words(unread: &[(Slot, PplLogError)]) -> String {
    let word = |(slot, error): &(Slot, PplLogError)| format!("of the log of slot {slot}, {error}");
    match unread {
        [] => "it does not cover an unfinished resync".to_owned(),
        _ => unread.iter().map(word).collect::<Vec<_>>().join(", "),
    }
}

/// The members as text: by slot, and by UUID if they have one.
fn members_words(members: &[StateMember]) -> String {
    let words = members.iter().map(|member| match member.uuid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => format!("slot {}", member.slot),
        uuid => format!("slot {} (device {})", member.slot, format_uuid(&uuid)),
    });
    words.collect::<Vec<_>>().join(", ")
}
