//! Copies of disks with bad sectors, and texts of maps.

use std::collections::BTreeMap;

use braid_imaging::{Map, MapError, Plan, State, Step};
use proptest::prelude::*;

const SECTOR: u64 = 512;

/// Copies a disk with these bad sectors to the end. Returns the number of reads of each sector, and
/// the map.
fn copied(mut plan: Plan, sectors: u64, bad: &dyn Fn(u64) -> bool) -> (BTreeMap<u64, u32>, Map) {
    let mut asked = BTreeMap::new();
    let mut count = 0_u64;
    while let Some(request) = plan.next_request() {
        let (first, end) = (request.range.start / SECTOR, request.range.end.div_ceil(SECTOR));
        assert!(!request.range.is_empty() && request.range.end <= sectors * SECTOR, "{request:?}");
        (first..end).for_each(|sector| *asked.entry(sector).or_default() += 1);
        plan.answered(&request, !(first..end).any(bad));
        count += 1;
        assert!(count < 20 * sectors + 100, "it does not end");
    }
    assert_eq!(plan.step(), Step::Over);
    (asked, plan.map().clone())
}

/// Stretches of a disk, of very different lengths; stretches with `true` are bad.
fn stretches() -> impl Strategy<Value = Vec<(u64, bool)>> {
    let length = prop_oneof![1..4_u64, 1..200_u64, 1000..9000_u64];
    prop::collection::vec((length, any::<bool>()), 1..12)
}

fn bad_of(stretches: &[(u64, bool)]) -> (u64, Vec<bool>) {
    let bad: Vec<bool> =
        stretches.iter().flat_map(|(length, is_bad)| (0..*length).map(move |_| *is_bad)).collect();
    (bad.len() as u64, bad)
}

proptest! {
    #[test]
    fn whatever_can_be_read_is_read(stretches in stretches(), retries in 0..4_u32) {
        let (sectors, bad) = bad_of(&stretches);
        let is_bad = |sector: u64| bad[usize::try_from(sector).unwrap()];
        let plan = Plan::new(Map::new(sectors * SECTOR), SECTOR, retries);
        let (asked, map) = copied(plan, sectors, &is_bad);
        for sector in 0..sectors {
            let state = if is_bad(sector) { State::Bad } else { State::Done };
            prop_assert_eq!(map.state_at(sector * SECTOR), state, "sector {}", sector);
            let most = if is_bad(sector) { 2 + retries } else { 2 };
            prop_assert!(asked[&sector] <= most, "sector {} was asked for {} times", sector, asked[&sector]);
        }
    }

    #[test]
    fn a_copy_that_was_interrupted_is_gone_on_with(stretches in stretches(), stops in 1..200_usize) {
        let (sectors, bad) = bad_of(&stretches);
        let is_bad = |sector: u64| bad[usize::try_from(sector).unwrap()];
        let mut plan = Plan::new(Map::new(sectors * SECTOR), SECTOR, 0);
        for _ in 0..stops {
            let Some(request) = plan.next_request() else { break };
            let sectors = request.range.start / SECTOR..request.range.end.div_ceil(SECTOR);
            plan.answered(&request, !sectors.clone().any(is_bad));
        }
        let done = plan.map().bytes(State::Done);
        let text = plan.map().to_text(&[], (plan.position(), plan.step().sign()), 1);
        let map = Map::parse(&text, sectors * SECTOR).unwrap();
        prop_assert_eq!(map.bytes(State::Done), done);
        let (_, map) = copied(Plan::new(map, SECTOR, 0), sectors, &is_bad);
        for sector in 0..sectors {
            let state = if is_bad(sector) { State::Bad } else { State::Done };
            prop_assert_eq!(map.state_at(sector * SECTOR), state, "sector {}", sector);
        }
    }

    #[test]
    fn a_map_reads_as_it_was_written(sets in prop::collection::vec((0..1000_u64, 1..300_u64, 0..5_usize), 0..30)) {
        let mut map = Map::new(1000);
        let mut plain = vec![State::Untried; 1000];
        for (start, length, state) in sets {
            let (end, state) = ((start + length).min(1000), State::ALL[state]);
            map.set(start..start + length, state);
            (start..end).for_each(|at| plain[usize::try_from(at).unwrap()] = state);
        }
        for (at, state) in (0..).zip(&plain) {
            prop_assert_eq!(map.state_at(at), *state);
        }
        let is_apart = map.stretches().zip(map.stretches().skip(1)).all(|(one, next)| one.1 != next.1 && one.0.end == next.0.start);
        prop_assert!(is_apart, "{map:?}");
        for state in State::ALL {
            let count = plain.iter().filter(|one| **one == state).count() as u64;
            prop_assert_eq!(map.bytes(state), count);
        }
        let text = map.to_text(&["by a test", "two\nlines"], (5, '*'), 1);
        prop_assert_eq!(Map::parse(&text, 1000), Ok(map));
    }
}

