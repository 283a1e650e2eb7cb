//! Tests of background work on levels with parity.

use braid_engine::effect::MemberIo;
use braid_engine::ids::MemberId;
use braid_engine::request::{Operation, Piece, RequestId};
use braid_engine::work::{Class, Difference, Outcome, Purpose, Task, WorkId};
use braid_geometry::{ChunkRow, Geometry, Level, Slot};

use super::bench::{Bench, CHUNK, ROWS};
use crate::members::{SECTOR, bytes, places};
use crate::memory::Payload;
use crate::random::Random;

fn sectors(difference: &Difference) -> (Vec<u32>, Vec<u32>) {
    (difference.p.offsets().collect(), difference.q.offsets().collect())
}

#[test]
fn a_comparison_says_which_sectors_differ_and_in_which_parity() {
    for (level, slots) in [
        (Level::Raid4, 3),
        (Level::Raid5, 4),
        (Level::Raid5, 3),
        (Level::Raid6, 4),
        (Level::Raid6, 6),
    ] {
        let mut bench = Bench::new(level, slots, None);
        let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
        for row in [0, 1, 5, ROWS - 1] {
            assert_eq!(bench.compare(row), Outcome::Compared(Difference::default()), "{level:?}");
            let map = stripe.row_map(ChunkRow(row));
            for slot in 0..slots {
                let mut bad = Vec::new();
                for sector in [0, 3, CHUNK - 1] {
                    let first = bytes(row * u64::from(CHUNK) + u64::from(sector), 1).start;
                    bench.members[usize::from(slot)][first + 77] ^= 0x10;
                    bad.push(sector);
                    let Outcome::Compared(found) = bench.compare(row) else {
                        panic!("all of it can be read")
                    };
                    let is_p = map.p_slot() == Slot(slot);
                    let is_q = map.q_slot() == Some(Slot(slot));
                    let p = if is_q { vec![] } else { bad.clone() };
                    let q = if is_p || map.q_slot().is_none() { vec![] } else { bad.clone() };
                    assert_eq!(sectors(&found), (p, q), "{level:?} row {row} slot {slot}");
                }
                for sector in bad {
                    let first = bytes(row * u64::from(CHUNK) + u64::from(sector), 1).start;
                    bench.members[usize::from(slot)][first + 77] ^= 0x10;
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_read_is_not_compared() {
    let mut bench = Bench::new(Level::Raid6, 5, Some(2));
    assert_eq!(bench.compare(3), Outcome::Unreadable, "a slot is empty");
    let mut bench = Bench::new(Level::Raid6, 5, None);
    bench.bad.extend([0, 2, 4].map(MemberId));
    assert_eq!(bench.compare(3), Outcome::Unreadable, "more is bad than two parities give");
    bench.bad.clear();
    assert_eq!(bench.compare(3), Outcome::Compared(Difference::default()));
}

/// A band must not be compared between the data writes and the parity writes of one batch, because
/// the comparison would find a difference.
#[test]
fn a_band_is_compared_between_two_writes() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(Level::Raid6, 5, None);
        let (mut written, mut asked) = (0, 0);
        while written < 12 || asked < 12 || bench.out() > 0 {
            match random.below(4) {
                0 if written < 12 => {
                    written += 1;
                    // Writes go to two rows, and only one of them is compared.
                    let start = random.below(6) * u64::from(CHUNK);
                    bench.write(written, start, random.next() as u8);
                }
                1 if asked < 12 => {
                    asked += 1;
                    bench.ask(asked, 0);
                }
                _ if bench.out() > 0 => bench.end(random.below(bench.out() as u64) as usize),
                _ => {}
            }
        }
        assert!(bench.shard.is_idle(), "seed {seed}");
        assert_eq!((bench.outcomes.len(), bench.replies), (12, 12), "seed {seed}");
        for outcome in bench.outcomes.values() {
            assert_eq!(*outcome, Outcome::Compared(Difference::default()), "seed {seed}");
        }
        assert_eq!(bench.compare(1), Outcome::Compared(Difference::default()), "seed {seed}");
    }
}

/// Regression: a job took all stripes, and a client's read of a lost member had to wait for the
/// job.
#[test]
fn background_work_leaves_places_for_clients() {
    let mut bench = Bench::new(Level::Raid5, 4, None);
    (0..ROWS).for_each(|row| bench.ask(row, row));
    let asked = bench.ios.len();
    assert!(asked > 0 && asked <= 16 * 4, "a part of the places: {asked} requests");
    let purpose = Purpose::Background(Class::Idle);
    assert!(bench.ios.iter().all(|io| bench.shard.purpose_of(io) == purpose));
    assert!(!bench.shard.is_idle(), "most of it waits");
    bench.bad.push(MemberId(0));
    let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
    let map = stripe.row_map(ChunkRow(40));
    let index = (0..3).find(|index| map.data_slot(*index) == Slot(0)).expect("it has data here");
    let start = stripe.logical(ChunkRow(40), index, 0);
    let data = vec![0; CHUNK as usize * SECTOR];
    bench.payloads.insert(RequestId(1), Payload::new(data, true));
    let now = bench.tick();
    let piece = Piece {
        request: RequestId(1),
        operation: Operation::Read,
        start,
        sectors: CHUNK,
        payload_offset_sectors: 0,
    };
    bench.shard.handle_piece(now, piece);
    bench.drain();
    // The read's own member fails twice: in a direct read without a stripe, and as a column of the
    // band.
    (0..2).for_each(|_| bench.end(bench.ios.len() - 1));
    let newcomers = bench.ios.iter().skip(asked).collect::<Vec<_>>();
    assert_eq!(newcomers.len(), 3, "the others of its row are read at once: {newcomers:?}");
    assert!(newcomers.iter().all(|io| bench.shard.purpose_of(io) == Purpose::Client));
    let run = bytes(40 * u64::from(CHUNK), u64::from(CHUNK));
    let held = bench.members[0][run].to_vec();
    bench.run();
    assert_eq!(bench.payloads[&RequestId(1)].data, held);
    assert!((0..ROWS).all(|row| bench.outcomes.contains_key(&WorkId(row))), "and all work is done");
}

/// Regression: work that waited for a batch was not counted, and took every stripe once that batch
/// was done.
#[test]
fn work_that_was_kept_out_leaves_places_for_clients() {
    let mut bench = Bench::new(Level::Raid5, 4, None);
    let rows = 24;
    for row in 0..rows {
        bench.write(1000 + row, row * 3 * u64::from(CHUNK), 7);
    }
    (0..rows).for_each(|row| bench.ask(row, row));
    let purpose = Purpose::Background(Class::Idle);
    let mut most = 0;
    while bench.out() > 0 {
        let is_work = |io: &&MemberIo| bench.shard.purpose_of(io) == purpose;
        let starts = bench.ios.iter().filter(is_work).map(|io| io.sector.0);
        most = most.max(starts.collect::<std::collections::BTreeSet<_>>().len());
        // Requests of clients end first, so that as much background work as possible is in flight
        // at once.
        let is_client = |io: &MemberIo| bench.shard.purpose_of(io) != purpose;
        let chosen = bench.ios.iter().position(is_client);
        let computes = bench.computations.front().map(|_| bench.ios.len());
        bench.end(chosen.or(computes).unwrap_or(0));
    }
    assert!(most > 1 && most <= 16, "{most} bands at once");
    assert_eq!(bench.outcomes.len(), 24);
}

/// Regression: a job's reads waited several seconds until clients' reads were done. A client's
/// write to the same band had to wait with these reads.
#[test]
fn idle_work_gives_its_band_up_to_a_write() {
    let mut bench = Bench::new(Level::Raid5, 4, None);
    bench.ask(1, 0);
    let idle = std::mem::take(&mut bench.ios);
    assert_eq!(idle.len(), 4, "all of the band is read");
    bench.write(2, 0, 9);
    while bench.out() > 0 && bench.replies == 0 {
        bench.end(0);
    }
    assert_eq!(bench.replies, 1, "the write is over before the reads");
    assert_eq!(bench.outcomes.len(), 0, "the work is not");
    let again = bench.ios.iter().map(|io| bench.shard.purpose_of(io)).collect::<Vec<_>>();
    assert_eq!(again, [Purpose::Background(Class::BestEffort); 4], "it begins again, in its turn");
    bench.write(3, 0, 10);
    bench.ios.extend(idle);
    bench.run();
    assert_eq!((bench.replies, bench.outcomes.len()), (2, 1));
    assert_eq!(bench.outcomes[&WorkId(1)], Outcome::Compared(Difference::default()));
}

/// The bytes of every member.
fn held(bench: &Bench) -> Vec<Vec<u8>> {
    bench.members.clone()
}

#[test]
fn a_resync_makes_parity_of_data_and_writes_what_differs() {
    for (level, slots) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut bench = Bench::with_view(level, slots, |view| view.resync_offset = 0);
        let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
        assert_eq!(bench.carry_out(2, Task::Resync), Outcome::Done { written: 0 }, "it agrees");
        for (row, slot) in (0..ROWS).zip((0..slots).cycle()) {
            let run = bytes(row * u64::from(CHUNK) + 2, 3);
            bench.members[usize::from(slot)][run].fill(0x99);
            let before = held(&bench);
            let map = stripe.row_map(ChunkRow(row));
            let is_parity = map.p_slot() == Slot(slot) || map.q_slot() == Some(Slot(slot));
            let parities = if is_parity { 1 } else { u32::from(stripe.parity_slots()) };
            assert_eq!(bench.carry_out(row, Task::Resync), Outcome::Done { written: 3 * parities });
            let agrees = Outcome::Compared(Difference::default());
            assert_eq!(bench.compare(row), agrees, "{level:?} row {row} slot {slot}");
            for slot in (0..stripe.data_slots()).map(|index| map.data_slot(index)) {
                let slot = usize::from(slot.0);
                assert_eq!(bench.members[slot], before[slot], "data is believed");
            }
        }
    }
}

#[test]
fn a_resync_does_without_parity_that_cannot_be_read_and_never_without_data() {
    for slot in 0..5 {
        let mut bench = Bench::with_view(Level::Raid6, 5, |view| view.resync_offset = 0);
        let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
        let map = stripe.row_map(ChunkRow(7));
        let is_parity = map.p_slot() == Slot(slot) || map.q_slot() == Some(Slot(slot));
        let run = bytes(7 * u64::from(CHUNK), u64::from(CHUNK));
        bench.members[usize::from(slot)][run].fill(0x99);
        bench.bad.push(MemberId(slot));
        let before = held(&bench);
        let outcome = bench.carry_out(7, Task::Resync);
        bench.bad.clear();
        if is_parity {
            assert_eq!(outcome, Outcome::Done { written: CHUNK }, "it is written as a whole");
            assert_eq!(bench.compare(7), Outcome::Compared(Difference::default()));
        } else {
            assert_eq!(outcome, Outcome::Unmade { written: 0 });
            assert_eq!(bench.members, before, "nothing is made of what is not known");
        }
    }
}

#[test]
fn what_members_lost_is_recovered_in_one_pass() {
    let lost =
        [(Level::Raid4, 3, 1), (Level::Raid5, 4, 1), (Level::Raid6, 5, 1), (Level::Raid6, 5, 2)];
    for (level, slots, count) in lost {
        for first in 0..slots {
            let lost = [first, (first + 2) % slots];
            let lost = &lost[..count];
            let mut bench = Bench::with_view(level, slots, |view| {
                for slot in lost {
                    let member = view.slots[usize::from(*slot)].as_mut().expect("it is there");
                    member.recovered_sectors = 0;
                }
            });
            let before = held(&bench);
            lost.iter().for_each(|slot| bench.members[usize::from(*slot)].fill(0x99));
            let written = CHUNK * u32::try_from(count).expect("one or two");
            for row in 0..ROWS {
                assert_eq!(bench.carry_out(row, Task::Recover), Outcome::Done { written });
            }
            assert_eq!(bench.members, before, "{level:?} without {lost:?}");
        }
    }
}

#[test]
fn one_member_is_recovered_while_another_is_missing() {
    for (missing, lost) in (0..5).flat_map(|a| (0..5).map(move |b| (a, b))) {
        if missing == lost {
            continue;
        }
        let mut bench = Bench::with_view(Level::Raid6, 5, |view| {
            view.slots[missing] = None;
            view.slots[lost].as_mut().expect("it is there").recovered_sectors = 0;
        });
        let before = held(&bench);
        bench.members[lost].fill(0x99);
        bench.members[missing].fill(0x55);
        for row in 0..ROWS {
            let outcome = bench.carry_out(row, Task::Recover);
            assert_eq!(outcome, Outcome::Done { written: CHUNK });
        }
        assert_eq!(bench.members[lost], before[lost], "{lost} without {missing}");
        bench.bad.push(MemberId(
            u16::try_from((0..5).find(|n| *n != missing && *n != lost).expect("one is left"))
                .expect("small"),
        ));
        assert_eq!(
            bench.carry_out(3, Task::Recover),
            Outcome::Unmade { written: 0 },
            "three are too many"
        );
    }
}

/// Clients write to bands that are being resynced or recovered. The clients' writes last, and
/// parity agrees.
#[test]
fn background_work_and_writes_leave_what_both_want() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let recovers = random.chance(50);
        let lost = random.below(5) as u16;
        let mut bench = Bench::with_view(Level::Raid6, 5, |view| {
            if recovers {
                view.slots[usize::from(lost)].as_mut().expect("it is there").recovered_sectors = 0;
            } else {
                view.resync_offset = 0;
            }
        });
        let run = bytes(0, 3 * u64::from(CHUNK));
        let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
        let mut data: Vec<u8> = Vec::new();
        for sector in 0..3 * 3 * u64::from(CHUNK) {
            let place = places(&bench.geometry, sector)[0];
            data.extend_from_slice(&bench.members[usize::from(place.0.0)][bytes(place.1.0, 1)]);
        }
        if recovers {
            bench.members[usize::from(lost)][run.clone()].fill(0x99);
        } else {
            // One parity of each of the three rows is wrong; their data is right.
            for row in 0..3 {
                let map = stripe.row_map(ChunkRow(row));
                let slot =
                    if random.chance(50) { map.p_slot() } else { map.q_slot().expect("two") };
                let run = bytes(row * u64::from(CHUNK), u64::from(CHUNK));
                bench.members[usize::from(slot.0)][run].fill(0x99);
            }
        }
        let task = if recovers { Task::Recover } else { Task::Resync };
        let (mut written, mut asked) = (0, 0);
        while written < 12 || asked < 6 || bench.out() > 0 {
            match random.below(4) {
                0 if written < 12 => {
                    written += 1;
                    // There are nine chunks in three rows. Each is written at most twice, with the
                    // same bytes.
                    let start = (written - 1) % 9 * u64::from(CHUNK);
                    let fill = u8::try_from((written - 1) % 9).expect("small");
                    bench.write(written, start, fill);
                    data[bytes(start, u64::from(CHUNK))].fill(fill);
                }
                1 if asked < 6 => {
                    bench.ask_for(asked, asked % 3, task);
                    asked += 1;
                }
                _ if bench.out() > 0 => bench.end(random.below(bench.out() as u64) as usize),
                _ => {}
            }
        }
        assert!(bench.shard.is_idle(), "seed {seed}");
        for sector in 0..3 * 3 * u64::from(CHUNK) {
            let place = places(&bench.geometry, sector)[0];
            let held = &bench.members[usize::from(place.0.0)][bytes(place.1.0, 1)];
            assert_eq!(held, &data[bytes(sector, 1)], "seed {seed} sector {sector}");
        }
        let before = held(&bench);
        (0..3).for_each(|row| bench.make_parity(row));
        assert_eq!(bench.members, before, "parity is right: seed {seed}");
    }
}

/// Regression: an rmw left rotten parity in a stripe's block. A resync corrected the disk, but the
/// next write computed with the block.
#[test]
fn parity_that_was_made_anew_is_not_taken_from_an_old_block() {
    let mut bench = Bench::new(Level::Raid5, 8, None);
    let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!() };
    let p_slot = usize::from(stripe.row_map(ChunkRow(0)).p_slot().0);
    bench.members[p_slot][bytes(0, 4)].fill(0x99);
    bench.write(1, 0, 1);
    bench.run();
    let agrees = Outcome::Compared(Difference::default());
    assert_ne!(bench.compare(0), agrees, "old parity has followed the write");
    assert_eq!(bench.carry_out(0, Task::Resync), Outcome::Done { written: 4 });
    assert_eq!(bench.compare(0), Outcome::Compared(Difference::default()));
    bench.write(2, 0, 2);
    bench.run();
    assert_eq!(bench.compare(0), Outcome::Compared(Difference::default()));
}
