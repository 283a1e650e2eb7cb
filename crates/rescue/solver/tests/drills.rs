//! Random arrays without superblocks, with members in any order. Some arrays have as many members
//! missing as they tolerate. `BRAID_DRILLS=1000` sets the number of drills, in release builds; the
//! default is a few. `BRAID_DRILLS_FROM=1000` sets the first drill. `BRAID_DRILL=7` shows one
//! drill.

use std::cell::Cell;
use std::time::{Duration, Instant};

use braid_geometry::{Family, Geometry, Level, Shape};
use braid_solver::{Belief, Effort, Guess, Platter, solve};
use braid_test_needs::needs;
use fastrand::Rng;

use crate::memory_array::{Member, MemoryArray, reads_right};
use crate::volumes::{self, Content};

/// The default number of drills.
const DRILLS: u64 = 8;

/// Draws a random array, and the slots of its members.
fn draw<'a>(rng: &mut Rng, contents: &'a [Content]) -> (MemoryArray<'a>, Vec<u16>) {
    let content = rng.choice(contents).expect("some");
    let level = rng.choice(Level::ALL).expect("some");
    let slots = match level {
        // With more members in line, some would hold only file data, which has no addresses.
        Level::Linear => rng.u16(2..=3),
        Level::Raid0 | Level::Raid1 => rng.u16(2..=5),
        Level::Raid4 | Level::Raid5 => rng.u16(3..=8),
        Level::Raid6 => rng.u16(4..=9),
        Level::Raid10 => rng.u16(3..=8),
    };
    let layout = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
        Level::Raid0 => rng.u32(1..=2),
        Level::Raid5 => rng.choice([0, 1, 2, 2, 2, 3, 4, 5]).expect("some"),
        Level::Raid6 => {
            rng.choice([0, 1, 2, 2, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20]).expect("some")
        }
        Level::Raid10 => rng.choice([0x102, 0x102, 0x201, 0x1_0201, 0x103]).expect("some"),
    };
    let chunk_sectors = match level {
        Level::Linear | Level::Raid1 => 0,
        _ => 1 << rng.choice([3, 5, 6, 7, 7, 7, 8, 9, 10, 10, 10, 11]).expect("some"),
    };
    let data_slots = match level {
        Level::Linear | Level::Raid0 => slots,
        Level::Raid1 => 1,
        Level::Raid4 | Level::Raid5 => slots - 1,
        Level::Raid6 => slots - 2,
        Level::Raid10 => (slots / if layout == 0x103 { 3 } else { 2 }).max(1),
    };
    let needed = (content.start + content.sectors).div_ceil(u64::from(data_slots));
    let sectors = (needed + 4096 + rng.u64(0..20_000)).next_multiple_of(2048 * 2);
    let common = rng
        .choice([0, 16, 2048, 2048, 8192, 18432, 32768, 262_144, 262_144, 264_192])
        .expect("some");
    let are_different = rng.u8(0..10) == 0 && level != Level::Linear;
    let offsets =
        (0..slots).map(|_| if are_different { common + 8 * rng.u64(0..300) } else { common });
    let offsets = offsets.collect();
    let mut member_sectors = vec![sectors; usize::from(slots)];
    if level == Level::Raid0 && rng.bool() {
        // Members are unequal: the two RAID-0 layouts differ beyond the end of the smallest member.
        for sectors in &mut member_sectors {
            *sectors = (*sectors * rng.u64(60..=140) / 100).next_multiple_of(8);
        }
        let lacking = (u64::from(slots) * sectors).saturating_sub(member_sectors.iter().sum());
        // The array loses `lacking` sectors, since md rounds down to whole chunks.
        let rounding = u64::from(slots) * u64::from(chunk_sectors);
        member_sectors[rng.usize(0..usize::from(slots))] += lacking.next_multiple_of(8) + rounding;
    }
    let shape = Shape { level, layout, chunk_sectors, slots, member_sectors };
    let geometry = Geometry::new(&shape).expect("md takes it");
    // The slots whose members are given, in random order.
    let mut given: Vec<u16> = (0..slots).collect();
    rng.shuffle(&mut given);
    if rng.bool() && level.family() != Family::Direct {
        for _ in 0..rng.u16(1..=geometry.lost_max().max(1)) {
            let kept = &given[1..];
            if geometry.survives(&|slot| !kept.contains(&slot.0)) && kept.len() > 1 {
                given.remove(0);
            }
        }
    }
    (MemoryArray { shape, geometry, offsets, content }, given)
}

