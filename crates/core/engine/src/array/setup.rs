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
    /// Sectors of its data area that hold what they should; `u64::MAX` when all do.
    pub recovered_sectors: u64,
    /// Ranges of it not to be read.
    pub bad_blocks: BadBlocks,
    /// The same, as its bad-block log says it; without sectors where none is kept, or it is left as
    /// it is.
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
    pub returns: Option<Returns>,
    /// Where it keeps a partial parity log, if it has room for one.
    pub parity_log: Option<LogPlace>,
}

/// A member that went, and comes back as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returns {
    /// The slot that it had, and held all of.
    pub slot: Slot,
    /// The count of events that its superblock says.
    pub events: u64,
}

/// A member that is to take the place of another, which is still there.
#[derive(Clone, Debug)]
pub struct ReplacementSetup {
    /// The slot of both.
    pub slot: Slot,
    /// Itself.
    pub member: MemberSetup,
}

/// The write-intent bitmap that members have.
#[derive(Clone, Debug)]
pub struct BitmapSetup {
    /// Its superblock; what it counts of events is written anew.
    pub head: BitmapSuperblock,
    /// Bits that must stay set for now: the members' bits, or all if their bitmaps are not
    /// believed.
    pub says: Bits,
    /// Bits beyond the resync offset whose sectors are in doubt; none where bits are not believed.
    pub doubt: Option<Bits>,
    /// The marks of a lockless bitmap.
    pub marks: Option<LocklessMarks>,
}

/// The partial parity log of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityLogSetup {
    /// Where it is.
    pub place: LogPlace,
    /// The generation of its newest record, and sectors from the start of the area to behind it;
    /// none if it has no record.
    pub newest: Option<(u64, u64)>,
}

/// The write journal of an array. Its content has been replayed to the present members, and
/// flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSetup {
    /// The name of its device.
    pub member: MemberId,
    /// The device's index in the superblocks' role table.
    pub device_number: u16,
    /// The ring, and the tail that the device's superblock says.
    pub area: JournalArea,
    /// Where what it says ends, in sectors from the start of the ring, and the sequence that a meta
    /// block would have there.
    pub end_sectors: u64,
    /// See there.
    pub end_sequence: u64,
    /// It says more than that it is empty: superblocks are to say soon that it is.
    pub is_used: bool,
}

/// A person has accepted that some of what a missing member holds may read wrong, of an array whose
/// redundancy is in doubt. It is resynced all the same: a loss that comes later is not to cost
/// more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRisk {
    /// From here on, in the unit of the resync offset, each row lacks as many members as the level
    /// bears: nothing is left there that could disagree. `u64::MAX` where the level bears more.
    pub until_sectors: u64,
    /// Whose members were missing, or lacked something: what they hold is made of parity, also
    /// where that is in doubt.
    pub slots: Vec<Slot>,
}

/// The array as assembly found it.
#[derive(Clone, Debug)]
pub struct ArraySetup {
    /// Where bytes live.
    pub geometry: Geometry,
    /// Per slot its member, or nothing.
    pub slots: Vec<Option<MemberSetup>>,
    /// Members that are to take the place of those in slots; one for a slot at most, whose member
    /// holds all.
    pub replacements: Vec<ReplacementSetup>,
    /// Members without a slot.
    pub spares: Vec<SpareSetup>,
    /// Members, with a slot or without, that are read only where no other copy is: md calls them
    /// *write-mostly*.
    pub write_mostly: BTreeSet<MemberId>,
    /// The newest event count.
    pub events: u64,
    /// Where redundancy agrees up to; `u64::MAX` when everywhere. Zero for an array left active.
    pub resync_offset: u64,
    /// The risk that the operator accepted, if a member is missing.
    pub accepted_risk: Option<AcceptedRisk>,
    /// Its bitmap, if members have one. An array without redundancy has none.
    pub bitmap: Option<BitmapSetup>,
    /// Whether superblocks shall name a bitmap. `None` leaves each as it is: this opener keeps no
    /// bitmap.
    pub names_bitmap: Option<bool>,
    /// The file with the bitmap, and with our own parity log if the array keeps one, by its name as
    /// a member.
    pub bitmap_file: Option<MemberId>,
    /// The partial parity logs of members and spares, if the array keeps such logs; only that of
    /// the bitmap file, if the array has one. Their records are replayed.
    pub parity_logs: Option<BTreeMap<MemberId, ParityLogSetup>>,
    /// Whether superblocks say of our own log that it counts.
    pub log_counts: bool,
    /// Its write journal, which is to be written; none beside other logs, or a bitmap.
    pub journal: Option<JournalSetup>,
    /// Whether superblocks do not say clean, or its journal has what was being written, though what
    /// is in doubt may have been settled since: who is missing may hold what was being written, and
    /// must not come back as if it had missed nothing.
    pub is_unclean: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// How its sectors are dealt out to shards.
    pub regions: Regions,
    /// Sectors that background work is about, at most: as a shard says
    /// ([`crate::Shard::block_sectors`]).
    pub work_sectors: u32,
    /// Whether jobs wait until they are told to go on.
    pub jobs_paused: bool,
    /// Whether every member zeroes ranges without writing them out.
    pub zero_is_fast: bool,
    /// Milliseconds without a write after which the superblocks turn clean.
    pub clean_delay_ms: u64,
    /// Whether superblocks take more than one sector, so that a power cut can tear them.
    pub superblocks_tear: bool,
}
