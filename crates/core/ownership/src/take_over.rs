//! Taking an array over: the order of swaps and claims.
//!
//! ```text
//!   begin ─▶ Swap ─ done ─▶ Claim ─ enough claimed ─▶ Swap (give up the others) ─▶ Serve
//!             │ ▲             │                         │
//!             │ └─ refused by a higher epoch            │
//!             └─ another swapped ───────────────────────┴─▶ GiveWay
//! ```
//!
//! The second swap happens even if no member is given up. That swap shows that the store still has
//! the record of the first swap, and was not restored to an older record meanwhile.

use std::collections::BTreeSet;

use braid_sim_hooks::{Bug, planted};

use crate::claim::OwnerId;
use crate::record::{MemberKey, Record, RecordedMember};

/// The result of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapResult {
    /// The store has the wanted record.
    Done,
    /// The swap did not succeed, or its answer was lost. The store's present record.
    Record(Option<Record>),
}

/// The record's epoch is the last possible epoch: nothing but damage makes an epoch so high.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record's epoch is the last one, and no owner can come after it")]
pub struct EpochsExhausted;

/// The basis of a take-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The store's record.
    Record(Record),
    /// The store has no record: the array gets its first record.
    First {
        /// The array's UUID.
        array: [u8; 16],
        /// The array's members.
        members: Vec<RecordedMember>,
    },
}

/// The next step of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeOverStep {
    /// Swap the record, and report with [`TakeOver::swapped`].
    Swap {
        /// The record that the store must have; `None` if it must have none.
        from: Option<Record>,
        /// The new record.
        to: Record,
    },
    /// Claim this epoch at each member's server, and report with [`TakeOver::claimed`] and
    /// [`TakeOver::refused`].
    Claim {
        /// The epoch to claim.
        epoch: u64,
    },
    /// Serve the array under this record.
    Serve {
        /// The record.
        record: Record,
        /// Whether the old owner may still answer reads: then a lease of reads comes first.
        waits_for_lease: bool,
    },
    /// Another owner was faster.
    GiveWay {
        /// The other owner's record, if it has left one.
        to: Option<Record>,
    },
}

#[derive(Debug)]
enum Phase {
    /// The record is being swapped to the next epoch.
    Taking {
        from: Option<Record>,
        to: Record,
    },
    Claiming {
        record: Record,
    },
    /// The members that were not claimed are being given up.
    GivingUp {
        from: Record,
        to: Record,
    },
    Over,
}

/// One attempt to take an array over.
#[derive(Debug)]
pub struct TakeOver {
    me: OwnerId,
    phase: Phase,
    claimed: BTreeSet<MemberKey>,
    /// A server knew a higher epoch than the store: the store has lost swaps. So members that the
    /// record has in sync may have been given up.
    store_went_back: bool,
    /// The old owner ended in order, or the array had no owner.
    was_released: bool,
}

impl TakeOver {
    /// Begins with the record that the store has, or with the array's members. `me` has not been
    /// used in another attempt.
    ///
    /// # Errors
    /// The record has no further epoch.
    pub fn begin(
        (me, host): (OwnerId, &str),
        basis: Basis,
    ) -> Result<(Self, TakeOverStep), EpochsExhausted> {
        let (seen, array, members) = match basis {
            Basis::Record(record) => (Some(record.clone()), record.array, record.members),
            Basis::First { array, members } => (None, array, members),
        };
        let epoch = seen.as_ref().map_or(0, |record| record.epoch);
        let epoch = epoch.checked_add(1).ok_or(EpochsExhausted)?;
        let was_released = seen.as_ref().is_none_or(|record| record.owner.is_none());
        let host = host.to_owned();
        let reason = "taken over".to_owned();
        let to = Record { array, epoch, owner: Some(me), host, serial: 1, members, reason };
        let mut take_over = Self {
            me,
            phase: Phase::Over,
            claimed: BTreeSet::new(),
            store_went_back: false,
            was_released,
        };
        let step = take_over.take(seen, to);
        Ok((take_over, step))
    }

