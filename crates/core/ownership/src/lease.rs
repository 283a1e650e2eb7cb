//! The lease of reads: how long an owner may answer reads without answers from members' servers.

use std::collections::{BTreeMap, BTreeSet};

use braid_sim_hooks::{Bug, planted};

use crate::record::MemberKey;

/// The lease of an owner. Times are monotonic nanoseconds of the owner's own clock.
#[derive(Debug)]
pub struct ReadLease {
    length_ns: u64,
    /// For each member, when the last request began that its server answered.
    answered: BTreeMap<MemberKey, u64>,
}

impl ReadLease {
    /// A lease of this length; no member has answered yet.
    #[must_use]
    pub fn new(length_ns: u64) -> Self {
        Self { length_ns, answered: BTreeMap::new() }
    }

    /// Notes that a member's server answered a request that began at this time. The time of the
    /// answer does not count: another owner may have claimed the server meanwhile.
    pub fn note(&mut self, member: MemberKey, begun_ns: u64) {
        let last = self.answered.entry(member).or_default();
        *last = begun_ns.max(*last);
    }

    /// The time until which reads may be answered. Before that time the silent members among
    /// `in_sync` cannot run the array by themselves. `can_run` says whether some members can.
    #[must_use]
    pub fn until_ns(
        &self,
        in_sync: &BTreeSet<MemberKey>,
        can_run: impl Fn(&BTreeSet<MemberKey>) -> bool,
    ) -> u64 {
        if planted(Bug::LeaseOff) {
            return u64::MAX;
        }
        let end_of = |key| self.answered.get(key).map_or(0, |begun| begun + self.length_ns);
        let mut ends: Vec<_> = in_sync.iter().map(|key| (end_of(key), *key)).collect();
        ends.sort_unstable();
        if planted(Bug::LeaseOfLast) {
            return ends.last().map_or(0, |(end_ns, _)| *end_ns);
        }
        let mut silent = BTreeSet::new();
        for (end_ns, key) in ends {
            silent.insert(key);
            if can_run(&silent) {
                return end_ns;
            }
        }
        // All members in sync together run an array. So an array that gets no time from the loop
        // does not run.
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [MemberKey; 4] =
        [MemberKey([1; 16]), MemberKey([2; 16]), MemberKey([3; 16]), MemberKey([4; 16])];

    #[test]
    fn reads_go_on_while_the_silent_could_not_run_the_array() {
        let mut lease = ReadLease::new(100);
        for (key, begun) in KEYS.into_iter().zip([10, 20, 30, 40]) {
            lease.note(key, begun);
        }
        lease.note(KEYS[3], 5);
        let all = KEYS.into_iter().collect();
        // Three of four run a RAID-5: the lease ends when three members are silent.
        assert_eq!(lease.until_ns(&all, |set| set.len() >= 3), 130);
        // One of four runs a mirror: the lease ends when the first member is silent.
        assert_eq!(lease.until_ns(&all, |set| !set.is_empty()), 110);
        // A RAID-0 needs all members.
        assert_eq!(lease.until_ns(&all, |set| set.len() == 4), 140);
        let unheard = ReadLease::new(100);
        assert_eq!(unheard.until_ns(&all, |set| set.len() >= 3), 0);
    }
}
