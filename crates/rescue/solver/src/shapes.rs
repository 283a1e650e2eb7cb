//! Every shape that md can give to a number of members.

use braid_geometry::{Level, SLOTS_MAX};

/// Chunks that are tried, as powers of two of sectors: 4 KiB to 4 MiB.
const CHUNKS: std::ops::RangeInclusive<u32> = 3..=13;
/// md's layout numbers for RAID-10 that are tried: two and three near copies, two far, two offset.
const RAID10: [u32; 4] = [0x102, 0x201, 0x1_0201, 0x103];
const RAID5: [u32; 6] = [0, 1, 2, 3, 4, 5];
const RAID6: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrangement {
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) slots: u16,
}

/// The two layouts of RAID-0 beyond its smallest member, see `braid_geometry`.
const RAID0: [u32; 2] = [1, 2];

/// All shapes to try: with one member that does not belong to the array, with all members, and with
/// as many members missing as the level tolerates.
pub(crate) fn arrangements(members: usize, are_unequal: bool) -> Vec<Arrangement> {
    let Ok(members) = u16::try_from(members) else { return Vec::new() };
    let mut found = Vec::new();
    let mut add = |level, layouts: &[u32], slots: std::ops::RangeInclusive<u16>| {
        for slots in slots.filter(|slots| (1..=SLOTS_MAX).contains(slots)) {
            for layout in layouts {
                for chunk_sectors in CHUNKS.map(|shift| 1 << shift) {
                    found.push(Arrangement { level, layout: *layout, chunk_sectors, slots });
                }
            }
        }
    };
    let one_less = members.saturating_sub(1);
    let zoned = if are_unequal { &RAID0[..] } else { &RAID0[..1] };
    add(Level::Raid0, zoned, one_less.max(2)..=members);
    add(Level::Raid4, &[0], one_less.max(2)..=members + 1);
    add(Level::Raid5, &RAID5, one_less.max(2)..=members + 1);
    add(Level::Raid6, &RAID6, one_less.max(4)..=members + 2);
    add(Level::Raid10, &RAID10, one_less.max(2)..=members.saturating_mul(2).min(members + 3));
    // A mirror has no chunk, and a linear array needs no votes on shapes.
    found.push(Arrangement { level: Level::Raid1, layout: 0, chunk_sectors: 0, slots: members });
    found
}
