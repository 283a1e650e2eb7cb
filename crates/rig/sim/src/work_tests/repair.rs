//! Tests of rot: a check reports rot, and a repair corrects it if the other columns prove which
//! column is wrong.

use braid_engine::ids::MemberId;
use braid_engine::work::{Difference, Fate, Finding, Outcome, RotKind, Task, WorkId};
use braid_geometry::{ChunkRow, Geometry, Level, Slot, StripeGeometry};

use super::bench::{Bench, CHUNK, ROWS};
use crate::members::{bytes, places};
use crate::random::Random;

/// Runs the tests that builds with planted bugs need as stories.
#[cfg(braid_sim_hooks)]
pub(crate) fn tell() {
    for story in [
        a_rotten_chunk_is_named_and_mended_whatever_it_is,
        two_rotten_chunks_are_never_guessed_at,
        two_filled_chunks_are_believed_in_no_sector,
        a_sector_beside_another_chunks_rot_needs_proof_of_its_own,
        what_cannot_be_read_is_made_of_the_others_if_these_agree,
        what_a_member_does_not_take_is_not_called_repaired,
        repairs_and_writes_leave_what_both_want,
        a_write_of_a_band_that_is_repaired_reads_what_is_right,
        what_was_repaired_is_not_taken_from_an_old_block,
        three_copies_vote,
        two_copies_are_never_guessed_at,
    ] {
        story();
    }
}

const AGREES: Outcome = Outcome::Compared(Difference::NONE);

fn stripe(bench: &Bench) -> StripeGeometry {
    let Geometry::Stripe(stripe) = bench.geometry.clone() else { unreachable!("it has parity") };
    stripe
}

fn rot(bench: &mut Bench, random: &mut Random, slot: u16, (row, from, sectors): (u64, u32, u32)) {
    let start = row * u64::from(CHUNK) + u64::from(from);
    let run = bytes(start, u64::from(sectors));
    bench.members[usize::from(slot)][run].iter_mut().for_each(|byte| *byte = random.next() as u8);
}

fn flip(bench: &mut Bench, slot: u16, row: u64, sector: u32) {
    let at = bytes(row * u64::from(CHUNK) + u64::from(sector), 1).start + 100;
    bench.members[usize::from(slot)][at] ^= 0x40;
}

fn fates(bench: &Bench) -> Vec<Option<Fate>> {
    let fate = |found: &Finding| match found {
        Finding::Rot { fate, .. } => Some(*fate),
        Finding::Ambiguous { .. } | Finding::Lost { .. } => None,
    };
    bench.found.iter().map(fate).collect()
}

/// A chunk rots in every slot, and so as data, as P and as Q.
#[cfg_attr(test, test)]
pub(crate) fn a_rotten_chunk_is_named_and_mended_whatever_it_is() {
    let mut random = Random::new(1);
    for slots in [4, 5, 8] {
        let mut bench = Bench::new(Level::Raid6, slots, None);
        let (stripe, right) = (stripe(&bench), bench.members.clone());
        for (row, slot) in (0..ROWS).zip((0..slots).cycle()) {
            let (from, sectors) = [(0, CHUNK), (2, 3), (7, 1)][row as usize % 3];
            match row % 4 {
                3 => flip(&mut bench, slot, row, from),
                _ => rot(&mut bench, &mut random, slot, (row, from, sectors)),
            }
            let rotten = bench.members.clone();
            for (task, fate) in [(Task::Compare, Fate::Left), (Task::Repair, Fate::Repaired)] {
                bench.found.clear();
                let outcome = bench.carry_out(row, task);
                let sectors = if row % 4 == 3 { 1 } else { sectors };
                let map = stripe.row_map(ChunkRow(row));
                let data = (0..stripe.data_slots()).find(|at| map.data_slot(*at) == Slot(slot));
                let kind = match data {
                    Some(at) => RotKind::Data(stripe.logical(ChunkRow(row), at, from)),
                    None if map.p_slot() == Slot(slot) => RotKind::P,
                    None => RotKind::Q,
                };
                let start = braid_geometry::MemberSector(row * u64::from(CHUNK) + u64::from(from));
                let (member, slot) = (MemberId(slot), Slot(slot));
                let expected = Finding::Rot { member, slot, start, sectors, kind, fate };
                assert_eq!(bench.found, [expected], "row {row} {outcome:?}");
                let is_rotten = bench.members == rotten;
                assert_eq!(is_rotten, task == Task::Compare, "a check writes nothing");
            }
            assert!(bench.members == right, "row {row} slot {slot}");
            assert_eq!(bench.compare(row), AGREES);
        }
    }
}