    fn take(&mut self, from: Option<Record>, to: Record) -> TakeOverStep {
        self.phase = Phase::Taking { from: from.clone(), to: to.clone() };
        TakeOverStep::Swap { from, to }
    }

    /// Takes the result of the swap that the last step requested.
    ///
    /// # Panics
    /// If no step requested a swap.
    pub fn swapped(&mut self, result: SwapResult) -> TakeOverStep {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let (from, to, is_taking) = match phase {
            Phase::Taking { from, to } => (from, to, true),
            Phase::GivingUp { from, to } => (Some(from), to, false),
            Phase::Claiming { .. } | Phase::Over => panic!("no swap was asked for"),
        };
        let now = match result {
            SwapResult::Done => Some(to.clone()),
            SwapResult::Record(record) => record,
        };
        let mut is_done = now.as_ref() == Some(&to);
        if planted(Bug::NonceIgnored) {
            is_done |= now.as_ref().is_some_and(|record| record.epoch == to.epoch);
        }
        // A swap whose answer was lost may never have reached the store: then the swap is sent
        // again.
        let is_untouched = now == from;
        match (is_done, is_untouched, is_taking) {
            (true, _, true) => {
                let epoch = to.epoch;
                self.phase = Phase::Claiming { record: to };
                TakeOverStep::Claim { epoch }
            }
            (true, _, false) => self.serve(to),
            (false, true, true) => self.take(from, to),
            (false, true, false) => self.give_up(from.expect("a record is given up from"), to),
            (false, false, _) => {
                if planted(Bug::SwapForced) {
                    return self.take(now, to);
                }
                TakeOverStep::GiveWay { to: now }
            }
        }
    }

    /// Notes that a member's server serves no older claim any more. An answer to the claim of a
    /// lower epoch does not count: from the last [`TakeOverStep::Claim`] on, the driver hears only
    /// answers to its claims of that epoch.
    pub fn claimed(&mut self, member: MemberKey) {
        let mut counts = matches!(self.phase, Phase::Claiming { .. });
        if planted(Bug::LowerClaimCounts) {
            counts = true;
        }
        if counts {
            self.claimed.insert(member);
        }
    }

    /// Notes that a member's server refused the claim, since the server has served this epoch.
    /// Returns a swap to a higher epoch: the store was restored from an older state.
    #[must_use]
    pub fn refused(&mut self, served_epoch: u64) -> Option<TakeOverStep> {
        let Phase::Claiming { record } = &self.phase else { return None };
        let (from, old) = (record.clone(), record.epoch);
        if served_epoch < old {
            return None;
        }
        self.store_went_back = true;
        self.claimed.clear();
        let mut to = from.clone();
        to.epoch = served_epoch.checked_add(1)?;
        to.serial += 1;
        to.reason = format!("taken over; the store had lost epochs {old} to {served_epoch}");
        Some(self.take(Some(from), to))
    }

    /// Whether a server knew a higher epoch than the store. Then superblocks, not the record, say
    /// which members are in sync.
    #[must_use]
    pub fn store_went_back(&self) -> bool {
        self.store_went_back
    }

    /// The members that were claimed and have all acknowledged writes, according to the record.
    #[must_use]
    pub fn usable(&self) -> BTreeSet<MemberKey> {
        let Phase::Claiming { record } = &self.phase else { return BTreeSet::new() };
        if planted(Bug::RecordIgnored) {
            return self.claimed.clone();
        }
        record.in_sync().intersection(&self.claimed).copied().collect()
    }

