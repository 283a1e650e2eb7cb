//! The world's lost writes: it notes sectors that the array reports lost, and checks later reads of
//! them.

use braid_engine::request::{Fault, Operation, Request, RequestId};

use super::Loss;
use crate::world::World;

impl World {
    /// The array reported these sectors lost. `released`: requests whose payload the array released
    /// together with the report.
    pub(crate) fn lose_sectors(&mut self, (start, sectors): (u64, u64), released: &[RequestId]) {
        for sector in start..start + sectors {
            let is_there = |(from, count): (u64, u64)| (from..from + count).contains(&sector);
            let flights = self.engine.clients.flights.values().map(|flight| &flight.request);
            let writes = flights.filter(|request| request.operation.is_write());
            let mut others = writes.filter(|one| is_there((one.start.0, one.sectors)));
            let first = others.next().copied();
            let may_be_rewritten =
                first.is_some() || self.engine.held.ranges().any(|(_, range)| is_there(range));
            let loss = Loss { at: self.clock.step, may_be_rewritten, rewritten: None };
            // If the lost data can only be that of one write with a single piece, that piece is
            // unanswered, and its answer must be an error.
            let is_alone = others.next().is_none() && released.is_empty();
            let whose = first.filter(|one| is_alone && self.is_one_piece(one)).map(|one| one.id);
            let is_own = |id: RequestId| Some(id) == whose;
            let mut held = self.engine.held.ranges();
            if held.all(|(id, range)| is_own(id) || !is_there(range)) {
                self.engine.lost.to_be_told.extend(whose);
            }
            self.engine.lost.sectors.insert(sector, loss);
        }
    }

    fn is_one_piece(&self, request: &Request) -> bool {
        self.engine.machines.regions.split(request).count() == 1
    }

    /// The array has answered `request`, which began at step `began`. Checks that a read fails
    /// because of a loss if, and only if, it covers a lost sector that was not rewritten.
    pub(crate) fn check_lost(&mut self, request: &Request, began: u64, result: Result<(), Fault>) {
        let range = (request.start.0, request.sectors);
        match (request.operation, result) {
            (Operation::Read, result) => {
                let mut losses = self
                    .engine
                    .lost
                    .sectors
                    .range(range.0..range.0 + range.1)
                    .map(|(_, loss)| loss);
                if result == Err(Fault::Lost) {
                    let explains = |loss: &Loss| loss.rewritten.is_none_or(|at| at >= began);
                    let is_reported = self.engine.lost.is_reported_now(range);
                    let is_explained = is_reported || losses.any(explains);
                    assert!(is_explained, "{request:?} fails, but none of its sectors is lost");
                    self.tally.count("lost-is-not-read");
                } else if result.is_ok() {
                    // A read that began before the loss may return the acknowledged bytes from
                    // memory.
                    let is_lost = |loss: &Loss| {
                        loss.at < began && !loss.may_be_rewritten && loss.rewritten.is_none()
                    };
                    let read = losses.find(|loss| is_lost(loss));
                    assert!(read.is_none(), "{request:?} reads lost acknowledged data");
                }
            }
            (Operation::Write { .. } | Operation::WriteZeroes { .. }, Ok(())) => {
                let is_told = !self.engine.lost.to_be_told.contains(&request.id);
                assert!(is_told, "{request:?} succeeds, but was lost in part");
                self.engine.lost.written(range, (began, self.clock.step));
            }
            _ => {}
        }
    }
}
