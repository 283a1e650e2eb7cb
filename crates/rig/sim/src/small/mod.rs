//! Small worlds, exhaustively: every crash point, every subset of the writes in flight, every loss.
//!
//! ```text
//!   for each array of two chunk rows; for each word of up to three operations        (a story)
//!    for each schedule and pace; for no failure, and for each way a member can fail  (a telling)
//!     for each step from the first request to "clean" again                          (crash point)
//!      for each set of members that the level can miss at restart
//!       for each subset of {unflushed writes, writes and superblocks in flight} on the others,
//!       whole or with one of them torn, and those after the end of the process alone (a state)
//!         assemble, check, start, read all, check
//! ```
//!
//! Trying a state does not disturb the live world: its writes in doubt are copied to another
//! world's disks. A crash point or state that an earlier story of the same array had is counted and
//! not tried again. Two states are the same if the present disks' bytes, the model, and the
//! simulator's knowledge of the disks are. A bounded run leaves items out by number, never by time:
//! see [`Bounds`].
//!
//! # Invariants
//! - A wrong model is noticed [check: a_model_that_forgets_that_caches_are_volatile_is_noticed].
//! - Parity that does not fit is noticed [check: wrong_parity_is_noticed].
//! - Parts and slices together are the whole [check: slices_together_are_the_whole].

mod doubt;
mod story;
mod subset;
mod tell;
mod trial;
mod visited_set;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::create::Design;
use crate::random::fold;
use crate::world::World;

use doubt::{Doubt, pulse};
use story::{Act, StoryStep, Telling, designs, failures, number_of, spell, tellings, words};
use subset::{Remains, Subsets, spread};
use tell::{Stage, new_world, tell};
use trial::{Outcome, State, Trial};
use visited_set::VisitedSet;

/// The part of the whole to explore. Each limit chooses items that are evenly spread, and `from`
/// moves all choices. Enough values of `from` together explore everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most operations of a story.
    pub operations_max: u64,
    /// Most tellings of a story: runs with different schedules, caches and paces.
    pub tellings_max: u64,
    /// Most failures of a member that are tried with each telling.
    pub failures_max: u64,
    /// Most states (what a power cut can leave) that are tried at each crash point.
    pub states_max: u64,
    /// Moves the items that the limits choose.
    pub from: u64,
    /// `(i, n)`: explores the i-th of n shares of the stories.
    pub part: (u64, u64),
}

impl Bounds {
    /// No limits.
    pub const ALL: Self = Self {
        operations_max: 3,
        tellings_max: u64::MAX,
        failures_max: u64::MAX,
        states_max: u64::MAX,
        from: 0,
        part: (0, 1),
    };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::ALL
    }
}

/// How much an exploration of small worlds tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplorationCounts {
    /// Stories: an array and the operations on it.
    pub stories: u64,
    /// Tellings: runs of a story with one schedule, cache, pace, and perhaps a failing member.
    pub tellings: u64,
    /// Tellings (runs of a story) in which a member fails.
    pub failures: u64,
    /// Crash points: steps before which power was cut.
    pub crash_points: u64,
    /// Crash points that differ from all others of the same array.
    pub crash_points_distinct: u64,
    /// Distinct crash points, counted for each loss of members, with too many writes to try all
    /// subsets.
    pub cut_down: u64,
    /// States. Each is one crash point with one set of lost members, and with one choice of the
    /// writes that the power cut kept.
    pub states: u64,
    /// States that differ from all other states of the same array. Each was assembled and checked.
    pub states_distinct: u64,
    /// Distinct states with a torn write.
    pub torn: u64,
    /// Distinct states in which only the process ended, and disks kept power.
    pub killed: u64,
    /// Distinct states that assembly refused, as it must.
    pub refused: u64,
}