    /// Whether the array can be taken over with the members claimed so far. `can_run` says whether
    /// these members can run the array by themselves.
    #[must_use]
    pub fn has_enough(&self, can_run: impl Fn(&BTreeSet<MemberKey>) -> bool) -> bool {
        let Phase::Claiming { record } = &self.phase else { return false };
        let usable = self.usable();
        let mut store_went_back = self.store_went_back;
        if planted(Bug::StoreWentBackIgnored) {
            store_went_back = false;
        }
        if store_went_back {
            // The record may name a member that was given up since. If all members are claimed, one
            // of them knows which member was given up.
            return record.members.iter().all(|one| self.claimed.contains(&one.key));
        }
        if planted(Bug::TooFewClaimed) {
            return !usable.is_empty();
        }
        can_run(&usable)
    }

    /// Ends the claiming: the array runs with the members of [`Self::usable`], and the other
    /// members are given up.
    ///
    /// # Panics
    /// If nothing is being claimed.
    pub fn settle(&mut self) -> TakeOverStep {
        let usable = self.usable();
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Claiming { record } = phase else { panic!("nothing is being claimed") };
        if planted(Bug::UnclaimedKept) {
            return self.serve(record);
        }
        let is_complete = record.in_sync() == usable;
        if planted(Bug::SettledUnswapped) && is_complete {
            return self.serve(record);
        }
        let mut to = record.with_in_sync(&usable);
        if planted(Bug::ClaimedJoins) {
            to = record.with_in_sync(&self.claimed);
        }
        to.serial += 1;
        if !is_complete {
            to.reason = "members that did not answer were given up".to_owned();
        }
        self.give_up(record, to)
    }

    fn give_up(&mut self, from: Record, to: Record) -> TakeOverStep {
        self.phase = Phase::GivingUp { from: from.clone(), to: to.clone() };
        TakeOverStep::Swap { from: Some(from), to }
    }

