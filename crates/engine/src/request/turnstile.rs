//! Who may change the array now: many aligned writes beside each other, or one that is not.
//!
//! A write that covers part of a sector reads the sector, lays its bytes over it and writes it back;
//! meanwhile no other write may touch that sector. Such writes are rare (every common client
//! aligns), so each has the array to itself. First come, first served: no write overtakes another, so
//! neither kind starves the other [check: no_write_overtakes_or_starves].
//!
//! Where it stands: pure, like the rest of the engine. A driver asks with [`Turnstile::ask`], lets the
//! write begin once [`Turnstile::is_in`], and says [`Turnstile::leave`] when nothing of it is under
//! way any more. Neither the runtime nor the simulator waits: they keep what may not begin yet.
//!
//! ```text
//!   ask ─▶ waiting: beside, alone, beside, beside, ... ─▶ inside: many beside, or one alone ─▶ leave
//! ```
//!
//! # Invariants
//! - A write that is in alone is the only one in [check: no_write_overtakes_or_starves].

use std::collections::VecDeque;

use braid_hooks::{Bug, planted};

/// How a write goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Beside others of its kind; the engine orders those that overlap.
    Beside,
    /// With the array to itself.
    Alone,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Who is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Beside(usize),
    Alone,
}

/// Many aligned writes, or one that is not.
#[derive(Clone, Debug)]
pub struct Turnstile {
    inside: Inside,
    /// Tickets below this one have been let in.
    next_in: u64,
    waiting: VecDeque<Way>,
}

impl Default for Turnstile {
    fn default() -> Self {
        Self { inside: Inside::Beside(0), next_in: 0, waiting: VecDeque::new() }
    }
}

impl Turnstile {
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
            (Way::Alone, Inside::Alone) => Inside::Beside(0),
            (Way::Beside, Inside::Beside(count)) if count > 0 => Inside::Beside(count - 1),
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
                (Way::Beside, Inside::Beside(count)) => Inside::Beside(count + 1),
                (Way::Alone, Inside::Beside(0)) => Inside::Alone,
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
            let mut turnstile = Turnstile::default();
            let (mut asked, mut left) = (Vec::new(), 0);
            for turn in 0..8 {
                match story / 3_u32.pow(turn) % 3 {
                    0 => asked.push((turnstile.ask(Way::Beside), Way::Beside)),
                    1 => asked.push((turnstile.ask(Way::Alone), Way::Alone)),
                    _ if asked.get(left).is_some() => {
                        turnstile.leave(asked[left].1);
                        left += 1;
                    }
                    _ => {}
                }
                check(&turnstile, &asked[left..]);
            }
            while left < asked.len() {
                assert!(turnstile.is_in(asked[left].0), "the oldest is always in");
                turnstile.leave(asked[left].1);
                left += 1;
                check(&turnstile, &asked[left..]);
            }
        }
    }

    fn check(turnstile: &Turnstile, present: &[(Ticket, Way)]) {
        let inside: Vec<Way> =
            present.iter().filter(|(one, _)| turnstile.is_in(*one)).map(|(_, way)| *way).collect();
        assert!(inside.len() <= 1 || inside.iter().all(|way| *way == Way::Beside), "{inside:?}");
        let ways: Vec<Way> = present.iter().map(|(_, way)| *way).collect();
        assert_eq!(inside, ways[..inside.len()], "a write overtook another");
        let next = ways.get(inside.len());
        let could = |way: &Way| match way {
            Way::Beside => !inside.contains(&Way::Alone),
            Way::Alone => inside.is_empty(),
        };
        assert!(!next.is_some_and(could), "a write waits for nothing");
    }
}
