//! The array as jobs see it: geometry, members, ranges in doubt, and permissions.

use braid_geometry::Geometry;
use braid_ondisk::Bits;

use crate::array::roster::Roster;
use crate::request::Regions;

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct JobsContext<'a> {
    pub(in super::super) geometry: &'a Geometry,
    pub(in super::super) regions: Regions,
    /// The most sectors of one background work ([`crate::Shard::block_sectors`]).
    pub(in super::super) work_sectors: u32,
    pub(in super::super) roster: &'a Roster,
    /// Redundancy agrees below this offset; `u64::MAX` for everywhere.
    pub(in super::super) resync_offset: u64,
    /// From this offset on redundancy agrees too, whatever the resync offset.
    pub(in super::super) resync_end: u64,
    /// Bits beyond the resync offset whose sectors are in doubt; `None` if all sectors are.
    pub(in super::super) doubt: Option<&'a Bits>,
    /// For a lockless bitmap, two sets of bits. The first: sectors that must be made to agree
    /// though no write to them was interrupted. The second: sectors that no client has written,
    /// whose redundancy need not agree.
    pub(in super::super) lazy: Option<(&'a Bits, &'a Bits)>,
    /// Members and superblocks may be written, and the array is not stopping.
    pub(in super::super) may_run: bool,
    pub(in super::super) may_save: bool,
    /// Bad-block logs have their wanted content.
    pub(in super::super) are_logs_settled: bool,
}

/// Whether every slot has an up-to-date member.
pub(super) fn is_whole(roster: &Roster) -> bool {
    roster.missing_count() == 0 && roster.recovering().next().is_none()
}
