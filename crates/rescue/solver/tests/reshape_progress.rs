//! Arrays in an unfinished reshape in place whose progress was not recorded: another chunk, layout,
//! or both, with as many members.

use std::ops::Range;

use braid_geometry::{Geometry, Level, Shape, Slot};
use braid_solver::{Effort, Platter, boundary};
use braid_test_needs::needs;
use fastrand::Rng;

use crate::memory_array::MemoryArray;
use crate::volumes;

const SECTOR: usize = 512;
const MOVES: u64 = 24;

/// The array read in one shape. Members have the new shape up to a sector, and the old shape from
/// this sector on.
struct ShapeReading<'a> {
    by: &'a MemoryArray<'a>,
    both: (&'a MemoryArray<'a>, &'a MemoryArray<'a>),
    moved_sectors: u64,
}

impl Platter for ShapeReading<'_> {
    fn sectors(&self) -> u64 {
        self.by.geometry.capacity_sectors()
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        let smaller = self.both.0.shape.chunk_sectors.min(self.both.1.shape.chunk_sectors);
        let (mut at, mut rest) = (sector, bytes);
        while !rest.is_empty() {
            let room = u64::from(smaller) - at % u64::from(smaller);
            let length = rest.len().min(usize::try_from(room).expect("small") * SECTOR);
            let (piece, after) = rest.split_at_mut(length);
            let (slot, place) = self.by.places(at)[0];
            let (old, new) = self.both;
            let holder = if place < self.moved_sectors { new } else { old };
            holder.data(Slot(slot), place, piece);
            at += (length / SECTOR) as u64;
            rest = after;
        }
        true
    }
}

#[test]
fn where_a_move_in_place_got_to_is_found() {
    needs!("mkfs.ext4", "mkfs.btrfs", "mkfs.xfs");
    let contents = volumes::all();
    let effort = Effort { head_sectors: 32 << 11, windows: 256, window_sectors: 256 };
    let (mut found, mut sectors, mut all) = (0, 0, 0);
    for seed in 0..MOVES {
        let mut rng = Rng::with_seed(seed);
        let content = rng.choice(contents).expect("some");
        let (level, parities) = rng.choice([(Level::Raid5, 1), (Level::Raid6, 2)]).expect("some");
        let slots = rng.u16(4..=7);
        let data = u64::from(slots - parities);
        let mut draw = || (rng.choice([0, 1, 2, 3]).expect("some"), 1 << rng.u32(5..=10));
        let (old, mut new) = (draw(), draw());
        while new == old {
            new = draw();
        }
        let row = u64::from(old.1.max(new.1));
        let rows = (content.start + content.sectors).div_ceil(data * row) + 2;
        let in_memory = |(layout, chunk_sectors): (u32, u32)| {
            let member_sectors = vec![rows * row; usize::from(slots)];
            let shape = Shape { level, layout, chunk_sectors, slots, member_sectors };
            let geometry = Geometry::new(&shape).expect("md takes it");
            MemoryArray { shape, geometry, offsets: vec![0; usize::from(slots)], content }
        };
        let (old, new) = (in_memory(old), in_memory(new));
        // Only rows in the array's used part count: other rows are equal in every shape.
        let is_used = |row_number: &u64| {
            let mut bytes = vec![0; usize::try_from(row * data).expect("small") * SECTOR];
            content.read(row_number * row * data, &mut bytes);
            bytes.iter().any(|byte| *byte != 0)
        };
        let used_rows = (0..rows).rfind(is_used).expect("there are files") + 1;
        let moved_rows = rng.u64(0..=used_rows);
        let reading = |by| ShapeReading { by, both: (&old, &new), moved_sectors: moved_rows * row };
        let within = 0..rows * row * data;
        let boundary = boundary((&reading(&new), &reading(&old)), within.clone(), &effort);
        let at = moved_rows * row * data;
        println!("{seed}: {} {level} {:?} at {at}: {boundary:?}", content.name, within);
        let Some(boundary) = boundary else { continue };
        let between = boundary.between;
        // A row that md moved only in part is in neither shape.
        let is_right = between.start <= at && at <= between.end;
        assert!(is_right, "{seed}: {at} is not in {between:?}");
        found += 1;
        let differ = |range: Range<u64>| {
            let mut bytes = [[0; 8 * SECTOR]; 2];
            let is_other = |at: &u64| {
                reading(&new).read(*at, &mut bytes[0]);
                reading(&old).read(*at, &mut bytes[1]);
                bytes[0] != bytes[1]
            };
            let pages = range.start.next_multiple_of(8)..range.end & !7;
            8 * pages.step_by(8).filter(is_other).count()
        };
        sectors += differ(between);
        all += differ(within);
    }
    println!("{found} of {MOVES} found; of {} MiB {} are left open", all >> 11, sectors >> 11);
    assert!(found * 10 >= MOVES * 8, "{found} of {MOVES} are found");
    assert!(sectors * 10 <= all, "{sectors} of {all} sectors are left open");
}
