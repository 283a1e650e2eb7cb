//! The time in which a process owns an array: what the process may do, and what ends its tenure.

use std::collections::BTreeSet;

use braid_sim_hooks::{Bug, planted};

use crate::claim::OwnerId;
use crate::fence::Mark;
use crate::record::{MemberKey, Record, RecordedMember};
use crate::take_over::SwapResult;

/// Why a tenure is over. The owner answers no client any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenureEnd {
    /// A member's server has a later owner.
    #[error("a member's server has been claimed for epoch {}", .0.epoch)]
    Fenced(Mark),
    /// The store's record has a later owner.
    #[error("{host} has taken the array over, with epoch {epoch}")]
    TakenOver {
        /// The epoch of the new owner.
        epoch: u64,
        /// The host of the new owner.
        host: String,
    },
    /// The record is gone, or older than the owner's own: the store was restored from a backup.
    #[error("the store's record is gone or older than this owner's: the store has lost swaps")]
    StoreWentBack,
    /// The owner gave the array back.
    #[error("the array was given back")]
    Released,
}

/// A swap that the store may have carried out, or may carry out yet.
#[derive(Debug)]
struct Swap {
    to: Record,
    releases: bool,
    /// Whether the driver waits for the swap's result. Otherwise the result was that the record is
    /// untouched.
    is_under_way: bool,
}

/// An owner's tenure. One swap is under way at a time. A swap that may still reach the store is
/// repeated until its result is certain; only then another swap begins.
#[derive(Debug)]
pub struct Tenure {
    me: OwnerId,
    /// The record as the store is known to have it.
    record: Record,
    /// The members that superblocks should name as in sync.
    wanted: BTreeSet<MemberKey>,
    reason: String,
    /// Members that joined later, which the next swap adds.
    newcomers: Vec<RecordedMember>,
    /// Members that the next swap drops, unless they are wanted in sync.
    forgotten: BTreeSet<MemberKey>,
    /// The array has ended in order, and the record should say so.
    releases: bool,
    /// The host that should take the array over after the release; empty for any.
    heir: String,
    swap: Option<Swap>,
    end: Option<TenureEnd>,
}

impl Tenure {
    /// Begins with the record of the take-over.
    ///
    /// # Panics
    /// If the record has another owner.
    #[must_use]
    pub fn new(me: OwnerId, record: Record) -> Self {
        assert_eq!(record.owner, Some(me), "an owner has its own record");
        let (wanted, reason) = (record.in_sync(), record.reason.clone());
        Self {
            me,
            record,
            wanted,
            reason,
            newcomers: Vec::new(),
            forgotten: BTreeSet::new(),
            releases: false,
            heir: String::new(),
            swap: None,
            end: None,
        }
    }

    /// The record as the store is known to have it.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Why the tenure is over; `None` while the tenure lasts.
    #[must_use]
    pub fn end(&self) -> Option<&TenureEnd> {
        self.end.as_ref()
    }

    /// Requests a record with these members in sync. A member that comes into sync must have all
    /// acknowledged writes.
    pub fn want_in_sync(&mut self, in_sync: BTreeSet<MemberKey>, reason: &str) {
        if self.wanted != in_sync {
            self.wanted = in_sync;
            reason.clone_into(&mut self.reason);
        }
    }

    /// Makes the next swap add a member that the record does not have yet, or change the address of
    /// a member that it has.
    pub fn know(&mut self, member: RecordedMember) {
        let is_same = |one: &RecordedMember| one.key == member.key && one.address == member.address;
        if !self.record.members.iter().any(is_same) {
            self.newcomers.retain(|one| one.key != member.key);
            self.newcomers.push(member);
        }
    }

    /// Makes the next swap drop these members, which have failed or were removed: no heir takes
    /// them in again. A member that is wanted in sync stays.
    pub fn forget(&mut self, members: BTreeSet<MemberKey>) {
        self.forgotten = members;
    }

    /// Requests a record without an owner: the array has ended in order. The owner answers no
    /// client any more, since an heir of such a record does not wait for the lease. The host `heir`
    /// should take the array over; empty for any.
    pub fn want_release(&mut self, heir: &str) {
        self.releases = true;
        heir.clone_into(&mut self.heir);
        self.reason = "stopped in order".to_owned();
    }

    /// The members that the store's record may name as in sync: a swap without a result counts.
    #[must_use]
    pub fn in_sync_at_most(&self) -> BTreeSet<MemberKey> {
        let mut in_sync = self.record.in_sync();
        in_sync.extend(self.swap.iter().flat_map(|swap| swap.to.in_sync()));
        in_sync
    }

