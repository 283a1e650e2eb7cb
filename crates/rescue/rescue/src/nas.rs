//! Recognises the maker of NAS disks by their partitions: a word of comfort for an operator with a
//! NAS in pieces on the table.
//!
//! This file only adds words to the report, and does not change which members are believed. The
//! first partitions of a NAS are its system and its swap, alike on all disks, at positions typical
//! of the maker.
//!
//! Sources: listings of disks that their owners published: Synology (partitions at 256, 4980736 and
//! 9453280; since DSM 7 at 8192 and 16785408), ReadyNAS (64, 8388672, 9437248), QNAP (four of which
//! the first, second and fourth are of some 500 MiB), Buffalo's TeraStation (some 380, 130 and 190
//! MiB around the data). Disks of other makers are read too, but their maker is not named.

use braid_geometry::SECTOR_BYTES;
use std::collections::BTreeMap;
use std::path::Path;

use super::disks::{Disk, Disks};
use super::rescue_array::RescueArray;
use super::volumes::Volumes;

const MIB_SECTORS: u64 = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    Synology,
    Qnap,
    ReadyNas,
    Buffalo,
}

impl Maker {
    fn name(self) -> &'static str {
        match self {
            Self::Synology => "Synology",
            Self::Qnap => "QNAP",
            Self::ReadyNas => "ReadyNAS",
            Self::Buffalo => "Buffalo",
        }
    }
}

/// A partition: its number, first sector, and number of sectors.
type Slice = (u32, u64, u64);

/// The maker of a disk with these partitions, which are in the order of their first sectors.
fn of_partitions(slices: &[Slice]) -> Option<Maker> {
    let starts: Vec<u64> = slices.iter().map(|(_, start, _)| *start).collect();
    let mib = |number: u32| {
        let found = slices.iter().find(|(one, ..)| *one == number);
        found.map_or(0, |(_, _, sectors)| sectors / MIB_SECTORS)
    };
    match starts[..] {
        [256 | 2048, 4_980_736, ..] | [8192, 16_785_408, ..] => return Some(Maker::Synology),
        [64, 8_388_672, 9_437_248, ..] => return Some(Maker::ReadyNas),
        _ => {}
    }
    let is_largest = slices.iter().all(|(_, _, sectors)| sectors / MIB_SECTORS <= mib(3));
    let is_small = |number: u32| (450..560).contains(&mib(number));
    if is_largest && is_small(1) && is_small(2) && is_small(4) {
        return Some(Maker::Qnap);
    }
    let is_near =
        |number: u32, expected: u64| (expected - 20..expected + 40).contains(&mib(number));
    (is_largest && is_near(1, 376) && is_near(2, 133) && is_near(4, 188)).then_some(Maker::Buffalo)
}

/// The maker of the partitioned disks, if all have the same maker.
fn of_disks(disks: &Disks) -> Option<Maker> {
    let mut by_path: BTreeMap<&Path, Vec<Slice>> = BTreeMap::new();
    for disk in &disks.all {
        if let Some(slice) = slice(disk) {
            by_path.entry(&disk.path).or_default().push(slice);
        }
    }
    let mut makers = by_path.into_values().map(|mut slices| {
        slices.sort_by_key(|(_, start, _)| *start);
        of_partitions(&slices)
    });
    let first = makers.next()??;
    makers.all(|maker| maker == Some(first)).then_some(first)
}

fn slice(disk: &Disk) -> Option<Slice> {
    let bytes = disk.part.as_ref()?;
    let number = disk.label.rsplit_once('#')?.1.parse().ok()?;
    Some((number, bytes.start / SECTOR_BYTES, (bytes.end - bytes.start) / SECTOR_BYTES))
}

fn whose(disks: &Disks, volumes: &Volumes) -> Option<Maker> {
    of_disks(disks).or_else(|| volumes.is_of_qnap().then_some(Maker::Qnap))
}

pub(super) fn maker(disks: &Disks, volumes: &Volumes) -> Option<&'static str> {
    whose(disks, volumes).map(Maker::name)
}

/// One line of the report on the NAS; `None` if no maker is recognised.
pub(super) fn words(disks: &Disks, found: &[RescueArray], volumes: &Volumes) -> Option<String> {
    let maker = whose(disks, volumes)?;
    let mut arrays: Vec<(u32, &str)> = Vec::new();
    for one in found {
        let members = one.group.members.iter().map(|index| &disks.all[*index]);
        // System partitions come before the data; on Buffalo and QNAP disks some follow the data.
        let number = members.filter_map(slice).map(|(number, ..)| number).min();
        arrays.push((number.unwrap_or(u32::MAX), one.group.name.as_str()));
    }
    arrays.sort_unstable();
    let is = |number: u32| match (maker, number) {
        (_, 1) => "its system",
        (_, 2) => "its swap",
        (Maker::Qnap, 4 | 5) => "more of its system",
        (Maker::Buffalo, 4) => "a rest that it does not use",
        _ => "data",
    };
    let list: Vec<String> =
        arrays.iter().map(|(number, name)| format!("{name} is {}", is(*number))).collect();
    let bands = match (maker, volumes.has_bands()) {
        (Maker::Synology, true) => "; its data lies in several bands (SHR), one array each",
        _ => "",
    };
    let list = if list.is_empty() { String::new() } else { format!(": {}", list.join(", ")) };
    Some(format!("These are disks of a NAS ({}){list}{bands}.", maker.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The partition tables in this test are those that owners published.
    #[test]
    fn makers_are_known_by_where_their_partitions_begin() {
        let rest = 1_000_000_000;
        let cases: [(Maker, &[Slice]); 6] = [
            (
                Maker::Synology,
                &[(1, 256, 4_980_480), (2, 4_980_736, 4_194_304), (3, 9_453_280, rest)],
            ),
            (
                Maker::Synology,
                &[
                    (1, 2048, 4_978_688),
                    (2, 4_980_736, 4_194_304),
                    (5, 9_453_280, rest),
                    (6, 1_100_000_000, rest),
                ],
            ),
            (
                Maker::Synology,
                &[(1, 8192, 16_777_216), (2, 16_785_408, 4_194_304), (3, 21_241_856, rest)],
            ),
            (
                Maker::ReadyNas,
                &[(1, 64, 8_388_608), (2, 8_388_672, 1_048_576), (3, 9_437_248, rest)],
            ),
            (
                Maker::Qnap,
                &[
                    (1, 40, 1_060_250),
                    (2, 1_060_296, 1_060_284),
                    (3, 2_120_584, 5_840_623_526),
                    (4, 5_842_744_112, 1_060_288),
                    (5, 5_843_804_408, 16_707_592),
                ],
            ),
            (
                Maker::Buffalo,
                &[
                    (1, 63, 771_057),
                    (2, 771_120, 273_105),
                    (3, 1_044_225, 486_962_282),
                    (4, 488_006_507, 385_558),
                ],
            ),
        ];
        for (maker, slices) in cases {
            assert_eq!(of_partitions(slices), Some(maker), "{slices:?}");
            // With moved partitions no maker is recognised.
            let moved: Vec<Slice> = slices
                .iter()
                .map(|(number, start, sectors)| (*number, start + 1, sectors / 3))
                .collect();
            assert_eq!(of_partitions(&moved), None, "{moved:?}");
        }
        assert_eq!(of_partitions(&[]), None);
        assert_eq!(of_partitions(&[(1, 2048, rest)]), None);
    }
}
