//! The engine in a world where everything can happen in any order, and much goes wrong.
//!
//! A deterministic world: one seed decides what clients ask, in which order effects are carried
//! out, and what fails. `BRAID_WORLD_SEEDS` multiplies the number of seeds; a failure names its
//! seed. Invariants are checked in `checks`; the stories are in the modules below it.
#![allow(clippy::cast_possible_truncation, reason = "a small world: all its numbers are small")]

mod checks;
mod clients;
mod device;
mod image;
mod mishap;
mod model;
mod scene;
mod world;

mod beyond;
mod cache;
mod crash;
mod failing;
mod flushes;
mod healthy;
mod limits;
mod slow;
mod superblocks;

use braid_testbed::{memory, random};

/// Bytes in a sector.
const SECTOR: usize = 512;

/// Runs `story` for `count` seeds, times `BRAID_WORLD_SEEDS`.
fn for_seeds(count: u64, mut story: impl FnMut(u64)) {
    let times = std::env::var("BRAID_WORLD_SEEDS").ok().and_then(|times| times.parse().ok());
    (0..count * times.unwrap_or(1)).for_each(&mut story);
}
