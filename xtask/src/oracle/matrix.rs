//! The arrays on which md and braid are compared.
//!
//! The arrays combine levels, layouts, metadata versions, chunks and numbers of members, but are
//! not the full product. Every layout occurs, every metadata version and every chunk meets every
//! level, and the number of members varies. The generator turns through these lists at different
//! speeds, so that pairs vary.

use super::spec::{ArraySpec, Level, Making};

/// mdadm's words for the layouts of RAID-5.
pub(crate) const RAID5_LAYOUTS: [&str; 6] = [
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
];

/// mdadm's words for the layouts of RAID-6.
pub(crate) const RAID6_LAYOUTS: [&str; 14] = [
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
    "ddf-zero-restart",
    "ddf-N-restart",
    "ddf-N-continue",
    "left-asymmetric-6",
    "right-asymmetric-6",
    "left-symmetric-6",
    "right-symmetric-6",
    "parity-first-6",
];

/// RAID-10: near, far and offset with two and three copies.
pub(crate) const RAID10_LAYOUTS: [&str; 6] = ["n2", "n3", "f2", "f3", "o2", "o3"];

const METADATA: [&str; 4] = ["1.2", "0.90", "1.0", "1.1"];
const CHUNKS_KIB: [u32; 9] = [64, 4, 512, 16, 1024, 128, 8, 256, 32];

/// Device sectors for members with this chunk: room for the superblock and a few chunks. The number
/// is no multiple of the chunk.
fn device_sectors(chunk_kib: u32) -> u64 {
    (2 << 11) + u64::from(chunk_kib) * 2 * 5 / 2 + 1024 + 88
}

struct Turner {
    specs: Vec<ArraySpec>,
    turn: usize,
}

impl Turner {
    /// Adds an array with the next metadata version and chunk, and members of equal size.
    fn next(&mut self, level: Level, layout: Option<&'static str>, members: usize) {
        let metadata = METADATA[self.turn % METADATA.len()];
        let chunk = CHUNKS_KIB[self.turn % CHUNKS_KIB.len()];
        self.turn += 1;
        self.add(level, layout, (metadata, chunk), &vec![device_sectors(chunk); members]);
    }