#[cfg_attr(test, test)]
pub(crate) fn two_rotten_chunks_are_never_guessed_at() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let slots = 4 + random.below(6) as u16;
        let mut bench = Bench::new(Level::Raid6, slots, None);
        let one = random.below(u64::from(slots)) as u16;
        let other = (one + 1 + random.below(u64::from(slots) - 1) as u16) % slots;
        for slot in [one, other] {
            rot(&mut bench, &mut random, slot, (3, 0, CHUNK));
        }
        let before = bench.members.clone();
        let outcome = bench.carry_out(3, Task::Repair);
        assert!(matches!(outcome, Outcome::Checked { written: 0, differing: 16 }), "{outcome:?}");
        assert!(bench.members == before, "seed {seed}");
        assert_eq!(fates(&bench), [None], "seed {seed}: {:?}", bench.found);
        let Finding::Ambiguous { candidates, sectors, .. } = bench.found[0] else { unreachable!() };
        assert_eq!((candidates.count(), sectors), (slots, CHUNK), "any of them");
    }
}

/// In two chunks all bytes of a sector have the same error, so by chance some sectors accuse a
/// third chunk.
#[cfg_attr(test, test)]
pub(crate) fn two_filled_chunks_are_believed_in_no_sector() {
    let mut random = Random::new(11);
    for row in 0..ROWS {
        let mut bench = Bench::new(Level::Raid6, 10, None);
        for (sector, slot) in (0..CHUNK).flat_map(|sector| [(sector, 1), (sector, 4)]) {
            let run = bytes(row * u64::from(CHUNK) + u64::from(sector), 1);
            let error = 1 + random.below(255) as u8;
            bench.members[slot][run].iter_mut().for_each(|byte| *byte ^= error);
        }
        let before = bench.members.clone();
        bench.carry_out(row, Task::Repair);
        assert!(bench.members == before, "row {row}: {:?}", bench.found);
    }
}

/// Sectors of one stripe are rotten in different chunks. Sectors with enough evidence are repaired.
/// A sector with one flipped bit has too little evidence.
#[cfg_attr(test, test)]
pub(crate) fn a_sector_beside_another_chunks_rot_needs_proof_of_its_own() {
    let mut random = Random::new(5);
    let mut bench = Bench::new(Level::Raid6, 6, None);
    let right = bench.members.clone();
    rot(&mut bench, &mut random, 1, (4, 0, 2));
    rot(&mut bench, &mut random, 3, (4, 5, 1));
    flip(&mut bench, 4, 4, 7);
    let outcome = bench.carry_out(4, Task::Repair);
    assert!(matches!(outcome, Outcome::Checked { written: 3, .. }), "{outcome:?}");
    assert_eq!(fates(&bench), [Some(Fate::Repaired), Some(Fate::Repaired), None]);
    flip(&mut bench, 4, 4, 7);
    assert!(bench.members == right, "the bit was left, and nothing else");
}

/// With a single parity a check sees that columns differ, but not which column is wrong.
#[cfg_attr(test, test)]
pub(crate) fn one_parity_names_nobody() {
    for (level, slots) in [(Level::Raid4, 3), (Level::Raid5, 4)] {
        for slot in 0..slots {
            let mut bench = Bench::new(level, slots, None);
            flip(&mut bench, slot, 2, 3);
            let before = bench.members.clone();
            bench.carry_out(2, Task::Repair);
            assert!(bench.members == before);
            let [Finding::Ambiguous { candidates, sectors: 1, start, .. }] = bench.found[..] else {
                panic!("{:?}", bench.found)
            };
            assert_eq!((candidates.count(), start.0), (slots, 2 * u64::from(CHUNK) + 3));
        }
    }
}

