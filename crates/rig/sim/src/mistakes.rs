//! For tests: whether each planted bug of a subject is noticed.

use std::panic::{RefUnwindSafe, catch_unwind};

use braid_sim_hooks::{Bug, plant};

/// Plants the bugs of a subject, one after the other; `tell` must fail with each.
///
/// # Panics
/// A bug stays unnoticed, or the subject has fewer bugs than `least`.
pub(crate) fn assert_noticed(
    ours: impl Fn(&Bug) -> bool,
    least: usize,
    tell: impl Fn() + RefUnwindSafe,
) {
    let bugs: Vec<Bug> = Bug::ALL.iter().filter(|bug| ours(bug)).copied().collect();
    assert!(bugs.len() >= least, "{bugs:?}");
    let notices = |bug: &Bug| {
        plant(Some(*bug));
        let noticed = catch_unwind(&tell).is_err();
        plant(None);
        noticed
    };
    let free: Vec<&str> = bugs.iter().filter(|bug| !notices(bug)).map(|bug| bug.name()).collect();
    assert!(free.is_empty(), "not noticed: {free:?}");
}
