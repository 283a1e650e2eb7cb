//! Tests of hosts that own one array in turn.

use super::*;

#[test]
fn one_owner_at_a_time_whatever_fails() {
    let mut total = Tally::default();
    (0..600).for_each(|seed| total.add(&explore(seed)));
    for name in [
        "answers-held-by-lease",
        "bits-cleared",
        "claims-refused",
        "claims-waited-for-drain",
        "dirty-blocks-made-equal",
        "ended-fenced",
        "ended-released",
        "ended-store-went-back",
        "ended-taken-over",
        "gave-way",
        "members-given-up",
        "members-recovered",
        "requests-refused",
        "served-while-an-old-owner-lived",
        "store-noticed-to-be-old",
        "store-restored-noticeably",
        "superblocks-trusted",
    ] {
        assert!(total.of(name) > 0, "{name} never happened: {:?}", total.counts);
    }
    // A history in which no owner meets a later owner shows little.
    let lived = total.of("histories-with-an-old-owner-alive");
    assert!(lived * 2 > total.worlds, "{lived} of {}", total.worlds);
}

#[test]
fn a_history_repeats() {
    for seed in 0..20 {
        assert_eq!(explore(seed), explore(seed), "seed {seed}");
    }
}

#[cfg(braid_sim_hooks)]
#[test]
fn every_mistake_of_ownership_is_noticed() {
    let ours = |bug: &braid_sim_hooks::Bug| bug.text().starts_with("Ownership:");
    crate::mistakes::assert_noticed(ours, 15, tell);
}