/// Above the resync offset no chunk is called rotten. After an interrupted write, the newest data
/// would look rotten there.
#[cfg_attr(test, test)]
pub(crate) fn nothing_is_named_where_parity_is_in_doubt() {
    let mut random = Random::new(5);
    let mut bench = Bench::with_view(Level::Raid6, 5, |view| view.resync_offset = 0);
    rot(&mut bench, &mut random, 2, (1, 0, CHUNK));
    let before = bench.members.clone();
    bench.carry_out(1, Task::Repair);
    assert!(bench.members == before);
    assert_eq!(fates(&bench), [None]);
}

#[cfg_attr(test, test)]
pub(crate) fn nothing_is_said_beside_a_member_that_lacks_the_band() {
    let mut random = Random::new(5);
    for is_there in [false, true] {
        let mut bench = Bench::with_view(Level::Raid6, 5, |view| {
            view.slots[1].as_mut().expect("it is there").recovered_sectors = 0;
            if !is_there {
                view.slots[1] = None;
            }
        });
        rot(&mut bench, &mut random, 2, (1, 0, CHUNK));
        let before = bench.members.clone();
        assert_eq!(bench.carry_out(1, Task::Repair), Outcome::Unreadable);
        assert!(bench.members == before && bench.found.is_empty());
    }
}

/// Regression: a check computed more than the bad sectors, and did not compare the result with the
/// other columns.
#[cfg_attr(test, test)]
pub(crate) fn what_cannot_be_read_is_made_of_the_others_if_these_agree() {
    for (level, slots) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        for (slot, task) in
            (0..slots).flat_map(|slot| [(slot, Task::Compare), (slot, Task::Repair)])
        {
            let mut bench = Bench::new(level, slots, None);
            let right = bench.members.clone();
            let sector = 5 * u64::from(CHUNK) + 2;
            bench.members[usize::from(slot)][bytes(sector, 1)].fill(0x77);
            bench.bad_sectors.insert((MemberId(slot), sector));
            let outcome = bench.carry_out(5, task);
            assert_eq!(outcome, Outcome::Checked { differing: 0, written: CHUNK }, "{level:?}");
            assert!(bench.members == right && bench.bad_sectors.is_empty(), "slot {slot}");
            assert!(bench.found.is_empty());
        }
    }
    // If one column is unreadable and another rotten, no column is proven right.
    let mut random = Random::new(5);
    for (bad, rotten) in (0..5).flat_map(|bad| (0..5).map(move |rotten| (bad, rotten))) {
        if bad == rotten {
            continue;
        }
        let mut bench = Bench::new(Level::Raid6, 5, None);
        bench.bad_sectors.insert((MemberId(bad), 5 * u64::from(CHUNK) + 2));
        rot(&mut bench, &mut random, rotten, (5, 0, CHUNK));
        let before = bench.members.clone();
        bench.carry_out(5, Task::Repair);
        assert!(bench.members == before, "{bad} cannot be read, and {rotten} is rotten");
        assert_eq!(fates(&bench), [None]);
    }
}

#[cfg_attr(test, test)]
pub(crate) fn what_a_member_does_not_take_is_not_called_repaired() {
    let mut random = Random::new(9);
    let mut bench = Bench::new(Level::Raid6, 5, None);
    bench.deaf.push(MemberId(2));
    rot(&mut bench, &mut random, 2, (1, 0, CHUNK));
    bench.carry_out(1, Task::Repair);
    assert_eq!(fates(&bench), [Some(Fate::Unverified)]);
    bench.found.clear();
    bench.stubborn.push(MemberId(2));
    bench.deaf.clear();
    // The member fails the repair's write, so the finding is reported as left. The repair continues
    // with the rest of the array.
    let outcome = bench.carry_out(1, Task::Repair);
    assert_eq!(outcome, Outcome::Checked { differing: 16, written: 0 });
    assert_eq!(fates(&bench), [Some(Fate::Left)]);
}