    fn serve(&mut self, record: Record) -> TakeOverStep {
        assert_eq!(record.owner, Some(self.me), "an owner serves its own record");
        // An old record may say that an owner ended in order, although another owner came after it.
        let mut waits_for_lease = !self.was_released || self.store_went_back;
        if planted(Bug::OldReleaseBelieved) {
            waits_for_lease = !self.was_released;
        }
        if planted(Bug::LeaseUnawaited) {
            waits_for_lease = false;
        }
        TakeOverStep::Serve { record, waits_for_lease }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: OwnerId = OwnerId([1; 16]);
    const OTHER: OwnerId = OwnerId([2; 16]);

    fn members(in_sync: [bool; 3]) -> Vec<RecordedMember> {
        let one = |(at, is_in_sync)| RecordedMember {
            key: MemberKey([at; 16]),
            address: format!("nbd://host{at}/"),
            is_in_sync,
        };
        (0..).zip(in_sync).map(one).collect()
    }

    fn begin(seen: Record) -> (TakeOver, TakeOverStep) {
        TakeOver::begin((ME, "here"), Basis::Record(seen)).expect("it begins")
    }

    fn theirs(epoch: u64) -> Record {
        Record {
            array: [9; 16],
            epoch,
            owner: Some(OTHER),
            host: "there".into(),
            serial: 40,
            members: members([true; 3]),
            reason: String::new(),
        }
    }

    fn two_of_three(set: &BTreeSet<MemberKey>) -> bool {
        set.len() >= 2
    }

    #[test]
    fn an_array_is_taken_over_without_the_member_that_does_not_answer() {
        let (mut take_over, step) = begin(theirs(4));
        let TakeOverStep::Swap { from, to } = step else { panic!("{step:?}") };
        assert_eq!((from, to.epoch, to.owner), (Some(theirs(4)), 5, Some(ME)));
        assert_eq!(take_over.swapped(SwapResult::Done), TakeOverStep::Claim { epoch: 5 });
        take_over.claimed(MemberKey([0; 16]));
        assert!(!take_over.has_enough(two_of_three));
        take_over.claimed(MemberKey([2; 16]));
        assert!(take_over.has_enough(two_of_three));
        let step = take_over.settle();
        let TakeOverStep::Swap { to, .. } = step else { panic!("{step:?}") };
        assert_eq!(to.members, members([true, false, true]));
        // The answer is lost, and the record shows that the swap was done.
        let step = take_over.swapped(SwapResult::Record(Some(to.clone())));
        assert_eq!(step, TakeOverStep::Serve { record: to, waits_for_lease: true });
    }

    #[test]
    fn an_owner_that_was_slower_gives_way() {
        let (mut take_over, _) = begin(theirs(4));
        let other = theirs(5);
        let step = take_over.swapped(SwapResult::Record(Some(other.clone())));
        assert_eq!(step, TakeOverStep::GiveWay { to: Some(other) });
    }

    #[test]
    fn a_store_that_lost_epochs_costs_a_higher_one_and_all_members() {
        let (mut take_over, _) = begin(theirs(4));
        let _ = take_over.swapped(SwapResult::Done);
        take_over.claimed(MemberKey([0; 16]));
        let step = take_over.refused(7);
        let Some(TakeOverStep::Swap { to, .. }) = step else { panic!("{step:?}") };
        assert_eq!(to.epoch, 8);
        assert_eq!(take_over.swapped(SwapResult::Done), TakeOverStep::Claim { epoch: 8 });
        take_over.claimed(MemberKey([0; 16]));
        take_over.claimed(MemberKey([1; 16]));
        assert!(!take_over.has_enough(two_of_three));
        take_over.claimed(MemberKey([2; 16]));
        assert!(take_over.has_enough(two_of_three));
    }

    #[test]
    fn a_member_claimed_for_a_lower_epoch_does_not_count() {
        let (mut take_over, _) = begin(theirs(4));
        let _ = take_over.swapped(SwapResult::Done);
        assert!(take_over.refused(7).is_some());
        // The answer to a claim of epoch 5 comes while the record is swapped to 8.
        take_over.claimed(MemberKey([0; 16]));
        assert_eq!(take_over.swapped(SwapResult::Done), TakeOverStep::Claim { epoch: 8 });
        assert!(take_over.usable().is_empty());
    }

    #[test]
    fn an_heir_of_an_old_record_waits_for_the_owner_that_came_after_it() {
        let released = Record { owner: None, ..theirs(4) };
        let (mut take_over, _) = begin(released);
        let _ = take_over.swapped(SwapResult::Done);
        assert!(take_over.refused(7).is_some() && take_over.store_went_back());
        let _ = take_over.swapped(SwapResult::Done);
        (0..3).for_each(|at| take_over.claimed(MemberKey([at; 16])));
        let TakeOverStep::Swap { to, .. } = take_over.settle() else { panic!("a swap") };
        let step = take_over.swapped(SwapResult::Done);
        assert_eq!(step, TakeOverStep::Serve { record: to, waits_for_lease: true });
    }

    #[test]
    fn an_heir_whose_record_the_store_has_lost_does_not_serve() {
        let (mut take_over, _) = begin(theirs(4));
        let _ = take_over.swapped(SwapResult::Done);
        (0..3).for_each(|at| take_over.claimed(MemberKey([at; 16])));
        // All members in sync are claimed. Meanwhile the store was restored.
        assert!(matches!(take_over.settle(), TakeOverStep::Swap { .. }));
        let step = take_over.swapped(SwapResult::Record(Some(theirs(3))));
        assert_eq!(step, TakeOverStep::GiveWay { to: Some(theirs(3)) });
    }

    #[test]
    fn an_array_without_a_record_gets_its_first_one_and_the_last_epoch_has_no_heir() {
        let first = Basis::First { array: [9; 16], members: members([true; 3]) };
        let (_, step) = TakeOver::begin((ME, "here"), first).expect("it begins");
        let TakeOverStep::Swap { from: None, to } = step else { panic!("{step:?}") };
        assert_eq!((to.epoch, to.members), (1, members([true; 3])));
        let last = TakeOver::begin((ME, "here"), Basis::Record(theirs(u64::MAX)));
        assert_eq!(last.map(drop), Err(EpochsExhausted));
    }
}
