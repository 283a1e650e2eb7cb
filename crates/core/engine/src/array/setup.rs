//! The array as assembly found it.

use std::collections::{BTreeMap, BTreeSet};

use braid_geometry::{Geometry, Slot};
use braid_ondisk::{BitmapSuperblock, Bits, JournalArea, LocklessMarks, LogPlace};

use crate::bad_log::BadLog;
use crate::ids::MemberId;
use crate::ranges::BadBlocks;
use crate::request::Regions;

/// A member that occupies a slot when the array is opened.
#[derive(Clone, Debug)]
pub struct MemberSetup {
    /// Its name.
    pub id: MemberId,
    /// Its index in the superblocks' role table.
    pub device_number: u16,
    /// Sectors of its data area that are up to date; `u64::MAX` for all.
    pub recovered_sectors: u64,
    /// Its bad ranges.
    pub bad_blocks: BadBlocks,
    /// Its bad-block log; without sectors if the array keeps none, or leaves it untouched.
    pub bad_log: BadLog,
}

/// A member without a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareSetup {
    /// Its name.
    pub id: MemberId,
    /// Its index in the superblocks' role table.
    pub device_number: u16,
    /// Sectors of its bad-block log; 0 without one.
    pub bad_log_sectors: u16,
    /// Its superblock takes more than one sector, so that a power cut can tear it.
    pub tears: bool,
    /// The data that it held of the array before it went, if it was a member.
    pub returns: Option<ReturningMember>,
    /// The place of its partial parity log, if it has room for one.
    pub parity_log: Option<LogPlace>,
}

/// A former member that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturningMember {
    /// The slot that it had, and held all of.
    pub slot: Slot,
    /// The event count in its superblock.
    pub events: u64,
}

/// A replacement for a member that is still present.
#[derive(Clone, Debug)]
pub struct ReplacementSetup {
    /// The slot of both.
    pub slot: Slot,
    /// The replacement.
    pub member: MemberSetup,
}

/// The write-intent bitmap that members have.
#[derive(Clone, Debug)]
pub struct BitmapSetup {
    /// Its superblock; the event count is written anew.
    pub head: BitmapSuperblock,
    /// Bits that must stay set for now: the members', or all if these are not believed.
    pub says: Bits,
    /// Bits beyond the resync offset whose sectors are in doubt; `None` if bits are not believed.
    pub doubt: Option<Bits>,
    /// The marks of a lockless bitmap.
    pub marks: Option<LocklessMarks>,
}

/// The partial parity log of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityLogSetup {
    /// Its place.
    pub place: LogPlace,
    /// Its newest record's generation, and end in sectors from the area's start; `None` without
    /// one.
    pub newest: Option<(u64, u64)>,
}

/// The write journal of an array, replayed to the present members and flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSetup {
    /// Its device, by its name as a member.
    pub member: MemberId,
    /// The device's index in the superblocks' role table.
    pub device_number: u16,
    /// The ring, and the tail in the device's superblock.
    pub area: JournalArea,
    /// The end of its entries, in sectors from the start of the ring.
    pub end_sectors: u64,
    /// The sequence of a meta block there.
    pub end_sequence: u64,
    /// It has entries: superblocks must soon record that it is empty.
    pub is_used: bool,
}

/// The operator has accepted that some of a missing member's data may read wrong, in an array whose
/// redundancy is in doubt. The array is resynced all the same, so that a later loss costs no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRisk {
    /// From this offset on, in the unit of the resync offset, each row lacks as many members as the
    /// level bears: it has no redundancy that could disagree. `u64::MAX` if the level bears more.
    pub until_sectors: u64,
    /// Slots of missing or unfilled members: parity gives their data, even where that is in doubt.
    pub slots: Vec<Slot>,
}

/// The array as assembly found it.
#[derive(Clone, Debug)]
pub struct ArraySetup {
    /// Where bytes live.
    pub geometry: Geometry,
    /// The member of each slot.
    pub slots: Vec<Option<MemberSetup>>,
    /// Replacements of members in slots; one for a slot at most, whose member is up to date.
    pub replacements: Vec<ReplacementSetup>,
    /// Members without a slot.
    pub spares: Vec<SpareSetup>,
    /// Members that are read only if no other copy exists: md calls them *write-mostly*.
    pub write_mostly: BTreeSet<MemberId>,
    /// The newest event count.
    pub events: u64,
    /// Redundancy agrees below this; `u64::MAX` for everywhere. Zero for an array left active.
    pub resync_offset: u64,
    /// The risk that the operator accepted, if a member is missing.
    pub accepted_risk: Option<AcceptedRisk>,
    /// Its bitmap. An array without redundancy has none.
    pub bitmap: Option<BitmapSetup>,
    /// Whether superblocks shall name a bitmap. `None` leaves each as it is: the opener keeps none.
    pub names_bitmap: Option<bool>,
    /// The file with the bitmap, and perhaps our own parity log, by its name as a member.
    pub bitmap_file: Option<MemberId>,
    /// The partial parity logs of members and spares, if the array keeps such logs; only that of
    /// the bitmap file, if the array has one. Their records are replayed.
    pub parity_logs: Option<BTreeMap<MemberId, ParityLogSetup>>,
    /// Whether superblocks say that our own log counts.
    pub log_counts: bool,
    /// Its write journal, if it is to be written; none beside other logs, or a bitmap.
    pub journal: Option<JournalSetup>,
    /// Whether superblocks do not say clean, or the journal has entries. That may have been settled
    /// since. But a missing member may hold part of those writes, and must not come back as up to
    /// date.
    pub is_unclean: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// How its sectors are distributed over shards.
    pub regions: Regions,
    /// Sectors of a piece of background work, at most: [`crate::Shard::block_sectors`].
    pub work_sectors: u32,
    /// Whether jobs start paused.
    pub jobs_paused: bool,
    /// Whether every member zeroes ranges without writing them out.
    pub zero_is_fast: bool,
    /// Milliseconds without a write after which the superblocks turn clean.
    pub clean_delay_ms: u64,
    /// Whether superblocks take more than one sector, so that a power cut can tear them.
    pub superblocks_tear: bool,
}