/// Explores small worlds within these bounds.
///
/// # Panics
/// At the first wrong state, with its name.
#[must_use]
pub fn explore(bounds: &Bounds) -> ExplorationCounts {
    // Each run of a story must take the same path, so rare choices of the engine are switched off.
    braid_sim_hooks::steady();
    let mut explored = ExplorationCounts::default();
    let words = words(bounds.operations_max);
    for (index, design) in designs().iter().enumerate() {
        let mut explorer = Explorer::new(Stage::new(design), design, *bounds);
        for word in &words {
            let number = number_of(index, word);
            if number % bounds.part.1 == bounds.part.0 {
                explorer.explore_story(word, number);
            }
        }
        explored.add(&explorer.explored);
    }
    explored
}

impl ExplorationCounts {
    fn add(&mut self, other: &Self) {
        self.stories += other.stories;
        self.tellings += other.tellings;
        self.failures += other.failures;
        self.crash_points += other.crash_points;
        self.crash_points_distinct += other.crash_points_distinct;
        self.cut_down += other.cut_down;
        self.states += other.states;
        self.states_distinct += other.states_distinct;
        self.torn += other.torn;
        self.killed += other.killed;
        self.refused += other.refused;
    }
}

struct Explorer {
    design: Design,
    bounds: Bounds,
    stage: Stage,
    live: Option<World>,
    points: Points,
    explored: ExplorationCounts,
}

struct Points {
    bounds: Bounds,
    doubt: Doubt,
    trial: Trial,
    seen: VisitedSet,
    seen_states: VisitedSet,
    pulse: u64,
    chosen: Vec<usize>,
    /// The case tried last: the presented disks, and the writes that survived.
    last: Option<(Vec<usize>, Remains)>,
}

/// A loss of members: the presented disks, and the writes in doubt on them.
struct Loss {
    presented: Vec<usize>,
    items: Vec<usize>,
    subsets: Subsets,
}

impl Explorer {
    fn new(stage: Stage, design: &Design, bounds: Bounds) -> Self {
        let live = new_world(design);
        let points = Points {
            bounds,
            doubt: Doubt::new(&stage.disks, live.model.clone()),
            trial: Trial::new(design),
            seen: VisitedSet::new(),
            seen_states: VisitedSet::new(),
            pulse: 0,
            chosen: Vec::new(),
            last: None,
        };
        let (design, explored) = (*design, ExplorationCounts::default());
        Self { design, bounds, stage, live: Some(live), points, explored }
    }

    fn explore_story(&mut self, word: &[StoryStep], number: u64) {
        self.explored.stories += 1;
        let level = self.design.level;
        let tellings = tellings(level, word);
        let Bounds { from, tellings_max, failures_max, .. } = self.bounds;
        for telling in spread(tellings, tellings_max, from.wrapping_add(number >> 8)) {
            let telling = Telling::nth(level, telling);
            let acts = self.explore_telling(word, number, telling);
            if !self.stage.tolerates || failures_max == 0 {
                continue;
            }
            let failures = failures(&acts);
            let offset = from.wrapping_add(number >> 16);
            for failure in spread(failures.len() as u64, failures_max, offset) {
                let failure = Some(failures[failure as usize]);
                self.explored.failures += 1;
                self.explore_telling(word, number, Telling { failure, ..telling });
            }
        }
    }

    fn explore_telling(&mut self, word: &[StoryStep], number: u64, telling: Telling) -> Vec<Act> {
        self.explored.tellings += 1;
        let Self { stage, live, points, explored, design, .. } = self;
        let world = live.as_mut().expect("it is always there");
        points.begin(stage);
        let told = catch_unwind(AssertUnwindSafe(|| {
            tell((stage, world), (word, number), &telling, &mut |world, is_early| {
                if is_early {
                    points.doubt.notice(world);
                } else {
                    points.cut_power(world, stage, number, explored);
                }
            })
        }));
        told.unwrap_or_else(|cause| {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("?");
            let word = spell(word);
            let steps = world.clock.step;
            let state = points.describe();
            panic!("{design:?}, {word:?}, {telling:?}, before step {steps}, {state}: {text}")
        })
    }
}