/// Clients write to bands in repair. In any order of events each write lasts, and parity agrees.
#[cfg_attr(test, test)]
pub(crate) fn repairs_and_writes_leave_what_both_want() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(Level::Raid6, 8, None);
        let row = u64::from(CHUNK) * 6;
        let mut data: Vec<u8> = Vec::new();
        for sector in 0..2 * row {
            data.extend_from_slice(bench.held(sector, 0));
        }
        // No write goes to the rotten chunk; other tests write to it.
        let rotten = random.below(8) as u16;
        rot(&mut bench, &mut random, rotten, (0, 0, CHUNK));
        let is_rotten = |bench: &Bench, start: u64| {
            let (slot, place) = places(&bench.geometry, start)[0];
            slot.0 == rotten && place.0 < u64::from(CHUNK)
        };
        let (mut written, mut asked) = (0, 0);
        // Some runs have many writes, so that blocks exist when the repair begins; some have none.
        let writes = random.below(10);
        while written < writes || asked < 2 || bench.out() > 0 {
            match random.below(4) {
                0 if written < writes => {
                    written += 1;
                    let start = (written - 1) % 6 * u64::from(CHUNK);
                    if is_rotten(&bench, start) {
                        continue;
                    }
                    let fill = u8::try_from((written - 1) % 6).expect("small");
                    bench.write(written, start, fill);
                    data[bytes(start, u64::from(CHUNK))].fill(fill);
                }
                1 if asked < 2 && (asked == 0 || bench.outcomes.contains_key(&WorkId(0))) => {
                    bench.ask_for(asked, 0, Task::Repair);
                    asked += 1;
                }
                _ if bench.out() > 0 => bench.end(random.below(bench.out() as u64) as usize),
                _ => {}
            }
        }
        assert!(bench.shard.is_idle(), "seed {seed}");
        // If an rcw came before the repair, it computed parity from the rot, so that data and
        // parity agree and nothing is found.
        let is_mended = bench.found.iter().any(|found| matches!(found, Finding::Rot { .. }));
        for sector in 0..2 * row {
            let is_right = bench.held(sector, 0) == &data[bytes(sector, 1)];
            let may_be_wrong = !is_mended && is_rotten(&bench, sector);
            assert!(is_right || may_be_wrong, "seed {seed} sector {sector} {:?}", bench.found);
        }
        let before = bench.members.clone();
        (0..2).for_each(|row| bench.make_parity(row));
        assert!(bench.members == before, "parity is right: seed {seed}");
        let fates = fates(&bench);
        assert!(fates.iter().all(|fate| *fate == Some(Fate::Repaired)), "seed {seed} {fates:?}");
    }
}

/// A write to a band in repair must not use the rotten parity, even if the write reads it before
/// the repair overwrites it.
#[cfg_attr(test, test)]
pub(crate) fn a_write_of_a_band_that_is_repaired_reads_what_is_right() {
    let mut random = Random::new(5);
    for (moment, of_p) in (0..40).flat_map(|moment| [(moment, true), (moment, false)]) {
        let mut bench = Bench::new(Level::Raid6, 8, None);
        let map = stripe(&bench).row_map(ChunkRow(0));
        let slot = if of_p { map.p_slot() } else { map.q_slot().expect("level 6 has Q") };
        rot(&mut bench, &mut random, slot.0, (0, 0, CHUNK));
        bench.ask_for(0, 0, Task::Repair);
        for _ in 0..moment {
            if bench.out() > 0 {
                bench.end(0);
            }
        }
        bench.write(1, 0, 1);
        while bench.out() > 0 {
            bench.end(bench.out() - 1);
        }
        let before = bench.members.clone();
        bench.make_parity(0);
        assert!(bench.members == before, "parity is right: moment {moment}, of P: {of_p}");
    }
}

