//! Decides when a held stripe begins: how often full-width writes may go ahead of the stripe.
//!
//! A partial write must read first, and its reads take the members' heads (or queues) away from
//! full-width writes, which read nothing. So its stripe waits on the *hold* list while full-width
//! writes are under way, in the hope that the stripe fills up, but not forever. As in Linux md (its
//! `preread_bypass_threshold`):
//!
//! - a full-width write that begins while a stripe heads the list has *passed* it, and counts
//! - when the count exceeds the threshold, the head begins, and the threshold is subtracted
//! - if the head has changed by itself since the last pass (it filled up, and was promoted), the
//!   threshold is subtracted, too
//! - if the list is found empty, the count begins anew
//! - a threshold of 0 stops the accounting: a stripe that must read first waits until no full-width
//!   write is pending. Such a threshold gives the most throughput, and no fairness (but see the age
//!   limit in docs/write-path.md)
//! - while no full-width write is pending, no stripe waits at all
//!
//! Differences from md:
//!
//! - Only full-width writes pass. md counts every stripe that is handled and had not started.
//! - Any partial write waits, even if the cache holds all that it would read: it may still fill up.
//! - One held stripe at a time begins among full-width writes, any number without them.
//! - The head that was last passed is forgotten with the list's last stripe.
//!
//! [check: a_held_stripe_is_passed_so_often_and_no_more]

/// Counts how often full-width writes pass the head of the hold list.
#[derive(Clone, Copy, Debug)]
pub struct Bypass {
    threshold: u32,
    count: u32,
    head: Option<u32>,
}

impl Bypass {
    /// A counter with this threshold; no stripe has been passed yet.
    #[must_use]
    pub fn new(threshold: u32) -> Self {
        Self { threshold, count: 0, head: None }
    }

    /// Changes the threshold.
    pub fn set_threshold(&mut self, threshold: u32) {
        self.threshold = threshold;
    }

    /// Notes that a full-width write begins in a stripe that had not started; `head` is the first
    /// stripe of the hold list. True if the write passes a held stripe.
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

    /// Whether the head of the hold list may begin while this many full-width writes are pending.
    #[must_use]
    pub fn lets_go(&self, full_writes: u32) -> bool {
        full_writes == 0 || self.threshold > 0 && self.count > self.threshold
    }

    /// Notes that the head of the hold list has left the list to begin.
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
            // The first pass only notes the head.
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
