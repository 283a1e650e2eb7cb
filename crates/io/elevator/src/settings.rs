//! The settings of an elevator and their defaults; all can change while it runs.

use crate::depth::Depth;

const MS: u64 = 1_000_000;

/// The depth of a disk's own queue.
const WIDE: Depth = Depth { total: 32, kept_for_reads: 8, kept_for_writes: 8 };

/// How entries are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// By the rules in the crate's header: for members that seek.
    Deadline,
    /// In order of insertion, at once, unmerged and without tags: for members that do not seek.
    None,
}

/// The settings of one member's elevator.
///
/// The default times and counts are those used for twenty years with disks that seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How entries are ordered.
    pub policy: Policy,
    /// Nanoseconds after which a read is served before nearer reads.
    pub read_expiry_ns: u64,
    /// Nanoseconds after which a write is served before nearer writes.
    pub write_expiry_ns: u64,
    /// Nanoseconds after which an entry is served before higher classes.
    pub aging_ns: u64,
    /// Maximum nanoseconds for which reads or writes are held while it is not their turn. After
    /// that time one entry of the held kind goes all the same. A multiplexer bounds a hold to two
    /// of its periods over all members; this setting bounds it for each member by itself.
    pub hold_max_ns: u64,
    /// Maximum dispatches in one direction, in the order of sectors, before the direction is chosen
    /// again; at least 1.
    pub batch: u32,
    /// How many batches of reads may pass waiting writes.
    pub writes_starved: u32,
    /// Maximum sectors of a merged vector; 0 turns merging off.
    pub merge_sectors_max: u32,
    /// Maximum entries of a merged vector.
    pub merge_parts_max: u32,
    /// Maximum of dispatches in flight.
    pub depth: Depth,
    /// Maximum dispatches of one direction while the other direction has had no entries for
    /// [`Settings::hold_max_ns`]. So no entry waits for a tag that an idle direction keeps.
    pub depth_alone: Depth,
    /// Whether held entries on the arm's way are dispatched along, and reads that use the writes'
    /// slice begin where the arm is. See the crate's header.
    pub takes_along: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::Deadline,
            read_expiry_ns: 500 * MS,
            write_expiry_ns: 5_000 * MS,
            aging_ns: 10_000 * MS,
            hold_max_ns: 400 * MS,
            batch: 16,
            writes_starved: 2,
            merge_sectors_max: 2048,
            merge_parts_max: 64,
            depth: WIDE,
            depth_alone: WIDE,
            takes_along: false,
        }
    }
}

impl Settings {
    /// Settings for a member that seeks and follows a [`crate::Multiplexer`]. Few dispatches are in
    /// flight at once, since those in flight when a slice ends take time of the next slice: 24
    /// reads of 7 ms would fill a whole period. Held reads expire late: a read served out of order
    /// breaks the sweep for later reads, and the multiplexer bounds a hold.
    #[must_use]
    pub fn multiplexed() -> Self {
        Self {
            read_expiry_ns: 1_500 * MS,
            depth: Depth { total: 8, kept_for_reads: 2, kept_for_writes: 2 },
            takes_along: true,
            ..Self::default()
        }
    }

    /// The same settings with this depth, whatever the other direction does.
    #[must_use]
    pub fn with_depth(self, depth: Depth) -> Self {
        Self { depth, depth_alone: depth, ..self }
    }

    /// Settings for a member that does not seek: entries are not ordered.
    #[must_use]
    pub fn straight() -> Self {
        Self { policy: Policy::None, ..Self::default() }
    }
}
