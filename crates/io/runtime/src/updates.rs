//! Updates of superblocks: the time of each update, and the last update that all members have.
//!
//! The array gives the content of superblocks except the time. All members get the same time in one
//! update, and each update gets a later time than the last, whatever the clock does. If event
//! counts repeat, the time tells a member from an old copy of that member.
//!
//! Not here: the decision to write superblocks (the array), and records kept for the next start
//! (the program that reads [`crate::Volume::recorded`]).

use braid_engine::array::{MemberId, SuperblockState, UpdateTimes};
use braid_ondisk::{Superblock, Timestamp};

use crate::clock::time_of_day;
use crate::sync::{Arc, Mutex, MutexGuard};

/// An update that all members of the array have, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedUpdate {
    /// The update's event count.
    pub events: u64,
    /// The update's time.
    pub update_time: Timestamp,
    /// The members whose superblocks hold this update.
    pub members: Vec<RecordedMember>,
}

/// A member that has the update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedMember {
    /// The member's slot.
    pub slot: u16,
    /// The member's number in the table of roles.
    pub number: u32,
    /// The member's device UUID; zeroes with version 0.90.
    pub uuid: [u8; 16],
}

/// An update of superblocks that has not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedUpdate {
    /// The update's event count.
    pub events: u64,
    /// The members that the update names as in sync.
    pub in_sync: Vec<RecordedMember>,
}

/// The times of updates, and the last recorded update.
pub(crate) struct Updates {
    last: Mutex<LatestUpdate>,
    keeper: Mutex<Option<Keeper>>,
    consenter: Option<Consenter>,
}

#[derive(Debug)]
struct LatestUpdate {
    times: UpdateTimes,
    state: Option<Arc<SuperblockState>>,
    recorded: Option<RecordedUpdate>,
}

/// A function that receives an update's event count. The program must keep the update before the
/// array relies on it.
pub(crate) type Keeper = Box<dyn Fn(u64) + Send>;

/// A function that receives each update of superblocks before its first superblock is written.
/// Until [`crate::Volume::consent`] the array does not begin the update, and relies on none of its
/// losses. The function must not block.
#[derive(Clone)]
pub struct Consenter(Arc<dyn Fn(PlannedUpdate) + Send + Sync>);

impl Consenter {
    /// A consenter that calls this function.
    pub fn new(function: impl Fn(PlannedUpdate) + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }
}

impl std::fmt::Debug for Consenter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Consenter").finish_non_exhaustive()
    }
}

impl Updates {
    pub(crate) fn new(newest: &Superblock, consenter: Option<Consenter>) -> Self {
        let times = UpdateTimes::after(newest);
        let last = Mutex::new(LatestUpdate { times, state: None, recorded: None });
        Self { last, keeper: Mutex::new(None), consenter }
    }

    pub(crate) fn set_keeper(&self, keeper: Option<Keeper>) {
        *self.keeper.lock().expect("telling does not panic") = keeper;
    }

    pub(crate) fn take_keeper(&self) -> Option<Keeper> {
        self.keeper.lock().expect("telling does not panic").take()
    }

    /// Calls the keeper for the last recorded update.
    pub(crate) fn keep(&self, events: u64) {
        if let Some(keeper) = &*self.keeper.lock().expect("telling does not panic") {
            keeper(events);
        }
    }

    pub(crate) fn has_consenter(&self) -> bool {
        self.consenter.is_some()
    }

    /// Calls the consenter for an update that has not begun.
    pub(crate) fn ask(&self, planned: PlannedUpdate) {
        if let Some(Consenter(consenter)) = &self.consenter {
            consenter(planned);
        }
    }

    /// Notes that an update begins at a member; returns the update's time.
    pub(crate) fn begins(&self, state: &Arc<SuperblockState>) -> Timestamp {
        let mut last = self.lock();
        last.state = Some(Arc::clone(state));
        last.times.of(state.events, time_of_day())
    }

    /// Notes that all members have the update that began last.
    pub(crate) fn record(&self, member: impl Fn(MemberId, u16) -> Option<RecordedMember>) {
        let mut last = self.lock();
        let state = last.state.clone().expect("what is through has begun");
        let update_time = last.times.of(state.events, time_of_day());
        let in_slots = state.roles.iter().filter_map(|role| Some((role.member, role.slot?.0)));
        let members = in_slots.filter_map(|(id, slot)| member(id, slot)).collect();
        last.recorded = Some(RecordedUpdate { events: state.events, update_time, members });
    }

    pub(crate) fn state(&self) -> Option<Arc<SuperblockState>> {
        self.lock().state.clone()
    }

    pub(crate) fn recorded(&self) -> Option<RecordedUpdate> {
        self.lock().recorded.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LatestUpdate> {
        self.last.lock().expect("noting does not panic")
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp { seconds, microseconds: 0 }
    }

    /// Regression: members of one update had different times, and updates within one second had the
    /// same time.
    #[test]
    fn one_update_has_one_time_and_the_next_a_later_one() {
        let mut times = UpdateTimes::of_update(40, at(100));
        assert_eq!(times.of(41, at(105)), at(105));
        assert_eq!(times.of(41, at(106)), at(105), "the others of the same update");
        let back = times.of(40, at(90));
        assert!(back > at(105) && back < at(106), "the clock went back: {back:?}");
        let same = times.of(41, at(90));
        assert!(same > back, "the same count again is another update");
    }
}
