//! Probes a device: recognises md superblocks of every version, and signatures of other formats.
//!
//! The module does no I/O: [`probe_ranges`] names the bytes to read, the caller reads them, and
//! [`probe`] examines them.
//!
//! ```text
//! device   ├─ start: 260 KiB ─┤                            ├─ end: 64..128 KiB ─┤
//!          1.1, 1.2, most file systems, partition tables   0.90, 1.0, GPT's copy, DDF, IMSM, DRBD
//! ```
//!
//! Every superblock with md's magic is reported, sound or not, in the order 0.90, 1.0, 1.1, 1.2. If
//! there are several, the caller decides which superblock counts.

use core::ops::Range;

use crate::foreign_signatures::{ForeignSignature, recognise_foreign};
use crate::limits::{SECTOR_BYTES, SUPERBLOCK_BYTES_MAX};
use crate::snippet::{Bytes, Snippet};
use crate::superblock::{Superblock, SuperblockError, UnvalidatedV0, UnvalidatedV1, Version};

/// Bytes read at the start: the furthest signature is a ZFS uberblock, below 256 KiB.
const START_BYTES: u64 = 260 << 10;
/// The range at the end starts at the last 64 KiB boundary but one, where a 0.90 superblock is.
const END_ALIGN_BYTES: u64 = 64 << 10;

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Probe {
    /// Every superblock with md's magic at a place where md looks, sound or not.
    pub superblocks: Vec<Result<Superblock, SuperblockError>>,
    /// All signatures that are not md's.
    pub foreign: Vec<ForeignSignature>,
}

impl Probe {
    /// Whether no signature was recognised.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.superblocks.is_empty() && self.foreign.is_empty()
    }

    /// Of several sound superblocks, the superblock of the array that was made last, as mdadm
    /// chooses.
    #[must_use]
    pub fn newest(&self) -> Option<&Superblock> {
        self.superblocks
            .iter()
            .filter_map(|found| found.as_ref().ok())
            .max_by_key(|superblock| superblock.array.creation_time)
    }
}

/// The byte ranges to read for [`probe`]: one or two, at most 388 KiB, none beyond `device_bytes`,
/// none overlapping.
#[must_use]
pub fn probe_ranges(device_bytes: u64) -> Vec<Range<u64>> {
    let start_end = START_BYTES.min(device_bytes);
    let end_start = (device_bytes & !(END_ALIGN_BYTES - 1)).saturating_sub(END_ALIGN_BYTES);
    let ranges = if end_start <= start_end {
        [0..device_bytes, 0..0]
    } else {
        [0..start_end, end_start..device_bytes]
    };
    ranges.into_iter().filter(|range| !range.is_empty()).collect()
}

/// Probes the bytes read from a device of `device_bytes`.
///
/// Snippets other than those of [`probe_ranges`] are allowed; signatures in unread bytes are not
/// found.
#[must_use]
pub fn probe(device_bytes: u64, snippets: &[Snippet]) -> Probe {
    let bytes = Bytes { device_bytes, snippets };
    let superblocks = Version::ALL.into_iter().filter_map(|version| superblock_at(&bytes, version));
    Probe { superblocks: superblocks.collect(), foreign: recognise_foreign(&bytes) }
}

fn superblock_at(
    bytes: &Bytes<'_>,
    version: Version,
) -> Option<Result<Superblock, SuperblockError>> {
    let device_bytes = bytes.device_bytes;
    let offset = version.super_offset_sectors(device_bytes / SECTOR_BYTES)? * SECTOR_BYTES;
    let found = bytes.up_to(offset, SUPERBLOCK_BYTES_MAX)?;
    if version.is_v1() {
        Some(UnvalidatedV1::recognise(found, version)?.validate(device_bytes, offset))
    } else {
        Some(UnvalidatedV0::recognise(found)?.validate(device_bytes, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_few_small_and_inside_and_cover_every_place(device_bytes in prop_oneof![0_u64..1 << 20, any::<u64>()]) {
            let ranges = probe_ranges(device_bytes);
            prop_assert!(ranges.len() <= 2);
            prop_assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() <= 388 << 10);
            prop_assert!(ranges.iter().all(|range| range.end <= device_bytes));
            prop_assert!(ranges.is_sorted_by(|a, b| a.end < b.start));
            for version in Version::ALL {
                let Some(sector) = version.super_offset_sectors(device_bytes / 512) else { continue };
                let place = sector * 512..(sector * 512 + 4096).min(device_bytes);
                prop_assert!(ranges.iter().any(|r| r.start <= place.start && place.end <= r.end), "{version}");
            }
        }
    }

    #[test]
    fn an_empty_device_has_nothing_to_read_and_nothing_on_it() {
        assert!(probe_ranges(0).is_empty());
        assert!(probe(0, &[]).is_blank());
        assert!(probe(1 << 20, &[Snippet { offset: 0, bytes: vec![0; 1 << 20] }]).is_blank());
    }
}
