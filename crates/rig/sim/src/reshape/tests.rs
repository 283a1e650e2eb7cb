//! Tests of arrays that change their shape: many random lives, and a crash before any effect.

use super::*;

#[test]
fn arrays_that_change_their_shape_keep_what_clients_wrote() {
    let mut total = Tally::default();
    (0..400).for_each(|seed| total.add(&explore(ShapeFamily::Parity, seed)));
    (0..12).for_each(|seed| total.add(&explore_lost(seed)));
    (0..12).for_each(|seed| total.add(&explore_late_names(seed)));
    (0..4).for_each(explore_unreadable);
    for name in [
        "asked-to-finish",
        "begun",
        "begun-into-room-behind",
        "begun-to-shrink",
        "disk-dies",
        "ended-right",
        "held-at-the-border",
        "levelled",
        "lost-sector-healed",
        "lost-sector-read",
        "memory-was-short",
        "member-out",
        "power-cut",
        "process-killed",
        "refused-write-hole",
        "resynced",
        "shapes-levelled",
        "torn-request",
        "turned-round",
        "window-failed",
    ] {
        assert!(total.of(name) > 0, "{name} never happened: {:?}", total.counts);
    }
}

#[test]
fn a_raid0_that_changes_its_shape_keeps_what_clients_wrote() {
    let mut total = Tally::default();
    (0..200).for_each(|seed| total.add(&explore(ShapeFamily::Striped, seed)));
    for name in [
        "asked-to-finish",
        "begun",
        "cut-as-it-begins",
        "ended-right",
        "held-at-the-border",
        "levelled",
        "power-cut",
        "process-killed",
        "shapes-levelled",
        "turned-round",
    ] {
        assert!(total.of(name) > 0, "{name} never happened: {:?}", total.counts);
    }
}

#[test]
fn a_raid10_that_changes_its_shape_keeps_what_clients_wrote() {
    let mut total = Tally::default();
    (0..200).for_each(|seed| total.add(&explore(ShapeFamily::Copied, seed)));
    (0..8).for_each(|seed| total.add(&explore_lost_copies(seed)));
    for name in [
        "asked-to-finish",
        "begun",
        "begun-into-room-behind",
        "begun-to-shrink",
        "begun-with-bitmap",
        "disk-dies",
        "ended-right",
        "held-at-the-border",
        "levelled",
        "lost-sector-healed",
        "lost-sector-read",
        "member-out",
        "power-cut",
        "process-killed",
        "resynced",
        "shapes-levelled",
        "turned-round",
    ] {
        assert!(total.of(name) > 0, "{name} never happened: {:?}", total.counts);
    }
}

/// Tries a share of the crash points; `braid-sim reshape --crashes` tries them all.
#[test]
fn a_reshape_survives_a_crash_before_any_effect() {
    let mut total = explore_crashes(0, (0, 12));
    total.add(&explore_crashes(3, (1, 12)));
    total.add(&explore_crashes(8, (2, 12)));
    total.add(&explore_crashes(11, (3, 12)));
    assert!(total.of("crash-points") > 100, "{:?}", total.counts);
}

#[cfg(braid_sim_hooks)]
#[test]
fn every_mistake_in_a_reshape_is_noticed() {
    let ours = |bug: &braid_sim_hooks::Bug| {
        bug.text().starts_with("Reshape:") || bug.name().starts_with("torn-")
    };
    let chapters = || {
        tell_of_lost();
        tell();
        tell_of_rare();
        tell_of_torn_updates();
    };
    crate::mistakes::assert_noticed(ours, 15, chapters);
}
