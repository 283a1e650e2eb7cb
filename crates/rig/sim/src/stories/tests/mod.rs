//! Stories of one event each, run under many schedules: a request at a chosen moment, a failure of
//! a chosen disk, or an event that is held back.
//!
//! Each story runs in a world like any other ([`script`]), with the same model and checkers. The
//! seed decides the schedule and everything that the story leaves open. `BRAID_STORY_SEEDS`
//! multiplies the number of seeds. A test's name is the property that it guards, and *Regression*
//! describes the bug that broke it.

#![cfg_attr(
    not(test),
    allow(dead_code, unused_imports, reason = "one of them is told where bugs are planted")
)]

mod scene;
mod script;

mod ahead;
mod answered;
mod beyond;
mod bitmap;
mod bitmap_file;
mod cache;
mod failing;
mod flushes;
mod healthy;
mod jobs;
mod journal;
mod limits;
mod lockless;
mod log_change;
mod matrix;
mod named;
mod parity_log;
mod replace;
mod risk;
mod rot;
mod slow;
mod superblocks;
mod unmade;

#[cfg(braid_sim_hooks)]
pub(super) use ahead::tell as tell_of_what_is_read;
#[cfg(braid_sim_hooks)]
pub(super) use answered::tell as tell_of_what_was_answered;
#[cfg(braid_sim_hooks)]
pub(super) use bitmap::tell as tell_of_bitmaps;
#[cfg(braid_sim_hooks)]
pub(super) use bitmap_file::tell as tell_of_bitmap_files;
#[cfg(braid_sim_hooks)]
pub(super) use cache::replaced_while_a_flush_waits;
#[cfg(braid_sim_hooks)]
pub(super) use jobs::failed_by_person;
#[cfg(braid_sim_hooks)]
pub(super) use journal::tell as tell_of_journals;
#[cfg(braid_sim_hooks)]
pub(super) use lockless::tell as tell_of_lockless_bitmaps;
#[cfg(braid_sim_hooks)]
pub(super) use log_change::tell as tell_of_log_changes;
#[cfg(braid_sim_hooks)]
pub(super) use named::tell as tell_of_what_is_named;
#[cfg(braid_sim_hooks)]
pub(super) use parity_log::tell as tell_of_parity_logs;
#[cfg(braid_sim_hooks)]
pub(super) use replace::tell as tell_of_replacements;
#[cfg(braid_sim_hooks)]
pub(super) use rot::rotten_chunks_are_mended;
#[cfg(braid_sim_hooks)]
pub(super) use superblocks::says_that_it_holds_all;
#[cfg(braid_sim_hooks)]
pub(super) use unmade::tell as tell_of_what_cannot_be_made;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `story` with `count` seeds, times `BRAID_STORY_SEEDS`. Prints the seed that fails.
fn for_seeds(count: u64, mut story: impl FnMut(u64)) {
    let times = std::env::var("BRAID_STORY_SEEDS").ok().and_then(|times| times.parse().ok());
    for seed in 0..count * times.unwrap_or(1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| story(seed))) {
            eprintln!("the story of seed {seed}");
            resume_unwind(panic);
        }
    }
}
