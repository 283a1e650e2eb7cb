//! Reduces a failing seed to few cycles, requests and faults that still fail.
//!
//! ```text
//!   settings that fail ─▶ fewer cycles ─▶ leave out halves, quarters, ... singles ─▶ simpler world
//!                           ▲                                                           │
//!                           └─────────── again, while anything got smaller ◀────────────┘
//! ```
//!
//! The method is delta debugging over numbered items ([`crate::cut`]). If an item is left out, all
//! later items move in the schedule. So an attempt that does not fail is retried with other
//! schedules before the item is put back. Two failures are the same if their messages have the same
//! [`shape`]: the first error can hit another sector, but must be of the same kind.
//!
//! The shrinker has no clock: its caller decides when to stop.
//!
//! # Invariants
//! - The returned run fails, and the printed command repeats it
//!   [check: a_dropped_flush_shrinks_to_a_handful_and_the_command_repeats_it].
//! - Shrinking ends: every accepted attempt is smaller, and the number of attempts is limited.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Settings;
use crate::cut::{Kind, Number};
use crate::trace::{Trace, Witness};
use crate::world::World;

/// How many schedules to try when a single item is left out.
const SCHEDULES: u64 = 16;

/// A reduced failing run.
#[derive(Clone, Debug)]
pub struct ReducedRun {
    /// The settings of the smallest failing run that was found.
    pub settings: Settings,
    /// The message with which the run's checker panics.
    pub message: String,
    /// Cycles of the run in which something happens.
    pub cycles: usize,
    /// Requests in the run, except those that read everything after a start.
    pub requests: usize,
    /// Faults in the run.
    pub faults: usize,
    /// How many runs the search took.
    pub runs: u64,
}

/// A panic's message without digits and brackets. Failures of one kind have one shape.
#[must_use]
pub fn shape(message: &str) -> String {
    let mut masked = String::new();
    let mut depth = 0_usize;
    for character in message.chars() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            _ if character.is_ascii_digit() => {
                if !masked.ends_with('#') {
                    masked.push('#');
                }
            }
            _ => masked.push(character),
        }
    }
    let mut parts: Vec<&str> = masked.split(", ").map(str::trim).collect();
    parts.dedup();
    parts.join(", ")
}

/// The smallest run that fails in the same way as `settings`; `None` if `settings` do not fail.
/// Calls `goes_on` before every run, and stops when it returns false.
pub fn shrink(settings: &Settings, goes_on: &mut dyn FnMut() -> bool) -> Option<ReducedRun> {
    shrink_prepared(settings, |_| {}, goes_on)
}

/// Shrinks a failing run as `shrink` does. `prepare` changes each world before it runs.
fn shrink_prepared(
    settings: &Settings,
    prepare: fn(&mut World),
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<ReducedRun> {
    let settings = Settings { is_traced: false, ..settings.clone() };
    let (message, came) = run(&settings, prepare)?;
    let shape = shape(&message);
    let mut shrinker = Shrinker {
        best: settings,
        message,
        came,
        shape,
        prepare,
        goes_on,
        runs: 1,
        is_over: false,
    };
    shrinker.all();
    let count = |kind| shrinker.of(Some(kind)).len();
    let (requests, faults) = (count(Kind::Request), count(Kind::Fault));
    Some(ReducedRun {
        cycles: shrinker.of(None).len(),
        requests,
        faults,
        settings: shrinker.best,
        message: shrinker.message,
        runs: shrinker.runs,
    })
}

/// Runs a simulation. If it fails, returns its checker's message and the numbers of its items.
fn run(settings: &Settings, prepare: fn(&mut World)) -> Option<(String, BTreeSet<Number>)> {
    let witness = Witness::default();
    let trace = Trace::new(false).seen_by(&witness);
    let work = || {
        let mut world = World::for_settings(settings, trace);
        prepare(&mut world);
        world.run(settings.cycles);
    };
    let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Some((text.unwrap_or_else(|| "a panic without words".to_owned()), witness.take()))
}

struct Shrinker<'a> {
    best: Settings,
    message: String,
    /// Numbers of the cycles, requests and faults of the best run.
    came: BTreeSet<Number>,
    shape: String,
    prepare: fn(&mut World),
    goes_on: &'a mut dyn FnMut() -> bool,
    runs: u64,
    is_over: bool,
}