#[test]
fn a_map_of_ddrescues_is_read() {
    // A map as ddrescue writes it in the middle of its retries.
    let text = "# Mapfile. Created by GNU ddrescue version 1.30\n\
                # Command line: ddrescue -d -r3 /dev/hdb hdimage mapfile\n\
                # Start time:   2026-01-01 00:00:00\n\
                # current_pos  current_status  current_pass\n\
                0x029C0000     -               1\n\
                #      pos        size  status\n\
                0x00000000  0x02890000  +\n\
                0x02890000  0x00010000  -\n\
                0x028A0000  0x00120000  +\n";
    let map = Map::parse(text, 0x029C_0000).expect("a map");
    assert_eq!(map.missing(), std::slice::from_ref(&(0x0289_0000..0x028A_0000)));
    // A map without a pass, as older ones are, and shorter than the disk.
    let map = Map::parse("0 ?\n0 4096 +\n010000 512 /\n", 8192).expect("a map");
    assert_eq!(map.missing(), std::slice::from_ref(&(4096..8192)));
    assert_eq!(map.state_at(4096), State::Unscraped);
}

/// ddrescue lets a copy grow and may be stopped early; or the copy was cut, and its map was not
/// cut.
#[test]
fn a_copy_that_is_shorter_than_its_disk_lacks_the_rest() {
    let text = "0 ?\n0 4096 +\n4096 1024 -\n5120 4000 +\n";
    let map = Map::parse_of_copy(text, 8192).expect("a map");
    assert_eq!((map.size_bytes(), map.missing()), (9216, vec![4096..5120, 8192..9216]));
    // Bytes that the map lists as missing stay missing.
    let cut = Map::parse_of_copy(text, 2048).expect("a map");
    assert_eq!(
        (cut.size_bytes(), cut.missing().as_slice()),
        (9216, std::slice::from_ref(&(2048..9216)))
    );
    assert_eq!(cut.state_at(4096), State::Bad);
    let whole = Map::parse_of_copy(text, 10240).expect("a map");
    assert_eq!((whole.size_bytes(), whole.missing()), (10240, vec![4096..5120, 9120..10240]));
    let beyond = Map::parse_of_copy("0 ?\n0 0xffffffffffff0000 +\n", 512);
    assert!(matches!(beyond, Err(MapError::Beyond { .. })), "{beyond:?}");
}

#[test]
fn what_is_no_map_is_refused_with_its_line() {
    let size = 4096;
    assert_eq!(Map::parse("# nothing\n\n", size), Err(MapError::Empty));
    let beyond = MapError::Beyond { end: 8192, size_bytes: 4096 };
    assert_eq!(Map::parse("0 +\n0 8192 +\n", size), Err(beyond));
    for (text, line) in [
        ("x +\n", 1),
        ("0\n", 1),
        ("0 +  a\n", 1),
        ("0 + 1 1\n", 1),
        ("0 +\n0 512\n", 2),
        ("# remark\n0 +\n0 512 x\n", 3),
        ("0 +\n0 512 + +\n", 2),
        ("0 +\n0 1024 +\n512 512 -\n", 3),
        ("0 +\n0xffffffffffffffff 512 -\n", 2),
        ("0 +\n+0 512 -\n", 2),
        ("0 +\n09 512 -\n", 2),
    ] {
        match Map::parse(text, size) {
            Err(MapError::Line { line: found, .. }) => assert_eq!(found, line, "{text:?}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
}
