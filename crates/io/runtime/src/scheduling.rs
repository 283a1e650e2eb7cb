//! The scheduling of members: the operator's settings, and the resulting settings of each member.
//!
//! Settings are the array's, with exceptions for single slots. `auto` follows the device's own
//! report: a rotational member gets the deadline elevator, every other member none; the multiplexer
//! is on if a member is rotational. A device without a report counts as not rotational.
//!
//! Not here: carrying the settings to the members ([`crate::elevators`]).

use std::collections::BTreeMap;

use braid_dispatch::{Counters, Depth, Policy, Settings};
use braid_elevator::MultiplexerSettings;
use braid_engine::SitOut;

use crate::members::traffic::TrafficCounts;

const NS_IN_MS: u64 = 1_000_000;

/// Whether a member has an elevator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Elevator {
    /// A rotational member has a deadline elevator, any other member none.
    #[default]
    Auto,
    /// The deadline elevator.
    Deadline,
    /// No elevator.
    None,
}

/// Whether clients' reads and write-back take turns at the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multiplex {
    /// Reads and write-back take turns if a member is rotational and writes are acknowledged early
    /// (a write-back cache before the members).
    #[default]
    Auto,
    /// Reads and write-back take turns at every member that has an elevator.
    On,
    /// Reads and write-back take turns at no member.
    Off,
}

/// The elevator settings that the operator chose. The other settings get the best value for a
/// rotational member, which depends on whether the multiplexer is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElevatorTuning {
    /// Nanoseconds after which a read is served before reads nearer to the head.
    pub read_expiry_ns: Option<u64>,
    /// Nanoseconds after which a write is served before writes nearer to the head.
    pub write_expiry_ns: Option<u64>,
    /// How many batches of reads may go before waiting writes.
    pub writes_starved: Option<u32>,
    /// Maximum dispatches in one direction before the direction is chosen again.
    pub batch: Option<u32>,
    /// Limit of dispatches in flight; a quarter is reserved for reads, a quarter for writes.
    pub depth: Option<u32>,
}

/// How an array's members are scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Whether members have elevators.
    pub elevator: Elevator,
    /// Slots whose elevator setting differs from the array's.
    pub exceptions: BTreeMap<u16, Elevator>,
    /// The operator's settings for elevators.
    pub tuning: ElevatorTuning,
    /// Whether reads and write-back take turns.
    pub multiplex: Multiplex,
    /// The multiplexer's settings. Its field `is_on` is ignored; [`Self::multiplex`] decides.
    pub turns: MultiplexerSettings,
}

impl Scheduling {
    /// The settings of the member in `slot`, rotational or not, with the multiplexer on or off.
    pub(crate) fn settings_of(
        &self,
        slot: Option<u16>,
        turns: bool,
        is_multiplexed: bool,
    ) -> Settings {
        let exception = slot.and_then(|slot| self.exceptions.get(&slot));
        let policy = match exception.unwrap_or(&self.elevator) {
            Elevator::Deadline => Policy::Deadline,
            Elevator::Auto if turns => Policy::Deadline,
            Elevator::Auto | Elevator::None => Policy::None,
        };
        let best = if is_multiplexed { Settings::multiplexed() } else { Settings::default() };
        // Each member holds operations no longer than the multiplexer does over all members.
        let hold_max_ns = self.turns.period_ns.saturating_mul(2);
        let ElevatorTuning { read_expiry_ns, write_expiry_ns, writes_starved, batch, depth } =
            self.tuning;
        let kept = |total| Depth { total, kept_for_reads: total / 4, kept_for_writes: total / 4 };
        Settings {
            policy,
            read_expiry_ns: read_expiry_ns.unwrap_or(best.read_expiry_ns),
            write_expiry_ns: write_expiry_ns.unwrap_or(best.write_expiry_ns),
            writes_starved: writes_starved.unwrap_or(best.writes_starved),
            batch: batch.unwrap_or(best.batch),
            depth: depth.map_or(best.depth, kept),
            depth_alone: depth.map_or(best.depth_alone, kept),
            hold_max_ns,
            ..best
        }
    }

    /// The settings of those `members` (slot, rotational) that get an elevator.
    pub(crate) fn sorting(
        &self,
        members: impl Iterator<Item = (Option<u16>, bool)>,
        is_multiplexed: bool,
    ) -> Vec<Settings> {
        let settings = members.map(|(slot, turns)| self.settings_of(slot, turns, is_multiplexed));
        settings.filter(|settings| settings.policy == Policy::Deadline).collect()
    }

