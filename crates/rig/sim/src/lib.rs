//! The simulator: the shipped engine, superblocks and assembly under virtual time, on disks that
//! fail, crash and tear. One seed drives it, and a model checks it.
//!
//! Where it stands: next to the runtime, on top of engine, elevator, geometry, parity, ondisk and
//! assembly. The simulator replaces everything that talks to the outside: threads, clocks, devices,
//! clients.
//!
//! docs/simulator.md lists the things that the simulator does not do.
//!
//! ```text
//!   seed ─▶ cycle ── work, end, assemble, read ─┐
//!             │                                 │
//!           world ── schedule, fault, workload  │ tally, trace
//!             │  ▲   (each from its own stream: chances; numbered, so any can be left out: cut)
//!             │  ▲                              │
//!           engine (shipped)    disk   model    │
//!                                 checker ◀─────┘
//! ```
//!
//! The struct `World` owns the data of a simulation. The data of each subject is in a file of its
//! own, which does not use the world. The world's actions on that data are in the subject's child
//! `world.rs`. No two files import each other.
//!
//! # Invariants
//! - A seed gives the same run, step for step, each time [check: a_seed_repeats_bit_for_bit].
//! - A checker panics at the first error, and no checker repairs anything
//!   [check: a_disk_that_loses_a_flushed_write_is_noticed].
//! - Hosts that own one array in turn are a world of their own (`hosts/`)
//!   [check: one_owner_at_a_time_whatever_fails].
#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_truncation, reason = "a small world: all its numbers are small")]

mod allowances;
mod background;
mod bad_blocks;
mod bitmaps;
mod cache;
mod cache_file;
mod call;
mod causes;
mod chances;
mod checker;
mod content;
mod coverage;
mod create;
mod cut;
mod cycle;
mod disk;
mod elevators;
mod fault;
mod held_writes;
pub mod histories;
pub mod hosts;
mod joining_disks;
mod journals;
mod lie_overlay;
mod lie_plan;
#[cfg(test)]
mod lie_tests;
mod log_changes;
mod lost_writes;
mod members;
mod memory;
mod metadata;
#[cfg(all(test, braid_sim_hooks))]
mod mistakes;
mod model;
mod moments;
mod open;
mod parity_logs;
mod patience;
mod pauses;
mod random;
mod replays;
mod requests;
pub mod reshape;
mod restart;
mod risks;
mod schedule;
pub mod shrink;
mod slot_disks;
pub mod small;
pub mod stories;
mod taint;
mod tally;
mod trace;
mod wire;
#[cfg(any(test, braid_sim_hooks))]
mod work_tests;
mod workload;
mod world;

use braid_geometry::Level;
use braid_ondisk::Version;

pub use coverage::{CYCLES_FOR_ALL_STATES, legal_states, never_entered, never_visited};
pub use cut::{Cut, Kind, Number};
pub use tally::Tally;

use chances::{Chances, Purpose};
use create::{Design, designs, smallest};
use trace::Trace;
use world::World;

/// The settings of one simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The seed that decides every draw.
    pub seed: u64,
    /// Crash-and-recover cycles, at most.
    pub cycles: u64,
    /// Always the smallest world (4 members of 64 KiB, RAID-5), on which speed is measured.
    pub is_smallest: bool,
    /// Whether to print each event.
    pub is_traced: bool,
    /// Whether hooks in the engine make rare choices by the seed (`--shake`). Needs a build with
    /// hooks.
    pub is_shaken: bool,
    /// The parts that the run leaves out.
    pub cut: Cut,
}

impl Settings {
    /// The command that runs this simulation.
    #[must_use]
    pub fn command(&self) -> String {
        let Self { seed, cycles, is_smallest, is_shaken, cut, .. } = self;
        let shaken = if *is_shaken { " --shake" } else { "" };
        let smallest = if *is_smallest { " --smallest" } else { "" };
        format!("braid-sim --seed {seed} --cycles {cycles}{smallest}{shaken}{cut}")
    }

