//! Dirty references: they show which answered writes are not on the members yet, and in which flush
//! period each was answered.
//!
//! A write that was answered early holds a *dirty reference* until its bytes are on the members, or
//! are known to be lost. References carry the epoch in which they were taken. A flush begins a new
//! epoch, and ends when the last reference of an older epoch is released. References taken
//! meanwhile belong to the new epoch, so a flush ends however busy the clients are. A later write
//! that replaces an older write takes over its reference, with the older epoch.
//!
//! A client that flushes after each write, as a database does, waits for two things in a row: the
//! write, then the members' flush. A flush that finds few references therefore has them written
//! with FUA, and the members need no flush for them. If members do not seek
//! ([`crate::Tuning::expects_flushes`]), writes after such a flush begin at once: another flush is
//! likely.
//!
//! [check: a_flush_ends_with_the_last_older_reference]
//! [check: few_writes_before_a_flush_are_written_durably]

/// The most references that a flush writes with FUA. For more, a flush of each member is cheaper.
const FEW: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct DirtyEpochs {
    epoch: u64,
    older: u64,
    current: u64,
    round: Option<u64>,
    /// Number of dirty references that the newest round found.
    found: u64,
    /// Number of dirty references taken in this epoch.
    taken: u64,
    /// Whether the last epoch that had references had only few.
    was_short: bool,
}

impl DirtyEpochs {
    /// Whether any answered write is not on the members yet.
    pub(super) fn is_any(&self) -> bool {
        self.older + self.current > 0
    }

    /// Takes a reference and returns its epoch.
    pub(super) fn acquire(&mut self) -> u64 {
        self.current += 1;
        self.taken += 1;
        self.epoch
    }

    pub(super) fn split(&mut self, epoch: u64) {
        let count = self.count_mut(epoch);
        assert!(*count > 0, "only a reference that there is can become two");
        *count += 1;
    }

    /// Releases a reference. Returns the write-back round if that was the last reference that the
    /// round waited for.
    #[must_use]
    pub(super) fn release(&mut self, epoch: u64) -> Option<u64> {
        assert!(
            self.round.is_none() || self.older > 0,
            "a round ends with the last older reference"
        );
        let count = self.count_mut(epoch);
        assert!(*count > 0, "a reference was given back twice");
        *count -= 1;
        self.round.take_if(|_| self.older == 0)
    }

    /// Begins a write-back round. Returns the round if it has nothing to wait for.
    #[must_use]
    pub(super) fn begin_round(&mut self, round: u64) -> Option<u64> {
        assert!(self.round.is_none(), "one round at a time");
        self.older += std::mem::take(&mut self.current);
        self.found = self.older;
        self.epoch += 1;
        if self.taken > 0 {
            self.was_short = self.taken <= FEW;
        }
        self.taken = 0;
        self.round = Some(round);
        self.round.take_if(|_| self.older == 0)
    }

    pub(super) fn has_round(&self) -> bool {
        self.round.is_some()
    }

    /// Whether the round waits for references of this epoch.
    pub(super) fn is_flushed(&self, epoch: u64) -> bool {
        self.round.is_some() && epoch < self.epoch
    }

    /// Whether a write of this epoch uses FUA: the round waits for it, and for few other writes.
    pub(super) fn is_written_durably(&self, epoch: u64) -> bool {
        self.is_flushed(epoch) && self.found <= FEW
    }

    /// Whether a flush is likely soon, because a flush came after every few writes.
    pub(super) fn expects_flush(&self) -> bool {
        self.was_short && self.taken <= FEW
    }

    fn count_mut(&mut self, epoch: u64) -> &mut u64 {
        assert!(epoch <= self.epoch, "no reference is of an epoch to come");
        if epoch == self.epoch { &mut self.current } else { &mut self.older }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_ends_with_the_last_older_reference() {
        let mut epochs = DirtyEpochs::default();
        assert_eq!(epochs.begin_round(1), Some(1), "nothing is dirty");
        let (a, b) = (epochs.acquire(), epochs.acquire());
        assert_eq!(epochs.release(a), None, "no flush waits");
        assert_eq!(epochs.begin_round(2), None);
        let c = epochs.acquire();
        assert!(epochs.is_flushed(b) && !epochs.is_flushed(c));
        assert_eq!(epochs.release(c), None, "a later one does not count");
        epochs.split(b);
        assert_eq!(epochs.release(b), None, "its other half is left");
        assert_eq!(epochs.release(b), Some(2));
        assert!(!epochs.is_any());
    }

    #[test]
    fn few_writes_before_a_flush_are_written_durably() {
        let mut epochs = DirtyEpochs::default();
        let one = epochs.acquire();
        assert!(!epochs.is_written_durably(one) && !epochs.expects_flush(), "no flush has come");
        assert_eq!(epochs.begin_round(1), None);
        assert!(epochs.is_written_durably(one) && epochs.expects_flush());
        let later = epochs.acquire();
        assert!(!epochs.is_written_durably(later), "the round does not wait for it");
        assert_eq!(epochs.release(one), Some(1));
        let more: Vec<u64> = (0..FEW).map(|_| epochs.acquire()).collect();
        assert!(!epochs.expects_flush(), "these are more than few");
        assert_eq!(epochs.begin_round(2), None);
        assert!(!more.iter().any(|epoch| epochs.is_written_durably(*epoch)));
        [later].iter().chain(&more[1..]).for_each(|epoch| assert_eq!(epochs.release(*epoch), None));
        assert!(!epochs.is_written_durably(more[0]), "as many as it found count, not as are left");
    }
}