impl Points {
    fn begin(&mut self, stage: &Stage) {
        self.doubt.begin(&stage.superblocks);
        self.trial.begin(stage);
        self.pulse = 0;
    }

    fn cut_power(
        &mut self,
        world: &mut World,
        stage: &Stage,
        number: u64,
        explored: &mut ExplorationCounts,
    ) {
        explored.crash_points += 1;
        let pulse = pulse(world);
        if std::mem::replace(&mut self.pulse, pulse) == pulse {
            return;
        }
        self.doubt.gather(world);
        let hash = self.doubt.hash();
        if !self.seen.insert(hash) {
            return;
        }
        explored.crash_points_distinct += 1;
        let losses = self.losses(stage);
        explored.cut_down += losses.iter().filter(|loss| loss.subsets.is_cut_down()).count() as u64;
        let total = losses.iter().map(|loss| loss.subsets.total()).sum();
        let offset = self.bounds.from.wrapping_add(fold(hash, number));
        let (mut loss, mut before) = (0, 0);
        for state in spread(total, self.bounds.states_max, offset) {
            while state - before >= losses[loss].subsets.total() {
                before += losses[loss].subsets.total();
                loss += 1;
            }
            let remains = losses[loss].subsets.nth(state - before);
            self.try_state(&losses[loss], remains, explored);
        }
    }

    /// Describes the case tried last, for messages.
    fn describe(&self) -> String {
        let Some((presented, remains)) = &self.last else { return "no state".to_owned() };
        let Doubt { items, cells, values, out, unsure, .. } = &self.doubt;
        let mut text = format!("disks {presented:?}, out {out:?}, unsure {unsure:?}, kept");
        let here = items.iter().filter(|item| presented.contains(&item.disk));
        for (position, item) in here.enumerate() {
            let start = cells[values[item.values.start].cell].sector;
            let (disk, sectors) = (item.disk, item.values.len());
            let sign = if remains.writes >> position & 1 == 1 { '+' } else { '-' };
            text += &format!(" {sign}{disk}:{start}+{sectors}");
        }
        if let Some((position, sectors)) = remains.torn {
            text += &format!(", of write {position} only sectors {sectors:b} (lowest first)");
        }
        if remains.is_kill {
            text += ", only the process ended";
        }
        text
    }

    /// Every loss that leaves at least one disk that is neither out nor unsure.
    fn losses(&self, stage: &Stage) -> Vec<Loss> {
        let Doubt { out, unsure, items, unflushed: on_disks, .. } = &self.doubt;
        let loss = |lost: &BTreeSet<usize>| {
            let presented: Vec<usize> =
                (0..stage.disks.len()).filter(|disk| !lost.contains(disk)).collect();
            let is_sure = |disk: &usize| !out.contains(disk) && !unsure.contains(disk);
            presented.iter().any(is_sure).then(|| {
                let here = |index: &usize| presented.contains(&items[*index].disk);
                let items_here: Vec<usize> = (0..items.len()).filter(here).collect();
                let length = |index: &usize| items[*index].values.len() as u64;
                let unflushed = items_here.iter().filter(|item| **item < *on_disks).count();
                let lengths = items_here.iter().map(length).collect();
                let subsets = Subsets::new(lengths, unflushed);
                Loss { presented, items: items_here, subsets }
            })
        };
        stage.losses.iter().filter_map(loss).collect()
    }

    fn try_state(&mut self, loss: &Loss, remains: Remains, explored: &mut ExplorationCounts) {
        explored.states += 1;
        let hash = self.choose(loss, remains);
        if !self.seen_states.insert(hash) {
            return;
        }
        explored.states_distinct += 1;
        explored.torn += u64::from(remains.torn.is_some());
        explored.killed += u64::from(remains.is_kill);
        self.last = Some((loss.presented.clone(), remains));
        let is_kill = remains.is_kill;
        let state = State { chosen: &self.chosen, presented: &loss.presented, hash, is_kill };
        let outcome = self.trial.check(&self.doubt, &state);
        explored.refused += u64::from(outcome == Outcome::Refused);
    }

