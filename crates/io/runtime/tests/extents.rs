//! Holes of members, seen through the levels: never for written ranges, always for unwritten ones.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::client::{Random, read, write};
use crate::files::Files;
use braid_geometry::{Geometry, Level, LogicalSector};
use braid_runtime::{Cache, CacheMode, ClientRequest, Extent, Io, Options, Volume};

const BLOCK: u64 = 4096;

const LEVELS: [(Level, u16, u32); 6] = [
    (Level::Linear, 2, 0),
    (Level::Raid0, 3, 128),
    (Level::Raid1, 2, 0),
    (Level::Raid10, 4, 128),
    (Level::Raid5, 4, 128),
    (Level::Raid6, 5, 64),
];

/// All extents of a range, requested a few at a time. Checks that they are adjacent, and no more
/// than requested.
fn extents(volume: &Volume, offset: u64, length: u64, at_once: usize) -> Vec<(u64, Extent)> {
    let (mut all, mut at) = (Vec::new(), offset);
    while at < offset + length {
        let some = volume.extents(at, offset + length - at, at_once);
        assert!(!some.is_empty() && some.len() <= at_once);
        for extent in some {
            assert!(extent.length_bytes > 0);
            all.push((at, extent));
            at += extent.length_bytes;
        }
    }
    assert_eq!(at, offset + length, "none beyond the range");
    all
}

fn holes(volume: &Volume) -> Vec<std::ops::Range<u64>> {
    let all = extents(volume, 0, volume.size_bytes(), 7);
    let holes = all.into_iter().filter(|(_, extent)| extent.is_hole);
    holes.map(|(at, extent)| at..at + extent.length_bytes).collect()
}

fn ways() -> Vec<Options> {
    let way = |io, mode| {
        let cache = Cache { mode, ..Cache::default() };
        Options { io, cache, clean_delay_ms: 20, ..Options::default() }
    };
    let modes = [CacheMode::WriteThrough, CacheMode::WriteBack];
    [Io::Ring, Io::Threads].into_iter().flat_map(|io| modes.map(|mode| way(io, mode))).collect()
}

#[test]
fn nothing_that_was_answered_is_a_hole() {
    for (number, (level, slots, chunk_sectors)) in (0..).zip(LEVELS) {
        for options in ways() {
            let files = Files::new(level, slots, chunk_sectors, 8 << 20);
            let volume = files.open(&options, |_| ());
            let blocks = usize::try_from(volume.size_bytes() / BLOCK).expect("few");
            let (mut written, mut random) = (vec![false; blocks], Random(number + 7));
            for round in 0..60 {
                let first = usize::try_from(random.below(blocks as u64 / 2)).expect("few");
                let count = usize::try_from(1 + random.below(8)).expect("few");
                let bytes = vec![7; count * usize::try_from(BLOCK).expect("few")];
                write(&volume, first as u64 * BLOCK, &bytes, round % 9 == 0);
                written[first..first + count].fill(true);
                let own = extents(&volume, first as u64 * BLOCK, bytes.len() as u64, 3);
                assert!(own.iter().all(|(_, extent)| !extent.is_hole), "{level} {round}: {own:?}");
            }
            volume.call(ClientRequest::Flush).result.expect("a healthy flush");
            let holes = holes(&volume);
            for hole in &holes {
                let block = |at: u64| usize::try_from(at / BLOCK).expect("few");
                let range = block(hole.start)..block(hole.end - 1) + 1;
                assert!(!written[range].contains(&true), "{level} {hole:?}");
                let length = usize::try_from(hole.end - hole.start).expect("small");
                assert!(read(&volume, hole.start, length).iter().all(|byte| *byte == 0));
            }
            let last = holes.last().expect("the second half was never written");
            assert!(last.end == volume.size_bytes() && last.start < last.end / 4 * 3, "{holes:?}");
        }
    }
}

#[test]
fn what_is_punched_is_a_hole_and_what_is_odd_is_none() {
    let files = Files::new(Level::Raid10, 4, 128, 8 << 20);
    let volume = files.open(&Options::default(), |_| ());
    assert_eq!(holes(&volume), vec![0..volume.size_bytes()], "nothing was ever written");
    let size = usize::try_from(volume.size_bytes()).expect("small");
    write(&volume, 0, &vec![9; size], false);
    assert_eq!(holes(&volume), []);
    let (offset, length) = (1 << 20, 2 << 20);
    let zero =
        ClientRequest::WriteZeroes { offset, length, may_punch: true, fast: false, durable: false };
    volume.call(zero).result.expect("zeroed");
    assert_eq!(holes(&volume), vec![offset..offset + length]);
    // Partial sectors are no holes, and ranges beyond the array have no extents.
    assert!(volume.extents(offset + 1, 4096, 9).iter().all(|extent| !extent.is_hole));
    assert!(volume.extents(offset, 511, 9).iter().all(|extent| !extent.is_hole));
    assert_eq!(volume.extents(volume.size_bytes(), 10, 9), []);
    assert_eq!(volume.extents(offset, 10 << 20, 1).len(), 1);
    let beyond = volume.extents(volume.size_bytes() - 4096, u64::MAX, 9);
    assert_eq!(beyond, [Extent { length_bytes: 4096, is_hole: false }]);
}

#[test]
fn what_is_made_from_others_is_no_hole() {
    let files = Files::new(Level::Raid5, 4, 128, 8 << 20);
    let volume = files.open(&Options::default(), |_| ());
    assert_eq!(holes(&volume), vec![0..volume.size_bytes()]);
    std::fs::remove_file(files.path(1)).expect("it was there");
    let Geometry::Stripe(stripe) = *volume.geometry() else { panic!("a raid5") };
    let slot_of = |at: u64| {
        let address = stripe.locate(LogicalSector(at / 512));
        stripe.row_map(address.row).data_slot(address.data_index).0
    };
    let is_of_one =
        |hole: &Range<u64>| (hole.start..hole.end).step_by(4096).any(|at| slot_of(at) == 1);
    let until = Instant::now() + Duration::from_secs(30);
    // Wait until the loss is recorded, since the array does not rely on it before.
    while volume.missing_count() == 0 || holes(&volume).iter().any(is_of_one) {
        assert!(Instant::now() < until, "the loss is noticed, and its holes are none");
        write(&volume, 0, &[1; 4096], true);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!holes(&volume).is_empty(), "the others have theirs still");
}
