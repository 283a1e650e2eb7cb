//! What the world asks of shards for no client, and what it makes of the results.

use braid_engine::array::Gate;
use braid_engine::effect::Report;
use braid_engine::work::{Class, Difference, Outcome, Task, Work, WorkId};
use braid_geometry::Geometry;

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::open::Message;
use crate::world::World;

/// Ordinals of work among the faults of a cycle: behind those of elevators.
const FIRST_ORDINAL: u64 = 4000;

/// Runs, of a hundred, in which there is background work.
const PERCENT: u64 = 30;

impl World {
    /// Adds work to the plan of a run of about `steps` steps from `now` on.
    pub(crate) fn plan_background(&mut self, (now, steps): (u64, u64)) {
        let Geometry::Stripe(stripe) = &self.geometry else { return };
        let rows = stripe.rows();
        let mut random = self.chances.of(Purpose::Background, 0);
        if !random.chance(PERCENT) {
            return;
        }
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + 1 + random.below(24) {
            let step = now + random.below(steps);
            // Few rows, so that work meets writes.
            let mishap = Mishap::Compares { row: random.below(rows.min(6)), seed: random.next() };
            if !self.chances.leaves_out(Kind::Fault, ordinal) {
                self.engine.plan.faults.push(Fault { step, disk: 0, mishap, ordinal });
            }
        }
    }

    /// Asks the owner of a chunk row for one of its bands.
    pub(crate) fn ask_for_comparison(&mut self, row: u64, seed: u64) {
        let Geometry::Stripe(stripe) = &self.geometry else { return };
        let row = braid_geometry::ChunkRow(row);
        let machines = &mut self.engine.machines;
        let shard = machines.regions.shard_of(stripe.logical(row, 0, 0));
        let side = &mut machines.shards[usize::from(shard.0)];
        let unit = u64::from(side.shard.block_sectors());
        let bands = u64::from(stripe.chunk_sectors()) / unit;
        let background = &mut self.engine.background;
        let id = WorkId(background.next);
        background.next += 1;
        let class = if seed.is_multiple_of(2) { Class::Idle } else { Class::BestEffort };
        let start = braid_geometry::MemberSector(stripe.row_start(row).0 + seed / 2 % bands * unit);
        let work = Work { id, class, task: Task::Compare, start };
        background.asked.insert(id, work);
        side.inbox.push_back(Message::Work(work));
    }

    /// Takes a result out of what a shard reports.
    pub(crate) fn take_result(&mut self, shard: usize, report: &Report) -> bool {
        let Report::WorkDone { id, outcome } = *report else { return false };
        let work = self.engine.background.asked.remove(&id).expect("work has one result");
        self.note("work-done", [id.0, work.start.0, u64::from(outcome == Outcome::Unreadable)]);
        let difference = match outcome {
            Outcome::Compared(difference) => difference,
            Outcome::Unreadable => {
                self.tally.count("work-refused");
                return true;
            }
            Outcome::SitsOut => {
                self.tally.count("work-sits-out");
                return true;
            }
        };
        self.tally.count("bands-compared");
        if difference != Difference::default() {
            self.tally.count("bands-differ");
            assert!(self.may_differ(shard), "parity of {work:?} is wrong: {difference:?}");
        }
        true
    }

    /// Whether anything could have made parity of the band differ.
    fn may_differ(&self, shard: usize) -> bool {
        let view = &self.engine.machines.shards[shard].view;
        let was_in_sync = view.resync_offset == u64::MAX;
        let is_honest = self.taint.is_calm() && !self.engine.plan.lies;
        let lost_nothing = self.engine.lost.is_empty();
        let goes_on = matches!(view.gate, Gate::Open | Gate::Closed);
        !(was_in_sync && is_honest && lost_nothing && goes_on)
    }
}
