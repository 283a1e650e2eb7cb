//! The array as assembly found it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_geometry::{Geometry, Slot};
use braid_ondisk::{BitmapSuperblock, Bits, JournalArea, LocklessMarks, LogPlace};

use super::update::ShapeState;
use crate::bad_log::BadLog;
use crate::ids::MemberId;
use crate::ranges::BadBlocks;
use crate::request::Regions;
use crate::reshape::ReshapePlan;

/// A member that occupies a slot when the array is opened.
#[derive(Clone, Debug)]
pub struct MemberSetup {
    /// The member's name.
    pub id: MemberId,
    /// The member's index in the superblocks' role table.
    pub device_number: u16,
    /// Sectors of the member's data area that are up to date; `u64::MAX` for all.
    pub recovered_sectors: u64,
    /// The member's bad ranges.
    pub bad_blocks: BadBlocks,
    /// The member's bad-block log; without sectors if the array keeps no log of the member, or
    /// leaves the log untouched.
    pub bad_log: BadLog,
}

/// A member without a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareSetup {
    /// The spare's name.
    pub id: MemberId,
    /// The spare's index in the superblocks' role table.
    pub device_number: u16,
    /// Sectors of the spare's bad-block log; 0 without a log.
    pub bad_log_sectors: u16,
    /// Whether the spare's superblock takes more than one sector, so that a power cut can tear it.
    pub tears: bool,
    /// The slot and the event count that the spare had as a member, if it was a member before.
    pub returns: Option<ReturningMember>,
    /// The place of the spare's partial parity log, if it has room for a log.
    pub parity_log: Option<LogPlace>,
}

/// A former member that returns to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturningMember {
    /// The slot that the member had, and whose data it held completely.
    pub slot: Slot,
    /// The event count in the member's superblock.
    pub events: u64,
}

/// A replacement for a member that is still present.
#[derive(Clone, Debug)]
pub struct ReplacementSetup {
    /// The slot of the member and of its replacement.
    pub slot: Slot,
    /// The replacement.
    pub member: MemberSetup,
}

/// The write-intent bitmap that members have.
#[derive(Clone, Debug)]
pub struct BitmapSetup {
    /// The bitmap's superblock; the array writes a new event count into it.
    pub head: BitmapSuperblock,
    /// Bits that must stay set for now: the bits that the members' bitmaps set, or all bits if
    /// these bitmaps are not believed.
    pub says: Bits,
    /// Bits beyond the resync offset whose sectors are in doubt; `None` if bits are not believed.
    pub doubt: Option<Bits>,
    /// The marks of a lockless bitmap.
    pub marks: Option<LocklessMarks>,
}

/// The partial parity log of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityLogSetup {
    /// The log's place.
    pub place: LogPlace,
    /// The newest record's generation, and its end in sectors from the area's start; `None` without
    /// a record.
    pub newest: Option<(u64, u64)>,
}

/// The write journal of an array, replayed to the present members and flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSetup {
    /// The journal's device, by its name as a member.
    pub member: MemberId,
    /// The device's index in the superblocks' role table.
    pub device_number: u16,
    /// The ring, and the tail in the device's superblock.
    pub area: JournalArea,
    /// The end of the journal's entries, in sectors from the start of the ring.
    pub end_sectors: u64,
    /// The sequence number of a meta block at the end of the journal's entries.
    pub end_sequence: u64,
    /// Whether the journal has entries. Superblocks must then soon record that it is empty.
    pub is_used: bool,
}

/// The operator has accepted that some of a missing member's data may read wrong, in an array whose
/// redundancy is in doubt. The array is resynced all the same, so that a later loss costs no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedRisk {
    /// From this offset on, in the unit of the resync offset, each row lacks as many members as the
    /// level tolerates: it has no redundancy that could disagree. `u64::MAX` if the level tolerates
    /// more.
    pub until_sectors: u64,
    /// Slots of missing or unfilled members: parity supplies their data, even if that parity is in
    /// doubt.
    pub slots: Vec<Slot>,
}

/// A reshape under way.
#[derive(Clone, Debug)]
pub struct ReshapeSetup {
    /// The old shape.
    pub before: Geometry,
    /// The new shape.
    pub after: Geometry,
    /// The order and size of the windows, and their direction.
    pub plan: ReshapePlan,
    /// The shape that superblocks record, with the recorded position.
    pub shape: ShapeState,
    /// The places of the data of each member whose data moves.
    pub moves: BTreeMap<MemberId, DataMove>,
    /// Array sectors that moved in place when the array was last used, and of which the driver has
    /// a copy. The sectors begin at the recorded position.
    pub copied: Option<Range<u64>>,
    /// The most sectors of the array in a window; `None` for the default.
    pub window_sectors_max: Option<u64>,
}

impl ReshapeSetup {
    /// Whether the window at the recorded position overwrites itself, so that it needs its copy.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let position = self.shape.reshape.map(|reshape| reshape.position_sectors);
        let window = position.and_then(|position| self.plan.window(position, 0));
        window.is_some_and(|window| window.in_place)
    }
}

