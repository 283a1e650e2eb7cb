//! Tests of background work on levels with copies.

use super::bench::{Bench, CHUNK};
use crate::members::{SECTOR, bytes, places};
use crate::memory::Payload;
use crate::random::Random;
use braid_engine::ids::MemberId;
use braid_engine::request::{Operation, Piece, RequestId};
use braid_engine::work::{Outcome, Task};
use braid_geometry::{Level, LogicalSector};

const LEVELS: [(Level, u16); 4] =
    [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4), (Level::Raid10, 5)];

/// How many work items cover the array.
fn works(bench: &Bench) -> u64 {
    bench.geometry.capacity_sectors().div_ceil(u64::from(bench.shard.block_sectors()))
}

fn sum(bench: &mut Bench, task: Task) -> (u32, u32) {
    let outcomes = (0..works(bench)).map(|number| bench.carry_out(number, task));
    let numbers = outcomes.map(|outcome| match outcome {
        Outcome::CopiesCompared { differing } => (differing, 0),
        Outcome::Done { written } => (0, written),
        other => panic!("all of it can be read and written: {other:?}"),
    });
    numbers.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Reads the whole array, sector by sector.
fn read_all(bench: &mut Bench) -> Vec<u8> {
    let mut data = Vec::new();
    for sector in 0..bench.geometry.capacity_sectors() {
        let request = RequestId(1 << 20 | sector);
        bench.payloads.insert(request, Payload::new(vec![0; SECTOR], true));
        let now = bench.tick();
        let piece = Piece {
            request,
            operation: Operation::Read,
            start: LogicalSector(sector),
            sectors: 1,
            payload_offset_sectors: 0,
        };
        bench.shard.handle_piece(now, piece);
        bench.drain();
        bench.run();
        data.extend_from_slice(&bench.payloads.remove(&request).expect("it is the test's").data);
    }
    data
}

#[test]
fn a_comparison_counts_what_is_not_as_the_first_copy() {
    for (level, slots) in LEVELS {
        let mut bench = Bench::new(level, slots, None);
        assert_eq!(sum(&mut bench, Task::Compare), (0, 0), "{level:?}");
        let mut random = Random::new(3);
        let mut wrong = std::collections::BTreeSet::new();
        for _ in 0..40 {
            let sector = random.below(bench.geometry.capacity_sectors());
            let all = places(&bench.geometry, sector);
            let copy = 1 + random.below(all.len() as u64 - 1) as usize;
            let (slot, place) = all[copy];
            bench.members[usize::from(slot.0)][bytes(place.0, 1).start + 5] = 0xEE;
            if bench.held(sector, copy) != bench.held(sector, 0) {
                wrong.insert((sector, copy));
            }
        }
        let wrong = u32::try_from(wrong.len()).expect("a few");
        assert_eq!(sum(&mut bench, Task::Compare), (wrong, 0), "{level:?}");
        assert_eq!(sum(&mut bench, Task::Compare), (wrong, 0), "nothing was written");
    }
}

/// Regression: a resync chose another copy than reads had returned before, so clients read two
/// different contents.
#[test]
fn a_mirror_is_levelled_with_what_was_read() {
    for (level, slots) in LEVELS {
        for seed in 0..6 {
            let mut random = Random::new(seed);
            let mut bench = Bench::with_view(level, slots, |view| view.resync_offset = 0);
            let capacity = bench.geometry.capacity_sectors();
            for _ in 0..60 {
                let all = places(&bench.geometry, random.below(capacity));
                let (slot, place) = all[random.below(all.len() as u64) as usize];
                bench.members[usize::from(slot.0)][bytes(place.0, 1)].fill(random.next() as u8);
            }
            // Each sector is bad in at most one copy, so that another copy has it.
            for _ in 0..10 {
                let sector = random.below(capacity);
                let all = places(&bench.geometry, sector);
                let is_bad =
                    |(slot, place): &(braid_geometry::Slot, braid_geometry::MemberSector)| {
                        bench.bad_sectors.contains(&(MemberId(slot.0), place.0))
                    };
                if !all.iter().any(is_bad) {
                    let (slot, place) = all[random.below(all.len() as u64) as usize];
                    bench.bad_sectors.insert((MemberId(slot.0), place.0));
                }
            }
            // Reads return the first good copy. The resync must give that copy's bytes to the other
            // copies.
            let told: Vec<u8> = (0..capacity)
                .flat_map(|sector| {
                    let all = places(&bench.geometry, sector);
                    let is_good =
                        |(slot, place): &(braid_geometry::Slot, braid_geometry::MemberSector)| {
                            !bench.bad_sectors.contains(&(MemberId(slot.0), place.0))
                        };
                    let copy = all.iter().position(is_good).expect("one is good");
                    bench.held(sector, copy).to_vec()
                })
                .collect();
            sum(&mut bench, Task::Resync);
            assert_eq!(bench.bad_sectors.len(), 0, "what could not be read was written");
            for sector in 0..capacity {
                for copy in 0..places(&bench.geometry, sector).len() {
                    let held = bench.held(sector, copy);
                    assert_eq!(
                        held,
                        &told[bytes(sector, 1)],
                        "{level:?} seed {seed} sector {sector}"
                    );
                }
            }
            assert_eq!(sum(&mut bench, Task::Resync), (0, 0), "what agrees is not written");
            assert!(read_all(&mut bench) == told);
        }
    }
}

#[test]
fn a_lost_copy_is_recovered_from_another() {
    for (level, slots) in LEVELS {
        for lost in 0..slots {
            let mut bench = Bench::with_view(level, slots, |view| {
                let member = view.slots[usize::from(lost)].as_mut().expect("it is there");
                member.recovered_sectors = 0;
            });
            let mut before = bench.members.clone();
            bench.members[usize::from(lost)].fill(0x99);
            let (_, written) = sum(&mut bench, Task::Recover);
            // Bytes of a member after its last copy are unused.
            let used = u64::from(written);
            let run = bytes(0, used);
            assert_eq!(
                bench.members[usize::from(lost)][run.clone()],
                before[usize::from(lost)][run]
            );
            before[usize::from(lost)].clone_from(&bench.members[usize::from(lost)]);
            assert_eq!(bench.members, before, "{level:?} and no other was written");
        }
    }
}

#[test]
fn a_copy_that_no_other_can_give_is_not_recovered() {
    let mut bench = Bench::with_view(Level::Raid1, 2, |view| {
        view.slots[1].as_mut().expect("it is there").recovered_sectors = 0;
    });
    bench.bad_sectors.insert((MemberId(0), 17));
    assert_eq!(bench.carry_out(0, Task::Recover), Outcome::Unmade { written: 0 });
    assert!(bench.shard.is_idle());
}

/// A resync or recovery must not overwrite a client's write with a block that it read before.
#[test]
fn mirrors_are_levelled_under_writes() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let recovers = random.chance(50);
        let (level, slots) = LEVELS[random.below(LEVELS.len() as u64) as usize];
        let mut bench = Bench::with_view(level, slots, |view| {
            if recovers {
                view.slots[1].as_mut().expect("it is there").recovered_sectors = 0;
            } else {
                view.resync_offset = 0;
            }
        });
        bench.members[1].fill(0x99);
        let chunks = bench.geometry.capacity_sectors() / u64::from(CHUNK);
        let mut fills = std::collections::BTreeMap::new();
        let (mut written, mut asked) = (0, 0);
        while written < 20 || asked < works(&bench) || bench.out() > 0 {
            match random.below(5) {
                0 if written < 20 => {
                    written += 1;
                    // Each chunk is written once, because the shard may end two writes in either
                    // order.
                    let chunk = written * 7 % chunks;
                    bench.write(written, chunk * u64::from(CHUNK), random.next() as u8);
                    fills.insert(chunk, bench.payloads[&RequestId(written)].data[0]);
                }
                1 if asked < works(&bench) => {
                    let task = if recovers { Task::Recover } else { Task::Resync };
                    bench.ask_for(asked, asked, task);
                    asked += 1;
                }
                _ if bench.out() > 0 => bench.end(random.below(bench.out() as u64) as usize),
                _ => {}
            }
        }
        assert!(bench.shard.is_idle(), "seed {seed}");
        for sector in 0..bench.geometry.capacity_sectors() {
            let copies = places(&bench.geometry, sector).len();
            let fill = fills.get(&(sector / u64::from(CHUNK)));
            for copy in 0..copies {
                assert_eq!(
                    bench.held(sector, copy),
                    bench.held(sector, 0),
                    "seed {seed} sector {sector}"
                );
                assert!(
                    fill.is_none_or(|fill| bench
                        .held(sector, copy)
                        .iter()
                        .all(|byte| byte == fill)),
                    "seed {seed} sector {sector}"
                );
            }
        }
    }
}
