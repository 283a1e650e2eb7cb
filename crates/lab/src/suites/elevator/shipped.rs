//! The shipped scheduler over a member that does nothing; and nothing at all between the threads and that member.

use braid_dispatch::{
    Class, Counters, Device, Operation, Place, Request, Scheduler, Settings, Ticket, Vector,
};

use super::seats::{Between, Seats};

/// A member that has done everything as soon as it begins.
struct Null<'a>(&'a Seats);

impl Device<u32> for Null<'_> {
    fn now_ns(&self) -> u64 {
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        parts.for_each(|seat| self.0.answer(seat));
        vector.ticket
    }
}

/// The shipped scheduler.
pub(super) struct Shipped(Scheduler<u32>);

impl Shipped {
    pub(super) fn new(settings: Settings) -> Self {
        Self(Scheduler::new(settings))
    }

    pub(super) fn counters(&self) -> Counters {
        self.0.counters(&Null(&Seats::new(0)))
    }
}

impl Between for Shipped {
    fn submit(&self, seats: &Seats, seat: u32, places: &[u64]) {
        let mut is_first = false;
        for place in places {
            is_first |= self.0.leave(&Null(seats), request(*place), seat);
        }
        if is_first {
            self.0.dispatch(&Null(seats));
        }
    }
}

fn request(place: u64) -> Request {
    let (operation, class) = (Operation::Read, Class::BestEffort);
    Request { operation, class, place: Place::Sorted, start: place, sectors: 1 }
}

/// No elevator at all.
pub(super) struct Straight;

impl Between for Straight {
    fn submit(&self, seats: &Seats, seat: u32, places: &[u64]) {
        for place in places {
            let operation = Operation::Read;
            let vector = Vector { operation, start: *place, sectors: 1, parts: 1, ticket: None };
            let ended = Null(seats).begin(vector, std::iter::once(seat));
            assert!(ended.is_none(), "it has no ticket");
        }
    }
}