    /// The settings for when members sit out, with the elevators' delays taken into account. An
    /// elevator may hold a write until it expires, and a second longer for the write's turn. It may
    /// hold a read until it expires, or as long as the multiplexer allows.
    pub(crate) fn sit_out(
        &self,
        settings: SitOut,
        sorting: &[Settings],
        is_multiplexed: bool,
    ) -> SitOut {
        let write_ms = sorting.iter().map(|one| one.write_expiry_ns / NS_IN_MS + 1000);
        let turns_ns = if is_multiplexed { self.turns.period_ns.saturating_mul(2) } else { 0 };
        let read_ms = sorting.iter().map(|one| one.read_expiry_ns.max(turns_ns) / NS_IN_MS + 100);
        SitOut {
            write_slack_ms: write_ms.max().unwrap_or(0),
            min_ms: settings.min_ms.max(read_ms.max().unwrap_or(0)),
            ..settings
        }
    }

    /// The settings of the multiplexer; `one_turns` says whether a member is rotational. With
    /// `auto` the multiplexer needs writes that are acknowledged early. If every writer waits for
    /// the members, no flusher shares the members with readers, so reads need not be held.
    pub(crate) fn settings_of_turns(
        &self,
        one_turns: bool,
        answers_early: bool,
    ) -> MultiplexerSettings {
        let is_on = match self.multiplex {
            Multiplex::On => true,
            Multiplex::Auto => one_turns && answers_early,
            Multiplex::Off => false,
        };
        MultiplexerSettings { is_on, ..self.turns }
    }
}

/// One member's elevator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElevatorState {
    /// The slot that the member occupies, if any.
    pub slot: Option<u16>,
    /// Whether the device is rotational, if it reports that.
    pub rotational: Option<bool>,
    /// The elevator's settings.
    pub settings: Settings,
    /// The elevator's counters.
    pub counters: Counters,
    /// The traffic to and from the member.
    pub traffic: TrafficCounts,
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_auto_is_decided_by_what_turns() {
        let policy = |scheduling: &Scheduling, slot, turns| {
            scheduling.settings_of(slot, turns, false).policy
        };
        let auto = Scheduling::default();
        assert_eq!(policy(&auto, Some(0), true), Policy::Deadline);
        assert_eq!(policy(&auto, Some(0), false), Policy::None);
        assert!(auto.settings_of_turns(true, true).is_on);
        assert!(!auto.settings_of_turns(false, true).is_on);
        assert!(!auto.settings_of_turns(true, false).is_on, "every writer waits anyway");
        let exceptions = BTreeMap::from([(1, Elevator::None), (2, Elevator::Auto)]);
        let set = Scheduling { elevator: Elevator::Deadline, exceptions, ..auto };
        assert_eq!(policy(&set, Some(0), false), Policy::Deadline);
        assert_eq!(policy(&set, Some(1), true), Policy::None);
        assert_eq!(policy(&set, Some(2), false), Policy::None);
        assert_eq!(policy(&set, None, false), Policy::Deadline);
        assert_eq!(set.settings_of(None, true, true).depth, Settings::multiplexed().depth);
        let tuning = ElevatorTuning { depth: Some(9), batch: Some(3), ..Default::default() };
        let tuned = Scheduling { tuning, ..Scheduling::default() }.settings_of(None, true, true);
        assert_eq!(tuned.depth, Depth { total: 9, kept_for_reads: 2, kept_for_writes: 2 });
        assert_eq!(
            (tuned.batch, tuned.writes_starved),
            (3, Settings::multiplexed().writes_starved)
        );
        let off = Scheduling { multiplex: Multiplex::Off, ..Scheduling::default() };
        let on = Scheduling { multiplex: Multiplex::On, ..Scheduling::default() };
        assert!(!off.settings_of_turns(true, true).is_on);
        assert!(on.settings_of_turns(false, false).is_on);
        let sit_out = on.sit_out(SitOut::default(), &[Settings::multiplexed()], true);
        assert_eq!((sit_out.min_ms, sit_out.write_slack_ms), (1600, 6000));
        assert_eq!(on.sit_out(SitOut::default(), &[], false), SitOut::default());
    }
}