fn drills() -> u64 {
    std::env::var("BRAID_DRILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(DRILLS)
}

#[test]
fn arrays_without_superblocks_are_solved() {
    needs!("mkfs.ext4", "mkfs.btrfs", "mkfs.xfs");
    let drills = drills();
    let from = std::env::var("BRAID_DRILLS_FROM").ok().and_then(|it| it.parse().ok()).unwrap_or(0);
    let only = std::env::var("BRAID_DRILL").ok().and_then(|it| it.parse::<u64>().ok());
    let contents = volumes::all();
    let effort = Effort { head_sectors: 32 << 11, windows: 64, window_sectors: 64 };
    let (mut tried, mut first, mut within_three, mut certain) = (0, 0, 0, 0);
    let mut took = Duration::ZERO;
    let mut wrong_and_certain = Vec::new();
    for seed in only.map_or(from..from + drills, |seed| seed..seed + 1) {
        let mut rng = Rng::with_seed(seed);
        let (array, given) = draw(&mut rng, contents);
        let platters: Vec<Member<'_>> =
            given.iter().map(|slot| Member { array: &array, slot: *slot }).collect();
        let members: Vec<&dyn Platter> = platters.iter().map(|it| it as &dyn Platter).collect();
        let begun = Instant::now();
        let solution = solve(&members, &effort);
        took += begun.elapsed();
        let right: Vec<bool> = solution
            .guesses
            .iter()
            .map(|it| reads_right(it, &solution, &array, &platters))
            .collect();
        let is_first = right.first() == Some(&true);
        tried += 1;
        first += usize::from(is_first);
        within_three += usize::from(right.iter().take(3).any(|right| *right));
        certain += usize::from(solution.belief == Belief::Certain);
        if solution.belief == Belief::Certain && !is_first {
            wrong_and_certain.push(seed);
        }
        if tried % 50 == 0 {
            println!(
                "after {tried}: {first} first, {within_three} within three, {certain} certain"
            );
        }
        if !is_first || only.is_some() {
            let Shape { level, layout, chunk_sectors, slots, .. } = array.shape;
            println!(
                "drill {seed}: {}, {level} layout {layout:#x} chunk {chunk_sectors} slots {slots} offsets {:?} given {given:?}: {} signs, right {right:?}, {:?}",
                array.content.name, array.offsets, solution.signs, solution.belief
            );
            if only.is_some() {
                println!("    {:?}", solution.volumes);
            }
            for guess in solution.guesses.iter().take(if only.is_some() { 8 } else { 2 }) {
                println!(
                    "    {} {:#x} chunk {} {:?} {:?} {:?} {:?}",
                    guess.level,
                    guess.layout,
                    guess.chunk_sectors,
                    guess.slots,
                    guess.offsets,
                    guess.starts,
                    guess.evidence
                );
            }
        }
    }
    println!(
        "{tried} drills: {first} by the first answer, {within_three} within three; {certain} called certain; {:.2} s each",
        took.as_secs_f64() / tried as f64
    );
    assert!(wrong_and_certain.is_empty(), "certain, and wrong: {wrong_and_certain:?}");
    // In a small sample, two or three arrays may have too few signs to be solved.
    let wanted = if tried > DRILLS as usize { 96 } else { 60 };
    assert!(first * 100 >= tried * wanted, "{first} of {tried} by the first answer");
}

fn solved(array: &MemoryArray<'_>, given: &[u16], effort: &Effort) -> (Belief, bool) {
    let platters: Vec<Member<'_>> =
        given.iter().map(|slot| Member { array, slot: *slot }).collect();
    let members: Vec<&dyn Platter> = platters.iter().map(|it| it as &dyn Platter).collect();
    let solution = solve(&members, effort);
    let is_right = |guess: &Guess| reads_right(guess, &solution, array, &platters);
    (solution.belief, solution.guesses.first().is_some_and(is_right))
}

/// ext2 has no checksums, and only the superblock and its copies have addresses: five in the
/// smaller file system, one in the larger. The right guess once came second, or lost to a RAID-0
/// whose members began next to the superblock.
#[test]
fn ext2_without_checksums_is_the_first_guess_with_a_member_gone_as_well() {
    needs!("mke2fs");
    for block_bytes in [1024, 4096] {
        let content = &volumes::few_large_files(block_bytes);
        let shape = Shape::uniform(Level::Raid5, 2, 128, 4, 24 << 11);
        let geometry = Geometry::new(&shape).expect("md takes it");
        let array = MemoryArray { shape, geometry, offsets: vec![2048; 4], content };
        let effort = Effort { head_sectors: 32 << 11, windows: 64, window_sectors: 64 };
        for given in [&[2, 0, 3, 1][..], &[3, 2, 0]] {
            assert!(solved(&array, given, &effort).1, "{block_bytes}, {given:?}");
        }
    }
}

/// After the end of the smallest member the two layouts differ, and nothing before this end shows
/// which layout is right. The solver once was certain of a RAID-4 with a missing member that ended
/// at this place.
#[test]
fn a_raid_0_of_unequal_members_is_read_by_the_layout_that_fits() {
    needs!("mkfs.ext4", "mkfs.btrfs", "mkfs.xfs");
    let contents = volumes::all();
    let effort = Effort { head_sectors: 32 << 11, windows: 64, window_sectors: 64 };
    for (name, layout) in [("ext2", 1), ("ext4", 2)] {
        let content = contents.iter().find(|it| it.name == name).expect("one of them");
        let all = content.sectors;
        // Either all content is in the first zone, or two thirds of it are.
        for (smallest, is_told) in [(all / 3 + 4096, false), (all * 2 / 9, true)] {
            // The smallest member has an odd number of chunks; otherwise both layouts are the same.
            let smallest = smallest.next_multiple_of(256) + 128;
            let shape = Shape {
                level: Level::Raid0,
                layout,
                chunk_sectors: 128,
                slots: 3,
                member_sectors: vec![
                    smallest,
                    smallest + all / 6 + 8192,
                    smallest + all / 5 + 8192,
                ],
            };
            let geometry = Geometry::new(&shape).expect("md takes it");
            let array = MemoryArray { shape, geometry, offsets: vec![2048; 3], content };
            let (belief, is_right) = solved(&array, &[1, 2, 0], &effort);
            assert!(is_right, "{name}, {smallest}");
            assert!(is_told || belief == Belief::Likely, "{name}: both explain it");
        }
    }
}

/// No member has a whole btrfs node, of the chunk tree or of any other tree.
#[test]
fn btrfs_on_chunks_smaller_than_its_nodes_is_solved() {
    needs!("mkfs.ext4", "mkfs.btrfs", "mkfs.xfs");
    let contents = volumes::all();
    let content = contents.iter().find(|it| it.name == "btrfs").expect("one of them");
    let shape = Shape::uniform(Level::Raid5, 2, 8, 6, content.sectors / 5 + 8192);
    let geometry = Geometry::new(&shape).expect("md takes it");
    let array = MemoryArray { shape, geometry, offsets: vec![2048; 6], content };
    let effort = Effort { head_sectors: 32 << 11, windows: 64, window_sectors: 64 };
    assert_eq!(solved(&array, &[0, 1, 4, 3, 5, 2], &effort), (Belief::Certain, true));
}

/// The volume has several copies of files. When checksums of only one copy were read, braid once
/// took all copies for the copy with checksums.
#[test]
fn a_mirror_is_not_shifted_by_files_of_which_there_are_copies() {
    needs!("mkfs.ext4", "mkfs.btrfs", "mkfs.xfs");
    let contents = volumes::all();
    let content =
        contents.iter().find(|it| it.name == "btrfs in a partition").expect("one of them");
    let shape = Shape::uniform(
        Level::Raid1,
        0,
        0,
        3,
        (content.start + content.sectors).next_multiple_of(8) + 20_000,
    );
    let geometry = Geometry::new(&shape).expect("md takes it");
    let array = MemoryArray { shape, geometry, offsets: vec![262_144; 3], content };
    let effort = Effort { head_sectors: 32 << 11, windows: 64, window_sectors: 64 };
    assert!(solved(&array, &[2, 1], &effort).1);
}

/// A member that counts the sectors that are read from it.
struct CountingMember<'a> {
    member: Member<'a>,
    sectors: Cell<u64>,
}

