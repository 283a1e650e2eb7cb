//! When a held stripe may go on: how often full-width writes may go ahead of it.
//!
//! A stripe that is written in part must read first, and its reads take the heads (or the queue) of
//! the members away from writes of full width, which read nothing. So it stands back on the *hold*
//! list while such writes are under way, in the hope that it fills up. It must not stand back for
//! ever. As in Linux md (its `preread_bypass_threshold`):
//!
//! - a full-width write that begins while the same stripe is at the head of the list has *passed*
//!   it; passes are counted
//! - when they are more than the threshold, the head goes on, and the threshold is taken off the
//!   count
//! - when the head of the list has changed by itself since the last pass (it filled up, and was
//!   promoted), the threshold is taken off, too
//! - when the list is found empty, the count begins anew
//! - a threshold of 0 stops the accounting: a stripe that must read first waits until no full-width
//!   write is pending; the most throughput, and no fairness (but see the age limit in
//!   docs/write-path.md)
//! - while no full-width write is pending no stripe stands back at all
//!
//! Where this is not md's: only full-width writes pass (md counts every stripe that is handled and
//! had not started); any partial write stands back, also one that finds in the cache what it would
//! have to read (it may still fill up); one such stripe at a time goes on among full-width writes,
//! and any number without them; the head that was last passed is forgotten with the list's last
//! stripe.
//!
//! [check: a_held_stripe_is_passed_so_often_and_no_more]

/// The count.
#[derive(Clone, Copy, Debug)]
pub struct Bypass {
    threshold: u32,
    count: u32,
    head: Option<u32>,
}

impl Bypass {
    /// No stripe has been passed yet.
    #[must_use]
    pub fn new(threshold: u32) -> Self {
        Self { threshold, count: 0, head: None }
    }

    /// From now on this is the threshold.
    pub fn set_threshold(&mut self, threshold: u32) {
        self.threshold = threshold;
    }

    /// A full-width write begins that had not started before; `head` is the first stripe of the
    /// hold list. True if it has passed one.
    pub fn passes(&mut self, head: Option<u32>) -> bool {
        if head.is_none() {
            self.count = 0;
        } else if head == self.head {
            self.count = self.count.saturating_add(1);
        } else {
            self.count = self.count.saturating_sub(self.threshold);
        }
        self.head = head;
        head.is_some()
    }

    /// Whether the head of the hold list may go on while so many full-width writes are pending.
    #[must_use]
    pub fn lets_go(&self, full_writes: u32) -> bool {
        full_writes == 0 || self.threshold > 0 && self.count > self.threshold
    }

    /// The head of the hold list went on.
    pub fn took(&mut self) {
        self.count = self.count.saturating_sub(self.threshold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_stripe_is_passed_so_often_and_no_more() {
        for threshold in 1..5 {
            let mut bypass = Bypass::new(threshold);
            let mut passes = 0;
            while !bypass.lets_go(1) {
                assert!(bypass.passes(Some(7)));
                passes += 1;
            }
            // The first pass only finds out who stands there.
            assert_eq!(passes, threshold + 2);
            bypass.took();
            assert!(!bypass.lets_go(1), "the next one is passed, too");
        }
    }

    #[test]
    fn without_accounting_only_an_idle_array_lets_go() {
        let mut bypass = Bypass::new(0);
        (0..1000).for_each(|_| assert!(bypass.passes(Some(7))));
        assert!(!bypass.lets_go(1));
        assert!(bypass.lets_go(0));
    }

    #[test]
    fn an_empty_list_begins_anew() {
        let mut bypass = Bypass::new(1);
        (0..3).for_each(|_| assert!(bypass.passes(Some(7))));
        assert!(bypass.lets_go(1));
        assert!(!bypass.passes(None));
        assert!(!bypass.lets_go(1));
        (0..2).for_each(|_| assert!(bypass.passes(Some(7))));
        assert!(!bypass.lets_go(1), "one pass counted, threshold 1");
    }

    #[test]
    fn a_promotion_counts_off() {
        let mut bypass = Bypass::new(1);
        (0..3).for_each(|_| assert!(bypass.passes(Some(7))));
        assert!(bypass.lets_go(1));
        assert!(bypass.passes(Some(8)), "7 filled up");
        assert!(!bypass.lets_go(1));
    }
}
