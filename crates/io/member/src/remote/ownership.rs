//! The process's ownership of the members that it writes, if it took an array over by a store.
//!
//! A process has one ownership, set before members are opened.
//! Each connection that writes claims the member with it. A server that has a later owner refuses
//! the claim, and the process hears of it.

use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use braid_ownership::{Claim, Mark};
use rustix::time::{ClockId, clock_gettime};

/// The claim of this process, and the functions that receive its refusal or loss.
pub struct Ownership {
    /// The array's UUID.
    pub array: [u8; 16],
    /// The epoch and the owner.
    pub mark: Mark,
    /// Called when a member's server has a later owner. The function must not block.
    pub refused: Box<dyn Fn(Mark) + Send + Sync>,
    /// Called when a disk that this owner had reserved refuses its writes, or keeps no other host
    /// out any more. The text says which. The function must not block.
    pub reservation_lost: Box<dyn Fn(&str) + Send + Sync>,
}

impl Debug for Ownership {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Ownership").field(&self.mark).finish()
    }
}

/// Nanoseconds since the host started. The clock goes on while the host sleeps, unlike `Instant`.
#[must_use]
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

static OWNERSHIP: RwLock<Option<Arc<Ownership>>> = RwLock::new(None);
/// A later link to a member ends the requests of earlier ones, so sessions count up in a process.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// Has all members claimed that are opened for writing from now on.
pub fn own_members(ownership: Ownership) {
    *OWNERSHIP.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(ownership));
}

pub(crate) fn ownership() -> Option<Arc<Ownership>> {
    OWNERSHIP.read().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(super) fn next_session() -> u64 {
    SESSIONS.fetch_add(1, Ordering::Relaxed)
}

impl Ownership {
    pub(super) fn claim(&self, session: u64) -> Claim {
        let Mark { epoch, owner } = self.mark;
        Claim { epoch, owner, session }
    }
}
