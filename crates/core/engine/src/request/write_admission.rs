//! Admits writes: many aligned ones, shared, or a single unaligned one, exclusive.
//!
//! A write that covers part of a sector reads the sector, lays its bytes over it and writes it
//! back; meanwhile no other write may touch that sector. Such writes are rare (every common client
//! aligns), so each has the array to itself. First come, first served: no write overtakes another,
//! so neither kind starves the other [check: no_write_overtakes_or_starves].
//!
//! The admission is pure, like the rest of the engine. A driver calls [`WriteAdmission::enter`],
//! begins the write once [`WriteAdmission::is_admitted`], and calls [`WriteAdmission::leave`] at
//! its end. Neither the runtime nor the simulator blocks: they queue writes that may not begin yet.
//!
//! ```text
//!   enter ─▶ waiting: shared, exclusive, ... ─▶ admitted: many shared, or one exclusive ─▶ leave
//! ```
//!
//! # Invariants
//! - An admitted exclusive write is the only one [check: no_write_overtakes_or_starves].

use std::collections::VecDeque;

/// The mode in which a write is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionMode {
    /// The write runs at the same time as other shared writes; the engine orders those that
    /// overlap.
    Shared,
    /// The write has the array to itself.
    Exclusive,
}

/// A write's place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmittedWrites {
    Shared(usize),
    Exclusive,
}

/// Admits many aligned writes, or a single unaligned one.
#[derive(Clone, Debug)]
pub struct WriteAdmission {
    admitted: AdmittedWrites,
    /// Tickets below this one have been admitted.
    next_in: u64,
    waiting: VecDeque<AdmissionMode>,
}

impl Default for WriteAdmission {
    fn default() -> Self {
        Self { admitted: AdmittedWrites::Shared(0), next_in: 0, waiting: VecDeque::new() }
    }
}

impl WriteAdmission {
    /// Puts a write at the end of the queue, and perhaps admits it at once.
    pub fn enter(&mut self, mode: AdmissionMode) -> Ticket {
        let ticket = Ticket(self.next_in + self.waiting.len() as u64);
        self.waiting.push_back(mode);
        self.admit();
        ticket
    }

    /// Whether the write with this ticket has been admitted, now or earlier.
    #[must_use]
    pub fn is_admitted(&self, ticket: Ticket) -> bool {
        assert!(ticket.0 < self.next_in + self.waiting.len() as u64, "a ticket has been given");
        ticket.0 < self.next_in
    }

    /// Ends an admitted write. True if that admits a waiting write.
    ///
    /// # Panics
    /// If no write of this mode is admitted.
    pub fn leave(&mut self, mode: AdmissionMode) -> bool {
        self.admitted = match (mode, self.admitted) {
            (AdmissionMode::Exclusive, AdmittedWrites::Exclusive) => AdmittedWrites::Shared(0),
            (AdmissionMode::Shared, AdmittedWrites::Shared(count)) if count > 0 => {
                AdmittedWrites::Shared(count - 1)
            }
            (mode, admitted) => panic!("{mode:?} leaves, and admitted is {admitted:?}"),
        };
        let before = self.next_in;
        self.admit();
        self.next_in != before
    }

    fn admit(&mut self) {
        while let Some(mode) = self.waiting.front() {
            self.admitted = match (mode, self.admitted) {
                (AdmissionMode::Shared, AdmittedWrites::Shared(count)) => {
                    AdmittedWrites::Shared(count + 1)
                }
                (AdmissionMode::Exclusive, AdmittedWrites::Shared(0)) => AdmittedWrites::Exclusive,
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

    /// Tries all orders of eight enters and leaves, in both modes.
    #[test]
    fn no_write_overtakes_or_starves() {
        for story in 0..3_u32.pow(8) {
            let mut admission = WriteAdmission::default();
            let (mut entered, mut left) = (Vec::new(), 0);
            for turn in 0..8 {
                match story / 3_u32.pow(turn) % 3 {
                    0 => entered
                        .push((admission.enter(AdmissionMode::Shared), AdmissionMode::Shared)),
                    1 => entered.push((
                        admission.enter(AdmissionMode::Exclusive),
                        AdmissionMode::Exclusive,
                    )),
                    _ if entered.get(left).is_some() => {
                        admission.leave(entered[left].1);
                        left += 1;
                    }
                    _ => {}
                }
                check(&admission, &entered[left..]);
            }
            while left < entered.len() {
                assert!(admission.is_admitted(entered[left].0), "the oldest is always admitted");
                admission.leave(entered[left].1);
                left += 1;
                check(&admission, &entered[left..]);
            }
        }
    }

    fn check(admission: &WriteAdmission, present: &[(Ticket, AdmissionMode)]) {
        let admitted: Vec<AdmissionMode> = present
            .iter()
            .filter(|(one, _)| admission.is_admitted(*one))
            .map(|(_, mode)| *mode)
            .collect();
        assert!(
            admitted.len() <= 1 || admitted.iter().all(|mode| *mode == AdmissionMode::Shared),
            "{admitted:?}"
        );
        let modes: Vec<AdmissionMode> = present.iter().map(|(_, mode)| *mode).collect();
        assert_eq!(admitted, modes[..admitted.len()], "a write overtook another");
        let next = modes.get(admitted.len());
        let could = |mode: &AdmissionMode| match mode {
            AdmissionMode::Shared => !admitted.contains(&AdmissionMode::Exclusive),
            AdmissionMode::Exclusive => admitted.is_empty(),
        };
        assert!(!next.is_some_and(could), "a write waits for nothing");
    }
}