impl Platter for CountingMember<'_> {
    fn sectors(&self) -> u64 {
        self.member.sectors()
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        self.sectors.set(self.sectors.get() + bytes.len() as u64 / 512);
        self.member.read(sector, bytes)
    }
}

/// A third of the reads are of distinct sectors: six members in line take less than a minute.
#[test]
fn little_is_read_of_members_of_4_tb() {
    const READ_MAX_SECTORS: u64 = 640 << 11;
    needs!("mkfs.ext4", "mkfs.btrfs", "mkfs.xfs");
    let contents = volumes::all();
    let shape = Shape::uniform(Level::Raid6, 2, 1024, 6, 4_000_000_000_000 / 512);
    let geometry = Geometry::new(&shape).expect("md takes it");
    let array = MemoryArray { shape, geometry, offsets: vec![262_144; 6], content: &contents[0] };
    let counted: Vec<CountingMember<'_>> = [4, 2, 0, 1, 5, 3]
        .map(|slot| CountingMember {
            member: Member { array: &array, slot },
            sectors: Cell::new(0),
        })
        .into();
    let members: Vec<&dyn Platter> = counted.iter().map(|it| it as &dyn Platter).collect();
    let begun = Instant::now();
    let solution = solve(&members, &Effort::default());
    let read: Vec<u64> = counted.iter().map(|it| it.sectors.get() >> 11).collect();
    println!("{read:?} MiB, {:?}", begun.elapsed());
    assert_eq!(solution.belief, Belief::Certain);
    assert_eq!(
        solution.guesses[0].slots,
        [Some(2), Some(3), Some(1), Some(5), Some(0), Some(4)],
        "by slot"
    );
    assert!(counted.iter().all(|it| it.sectors.get() <= READ_MAX_SECTORS), "{read:?} MiB");
}

