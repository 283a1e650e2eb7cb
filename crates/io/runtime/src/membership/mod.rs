//! Members come and go while an array runs.
//!
//! ```text
//!   register ──▶ used ──▶ drain: nothing new; what is out, in line, queued or in the elevator ends
//!            ──▶ close: the device is dropped when it returns
//! ```
//!
//! Place in the flow: above the loop, since a drain needs operations to end. Every later operation
//! uses a registered member, and no thread begins an operation on a drained one
//! ([`crate::members`]) [check: a_member_registered_later_is_used_and_one_taken_out_is_closed].

use std::io;
use std::time::{Duration, Instant};

use braid_engine::array::MemberId;
use braid_member::Member;
use braid_ondisk::Superblock;

use crate::completions;
use crate::core::Core;
use crate::executor::ring;
use crate::executor::submitter::Submitter;
use crate::members::handle::MemberHandle;
use crate::sync::Arc;

/// Interval at which a member that is being taken out is checked for operations. The interval is
/// long enough to cost nothing, and no request needs to count itself for the check.
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

impl Core {
    /// Registers a member under a unique name; from then on the member takes operations. Fails, and
    /// registers nothing, if the member's threads cannot be started. Panics if another member has
    /// this name.
    pub(crate) fn register_member(
        self: &Arc<Self>,
        id: MemberId,
        (device, superblock): (Box<dyn Member>, Superblock),
        slot: Option<u16>,
    ) -> io::Result<()> {
        let threads_max = self.members.threads_max;
        let member = Arc::new(MemberHandle::new(id, device, superblock, slot, threads_max));
        completions::connect(self, &member);
        let is_on_ring =
            self.workers.is_some() && member.raw().is_some() && !member.admission.is_suspect();
        if !is_on_ring && !member.admission.is_here() {
            member.threads.man_all().inspect_err(|_| {
                member.threads.stop();
                member.threads.join();
            })?;
        }
        if let Some(drivers) = &self.workers {
            // After a kill, the members' locks last until the requests on the process's rings have
            // ended. Direct I/O goes through another opening of the file than the locked one, so
            // all openings are registered.
            ring::files(&member).iter().for_each(|file| drivers.workers.register(file));
        }
        self.members.add(member);
        Ok(())
    }

    /// Begins no more operations at a member, and waits until all have ended. Returns false if the
    /// wait took longer than `patience`. Neither a worker may call this function, nor a thread that
    /// holds [`crate::members::Members::load`].
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
    /// Whether no operation of a member is in flight, waits for the member, or waits in its
    /// elevator.
    pub(crate) fn is_idle(self: &Arc<Self>, member: &MemberHandle) -> bool {
        let submitter = Submitter::new(self, member);
        let counters = member.scheduler.counters(&submitter);
        self.drive_notified(submitter.into_notified(), None);
        counters.waiting_reads + counters.waiting_writes + counters.out == 0 && member.is_idle()
    }

    /// Closes a member, after waiting until it is drained. On return the member's threads have
    /// ended, no ring knows its files, and its device has been dropped. The same callers are
    /// excluded as in [`Self::drain_member`]. Panics if no member has this name.
    pub(crate) fn close_member(self: &Arc<Self>, id: MemberId) {
        drop(self.take_out(id));
    }

    /// As [`Self::close_member`], but returns the open device.
    pub(crate) fn take_out(self: &Arc<Self>, id: MemberId) -> Box<dyn Member> {
        let _whole_patience = self.drain_member(id, Duration::MAX);
        let member = self.members.load().get(id).map(Arc::clone).expect("it is registered");
        member.threads.stop();
        member.threads.join();
        // Drain again, since a thread may have moved an operation from the member's queue to a
        // ring.
        let _whole_patience = self.drain_member(id, Duration::MAX);
        self.unregister_files(&member);
        self.members.remove(id);
        let last = Arc::into_inner(member);
        let last = last.expect("all who had the member had it from the table");
        // Whether this member's device was rotational affects the scheduling of the other members.
        self.schedule_again();
        Box::new(last.into_device())
    }

    /// Unregisters all members from the rings, so that closing their devices releases their locks.
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
