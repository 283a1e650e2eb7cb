//! The rest of the array as consistency sees it, as a small value: superblocks' last word,
//! members, and what waits.

use std::sync::Arc;

use braid_geometry::Geometry;

use super::parity_logs::News;
use crate::array::order::Activity;
use crate::array::roster::Roster;

/// The rest of the array, as consistency sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::array) struct Ground<'a> {
    pub(in crate::array) geometry: &'a Arc<Geometry>,
    pub(in crate::array) roster: &'a Roster,
    /// Number of the array's shards.
    pub(in crate::array) shards: u16,
    /// The count of events that superblocks have, or are about to.
    pub(in crate::array) events: u64,
    /// The word of durable superblocks.
    pub(in crate::array) on_disk: Activity,
    /// Redundancy agrees below this.
    pub(in crate::array) resync_offset: u64,
    /// The array takes writes, and has not stopped.
    pub(in crate::array) may_write: bool,
    pub(in crate::array) stopping: bool,
    /// The array was found dirty without some of its members, and no superblock says so yet.
    pub(in crate::array) absent: bool,
    /// The update whose first superblock is not written yet, if there is one.
    pub(in crate::array) awaiting: Option<Awaiting>,
    /// Members are being flushed before logs are written over.
    pub(in crate::array) flushes_for_logs: bool,
}

/// An update of superblocks that waits for what bitmaps and logs are to say before.
#[derive(Clone, Copy, Debug)]
pub(in crate::array) struct Awaiting {
    /// The count of events that it says.
    pub(in crate::array) events: u64,
    /// Its news for logs.
    pub(in crate::array) news: News,
}

impl Ground<'_> {
    /// Every slot has a member that holds all.
    pub(super) fn is_whole(&self) -> bool {
        self.roster.missing_count() == 0 && self.roster.recovering().next().is_none()
    }
}