/// A member in which some bytes are random.
struct DamagedMember<'a> {
    member: Member<'a>,
    seed: u64,
}

impl Platter for DamagedMember<'_> {
    fn sectors(&self) -> u64 {
        self.member.sectors()
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        for (at, piece) in (sector..).zip(bytes.chunks_mut(512)) {
            let mut rng = Rng::with_seed(at ^ self.seed << 32);
            if !self.member.read(at, piece) || rng.u32(0..5000) == 0 {
                return false;
            }
            for _ in 0..[0, 0, 1, 4][rng.usize(0..4)] {
                let any = [0, 1, 0x7f, 0xff, rng.u8(..)];
                piece[rng.usize(0..512)] = any[rng.usize(0..any.len())];
            }
        }
        true
    }
}

#[test]
fn damage_makes_nothing_panic_and_nothing_certain_that_is_wrong() {
    needs!("mkfs.ext4", "mkfs.btrfs", "mkfs.xfs");
    let contents = volumes::all();
    let effort = Effort { head_sectors: 8 << 11, windows: 16, window_sectors: 64 };
    for seed in 0..drills().div_ceil(2) {
        let mut rng = Rng::with_seed(seed);
        let (array, given) = draw(&mut rng, contents);
        let damaged: Vec<DamagedMember<'_>> = given
            .iter()
            .map(|slot| DamagedMember { member: Member { array: &array, slot: *slot }, seed })
            .collect();
        let members: Vec<&dyn Platter> = damaged.iter().map(|it| it as &dyn Platter).collect();
        let solution = solve(&members, &effort);
        let whole: Vec<Member<'_>> =
            given.iter().map(|slot| Member { array: &array, slot: *slot }).collect();
        let is_right = solution
            .guesses
            .first()
            .is_some_and(|guess| reads_right(guess, &solution, &array, &whole));
        assert!(is_right || solution.belief != Belief::Certain, "drill {seed}");
    }
}
