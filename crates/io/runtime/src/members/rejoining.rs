//! The return of a member that has left the array because it did not answer.
//! ```text
//!   calm for a while ──▶ asked ─┬─▶ well, with its superblock ──▶ over: back under a new name
//!     ▲ something is out ┘      └─▶ unwell ──▶ over: it has failed
//!     └── it has left
//! ```
//! The member's own thread asks the device, so that no other thread waits if the device hangs
//! again.

use braid_engine::array::MemberId;
use braid_engine::cause::Cause;
use braid_member::{Member, MemberError};
use braid_ondisk::{Snippet, Superblock, probe, probe_ranges};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Maximum doublings of the wait for a member that leaves and returns: up to about eight minutes.
const DOUBLINGS_MAX: u32 = 10;

enum Stage {
    /// This many checks in a row found no operation in flight.
    Calm(u32),
    /// The member is being flushed, and its superblock read.
    Asked(Option<Box<Superblock>>),
    Well(Box<Superblock>),
    Unwell(Cause),
    /// The member was not away, has returned, or has failed.
    Over,
}

/// The step that follows a check of the member.
pub(crate) enum Next {
    Wait,
    /// Flush the device and read its superblock, if the member is away and may return now.
    Ask,
    /// The member returns to the array, with this superblock.
    Returns(Box<Superblock>),
    /// The member has failed.
    Fails(Cause),
}

pub(crate) struct Rejoining {
    member: MemberId,
    stage: Mutex<Stage>,
    /// Number of times that the device has returned to the array lately.
    returns: AtomicU32,
}

impl Rejoining {
    pub(crate) fn new(member: MemberId) -> Self {
        Self { member, stage: Mutex::new(Stage::Calm(0)), returns: AtomicU32::new(0) }
    }

    /// Sets the number of times that the device has returned to the array lately.
    pub(crate) fn has_come_back(&self, times: u32) {
        self.returns.store(times, Ordering::Relaxed);
    }

    pub(crate) fn returns(&self) -> u32 {
        self.returns.load(Ordering::Relaxed)
    }

    /// Notes that a look has found no operation in flight at the member. Returns the next step.
    pub(crate) fn look(&self) -> Next {
        let mut stage = self.stage.lock().expect("looking does not panic");
        let wanted = (1 << self.returns().min(DOUBLINGS_MAX)) - 1;
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Calm(looks) if looks >= wanted => {
                *stage = Stage::Calm(looks);
                Next::Ask
            }
            Stage::Calm(looks) => {
                *stage = Stage::Calm(looks + 1);
                Next::Wait
            }
            Stage::Asked(found) => {
                *stage = Stage::Asked(found);
                Next::Wait
            }
            Stage::Well(found) => Next::Returns(found),
            Stage::Unwell(cause) => Next::Fails(cause),
            Stage::Over => Next::Wait,
        }
    }

    /// Notes that the device is now flushed and its superblock read.
    pub(crate) fn begins(&self) {
        *self.stage.lock().expect("noting does not panic") = Stage::Asked(None);
    }

    /// Notes that the member is not away.
    pub(crate) fn is_over(&self) {
        *self.stage.lock().expect("noting does not panic") = Stage::Over;
    }

    /// Whether the member must be checked further, since it may still return.
    pub(crate) fn is_waiting(&self) -> bool {
        !matches!(*self.stage.lock().expect("looking does not panic"), Stage::Over)
    }

    /// Stores the newest superblock found on the device; `None` if the device has none.
    pub(crate) fn tells(&self, found: Option<Superblock>) {
        *self.stage.lock().expect("noting does not panic") = Stage::Asked(found.map(Box::new));
    }

    /// Notes the result of the flush and of the read of the superblock.
    pub(crate) fn ends(&self, result: Result<(), Cause>) {
        let mut stage = self.stage.lock().expect("noting does not panic");
        *stage = match (std::mem::replace(&mut *stage, Stage::Over), result) {
            (_, Err(cause)) => Stage::Unwell(cause),
            (Stage::Asked(Some(found)), Ok(())) => Stage::Well(found),
            // The path leads to another device, or to one without a superblock of the array.
            _ => Stage::Unwell(Cause::vanished(self.member)),
        };
    }
}

/// The newest superblock on a device. Fails if the device cannot be read.
pub(crate) fn newest_on(device: &dyn Member) -> Result<Option<Superblock>, MemberError> {
    let mut snippets = Vec::new();
    for range in probe_ranges(device.size_bytes()) {
        let length = usize::try_from(range.end - range.start).expect("a few sectors");
        let mut bytes = vec![0; length];
        device.read_at(&mut bytes, range.start)?;
        snippets.push(Snippet { offset: range.start, bytes });
    }
    Ok(probe(device.size_bytes(), &snippets).newest().cloned())
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_comes_and_goes_is_waited_for_longer_each_time() {
        let looks = |returns| {
            let rejoining = Rejoining::new(MemberId(1));
            rejoining.has_come_back(returns);
            (0..).take_while(|_| matches!(rejoining.look(), Next::Wait)).count()
        };
        assert_eq!([0, 1, 2, 5, 10, 99].map(looks), [0, 1, 3, 31, 1023, 1023]);
    }

    #[test]
    fn a_member_that_does_not_flush_or_tell_its_superblock_fails() {
        let rejoining = Rejoining::new(MemberId(1));
        rejoining.begins();
        rejoining.tells(None);
        rejoining.ends(Ok(()));
        let Next::Fails(cause) = rejoining.look() else { panic!("it has no superblock") };
        assert_eq!(cause, Cause::vanished(MemberId(1)));
        assert!(!rejoining.is_waiting() && matches!(rejoining.look(), Next::Wait), "once");
    }
}
