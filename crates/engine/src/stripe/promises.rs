//! What has been answered and is not on the members, and since which flush.
//!
//! A write that was answered early owes its bytes to the members. Debts are stamped with the number
//! of the write-back round that they fall into; when a round is asked for, it is over as soon as no
//! debt with an older stamp is left. Debts made meanwhile have the new stamp, so that a round ends
//! however busy the clients are. When a later write takes an older one's place, it takes over its
//! debt, with the older stamp.
//!
//! [check: a_round_ends_with_the_last_older_debt]

/// The books of one shard.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Stamp of debts made now.
    stamp: u64,
    /// Debts with an older stamp.
    older: u64,
    /// Debts with this stamp.
    now: u64,
    /// The round that was asked for and is not over.
    asked: Option<u64>,
}

impl Promises {
    /// Whether something was answered that is not on the members.
    pub(super) fn is_any(&self) -> bool {
        self.older + self.now > 0
    }

    /// A debt; its stamp.
    pub(super) fn owe(&mut self) -> u64 {
        self.now += 1;
        self.stamp
    }

    /// A debt is parted in two.
    pub(super) fn part(&mut self, stamp: u64) {
        let count = if stamp == self.stamp { &mut self.now } else { &mut self.older };
        assert!(*count > 0, "only a debt that there is can be parted");
        *count += 1;
    }

    /// Whether a round is under way.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// A debt is paid, or is never going to be. The round, if it is over by that.
    #[must_use]
    pub(super) fn settle(&mut self, stamp: u64) -> Option<u64> {
        let count = if stamp == self.stamp { &mut self.now } else { &mut self.older };
        assert!(*count > 0, "a debt was paid twice");
        *count -= 1;
        self.asked.take_if(|_| self.older == 0)
    }

    /// Begins a round. It, if it is over already.
    #[must_use]
    pub(super) fn ask(&mut self, round: u64) -> Option<u64> {
        assert!(self.asked.is_none(), "one round at a time");
        self.older += std::mem::take(&mut self.now);
        self.stamp += 1;
        self.asked = Some(round);
        self.asked.take_if(|_| self.older == 0)
    }

    /// Whether somebody waits for debts with this stamp.
    pub(super) fn is_called_in(&self, stamp: u64) -> bool {
        self.asked.is_some() && stamp < self.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_with_the_last_older_debt() {
        let mut promises = Promises::default();
        assert_eq!(promises.ask(1), Some(1), "nothing is owed");
        let (a, b) = (promises.owe(), promises.owe());
        assert_eq!(promises.settle(a), None, "nobody asked");
        assert_eq!(promises.ask(2), None);
        let c = promises.owe();
        assert!(promises.is_called_in(b) && !promises.is_called_in(c));
        assert_eq!(promises.settle(c), None, "a later one does not count");
        assert_eq!(promises.settle(b), Some(2));
        assert!(!promises.is_any());
    }
}