/// Regression: rotten bytes stayed in a stripe's block after a repair, and the next write computed
/// with them.
#[cfg_attr(test, test)]
pub(crate) fn what_was_repaired_is_not_taken_from_an_old_block() {
    let mut random = Random::new(3);
    let mut bench = Bench::new(Level::Raid6, 5, None);
    let stripe = stripe(&bench);
    let map = stripe.row_map(ChunkRow(0));
    // A first write fills the stripe's blocks. Then the second chunk rots, and a second write keeps
    // the rot in a block.
    bench.write(1, 0, 1);
    bench.run();
    rot(&mut bench, &mut random, map.data_slot(1).0, (0, 0, CHUNK));
    bench.write(2, 0, 2);
    bench.run();
    bench.carry_out(0, Task::Repair);
    for (id, index) in [(3, 0), (4, 1), (5, 2)] {
        bench.write(id, index * u64::from(CHUNK), 3);
        bench.run();
        assert_eq!(bench.compare(0), AGREES);
    }
    // With many columns a single column is written by rmw, which keeps rotten parity in its block.
    for of_p in [true, false] {
        let mut bench = Bench::new(Level::Raid6, 8, None);
        let map = self::stripe(&bench).row_map(ChunkRow(0));
        let slot = if of_p { map.p_slot() } else { map.q_slot().expect("level 6 has Q") };
        rot(&mut bench, &mut random, slot.0, (0, 0, CHUNK));
        bench.write(1, 0, 1);
        bench.run();
        bench.carry_out(0, Task::Repair);
        assert_eq!(fates(&bench), [Some(Fate::Repaired)]);
        bench.write(2, 0, 2);
        bench.run();
        assert_eq!(bench.compare(0), AGREES);
    }
}

fn held_by_all(bench: &Bench, sector: u64) -> Vec<&[u8]> {
    (0..places(&bench.geometry, sector).len()).map(|copy| bench.held(sector, copy)).collect()
}

#[cfg_attr(test, test)]
pub(crate) fn three_copies_vote() {
    for (seed, task) in (0..20).flat_map(|seed| [(seed, Task::Compare), (seed, Task::Repair)]) {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(Level::Raid1, 3, None);
        let right = bench.members.clone();
        let mut wrong = 0;
        for sector in 0..60 {
            if random.chance(50) {
                let slot = random.below(3) as usize;
                bench.members[slot][bytes(sector, 1).start + 9] ^= 4;
                wrong += 1;
            }
        }
        let rotten = bench.members.clone();
        bench.carry_out(0, task);
        let sectors = bench.found.iter().map(|found| match *found {
            Finding::Rot { sectors, kind: RotKind::Data(at), start, slot, member, fate } => {
                assert_eq!((at.0, member.0), (start.0, slot.0));
                let expected = if task == Task::Repair { Fate::Repaired } else { Fate::Left };
                assert_eq!(fate, expected);
                sectors
            }
            _ => panic!("{found:?}"),
        });
        assert_eq!(sectors.sum::<u32>(), wrong);
        let expected = if task == Task::Repair { &right } else { &rotten };
        assert!(bench.members == *expected, "seed {seed} {task:?}");
    }
}

#[cfg_attr(test, test)]
pub(crate) fn two_copies_are_never_guessed_at() {
    for (level, slots) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid10, 5)] {
        for copy in 0..2 {
            let mut bench = Bench::new(level, slots, None);
            let (slot, place) = places(&bench.geometry, 9)[copy];
            bench.members[usize::from(slot.0)][bytes(place.0, 1).start] ^= 1;
            let before = bench.members.clone();
            bench.carry_out(0, Task::Repair);
            bench.carry_out(1, Task::Repair);
            assert!(bench.members == before);
            let [Finding::Ambiguous { array: Some(at), sectors: 1, candidates, .. }] =
                bench.found[..]
            else {
                panic!("{level:?}: {:?}", bench.found)
            };
            assert_eq!((at.0, candidates.count()), (9, 2));
        }
    }
}

/// In one sector three copies all differ. In another, two copies differ and the third is
/// unreadable.
#[cfg_attr(test, test)]
pub(crate) fn copies_without_a_majority_are_left() {
    let mut bench = Bench::new(Level::Raid1, 3, None);
    for (slot, value) in [(0, 1), (1, 2)] {
        bench.members[slot][bytes(4, 1).start] ^= value;
        bench.members[slot][bytes(30, 1).start] ^= value;
    }
    bench.bad_sectors.insert((MemberId(2), 30));
    bench.bad_sectors.insert((MemberId(1), 12));
    let before = bench.members.clone();
    bench.carry_out(0, Task::Repair);
    assert!(bench.members == before);
    assert_eq!(fates(&bench), [None, None]);
    let left: Vec<_> = bench.bad_sectors.iter().copied().collect();
    assert_eq!(left, [(MemberId(2), 30)], "what can be made is made");
    let sectors = |slot: usize| held_by_all(&bench, 12)[slot].to_vec();
    assert_eq!(sectors(1), sectors(0));
}
