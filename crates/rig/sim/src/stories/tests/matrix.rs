//! The crash matrix: arrays with each policy for crashes are cut off while clients write. Then they
//! start without as many members as the level tolerates.
//!
//! The matrix counts refused starts, with the sectors that the refusals name, and served starts. If
//! a start is served, each sector without a write in flight is compared with its content before;
//! the first wrong sector fails the test. `BRAID_MATRIX=1000` sets the number of crashes of each
//! array.

use braid_assembly::Refusal;
use braid_geometry::Level;

use super::parity_log::{WRITES, some_disks};
use super::scene::{Scene, redundant_designs};
use super::script::Mix;
use crate::create::Design;
use crate::disk::DiskFaults;
use crate::random::Random;

/// The record that tells an array, after a crash, which regions are in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Nothing,
    Bitmap,
    Llbitmap,
    Ppl,
    Log,
    Journal,
}

/// The results of all crashes of one array and policy.
#[derive(Default)]
struct Row {
    crashes: u64,
    served: u64,
    refused: u64,
    /// How many sectors refusals named, and of how many.
    named: u64,
    all: u64,
}

const CRASHES: u64 = 12;

fn crashes() -> u64 {
    std::env::var("BRAID_MATRIX").ok().and_then(|count| count.parse().ok()).unwrap_or(CRASHES)
}

fn designs(level: Level, policy: Policy) -> Vec<Design> {
    let of_level = |design: &Design| design.level == level && design.slots > 2;
    let plain = redundant_designs(8).into_iter().filter(of_level);
    let with_policy = |design: Design| {
        let log_sectors = 32 + design.chunk_sectors.min(128).next_multiple_of(8) as u16;
        match policy {
            Policy::Nothing => design,
            Policy::Bitmap => Design { bit_sectors: 8, ..design },
            Policy::Llbitmap => Design { bit_sectors: 8, lockless: Some(60), ..design },
            Policy::Ppl => Design { log_sectors, log_is_ring: true, ..design },
            // The log's ring has room for a few records.
            Policy::Log => Design { log_sectors: 4 * log_sectors, log_is_own: true, ..design },
            Policy::Journal => Design { journal_blocks: design.journal_blocks_min(), ..design },
        }
    };
    let has_room = |design: &Design| {
        let superblock = design.superblock(0);
        !design.log_is_own || design.own_log(&superblock).is_some()
    };
    plain.map(with_policy).filter(has_room).collect()
}

/// Clients write, power is cut, and the array starts with members withheld.
fn cut_off(design: Design, seed: u64, row: &mut Row) {
    let mut random = Random::new(seed ^ 0x3a7);
    let mut scene = Scene::new(design, seed);
    scene.errors_allowed = false;
    let mut story = scene.open();
    let mix = Mix { in_flight_max: *random.pick(&[1, 2, 8]), ..WRITES };
    story.begin_mix(&mix, 20 + random.below(400));
    story.begins_anew();
    story.world.crash(random.chance(60));
    story.world.disks.iter_mut().for_each(|disk| disk.ills = DiskFaults::default());
    let withheld = some_disks(&design, &mut random);
    let disks = 0..story.world.disks.len();
    let presented: Vec<usize> = disks.filter(|disk| !withheld.contains(disk)).collect();
    row.crashes += 1;
    match story.world.open(&presented, false) {
        Ok(_) => {
            row.served += 1;
            story.begins_anew();
            story.world.trust();
            story.read_all();
        }
        Err(Refusal::DirtyAndDegraded(risk)) => {
            row.refused += 1;
            let lengths =
                risk.ranges.iter().map(|range| range.array_sectors.end - range.array_sectors.start);
            row.named += lengths.sum::<u64>();
            row.all += story.capacity();
        }
        Err(other) => panic!("a crash does not explain {other:?}"),
    }
}

#[test]
fn a_crash_costs_nothing_that_nobody_wrote_or_is_named() {
    use Policy::{Bitmap, Journal, Llbitmap, Log, Nothing, Ppl};
    println!(
        "{:<8} {:<8} {:>8} {:>8} {:>8}  of the array named",
        "policy", "level", "crashes", "served", "refused"
    );
    for policy in [Nothing, Bitmap, Llbitmap, Ppl, Log, Journal] {
        for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
            if policy == Ppl && level != Level::Raid5 {
                continue;
            }
            let (designs, mut row) = (designs(level, policy), Row::default());
            for number in 0..crashes() {
                let design = designs[number as usize % designs.len()];
                cut_off(design, 5_200_000 + number, &mut row);
            }
            let Row { crashes, served, refused, named, all } = row;
            let percent = (named * 100).checked_div(all);
            let percent = percent.map_or("-".to_owned(), |percent| format!("{percent} %"));
            println!("{policy:<8?} {level:<8?} {crashes:>8} {served:>8} {refused:>8}  {percent}");
            assert!(
                !matches!(policy, Ppl | Log | Journal) || refused == 0,
                "a log names every sector in doubt"
            );
        }
    }
}
