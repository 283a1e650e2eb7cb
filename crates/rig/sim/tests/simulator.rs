//! Tests of the simulator itself: seeds repeat, small worlds pass, and seeds of old failures pass.

use braid_sim::small::{self, Bounds};
use braid_sim::{Settings, simulate};

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        cycles: 12,
        is_smallest: false,
        is_traced: false,
        is_shaken: false,
        cut: braid_sim::Cut::default(),
    }
}

#[test]
fn a_seed_repeats_bit_for_bit() {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let first = simulate(&settings(seed));
        assert_eq!(first, simulate(&settings(seed)), "seed {seed}");
        hashes.insert(first.trace_hash);
    }
    assert_eq!(hashes.len(), 40, "each seed is another run");
}

#[test]
fn a_band_left_inconsistent_by_two_failures_is_refused_and_never_guessed() {
    braid_sim::stories::tell();
}

/// The hash is the same in debug and release builds, on every machine, at any time. A change of the
/// engine or the simulator may change it; the expected value is then replaced.
#[test]
fn seed_7_has_the_trace_that_it_always_had() {
    assert_eq!(format!("{:016x}", simulate(&settings(7)).trace_hash), "da312433c9c9c120");
}

#[test]
fn random_worlds_hold_and_meet_every_kind_of_fault() {
    let mut total = braid_sim::Tally::default();
    (3000..3400).for_each(|seed| total.add(&simulate(&settings(seed)).tally));
    for name in [
        "power-cut",
        "process-killed",
        "orderly-stop",
        "disk-dies",
        "disk-power-cut",
        "disk-stalls",
        "writes-fail",
        "flushes-fail",
        "superblocks-fail",
        "bad-sectors",
        "member-out",
        "array-broken",
        "disks-withheld",
        "refused-write-hole",
        "refused-too-few",
        "rebuilt-offline",
        "torn-request",
        "levelled",
        "bad-block-logs",
        "bad-block-log-damaged",
        "read-around-bad-blocks",
        "write-through-bad-blocks",
        "power-cut-in-levelling",
        "run-beyond",
        "merged-sector",
        "part-of-a-sector-read",
        "write-admission-waits",
        "call-denied",
        "nbd-extended",
        "nbd-refused",
        "nbd-out-of-order",
        "nbd-block-status",
        "nbd-cut",
        "nbd-cut-in-header",
        "nbd-cut-in-payload",
        "nbd-orphans",
        "nbd-left",
        "nbd-thrown-out",
        "run-lying",
        "bit-rot",
        "write-lost",
        "write-astray",
        "flushes-lie",
        "disk-slow",
        "disk-pauses",
        "band-is-compared",
        "jobs-allowed-little",
        "work-allowed",
        "bands-compared",
        "work-refused",
        "work-sits-out",
        "sits-out",
        "comes-back",
        "no-read-waits-for-a-pause",
        "run-within",
        "run-with-faults",
        "answered-early",
        "answered-write-lost",
        "cache-tuned",
        "elevators-set",
        "merged-vector",
        "vector-split",
        "dispatcher-woken",
        "superblock-lost",
        "superblock-astray",
        "superblock-unreadable",
        "sectors-tainted",
        "sectors-healed",
        "sectors-polluted",
        "sectors-rebuilt-wrong",
        "wrong-sectors-served",
        "tainted-found",
        "bitmap-not-kept",
        "disk-comes-back",
    ] {
        assert!(total.of(name) > 0, "{name} never happened");
    }
    assert_eq!(total.of("tainted-found"), total.of("tainted-alone"));
}

#[test]
fn every_legal_state_is_entered_within_a_few_hundred_worlds() {
    let mut total = braid_sim::Tally::default();
    for seed in 5000..6500 {
        total.add(&simulate(&settings(seed)).tally);
        if seed % 50 == 0 && braid_sim::never_entered(&total).is_empty() {
            return;
        }
    }
    panic!("nothing was ever done in {:?}", braid_sim::never_entered(&total));
}

/// In two of five of these worlds superblocks take two sectors, and two of five have spares.
#[test]
fn worlds_with_long_superblocks_and_spares_hold() {
    let mut total = braid_sim::Tally::default();
    (5000..6200).for_each(|seed| total.add(&simulate(&settings(seed)).tally));
    for name in [
        "superblock-torn",
        "superblock-tear-survived",
        "superblocks-0.90",
        "with-spares",
        "spare-told-of-a-loss",
    ] {
        assert!(total.of(name) > 0, "{name} never happened: {:?}", total.counts);
    }
}

#[test]
fn small_worlds_hold_in_every_state() {
    let bounds = Bounds {
        operations_max: 2,
        tellings_max: 1,
        failures_max: 1,
        states_max: 1,
        part: (1, 4),
        ..Bounds::ALL
    };
    let explored = small::explore(&bounds);
    assert!(explored.stories > 600 && explored.failures > 400, "{explored:?}");
    assert!(explored.states_distinct > 4000 && explored.torn > 1000, "{explored:?}");
    assert!(explored.refused > 1000, "{explored:?}");
}

/// Regression: turning clean decreases the event count. A member that failed the write of that
/// superblock kept the higher count. When the array put that member out, the others reached the
/// same count, and the next start was refused.
#[test]
fn member_that_missed_the_step_back_to_clean_does_not_stop_the_array() {
    let _ = simulate(&Settings { cycles: 20, ..settings(18) });
}

/// Regression: a killed process left a superblock in a disk's cache. The array started with that
/// superblock, and a power cut undid the superblock's write. The member was then two events behind,
/// so it was stale, and the next start was refused.
#[test]
fn a_superblock_that_was_only_in_a_cache_is_not_built_upon() {
    for seed in 330..350 {
        let _ = simulate(&Settings { cycles: 20, ..settings(seed) });
    }
}