impl Shrinker<'_> {
    fn all(&mut self) {
        loop {
            let before = (self.best.clone(), self.came.len());
            self.end_sooner();
            self.leave_out(None);
            self.leave_out(Some(Kind::Fault));
            self.leave_out(Some(Kind::Request));
            self.simpler();
            if self.is_over || (self.best.clone(), self.came.len()) == before {
                break;
            }
        }
        // The settings name the items that stay, because that list is mostly shorter.
        let mut settings = self.best.clone();
        settings.cut.only = Some(self.came.clone());
        settings.cut.without.clear();
        self.is_over = false;
        self.attempt(settings);
    }

    /// Whether a run with these settings fails in the same way. If so, it is the new best run.
    fn attempt(&mut self, settings: Settings) -> bool {
        self.is_over = self.is_over || !(self.goes_on)();
        if self.is_over {
            return false;
        }
        self.runs += 1;
        let Some((message, came)) = run(&settings, self.prepare) else { return false };
        if shape(&message) != self.shape {
            return false;
        }
        (self.best, self.message, self.came) = (settings, message, came);
        true
    }

    /// Numbers of one kind in the best run; `None` for cycles.
    fn of(&self, kind: Option<Kind>) -> Vec<Number> {
        let is_of = |number: &&Number| number.item.map(|(kind, _)| kind) == kind;
        self.came.iter().filter(is_of).copied().collect()
    }

    /// Leaves out the cycles after the cycle that fails.
    fn end_sooner(&mut self) {
        let Some(last) = self.came.iter().map(|number| number.cycle).max() else { return };
        if last + 1 < self.best.cycles {
            self.attempt(Settings { cycles: last + 1, ..self.best.clone() });
        }
    }

    /// Leaves out as many items of a kind as possible: halves first, single items last and with
    /// other schedules.
    fn leave_out(&mut self, kind: Option<Kind>) {
        let mut size = self.of(kind).len().div_ceil(2);
        while size > 0 && !self.is_over {
            for chunk in self.of(kind).chunks(size) {
                let here = chunk.iter().filter(|number| self.came.contains(number));
                let here: BTreeSet<Number> = here.copied().collect();
                if here.is_empty() {
                    continue;
                }
                let mut settings = self.best.clone();
                settings.cut.without.extend(here);
                let schedules = if size == 1 { SCHEDULES } else { 1 };
                let first = settings.cut.schedule;
                for schedule in first..first + schedules {
                    settings.cut.schedule = schedule;
                    if self.attempt(settings.clone()) {
                        break;
                    }
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }

    /// Tries a simpler world: one shard, one stripe, write-through, straight elevators, short
    /// requests, a plain schedule.
    fn simpler(&mut self) {
        let cut = &self.best.cut;
        if !cut.one_shard {
            let mut settings = self.best.clone();
            settings.cut.one_shard = true;
            self.attempt(settings);
        }
        if !self.best.cut.one_stripe {
            let mut settings = self.best.clone();
            settings.cut.one_stripe = true;
            self.attempt(settings);
        }
        if !self.best.cut.write_through {
            let mut settings = self.best.clone();
            settings.cut.write_through = true;
            self.attempt(settings);
        }
        if !self.best.cut.straight {
            let mut settings = self.best.clone();
            settings.cut.straight = true;
            self.attempt(settings);
        }
        for sectors in [1, 2, 4, 8, 16, 32] {
            if self.best.cut.sectors_max.is_none_or(|max| sectors < max) {
                let mut settings = self.best.clone();
                settings.cut.sectors_max = Some(sectors);
                if self.attempt(settings) {
                    break;
                }
            }
        }
        for plain in (1..=self.best.cycles).rev() {
            if plain > self.best.cut.plain_cycles {
                let mut settings = self.best.clone();
                settings.cut.plain_cycles = plain;
                if self.attempt(settings) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plants the bug: disks with unreadable sectors acknowledge flushes and do nothing.
    fn drop_flushes(world: &mut World) {
        world.disks.iter_mut().for_each(|disk| disk.drops_flushes = true);
    }

    #[test]
    fn messages_of_one_kind_have_one_shape() {
        let one = "sector 7 reads as version 12, not one of [1, 3]";
        let other = "sector 123 reads as version 1, not one of [55]";
        assert_eq!(shape(one), shape(other));
        assert_eq!(shape("members differ: disk1, disk2, disk4"), "members differ: disk#, disk#");
        assert_ne!(shape(one), shape("sector 7 reads as nothing that was ever written there"));
        let request = "Request { id: RequestId(3), start: 8 } failed within tolerance";
        assert_eq!(shape(request), "Request  failed within tolerance");
    }

    #[test]
    fn what_does_not_fail_is_not_shrunk() {
        let settings = Settings { seed: 1, cycles: 4, ..Settings::default() };
        assert!(shrink(&settings, &mut || true).is_none());
    }

    #[test]
    fn a_dropped_flush_shrinks_to_a_handful_and_the_command_repeats_it() {
        let mut shrunk_count = 0;
        // Seeds from 30 on, because seed 29 needs three cycles: a start must lie between its fault
        // and its request.
        for seed in 30..130 {
            if shrunk_count == 3 {
                break;
            }
            let settings = Settings { seed, cycles: 12, ..Settings::default() };
            let Some((_, all)) = run(&settings, drop_flushes) else { continue };
            let mut runs_left = 600;
            let mut goes_on = || {
                runs_left -= 1;
                runs_left > 0
            };
            let shrunk = shrink_prepared(&settings, drop_flushes, &mut goes_on);
            let shrunk = shrunk.expect("it failed a moment ago");
            let left = shrunk.requests + shrunk.faults;
            assert!(left <= 10 && shrunk.cycles <= 2, "{} became {shrunk:?}", all.len());
            assert!(shrunk.requests > 0 && shrunk.faults > 0, "both are needed: {shrunk:?}");
            let again: Settings = shrunk.settings.command().parse().expect("it is a command");
            let (message, _) = run(&again, drop_flushes).expect("the command repeats it");
            assert_eq!(message, shrunk.message);
            shrunk_count += 1;
        }
        assert!(shrunk_count == 3, "{shrunk_count} seeds failed");
    }
}
