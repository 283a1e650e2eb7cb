//! Hosts: several hosts want to own one array, whose members have servers of their own.
//!
//! Where it stands: a small world of its own. It drives the shipped machines of `braid-ownership`;
//! servers, store, network and array are models. [`explore`] runs one history.
//!
//! Bytes, parity, superblocks of md and the engine are not here.
//!
//! ```text
//!   seed ─▶ plan ─▶ world ─┬─▶ hosts ── TakeOver, Tenure, ReadLease ─▶ owner ─▶ lanes, links
//!                          ├─▶ servers ── Fence, device
//!                          └─▶ store                      checker ◀── answers
//! ```
//!
//! # Invariants
//! - No acknowledged write is lost, no read is older than an acknowledged write, and no owner
//!   answers after a later one has begun to serve
//!   [check: one_owner_at_a_time_whatever_fails].

mod checker;
mod context;
mod host;
mod lanes;
mod layout;
mod links;
mod message;
mod owner;
mod plan;
mod scenes;
mod server;
mod store;
#[cfg(test)]
mod tests;
mod world;

use crate::random::{Random, mix};
use crate::tally::Tally;
use plan::Plan;
use world::World;

/// How many histories `tell` runs.
const TOLD: u64 = 4000;

fn drawn(seed: u64) -> (Plan, Random) {
    let mut random = Random::new(mix(seed ^ 0x6057));
    let is_scene = random.chance(40);
    let plan = if is_scene { scenes::any(&mut random) } else { Plan::any(&mut random) };
    (plan, random)
}

/// The plan of a seed, in words.
#[must_use]
pub fn describe(seed: u64) -> String {
    format!("{:?}", drawn(seed).0)
}

/// Runs one history.
///
/// # Panics
/// At the first error, with a description.
#[must_use]
pub fn explore(seed: u64) -> Tally {
    let (plan, random) = drawn(seed);
    let mut world = World::new(plan, random);
    world.run();
    world.tally
}

/// Runs histories that notice the planted bugs of ownership.
///
/// # Panics
/// At the first error.
pub fn tell() {
    (0..TOLD).for_each(|seed| _ = explore(seed));
}