    /// Takes a command-line argument if it belongs to the settings. `value` returns the next word
    /// of the command line.
    ///
    /// # Errors
    /// The reason why the argument is invalid.
    pub fn argument(
        &mut self,
        word: &str,
        value: &mut dyn FnMut() -> String,
    ) -> Result<bool, String> {
        let number = |text: String| text.parse().map_err(|_| format!("{word} needs a number"));
        match word {
            "--seed" => self.seed = number(value())?,
            "--cycles" => self.cycles = number(value())?,
            "--smallest" => self.is_smallest = true,
            "--shake" => self.is_shaken = true,
            _ => return self.cut.argument(word, value),
        }
        Ok(true)
    }
}

impl std::str::FromStr for Settings {
    type Err = String;

    /// Parses the settings from a command.
    fn from_str(command: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        let mut words = command.split_whitespace().skip(1);
        while let Some(word) = words.next() {
            if !settings.argument(word, &mut || words.next().unwrap_or_default().to_owned())? {
                return Err(format!("unknown word {word}"));
            }
        }
        Ok(settings)
    }
}

/// The levels that worlds draw from. A level with more states stands in the list more often.
const LEVELS: [Level; 24] = {
    use Level::{Linear, Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
    [
        Linear, Raid0, Raid1, Raid1, Raid1, Raid1, Raid1, Raid4, Raid4, Raid4, Raid5, Raid5, Raid5,
        Raid5, Raid6, Raid6, Raid6, Raid6, Raid6, Raid6, Raid10, Raid10, Raid10, Raid10,
    ]
};

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// A hash over every event: equal exactly for equal runs.
    pub trace_hash: u64,
    /// Counts of events and actions.
    pub tally: Tally,
}

/// Simulates one world.
///
/// # Panics
/// At the first error, with a description.
#[must_use]
pub fn simulate(settings: &Settings) -> Report {
    if settings.is_shaken {
        braid_sim_hooks::shake(settings.seed);
    } else {
        braid_sim_hooks::steady();
    }
    let mut world = World::for_settings(settings, Trace::new(settings.is_traced));
    world.run(settings.cycles);
    Report { trace_hash: world.trace.hash(), tally: world.tally }
}

impl World {
    /// The world of these settings, before its first cycle.
    pub(crate) fn for_settings(settings: &Settings, mut trace: Trace) -> Self {
        let chances = Chances::new(settings.seed, settings.cut.clone());
        let mut random = chances.of(Purpose::World, 0);
        let design = if settings.is_smallest {
            smallest()
        } else {
            let rows = *random.pick(&[2, 3, 4, 8, 16]);
            let chunk_sectors = *random.pick(&[8, 8, 8, 16]);
            let version = *random.pick(&[Version::V1_0, Version::V1_1, Version::V1_2]);
            let level = *random.pick(&LEVELS);
            let designs = designs(rows, chunk_sectors, version);
            let mut designs: Vec<Design> =
                designs.into_iter().filter(|design| design.level == level).collect();
            // In a third of the worlds parity is on fixed slots, so that a dirty array can start
            // without the members on these slots.
            if random.chance(33) && designs.iter().any(Design::keeps_parity_still) {
                designs.retain(Design::keeps_parity_still);
            }
            let design = *random.pick(&designs);
            let lies = lie_plan::is_lying_world(chances.of(Purpose::Lies, 1));
            if lies {
                design
            } else {
                let design = design.with_extras(&mut chances.of(Purpose::World, 2));
                let design = design.with_journal(&mut chances.of(Purpose::Journals, 0));
                let design = design.with_bad_blocks(&mut chances.of(Purpose::BadBlocks, 0));
                let design = design.with_parity_log(&mut chances.of(Purpose::ParityLogs, 0));
                let design = design.with_bitmap(&mut chances.of(Purpose::Bitmaps, 0));
                design.with_lockless(&mut chances.of(Purpose::Bitmaps, 3))
            }
        };
        trace.note(
            0,
            "world",
            [
                u64::from(design.level.md_number().unsigned_abs()),
                u64::from(design.layout),
                u64::from(design.slots),
            ],
        );
        World::create(&design, chances, trace)
    }
}
