//! Stories that chance tells too seldom: one array, one thing that goes wrong just so.
//!
//! Each is a world like any other, with the same model and checkers; only who fails, and when, is
//! said here instead of drawn.

use braid_engine::request::Operation;

use crate::chances::Chances;
use crate::create::smallest;
use crate::cut::Cut;
use crate::trace::Trace;
use crate::world::{Trust, World};

/// Tells all stories, each under many schedules.
///
/// # Panics
/// At the first thing that is wrong.
pub fn tell() {
    for seed in 0..24 {
        for dead in 0..4 {
            for failing in (0..4).filter(|failing| *failing != dead) {
                torn_band(seed, dead, failing);
            }
        }
    }
}

/// A whole row is written while one disk is dead and another fails its writes half way. The row's
/// parity fits nothing then: what the dead disk held may be refused, and never computed from it.
fn torn_band(seed: u64, dead: usize, failing: usize) {
    let mut world =
        World::create(&smallest(), Chances::new(seed, Cut::default()), Trace::new(false));
    world.engine.trust = Trust { errors_allowed: true, pins: false, firmly: false };
    world.engine.plan.errors_allowed = true;
    world.engine.plan.victims.extend([dead, failing]);
    world.issue(Operation::Write { durable: false }, 0, 1);
    world.settle();
    world.disks[failing].ills.writes_fail = true;
    world.disks[dead].ills.gone = true;
    world.issue(Operation::Write { durable: false }, 0, 24);
    world.settle();
    world.read_all();
}
