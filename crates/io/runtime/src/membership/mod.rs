//! Members come and go while an array runs.
//!
//! ```text
//!   register ──▶ used ──▶ drain: nothing new; what is out, in line, queued or in the elevator ends ──▶ close: the device is
//!                                                                                                     dropped when it returns
//! ```
//!
//! Where it stands: above the loop, for what is drained has to end. What is registered is used by every operation that comes
//! later, and what is drained is not begun by any thread any more ([`crate::members`])
//! [check: a_member_registered_later_is_used_and_one_taken_out_is_closed].

use std::io;
use std::time::{Duration, Instant};

use braid_engine::array::MemberId;
use braid_member::Member;
use braid_ondisk::Superblock;

use crate::completions;
use crate::core::Core;
use crate::executor::ring;
use crate::executor::submitter::Submitter;
use crate::members::handle::{MemberHandle, Place};
use crate::sync::Arc;

/// How often it is looked whether a member that is taken out is idle by now. Rare enough to cost nothing that counts, and no
/// request has to count itself for it.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

impl Core {
    /// Takes a member in, under a name that no other has: from now on it can be asked.
    ///
    /// # Errors
    /// It needs threads, and there are none to be had. It is not taken in then.
    ///
    /// # Panics
    /// When there is one of this name.
    pub(crate) fn register_member(
        self: &Arc<Self>,
        id: MemberId,
        (device, superblock): (Box<dyn Member>, Superblock),
        place: Place,
    ) -> io::Result<()> {
        let threads_max = self.members.threads_max;
        let member = Arc::new(MemberHandle::new(id, device, superblock, place, threads_max));
        completions::connect(self, &member);
        let is_on_ring =
            self.workers.is_some() && member.raw().is_some() && !member.admission.is_suspect();
        if !is_on_ring && !member.admission.is_here() {
            member.crew.man_all().inspect_err(|_| {
                member.crew.stop();
                member.crew.join();
            })?;
        }
        if let Some(drivers) = &self.workers {
            // A process that is killed keeps the members' locks until what is in flight on its rings has ended, past the page
            // cache as well, where the opening that is written to has none: hence all openings.
            ring::files(&member).iter().for_each(|file| drivers.workers.register(file));
        }
        self.members.add(member);
        Ok(())
    }

    /// Begins nothing more at a member, and waits until everything that was asked of it has ended; false if that took
    /// longer than `patience`, and it has not. No worker may call it, nor may one that holds [`crate::members::Members::load`].
    pub(crate) fn drain_member(self: &Arc<Self>, id: MemberId, patience: Duration) -> bool {
        self.members.close_to_new(id);
        let Some(member) = self.members.load().get(id).map(Arc::clone) else { return true };
        let began = Instant::now();
        while !self.is_idle(&member) {
            if began.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(DRAIN_INTERVAL);
        }
        true
    }
    /// Whether nothing waits for a member, and nothing is out, in its elevator neither.
    pub(crate) fn is_idle(self: &Arc<Self>, member: &MemberHandle) -> bool {
        let submitter = Submitter::new(self, member);
        let counters = member.scheduler.counters(&submitter);
        self.drive_heard(submitter.into_heard(), None);
        counters.waiting_reads + counters.waiting_writes + counters.out == 0 && member.is_idle()
    }

    /// Closes a member that is drained, or waits until it is: when this returns its threads have ended, no ring knows its
    /// files, and its device has been dropped. The same holds for the caller as in [`Self::drain_member`].
    ///
    /// # Panics
    /// When there is none of this name.
    pub(crate) fn close_member(self: &Arc<Self>, id: MemberId) {
        drop(self.take_out(id));
    }

    /// The same, but its device stays open: gives it.
    pub(crate) fn take_out(self: &Arc<Self>, id: MemberId) -> Box<dyn Member> {
        let _whole_patience = self.drain_member(id, Duration::MAX);
        let member = self.members.load().get(id).map(Arc::clone).expect("it is registered");
        member.crew.stop();
        member.crew.join();
        // What a thread had taken from the queue may have given something to a ring.
        let _whole_patience = self.drain_member(id, Duration::MAX);
        self.unregister_files(&member);
        self.members.remove(id);
        let last = Arc::into_inner(member);
        let last = last.expect("all who had the member had it from the table");
        // What its device is decides for the others, too.
        self.schedule_again();
        last.into_device()
    }

    /// Has rings know no member any more, so that closing their devices gives up their locks.
    pub(crate) fn unregister_members(&self) {
        self.members.load().iter().for_each(|member| self.unregister_files(member));
    }

    fn unregister_files(&self, member: &MemberHandle) {
        let Some(drivers) = &self.workers else { return };
        ring::files(member).iter().for_each(|file| drivers.workers.unregister(file));
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
