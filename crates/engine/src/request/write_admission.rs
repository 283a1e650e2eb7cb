//! Which writes may change the array now: many that are aligned, shared, or one that is not, exclusive.
//!
//! A write that covers part of a sector reads the sector, lays its bytes over it and writes it back;
//! meanwhile no other write may touch that sector. Such writes are rare (every common client
//! aligns), so each has the array to itself. First come, first served: no write overtakes another, so
//! neither kind starves the other [check: no_write_overtakes_or_starves].
//!
//! Where it stands: pure, like the rest of the engine. A driver asks with [`WriteAdmission::ask`], lets the
//! write begin once [`WriteAdmission::is_in`], and says [`WriteAdmission::leave`] when nothing of it is under
//! way any more. Neither the runtime nor the simulator waits: they keep what may not begin yet.
//!
//! ```text
//!   ask ─▶ waiting: shared, exclusive, shared, ... ─▶ inside: many shared, or one exclusive ─▶ leave
//! ```
//!
//! # Invariants
//! - An exclusive write that is in is the only one in [check: no_write_overtakes_or_starves].

use std::collections::VecDeque;

use braid_hooks::{Bug, planted};

/// How a write goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With others of its kind; the engine orders those that overlap.
    Shared,
    /// With the array to itself.
    Exclusive,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Shared(usize),
    Exclusive,
}

/// Many aligned writes, or one that is not.
#[derive(Clone, Debug)]
pub struct WriteAdmission {
    inside: Inside,
    /// Tickets below this one have been let in.
    next_in: u64,
    waiting: VecDeque<Way>,
}

impl Default for WriteAdmission {
    fn default() -> Self {
        Self { inside: Inside::Shared(0), next_in: 0, waiting: VecDeque::new() }
    }
}

impl WriteAdmission {
    /// Takes a place at the end of the queue; it may be in at once.
    pub fn ask(&mut self, way: Way) -> Ticket {
        let ticket = Ticket(self.next_in + self.waiting.len() as u64);
        self.waiting.push_back(way);
        self.let_in();
        ticket
    }

    /// Whether it has been let in, now or earlier.
    #[must_use]
    pub fn is_in(&self, ticket: Ticket) -> bool {
        ticket.0 < self.next_in
    }

    /// One that was in is done. True if one that waited is in now.
    ///
    /// # Panics
    /// When none was in this way.
    pub fn leave(&mut self, way: Way) -> bool {
        self.inside = match (way, self.inside) {
            (Way::Exclusive, Inside::Exclusive) => Inside::Shared(0),
            (Way::Shared, Inside::Shared(count)) if count > 0 => Inside::Shared(count - 1),
            (way, inside) => panic!("{way:?} leaves, and inside is {inside:?}"),
        };
        let before = self.next_in;
        self.let_in();
        self.next_in != before
    }

    fn let_in(&mut self) {
        if planted(Bug::LastStaysOut) && self.waiting.len() == 2 {
            return;
        }
        while let Some(way) = self.waiting.front() {
            self.inside = match (way, self.inside) {
                (Way::Shared, Inside::Shared(count)) => Inside::Shared(count + 1),
                (Way::Exclusive, Inside::Shared(0)) => Inside::Exclusive,
                _ => break,
            };
            self.waiting.pop_front();
            self.next_in += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All orders of eight asks and leaves of both kinds.
    #[test]
    fn no_write_overtakes_or_starves() {
        for story in 0..3_u32.pow(8) {
            let mut admission = WriteAdmission::default();
            let (mut asked, mut left) = (Vec::new(), 0);
            for turn in 0..8 {
                match story / 3_u32.pow(turn) % 3 {
                    0 => asked.push((admission.ask(Way::Shared), Way::Shared)),
                    1 => asked.push((admission.ask(Way::Exclusive), Way::Exclusive)),
                    _ if asked.get(left).is_some() => {
                        admission.leave(asked[left].1);
                        left += 1;
                    }
                    _ => {}
                }
                check(&admission, &asked[left..]);
            }
            while left < asked.len() {
                assert!(admission.is_in(asked[left].0), "the oldest is always in");
                admission.leave(asked[left].1);
                left += 1;
                check(&admission, &asked[left..]);
            }
        }
    }

    fn check(admission: &WriteAdmission, present: &[(Ticket, Way)]) {
        let inside: Vec<Way> =
            present.iter().filter(|(one, _)| admission.is_in(*one)).map(|(_, way)| *way).collect();
        assert!(inside.len() <= 1 || inside.iter().all(|way| *way == Way::Shared), "{inside:?}");
        let ways: Vec<Way> = present.iter().map(|(_, way)| *way).collect();
        assert_eq!(inside, ways[..inside.len()], "a write overtook another");
        let next = ways.get(inside.len());
        let could = |way: &Way| match way {
            Way::Shared => !inside.contains(&Way::Exclusive),
            Way::Exclusive => inside.is_empty(),
        };
        assert!(!next.is_some_and(could), "a write waits for nothing");
    }
}
