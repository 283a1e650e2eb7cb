//! How people and mdadm make arrays: the worth of an arrangement before its content is read.
//!
//! The worth is at most a few addresses' worth, and decides only without much other evidence.

use std::collections::BTreeSet;

/// The weight, in addresses, if the data of all members begins at a usual offset.
pub(crate) const OFFSET_ADDRESSES: usize = 2;
/// The weight of a usual data offset, in tenths of an address.
const USUAL: i64 = 20;
/// The weight of a data offset in whole MiB, which md may choose.
const WHOLE_MEBIBYTES: i64 = 10;
/// The weight of a data offset in whole pages.
const WHOLE_PAGES: i64 = 5;
/// The weight of a chunk that was mdadm's default, in tenths of an address.
const COMMON_CHUNK: i64 = 4;
/// The weight of members that the operator named in the order of their slots.
const IN_ORDER: i64 = 6;

/// Usual data offsets: 0 if metadata is old or at the end, then those of mdadm before 3.2.5, until
/// 4.1, and since 4.1.
const OFFSETS: [u64; 4] = [0, 2048, 262_144, 264_192];
/// The most sectors that mdadm leaves for a later reshape.
const HEADROOM_SECTORS: u64 = 128 << 11;
/// mdadm leaves at most one part in this many of a member for a later reshape.
const HEADROOM_PART: u64 = 1024;
/// mdadm's default chunks: 64 KiB until 3.1 and 512 KiB since.
const CHUNKS: [u32; 2] = [128, 1024];

/// Usual data offsets of members of this size: mdadm leaves less space on small ones.
pub(crate) fn offsets(member_sectors: u64) -> Vec<u64> {
    let halves = std::iter::successors(Some(HEADROOM_SECTORS), |it| Some(it / 2));
    let headroom =
        halves.take_while(|it| *it >= 2048).find(|it| it * HEADROOM_PART <= member_sectors);
    let of_size = headroom.into_iter().flat_map(|it| [it, it + 2048]);
    let all: BTreeSet<u64> = OFFSETS.into_iter().chain(of_size).collect();
    all.into_iter().filter(|offset| *offset < member_sectors).collect()
}

/// The worth, in tenths of an address, of an arrangement: members of this size with these offsets,
/// this chunk and these slots.
pub(crate) fn worth(
    member_sectors: u64,
    offsets_of: &[u64],
    chunk_sectors: u32,
    slots: &[Option<usize>],
) -> i64 {
    let first = offsets_of.first().copied().unwrap_or(0);
    let is_common = offsets_of.iter().all(|offset| *offset == first);
    let is_in_order = slots.iter().flatten().is_sorted();
    let offset = match first {
        _ if !is_common => 0,
        _ if offsets(member_sectors).contains(&first) => USUAL,
        _ if first.is_multiple_of(2048) => WHOLE_MEBIBYTES,
        _ => 0,
    };
    let page = if first.is_multiple_of(8) { WHOLE_PAGES } else { 0 };
    let chunk = if CHUNKS.contains(&chunk_sectors) { COMMON_CHUNK } else { 0 };
    offset + page + chunk + if is_in_order { IN_ORDER } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A RAID-0 whose members began at sectors 1953 to 2049 once ranked before the array that mdadm
    /// had made.
    #[test]
    fn what_people_make_is_worth_more_than_what_nobody_does() {
        let slots: Vec<Option<usize>> = (0..3).map(Some).collect();
        let of = |offsets: &[u64], chunk, slots: &[_]| worth(24 << 11, offsets, chunk, slots);
        let usual = of(&[2048; 3], 128, &slots);
        assert!(usual > of(&[1953, 2049, 2048], 128, &slots));
        assert!(usual > of(&[1984; 3], 128, &slots));
        assert!(usual > of(&[2048; 3], 64, &slots));
        assert!(usual > of(&[2048; 3], 128, &[Some(2), Some(0), Some(1)]));
        assert!(of(&[6144; 3], 128, &slots) > of(&[2056; 3], 128, &slots));
        // Large members have all of mdadm's offsets; small members have mdadm's headroom.
        assert_eq!(offsets(1 << 32), [0, 2048, 262_144, 264_192]);
        assert_eq!(offsets(16 << 21), [0, 2048, 32_768, 34_816, 262_144, 264_192]);
    }
}