    /// Whether superblocks may be written that name these members as in sync: the record must have
    /// given up all other members. A swap without a result counts, too: it may let a member in.
    ///
    /// From the first of these superblocks on, a member that they leave out must not be wanted
    /// again before it has been recovered.
    #[must_use]
    pub fn allows(&self, in_sync: &BTreeSet<MemberKey>) -> bool {
        if planted(Bug::GivenUpUnswapped) {
            return self.end.is_none();
        }
        let mut is_in_record = self.in_sync_at_most();
        if planted(Bug::PendingSwapIgnored) {
            is_in_record = self.record.in_sync();
        }
        self.end.is_none() && is_in_record.is_subset(in_sync)
    }

    /// Whether the record differs from the wanted record, or may come to differ by a swap without a
    /// result.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.swap.is_some()
            || self.wanted != self.record.in_sync()
            || self.releases && self.record.owner.is_some()
    }

    /// The next swap, from [`Self::record`] to the result. A swap that changes nothing but the
    /// serial shows that the owner is alive. `None` while a swap is under way, and after the end.
    pub fn begin_swap(&mut self) -> Option<Record> {
        if self.end.is_some() {
            return None;
        }
        if let Some(swap) = &mut self.swap {
            let is_idle = !std::mem::replace(&mut swap.is_under_way, true);
            return is_idle.then(|| swap.to.clone());
        }
        let mut known = self.record.clone();
        for newcomer in &self.newcomers {
            // A device that was added anew has another key behind the same address.
            let is_other = |one: &RecordedMember| {
                one.key != newcomer.key
                    && (one.address != newcomer.address || self.wanted.contains(&one.key))
            };
            known.members.retain(is_other);
            known.members.push(newcomer.clone());
        }
        let stays = |key: &MemberKey| self.wanted.contains(key) || !self.forgotten.contains(key);
        known.members.retain(|one| stays(&one.key));
        let mut to = known.with_in_sync(&self.wanted);
        to.serial += 1;
        to.reason.clone_from(&self.reason);
        if self.releases {
            to.owner = None;
            to.host.clone_from(&self.heir);
        }
        let (releases, is_under_way) = (self.releases, true);
        self.swap = Some(Swap { to: to.clone(), releases, is_under_way });
        Some(to)
    }

    /// Takes the result of a swap. If the record is untouched, the same swap is begun again: it may
    /// be on its way to the store.
    ///
    /// # Panics
    /// If no swap is under way.
    pub fn swapped(&mut self, result: SwapResult) {
        let swap = self.swap.take().filter(|swap| swap.is_under_way);
        let Swap { to, releases, .. } = swap.expect("a swap is under way");
        if planted(Bug::LostSwapIgnored) {
            self.record = to;
            return;
        }
        let now = match result {
            SwapResult::Done => Some(to.clone()),
            SwapResult::Record(record) => record,
        };
        match now {
            Some(now) if now == to => {
                self.record = to;
                if releases {
                    self.end = Some(TenureEnd::Released);
                }
            }
            Some(now) if now == self.record => {
                self.swap = Some(Swap { to, releases, is_under_way: false });
            }
            Some(now) if now.epoch > self.record.epoch => {
                self.end = Some(TenureEnd::TakenOver { epoch: now.epoch, host: now.host });
            }
            // An older record, or none: another owner may have been lost with it.
            _ => self.end = Some(TenureEnd::StoreWentBack),
        }
    }

    /// Notes that a member's server refused this owner, since the server has a later owner.
    pub fn refused(&mut self, mark: Mark) {
        if planted(Bug::RefusalIgnored) {
            return;
        }
        let own = Mark { epoch: self.record.epoch, owner: self.me };
        if mark.supersedes(&own) && self.end.is_none() {
            self.end = Some(TenureEnd::Fenced(mark));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: OwnerId = OwnerId([1; 16]);

    fn keys(numbers: &[u8]) -> BTreeSet<MemberKey> {
        numbers.iter().map(|number| MemberKey([*number; 16])).collect()
    }

    fn tenure() -> Tenure {
        let one = |number| RecordedMember {
            key: MemberKey([number; 16]),
            address: String::new(),
            is_in_sync: true,
        };
        let record = Record {
            array: [9; 16],
            epoch: 3,
            owner: Some(ME),
            host: "here".into(),
            serial: 1,
            members: [1, 2, 3].map(one).into(),
            reason: String::new(),
        };
        Tenure::new(ME, record)
    }

    #[test]
    fn superblocks_wait_for_the_swap_that_gives_a_member_up() {
        let mut tenure = tenure();
        assert!(tenure.allows(&keys(&[1, 2, 3])) && !tenure.allows(&keys(&[1, 2])));
        tenure.want_in_sync(keys(&[1, 2]), "3 failed");
        assert!(tenure.is_behind());
        let to = tenure.begin_swap().expect("a swap");
        assert!(tenure.begin_swap().is_none(), "one at a time");
        // First the swap is lost on its way to the store, then the answer to a swap.
        tenure.swapped(SwapResult::Record(Some(tenure.record().clone())));
        assert!(!tenure.allows(&keys(&[1, 2])));
        assert_eq!(tenure.begin_swap().expect("again"), to);
        tenure.swapped(SwapResult::Record(Some(to)));
        assert!(tenure.allows(&keys(&[1, 2])) && !tenure.is_behind());
        assert!(tenure.allows(&keys(&[1, 2, 3])), "a member may come in before the record");
    }

    #[test]
    fn a_member_that_a_swap_without_a_result_lets_in_is_not_left_out() {
        let mut tenure = tenure();
        tenure.record = tenure.record.with_in_sync(&keys(&[1, 2]));
        let to = tenure.begin_swap().expect("member 3 comes in");
        assert_eq!(to.in_sync(), keys(&[1, 2, 3]));
        // Member 3 fails. The store may have the swap, or get it later.
        tenure.want_in_sync(keys(&[1, 2]), "3 failed");
        assert!(!tenure.allows(&keys(&[1, 2])));
        tenure.swapped(SwapResult::Record(Some(tenure.record().clone())));
        assert!(!tenure.allows(&keys(&[1, 2])) && tenure.is_behind());
        // The first swap could overtake another swap, so the first swap is repeated.
        assert_eq!(tenure.begin_swap().expect("again"), to);
        tenure.swapped(SwapResult::Done);
        assert!(!tenure.allows(&keys(&[1, 2])) && tenure.is_behind());
        assert_eq!(tenure.begin_swap().expect("without 3").in_sync(), keys(&[1, 2]));
        tenure.swapped(SwapResult::Done);
        assert!(tenure.allows(&keys(&[1, 2])) && !tenure.is_behind());
    }

    #[test]
    fn a_later_owner_ends_a_tenure() {
        let mut one = tenure();
        let _ = one.begin_swap();
        let mut theirs = one.record().clone();
        (theirs.epoch, theirs.owner) = (4, Some(OwnerId([2; 16])));
        one.swapped(SwapResult::Record(Some(theirs)));
        assert!(matches!(one.end(), Some(TenureEnd::TakenOver { epoch: 4, .. })));
        assert!(one.begin_swap().is_none() && !one.allows(&keys(&[1, 2, 3])));
        let mut other = tenure();
        other.refused(Mark { epoch: 3, owner: ME });
        assert_eq!(other.end(), None, "its own claim");
        other.refused(Mark { epoch: 3, owner: OwnerId([2; 16]) });
        assert!(matches!(other.end(), Some(TenureEnd::Fenced(_))));
    }

    #[test]
    fn an_older_record_ends_a_tenure() {
        for now in [None, Some(2)] {
            let mut tenure = tenure();
            let _ = tenure.begin_swap();
            let older = now.map(|epoch| Record { epoch, ..tenure.record().clone() });
            tenure.swapped(SwapResult::Record(older));
            assert_eq!(tenure.end(), Some(&TenureEnd::StoreWentBack));
        }
    }

    #[test]
    fn a_device_that_was_added_anew_is_in_the_record_once() {
        let mut tenure = tenure();
        let address = "nbd://host/disk".to_owned();
        tenure.record.members[2].address.clone_from(&address);
        tenure.want_in_sync(keys(&[1, 2]), "3 was left out");
        tenure.know(RecordedMember { key: MemberKey([4; 16]), address, is_in_sync: false });
        let to = tenure.begin_swap().expect("a swap");
        let keys: BTreeSet<MemberKey> = to.members.iter().map(|one| one.key).collect();
        assert_eq!(keys, self::keys(&[1, 2, 4]));
    }

    #[test]
    fn a_member_that_was_removed_leaves_the_record_once_it_is_given_up() {
        let mut tenure = tenure();
        tenure.forget(keys(&[3]));
        assert_eq!(tenure.begin_swap().expect("a swap").members.len(), 3, "3 is in sync");
        tenure.swapped(SwapResult::Done);
        tenure.want_in_sync(keys(&[1, 2]), "3 was removed");
        let to = tenure.begin_swap().expect("a swap");
        assert!(to.members.iter().all(|one| one.key != MemberKey([3; 16])));
    }

    #[test]
    fn a_release_leaves_a_record_without_an_owner() {
        let mut tenure = tenure();
        tenure.want_release("there");
        let to = tenure.begin_swap().expect("a swap");
        assert_eq!((to.owner, &*to.host), (None, "there"));
        tenure.swapped(SwapResult::Done);
        assert_eq!(tenure.end(), Some(&TenureEnd::Released));
    }
}