    fn add(
        &mut self,
        level: Level,
        layout: Option<&'static str>,
        (metadata, chunk_kib): (&'static str, u32),
        members: &[u64],
    ) {
        let word = layout.map_or(String::new(), |layout| format!("-{layout}"));
        let level_word = if level == Level::Linear { "linear" } else { "raid" };
        let number = if level == Level::Linear { String::new() } else { level.to_string() };
        let chunk = (level != Level::Raid1).then_some(chunk_kib);
        let chunk_word = chunk.map_or(String::new(), |chunk| format!("-{chunk}k"));
        let mut name =
            format!("{level_word}{number}{word}-{}{chunk_word}-m{metadata}", members.len());
        if members.iter().any(|sectors| *sectors != members[0]) {
            name += "-unequal";
        }
        self.specs.push(ArraySpec {
            name,
            level,
            layout,
            metadata,
            chunk_kib: chunk,
            members: members.to_vec(),
            making: if level == Level::Raid0 && metadata == "0.90" {
                Making::Takeover
            } else {
                Making::Mdadm
            },
            raid0_default: None,
        });
    }

    fn last(&mut self) -> &mut ArraySpec {
        self.specs.last_mut().expect("an array was added before")
    }
}

/// Every array of the forward and reverse suites, with unique names.
pub(crate) fn arrays() -> Vec<ArraySpec> {
    let mut turner = Turner { specs: Vec::new(), turn: 0 };
    direct(&mut turner);
    for metadata in METADATA {
        for members in [2, 3] {
            turner.add(Level::Raid1, None, (metadata, 64), &vec![6232; members]);
        }
    }
    for members in [3, 4, 5, 6] {
        turner.next(Level::Raid4, None, members);
    }
    for members in [3, 4, 5] {
        for layout in RAID5_LAYOUTS {
            turner.next(Level::Raid5, Some(layout), members);
        }
    }
    for layout in ["left-symmetric", "right-asymmetric"] {
        turner.next(Level::Raid5, Some(layout), 7);
    }
    for members in [4, 5, 6] {
        for layout in RAID6_LAYOUTS {
            turner.next(Level::Raid6, Some(layout), members);
        }
        // One more turn for each number of members: 14 layouts and 4 metadata versions would
        // otherwise meet in the same pairs again.
        turner.turn += 1;
    }
    turner.next(Level::Raid6, Some("left-symmetric"), 8);
    for members in [3, 4, 5] {
        for layout in RAID10_LAYOUTS {
            turner.next(Level::Raid10, Some(layout), members);
        }
        turner.turn += 1;
    }
    turner.next(Level::Raid10, Some("n2"), 2);
    turner.next(Level::Raid10, Some("n2"), 6);
    turner.next(Level::Raid10, Some("f3"), 7);
    for (form, layout, members) in [(2, "f2", 4), (2, "f2", 5), (1, "f2", 6), (2, "f3", 6)] {
        turner.add(Level::Raid10, Some(layout), ("1.2", 32), &vec![6232; members]);
        let spec = turner.last();
        spec.making = Making::PatchedFarSets(form);
        spec.name += &format!("-sets{form}");
    }
    every_metadata_and_chunk(&mut turner);
    turner.specs
}

/// linear and raid0, with members of equal and of unequal size.
fn direct(turner: &mut Turner) {
    let unequal = [[6232, 9000, 7000], [12_000, 6232, 8304], [6400, 6400, 15_000]];
    for (metadata, members) in METADATA.into_iter().zip([2, 3, 4, 5]) {
        turner.add(Level::Linear, None, (metadata, 64), &vec![6232; members]);
        turner.add(Level::Linear, None, (metadata, 4), &unequal[members % 3]);
        turner.next(Level::Raid0, None, members);
    }
    turner.next(Level::Raid0, None, 3);
    for (members, metadata, chunk) in [(0, "1.2", 64), (1, "1.0", 16), (2, "1.1", 128)] {
        for layout in ["original", "alternate"] {
            turner.add(Level::Raid0, Some(layout), (metadata, chunk), &unequal[members]);
        }
    }
    for (default, members, word) in [(1, 1, "original"), (2, 1, "alternate")] {
        turner.add(Level::Raid0, None, ("0.90", 64), &unequal[members]);
        let spec = turner.last();
        spec.raid0_default = Some(default);
        spec.making = Making::PatchedLinear;
        spec.name = format!("raid0-3-64k-m0.90-unequal-default-{word}");
    }
    // A chunk that is no power of two: only raid0 allows it.
    turner.add(Level::Raid0, None, ("1.2", 12), &[6232; 3]);
}

/// Adds the default layout of each level with each metadata version, and with each chunk.
fn every_metadata_and_chunk(turner: &mut Turner) {
    for (level, layout, members) in [
        (Level::Raid5, Some("left-symmetric"), 4),
        (Level::Raid6, Some("left-symmetric"), 5),
        (Level::Raid10, Some("n2"), 4),
    ] {
        for (metadata, chunk) in METADATA.into_iter().zip([16, 32, 64, 128]) {
            turner.add(level, layout, (metadata, chunk), &vec![device_sectors(chunk); members]);
        }
        for (index, chunk) in CHUNKS_KIB.into_iter().enumerate() {
            let metadata = METADATA[(index + 1) % METADATA.len()];
            turner.add(level, layout, (metadata, chunk), &vec![device_sectors(chunk); members]);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    turner.specs.retain(|spec| seen.insert(spec.name.clone()));
}

#[cfg(test)]
mod tests {
    use super::{Level, RAID5_LAYOUTS, RAID6_LAYOUTS, RAID10_LAYOUTS, arrays};
    use std::collections::BTreeSet;

    #[test]
    fn there_are_enough_arrays_and_names_are_unique() {
        let arrays = arrays();
        let names: BTreeSet<_> = arrays.iter().map(|spec| &spec.name).collect();
        assert_eq!(names.len(), arrays.len());
        assert!(arrays.len() >= 120, "{} arrays", arrays.len());
    }

    #[test]
    fn every_layout_is_there_and_meets_odd_and_even_counts() {
        let arrays = arrays();
        let cells = [
            (Level::Raid5, RAID5_LAYOUTS.as_slice()),
            (Level::Raid6, RAID6_LAYOUTS.as_slice()),
            (Level::Raid10, RAID10_LAYOUTS.as_slice()),
        ];
        for (level, layouts) in cells {
            for layout in layouts {
                let counts: BTreeSet<_> = arrays
                    .iter()
                    .filter(|spec| spec.level == level && spec.layout == Some(layout))
                    .map(|spec| spec.members.len() % 2)
                    .collect();
                assert_eq!(counts.len(), 2, "{level} {layout}");
            }
        }
    }

    #[test]
    fn every_redundant_level_meets_every_metadata_and_chunk() {
        let arrays = arrays();
        for level in [Level::Raid5, Level::Raid6, Level::Raid10] {
            let own: Vec<_> = arrays.iter().filter(|spec| spec.level == level).collect();
            let metadata: BTreeSet<_> = own.iter().map(|spec| spec.metadata).collect();
            let chunks: BTreeSet<_> = own.iter().map(|spec| spec.chunk_kib).collect();
            assert_eq!(metadata.len(), 4, "{level}");
            assert_eq!(chunks.len(), 9, "{level}");
        }
    }
}