    /// Chooses the value of every cell for a state. Returns the hash of the disks and of the
    /// simulator's knowledge of them.
    fn choose(&mut self, loss: &Loss, remains: Remains) -> u64 {
        let Doubt { cells, values, items, .. } = &self.doubt;
        let knowledge =
            if remains.is_kill { self.doubt.knowledge_killed } else { self.doubt.knowledge };
        self.chosen.clear();
        self.chosen.extend(0..cells.len());
        for (position, item) in loss.items.iter().enumerate() {
            if remains.writes >> position & 1 == 0 {
                continue;
            }
            let torn = remains.torn.filter(|torn| torn.0 == position);
            for (sector, value) in items[*item].values.clone().enumerate() {
                if torn.is_none_or(|(_, sectors)| sectors >> sector & 1 == 1) {
                    self.chosen[values[value].cell] = value;
                }
            }
        }
        let there = loss.presented.iter().fold(0_u64, |mask, disk| mask | 1 << disk);
        let mut hash = 0;
        for (cell, value) in cells.iter().zip(&self.chosen) {
            if there >> cell.disk & 1 == 1 {
                hash ^= values[*value].hash;
            }
        }
        fold(fold(knowledge, there), hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::SECTOR;
    use crate::create::METADATA_SECTORS;
    use braid_geometry::Level;

    fn explorer(level: Level, change: fn(&mut Stage)) -> Explorer {
        let designs = designs();
        let design = designs.iter().find(|design| design.level == level).expect("all levels");
        let mut stage = Stage::new(design);
        change(&mut stage);
        Explorer::new(stage, design, Bounds { tellings_max: 1, failures_max: 0, ..Bounds::ALL })
    }

    fn explore_words(explorer: &mut Explorer, operations: u64) {
        words(operations).iter().for_each(|word| explorer.explore_story(word, 0));
    }

    #[test]
    #[should_panic(expected = "reads as version 1, not one of")]
    fn a_model_that_forgets_that_caches_are_volatile_is_noticed() {
        let mut explorer = explorer(Level::Raid5, |_| {});
        explorer.points.doubt.distort = |model| model.flushed(u64::MAX, u64::MAX);
        explore_words(&mut explorer, 1);
    }

    #[test]
    #[should_panic(expected = "the array is clean and parity of")]
    fn wrong_parity_is_noticed() {
        let mut explorer = explorer(Level::Raid4, |stage| {
            stage.disks[2].seen[METADATA_SECTORS as usize * SECTOR] ^= 1;
        });
        explore_words(&mut explorer, 1);
    }

    /// Trials must leave the live world untouched, so the same story once more has no new crash
    /// point or state.
    #[test]
    fn a_story_told_twice_has_the_same_states() {
        let mut explorer = explorer(Level::Raid1, |_| {});
        explore_words(&mut explorer, 1);
        let once = explorer.explored;
        assert!(once.states_distinct > 1000 && once.torn > 100, "{once:?}");
        explore_words(&mut explorer, 1);
        let twice = explorer.explored;
        assert_eq!(twice.crash_points, 2 * once.crash_points);
        assert_eq!(twice.crash_points_distinct, once.crash_points_distinct);
        assert_eq!(twice.states_distinct, once.states_distinct);
    }

    #[test]
    fn a_write_hole_is_refused_and_nothing_else_where_nobody_fails() {
        let mut stripe = explorer(Level::Raid4, |_| {});
        let mut mirror = explorer(Level::Raid1, |_| {});
        explore_words(&mut stripe, 1);
        explore_words(&mut mirror, 1);
        assert!(stripe.explored.refused > 0 && mirror.explored.refused == 0);
    }
}
