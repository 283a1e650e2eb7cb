//! The border between the two shapes during a reshape: which requests may begin, and when the
//! requests from before the last move of the border have ended.
//!
//! ```text
//!   hold(window) ─▶ earlier requests end ─▶ is_passed ─▶ the window moves, and is recorded
//!                                                                     └─▶ release ─▶ hold(next)
//! ```
//!
//! Requests are counted in generations; a new one begins with each [`Border::hold`]. While a window
//! moves, clients' writes to it wait. Clients' reads of it go to the old shape, unless the window
//! is in place: then these reads wait too, because the move overwrites the old data. A reader may
//! be slow. So the next window begins only when all requests of earlier generations have ended:
//! none of them can then read a sector that the next window overwrites.
//!
//! A request waits for one window at most: after each window all waiting requests begin.
//! [check: a_request_waits_for_one_window]

use std::collections::BTreeMap;
use std::ops::Range;

use braid_sim_hooks::{Bug, spoiled};

/// A request's place in the generations, until [`Border::leave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorderTicket(u64);

/// The requests on both sides of the border.
#[derive(Debug, Default)]
pub struct Border {
    held: Option<HeldWindow>,
    /// Sectors for which every request fails.
    failed: Option<Range<u64>>,
    generation: u64,
    /// Requests of each generation that have not ended.
    in_flight: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct HeldWindow {
    sectors: Range<u64>,
    with_reads: bool,
}

impl Border {
    /// Admits a request for these sectors; `None` if it must wait for [`Self::release`].
    pub fn enter(&mut self, sectors: Range<u64>, is_write: bool) -> Option<BorderTicket> {
        let is_held = self.held.as_ref().is_some_and(|held| {
            let touches = sectors.start < held.sectors.end && held.sectors.start < sectors.end;
            touches && (is_write || held.with_reads)
        });
        let is_held = spoiled(Bug::WindowUnheld, is_held, false);
        if is_held {
            return None;
        }
        *self.in_flight.entry(self.generation).or_default() += 1;
        Some(BorderTicket(self.generation))
    }

    /// Whether a request for these sectors fails.
    #[must_use]
    pub fn has_failed(&self, sectors: &Range<u64>) -> bool {
        self.failed
            .as_ref()
            .is_some_and(|failed| sectors.start < failed.end && failed.start < sectors.end)
    }

    /// Has requests for these sectors fail, until the next [`Self::release`].
    pub fn fail(&mut self, sectors: Range<u64>) {
        self.failed = Some(sectors);
    }

    /// Notes that an admitted request has ended. True if this makes [`Self::is_passed`] true.
    pub fn leave(&mut self, BorderTicket(generation): BorderTicket) -> bool {
        let count = self.in_flight.get_mut(&generation).expect("it was admitted");
        *count -= 1;
        if *count == 0 {
            self.in_flight.remove(&generation);
        }
        generation < self.generation && self.is_passed()
    }

    /// Lets requests for the held window begin.
    pub fn release(&mut self) {
        self.held = None;
        self.failed = None;
    }

    /// Holds writes to these sectors, and reads if `with_reads`. A new generation begins.
    pub fn hold(&mut self, sectors: Range<u64>, with_reads: bool) {
        self.held = Some(HeldWindow { sectors, with_reads });
        let step = 1;
        let step = spoiled(Bug::EarlierUnawaited, step, 0);
        self.generation += step;
    }

    /// Whether every request of an earlier generation has ended.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.in_flight.first_key_value().is_none_or(|(first, _)| *first == self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_a_held_window_wait_and_reads_only_in_place() {
        let mut border = Border::default();
        let early = border.enter(0..100, true).expect("nothing is held");
        border.hold(50..60, false);
        assert!(!border.is_passed());
        assert_eq!(border.enter(59..61, true), None);
        let read = border.enter(59..61, false).expect("reads go on");
        let behind = border.enter(60..61, true).expect("it is behind the window");
        assert!(!border.leave(read), "the early one is there");
        assert!(border.leave(early) && border.is_passed());
        border.release();
        border.hold(0..10, true);
        assert_eq!(border.enter(5..6, false), None);
        assert!(border.leave(behind));
    }

    #[test]
    fn a_request_waits_for_one_window() {
        let mut border = Border::default();
        for start in 0..10 {
            border.hold(start..start + 1, false);
            assert_eq!(border.enter(0..100, true), None);
            assert!(border.is_passed());
            border.release();
            let whole = border.enter(0..100, true).expect("no window is held");
            border.hold(start + 1..start + 2, false);
            assert!(!border.is_passed());
            assert!(border.leave(whole));
        }
    }
}
