//! The verdicts for every state in which the real md left an array.

use std::collections::BTreeMap;

use braid_assembly::{AssembledArray, ReadOnlyReason, Verdict};

use super::{assembled, fixtures};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// The array can run, and is not dirty.
    Clean,
    /// The array can run; redundancy is right only before this sector.
    Dirty(u64),
    /// The array can be read but not written.
    ReadOnly { dirty: bool, code: &'static str },
    /// The array can be read except for sectors at risk, and is refused for writing.
    Withheld,
    /// The array is refused with this code.
    Refused(&'static str),
}

use Outcome::{Clean, Dirty, ReadOnly, Refused, Withheld};

/// A row: the fixture's name without `state-`, a word for each member, the outcome. A number is a
/// fresh member's slot. `S` is stale, `r1` recovering in slot 1, `R1` a replacement for slot 1. `+`
/// is a spare, `J` a journal, `!` contradictory.
const STATES: [(&str, &str, Outcome); 51] = [
    ("raid0-cut", "0 1 2", Clean),
    ("raid0-reshaping", "0 1 2 r3", Refused("reshaping")),
    ("raid1-bad-blocks", "0 1", Clean),
    ("raid1-bitmap", "0 1", Clean),
    ("raid1-bitmap-dirty", "0 1", Dirty(0)),
    ("raid1-dirty", "0 1", Dirty(0)),
    ("raid1-failfast", "0 1", Clean),
    ("raid1-recovering", "0 S r1", Clean),
    ("raid1-resyncing-m0.90", "0 1", Dirty(1024)),
    ("raid1-spare-m0.90", "0 1 +", Clean),
    ("raid1-split", "! !", Refused("roles-contradict")),
    ("raid1-stale", "S 1", Clean),
    ("raid1-write-mostly", "0 1", Clean),
    ("raid10-dirty", "0 1 2 3", Dirty(0)),
    ("raid10-recovering", "0 S 2 3 r1", Clean),
    ("raid10-reshaping", "0 1 2 3 4", Refused("reshaping")),
    ("raid10-stale", "0 S 2 3", Clean),
    ("raid4-dirty", "0 1 2 3", Dirty(0)),
    ("raid5-bad-blocks", "0 1 2 3", Clean),
    ("raid5-bitmap-readded", "0 1 2 3", Clean),
    ("raid5-bitmap-stale", "0 1 S 3", Clean),
    ("raid5-created-missing", "0 2 3", Clean),
    ("raid5-dirty", "0 1 2 3", Dirty(0)),
    ("raid5-dirty-degraded", "0 S 2 3", Withheld),
    ("raid5-dirty-m0.90", "0 1 2 3", Dirty(0)),
    ("raid5-dirty-m1.0", "0 1 2 3", Dirty(0)),
    ("raid5-failed-not-removed", "0 1 2 S", Clean),
    ("raid5-journal", "0 1 2 3 J", Clean),
    ("raid5-ppl", "0 1 2 3", Clean),
    ("raid5-ppl-dirty", "0 1 2 3", Dirty(0)),
    ("raid5-reassembled-degraded", "0 1 2 S", Clean),
    ("raid5-recovered-onto-spare", "S 1 2 0", Clean),
    ("raid5-recovering", "0 S 2 3 r1", Clean),
    ("raid5-replacing", "0 1 2 3 R1", Clean),
    ("raid5-reshaping", "0 1 2 3 4", Refused("reshaping")),
    ("raid5-reshaping-chunk-m0.90", "0 1 2 3", Refused("reshaping")),
    ("raid5-reshaping-degraded", "0 S 2 3 4", Refused("reshaping")),
    ("raid5-reshaping-end", "0 1 2 3 4", Refused("reshaping")),
    ("raid5-reshaping-moved", "0 1 2 3", Refused("reshaping")),
    ("raid5-reshaping-shrunk", "0 1 2 3 4", Refused("reshaping")),
    ("raid5-reshaping-stuck", "0 1 2 3 4", Refused("reshaping")),
    ("raid5-resyncing", "0 1 2 3", Dirty(1024)),
    ("raid5-spare", "0 1 2 +", Clean),
    ("raid5-stale", "0 1 2 S", Clean),
    ("raid5-stale-m0.90", "0 1 2 S", Clean),
    ("raid6-created-two-missing", "1 2 4", Clean),
    ("raid6-dirty", "0 1 2 3 4", Dirty(0)),
    ("raid6-dirty-degraded", "0 S 2 3 4", Withheld),
    ("raid6-recovering", "0 S 2 3 4 r1", Clean),
    ("raid6-reshaping-from-raid5", "0 1 2 3 r4", Refused("reshaping")),
    ("raid6-stale-twice", "0 S 2 S 4", Clean),
];

fn word(verdict: Verdict) -> String {
    match verdict {
        Verdict::Fresh { slot } => slot.to_string(),
        Verdict::Recovering { slot, recovered_sectors } => {
            assert_eq!(recovered_sectors, 1024, "every story stops there");
            format!("r{slot}")
        }
        Verdict::Replacement { slot } => format!("R{slot}"),
        Verdict::Spare => "+".to_owned(),
        Verdict::Stale { behind } => {
            assert!(behind >= 2, "one behind is not stale");
            "S".to_owned()
        }
        Verdict::Journal => "J".to_owned(),
        Verdict::Contradictory => "!".to_owned(),
        other => other.to_string(),
    }
}

fn outcome(array: &AssembledArray) -> Outcome {
    let code = match array.read_only {
        _ if array.withheld_risk.is_some() => return Withheld,
        None if array.dirty => return Dirty(array.resync_offset),
        None => return Clean,
        Some(ReadOnlyReason::Ppl) => "ppl",
        Some(ReadOnlyReason::Journal) => "journal",
        Some(ReadOnlyReason::Replacement { .. }) => "replacement",
        Some(_) => "bitmap",
    };
    ReadOnly { dirty: array.dirty, code }
}

#[test]
fn every_state_gets_its_verdicts() {
    let table: BTreeMap<&str, (&str, Outcome)> =
        STATES.into_iter().map(|(name, members, outcome)| (name, (members, outcome))).collect();
    let mut judged = 0;
    for (name, fixture) in fixtures() {
        let Some(story) = name.strip_prefix("state-") else { continue };
        let (members, expected) =
            *table.get(story).unwrap_or_else(|| panic!("{story} has no row in the table"));
        let assembly = assembled(&fixture, true);
        let words: Vec<String> =
            assembly.verdicts.iter().map(|verdict| word(verdict.verdict)).collect();
        assert_eq!(words.join(" "), members, "{name}");
        let found = match &assembly.array {
            Ok(array) => outcome(array),
            Err(refusal) => Refused(refusal.code()),
        };
        assert_eq!(found, expected, "{name}");
        judged += 1;
    }
    assert_eq!(judged, STATES.len(), "a row of the table has no fixture");
}

#[test]
fn writing_is_refused_exactly_where_reading_is_all_there_is() {
    for (name, fixture) in fixtures() {
        let reading = assembled(&fixture, true);
        let writing = assembled(&fixture, false);
        assert_eq!(reading.verdicts, writing.verdicts, "{name}");
        match (&reading.array, &writing.array) {
            (Ok(array), Err(refusal)) if array.withheld_risk.is_some() => {
                assert_eq!(refusal.code(), "dirty-and-degraded", "{name}");
            }
            (Ok(array), Err(refusal)) => {
                assert!(array.read_only.is_some(), "{name}");
                assert_eq!(refusal.code(), "read-only-only", "{name}");
            }
            (Ok(array), Ok(_)) => assert_eq!(array.read_only, None, "{name}"),
            (Err(a), Err(b)) => assert_eq!(a, b, "{name}"),
            (Err(refusal), Ok(_)) => panic!("{name}: writable and not readable: {refusal}"),
        }
    }
}

#[test]
fn size_and_degradation_are_what_the_kernel_said() {
    for (name, fixture) in fixtures() {
        let Ok(array) = assembled(&fixture, true).array else { continue };
        assert_eq!(array.geometry.capacity_sectors(), fixture.number("sectors"), "{name}");
        let degraded = fixture.facts["degraded"].as_str();
        let degraded = if degraded == "none" { "0" } else { degraded };
        assert_eq!(array.degraded.to_string(), degraded, "{name}");
    }
}

#[test]
fn bad_blocks_are_where_md_recorded_them() {
    let expected = [
        ("state-raid1-bad-blocks", 1, vec![100..108, 300..316]),
        ("state-raid5-bad-blocks", 1, std::iter::once(64..72).collect()),
        ("state-raid5-bad-blocks", 2, std::iter::once(1024..1032).collect()),
    ];
    let all: BTreeMap<_, _> = fixtures().into_iter().collect();
    for (name, slot, ranges) in expected {
        let array = assembled(&all[name], false).array.expect("it can be run");
        let occupant = array.slots[slot].as_ref().expect("none is missing");
        assert_eq!(occupant.bad_sectors(), ranges, "{name} slot {slot}");
    }
}

#[test]
fn an_array_without_a_word_on_its_layout_is_refused() {
    let mut refused = Vec::new();
    for (name, fixture) in fixtures() {
        if name.starts_with("state-") {
            continue;
        }
        match assembled(&fixture, false).array {
            Ok(array) => assert!(!array.dirty && array.degraded == 0, "{name} is healthy"),
            Err(refusal) => {
                assert_eq!(refusal.code(), "geometry", "{name}: {refusal}");
                refused.push(name);
            }
        }
    }
    // These arrays are refused: only dm-raid makes far sets, and the layout of an unequal 0.90
    // raid0 depends on the kernel's present `raid0.default_layout`.
    let expected = [
        "raid0-3-m0.90-unequal-default1",
        "raid0-3-m0.90-unequal-default2",
        "raid10-f2-4-m1.2-sets2",
        "raid10-f2-5-m1.2-sets2",
        "raid10-f2-6-m1.2-sets1",
        "raid10-f3-6-m1.2-sets2",
    ];
    assert_eq!(refused, expected);
}
