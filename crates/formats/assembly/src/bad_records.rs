//! Sectors of a member that its bad-block log names.

use std::ops::Range;

use braid_ondisk::{Features, Superblock};

use crate::ProbedMember;

/// The bad sectors of a part of the device, counted from the start of that part.
pub(crate) fn bad_records_from(
    superblock: &Superblock,
    member: &ProbedMember,
    (data_offset, used_sectors): (u64, u64),
) -> Vec<(u16, Range<u64>)> {
    if !superblock.state.features.contains(Features::BAD_BLOCKS) {
        return Vec::new();
    }
    let logged = member.bad_blocks.as_deref().unwrap_or_default();
    logged
        .iter()
        .map(|record| {
            let bad = record.range;
            let end = bad.start_sector.saturating_add(bad.length_sectors);
            let start = bad.start_sector.saturating_sub(data_offset);
            (record.log_sector, start..end.saturating_sub(data_offset).min(used_sectors))
        })
        .filter(|(_, range)| !range.is_empty())
        .collect()
}
