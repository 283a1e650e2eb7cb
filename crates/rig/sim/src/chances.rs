//! The random streams of one world: each purpose draws from its own stream, derived from the seed.
//!
//! ```text
//!   seed ─┬─ purpose, cycle ───────────▶ schedule, disks, openings   (restarted in every cycle)
//!         └─ purpose, cycle, ordinal ──▶ one request, one disk's faults, one power cut
//! ```
//!
//! Each numbered item (its number is its *ordinal*) draws from a stream of its own. So a run can
//! leave any item out ([`Cut`]), and every other item draws the same as before
//! [check: what_is_left_out_disturbs_no_other_draw].

use crate::content::SECTOR;
use crate::cut::{Cut, Kind, Number};
use crate::random::{Random, mix};
use crate::schedule::{FixedOrder, Order};

/// The purpose of a draw. Some purposes number their draws; the number is the draw's ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The design of the array, and its first start.
    World = 1,
    /// Ordinal 0: the shape of a run's requests; from 1 on: the requests.
    Workload,
    /// Ordinal 0: which disks fail in a run; from 1 on: how each disk fails.
    Faults,
    /// The order of events.
    Schedule,
    /// How disks treat writes that fail, or that are under way when power is cut.
    Disks,
    /// By disk: which unflushed writes survive a power cut.
    PowerCuts,
    Ends,
    /// Which disks are presented, and how the array is started again.
    Openings,
    /// By request: on which connection a client sends it, and in which fragments.
    Wires,
    /// Which disks lie (acknowledge what they did not do, or return wrong bytes), when and about
    /// what.
    Lies,
    /// Ordinals 0 and 1: which members have bad-block logs, and the logs' content; from 2 on:
    /// changes of the logs.
    BadBlocks,
    /// When the stripe cache gets new settings, and which.
    Cache,
    /// When elevators and multiplexer get new settings, and which.
    Elevators,
    /// Which members may sit out, and which disk pauses.
    Pauses,
    /// Which bands are compared in the background.
    Background,
    /// Which new disks join while the array runs.
    Joins,
    Allowances,
    /// Ordinal 0: which arrays have bitmaps; from 1 on: their changes.
    Bitmaps,
    /// Ordinal 0: whether members have parity logs.
    ParityLogs,
    /// Ordinal 0: whether the array has a write journal.
    Journals,
}

/// The random streams of the current cycle, and what the run leaves out.
#[derive(Clone, Debug)]
pub(crate) struct Chances {
    seed: u64,
    cycle: u64,
    pub(crate) cut: Cut,
    pub(crate) schedule: Random,
    pub(crate) disks: Random,
    pub(crate) openings: Random,
}

impl Chances {
    pub(crate) fn new(seed: u64, cut: Cut) -> Self {
        let of = |purpose| derive(seed, purpose, 0, 0);
        let (schedule, disks, openings) =
            (of(Purpose::Schedule), of(Purpose::Disks), of(Purpose::Openings));
        Self { seed, cycle: 0, cut, schedule, disks, openings }
    }

    /// Begins the cycle with this number; false if the run leaves the cycle out.
    pub(crate) fn begin(&mut self, cycle: u64) -> bool {
        self.cycle = cycle;
        self.schedule = self.of(Purpose::Schedule, self.cut.schedule);
        self.disks = self.of(Purpose::Disks, 0);
        self.openings = self.of(Purpose::Openings, 0);
        !self.cut.leaves_out(Number { cycle, item: None })
    }

    /// A stream for one purpose and ordinal in the current cycle.
    pub(crate) fn of(&self, purpose: Purpose, ordinal: u64) -> Random {
        derive(self.seed, purpose, self.cycle, ordinal)
    }

    pub(crate) fn number(&self, kind: Kind, ordinal: u64) -> Number {
        Number { cycle: self.cycle, item: Some((kind, ordinal)) }
    }

    /// The order in which events of this cycle happen: `order`, or the plain order in the first
    /// `plain_cycles` cycles.
    pub(crate) fn order(&self, order: Order) -> Order {
        if self.cycle < self.cut.plain_cycles { Order::Fixed(FixedOrder::PLAIN) } else { order }
    }

    /// The length of a request, capped by the cut.
    pub(crate) fn length(&self, bytes: u64) -> u64 {
        self.cut.sectors_max.map_or(bytes, |max| bytes.min(max * SECTOR as u64))
    }

    pub(crate) fn leaves_out(&self, kind: Kind, ordinal: u64) -> bool {
        self.cut.leaves_out(self.number(kind, ordinal))
    }
}

fn derive(seed: u64, purpose: Purpose, cycle: u64, ordinal: u64) -> Random {
    Random::new(mix(mix(mix(seed) ^ purpose as u64) ^ cycle) ^ ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::smallest;
    use crate::trace::Trace;
    use crate::world::World;

    /// The requests of the clients in cycle 3, and the faults of that cycle.
    fn drawn(seed: u64, without: &str) -> Vec<(Number, String)> {
        let mut cut = Cut::default();
        cut.argument("--without", &mut || without.to_owned()).unwrap();
        let chances = Chances::new(seed, cut);
        let mut world = World::create(&smallest(), chances, Trace::new(false));
        world.chances.begin(3);
        let asks = crate::workload::Workload::any(&world).all(&world).into_iter();
        let asks = asks.map(|(ordinal, ask)| (Kind::Request, ordinal, format!("{ask:?}")));
        let plan = crate::fault::plan(&world.standing(), &world.disks, (1, 90), &world.chances);
        let faults = plan.faults.into_iter();
        let faults = faults.map(|fault| (Kind::Fault, fault.ordinal, format!("{fault:?}")));
        let number = |(kind, ordinal, text)| (world.chances.number(kind, ordinal), text);
        asks.chain(faults).map(number).collect()
    }

    #[test]
    fn what_is_left_out_disturbs_no_other_draw() {
        let (mut requests, mut faults) = (0, 0);
        for seed in 0..40 {
            let all = drawn(seed, "");
            for (out, _) in &all {
                let rest = drawn(seed, &out.to_string());
                let expected = all.iter().filter(|(number, _)| number != out);
                assert!(rest.iter().eq(expected), "seed {seed} without {out}");
                let is_request = matches!(out.item, Some((Kind::Request, _)));
                *(if is_request { &mut requests } else { &mut faults }) += 1;
            }
        }
        assert!(requests > 100 && faults > 20, "{requests} requests, {faults} faults");
    }
}
