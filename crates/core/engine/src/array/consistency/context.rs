//! The rest of the array, as consistency sees it: durable superblocks, the members, and the update
//! that waits.

use std::sync::Arc;

use braid_geometry::Geometry;

use super::parity_logs::News;
use crate::array::order::Activity;
use crate::array::roster::Roster;

#[derive(Clone, Copy, Debug)]
pub(in crate::array) struct ConsistencyContext<'a> {
    pub(in crate::array) geometry: &'a Arc<Geometry>,
    pub(in crate::array) roster: &'a Roster,
    pub(in crate::array) shards: u16,
    /// The event count of superblocks, or of the update in flight.
    pub(in crate::array) events: u64,
    pub(in crate::array) on_disk: Activity,
    /// Redundancy agrees below this offset.
    pub(in crate::array) resync_offset: u64,
    /// The array takes writes, and has not stopped.
    pub(in crate::array) may_write: bool,
    pub(in crate::array) stopping: bool,
    /// The array was found dirty without some of its members, and no superblock records their
    /// absence yet.
    pub(in crate::array) absent: bool,
    /// The update whose first superblock is not written yet.
    pub(in crate::array) awaiting: Option<PendingUpdate>,
    /// Members are being flushed before logs are overwritten.
    pub(in crate::array) flushes_for_logs: bool,
}

/// An update of superblocks that waits for bitmaps and logs.
#[derive(Clone, Copy, Debug)]
pub(in crate::array) struct PendingUpdate {
    pub(in crate::array) events: u64,
    pub(in crate::array) news: News,
}

impl ConsistencyContext<'_> {
    /// Whether every slot has an up-to-date member.
    pub(super) fn is_whole(&self) -> bool {
        self.roster.missing_count() == 0 && self.roster.recovering().next().is_none()
    }
}