/// The places of one member's data in both shapes. Sectors count from the lower of the two places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataMove {
    /// First sector of the data in the old shape.
    pub before_sectors: u64,
    /// First sector of the data in the new shape.
    pub after_sectors: u64,
}

impl DataMove {
    /// First sector of the member's data in the old or the new shape.
    #[must_use]
    pub fn on_side(&self, is_after: bool) -> u64 {
        if is_after { self.after_sectors } else { self.before_sectors }
    }
}

/// The array as assembly found it.
#[derive(Clone, Debug)]
pub struct ArraySetup {
    /// The geometry; during a reshape the geometry with more slots.
    pub geometry: Geometry,
    /// The reshape under way. Bad blocks then count from the lower of a member's two data areas.
    pub reshape: Option<ReshapeSetup>,
    /// The member of each slot.
    pub slots: Vec<Option<MemberSetup>>,
    /// Replacements of members in slots. A slot has at most one, and its member is up to date.
    pub replacements: Vec<ReplacementSetup>,
    /// Members without a slot.
    pub spares: Vec<SpareSetup>,
    /// Members that are read only if no other copy exists: md calls them *write-mostly*.
    pub write_mostly: BTreeSet<MemberId>,
    /// The newest event count.
    pub events: u64,
    /// Redundancy agrees below this offset; `u64::MAX` for everywhere. Zero for an array left
    /// active.
    pub resync_offset: u64,
    /// The risk that the operator accepted, if a member is missing.
    pub accepted_risk: Option<AcceptedRisk>,
    /// The array's bitmap. An array without redundancy has none.
    pub bitmap: Option<BitmapSetup>,
    /// Whether superblocks shall name a bitmap. `None` leaves each superblock as it is: the opener
    /// keeps no bitmap.
    pub names_bitmap: Option<bool>,
    /// The file with the bitmap, and perhaps braid's own parity log, by its name as a member.
    pub bitmap_file: Option<MemberId>,
    /// The partial parity logs of members and spares, if the array keeps such logs. With a bitmap
    /// file, only the log in that file. The logs' records are replayed already.
    pub parity_logs: Option<BTreeMap<MemberId, ParityLogSetup>>,
    /// Whether superblocks mark braid's own parity log as valid.
    pub log_counts: bool,
    /// The array's write journal, if the array writes to it; `None` if it has other logs, or a
    /// bitmap.
    pub journal: Option<JournalSetup>,
    /// Whether superblocks do not say clean, or the journal has entries. A missing member may then
    /// hold part of the interrupted writes, and must not come back as up to date, even if
    /// redundancy agrees again.
    pub is_unclean: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The distribution of the array's sectors over shards.
    pub regions: Regions,
    /// The most sectors of one background work: [`crate::Shard::block_sectors`].
    pub work_sectors: u32,
    /// Whether jobs start paused.
    pub jobs_paused: bool,
    /// Whether every member zeroes ranges without writing them out.
    pub zero_is_fast: bool,
    /// Milliseconds without a write after which the array marks its superblocks clean.
    pub clean_delay_ms: u64,
    /// Whether superblocks take more than one sector, so that a power cut can tear them.
    pub superblocks_tear: bool,
}

impl MemberSetup {
    /// A member that is up to date and has no bad blocks, named and numbered after its slot.
    #[must_use]
    pub fn up_to_date(slot: u16) -> Self {
        Self {
            id: MemberId(slot),
            device_number: slot,
            recovered_sectors: u64::MAX,
            bad_blocks: BadBlocks::default(),
            bad_log: BadLog::default(),
        }
    }
}

impl SpareSetup {
    /// A spare that was never a member, and has room for no log.
    #[must_use]
    pub fn new(id: MemberId, device_number: u16) -> Self {
        let (bad_log_sectors, tears, returns, parity_log) = (0, false, None, None);
        Self { id, device_number, bad_log_sectors, tears, returns, parity_log }
    }
}

impl ArraySetup {
    /// A consistent array with all its members, without spares, bitmap or logs. Jobs are paused.
    #[must_use]
    pub fn consistent(geometry: Geometry, shards: u16) -> Self {
        Self {
            reshape: None,
            slots: (0..geometry.slots()).map(|slot| Some(MemberSetup::up_to_date(slot))).collect(),
            replacements: Vec::new(),
            spares: Vec::new(),
            write_mostly: BTreeSet::new(),
            events: 1,
            resync_offset: u64::MAX,
            accepted_risk: None,
            bitmap: None,
            names_bitmap: None,
            bitmap_file: None,
            parity_logs: None,
            log_counts: false,
            journal: None,
            is_unclean: false,
            read_only: false,
            regions: Regions::new(&geometry, shards),
            work_sectors: 8,
            jobs_paused: true,
            zero_is_fast: false,
            clean_delay_ms: 200,
            superblocks_tear: false,
            geometry,
        }
    }
}
