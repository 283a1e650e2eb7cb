//! All that is done to members: one way in, one way out, and two back ends that carry it out.
//!
//! Where it stands: below the machines' loop ([`crate::core`]), above [`braid_member`] and [`braid_ring`].
//!
//! ```text
//!   machines ──▶ Lane::submit ──▶ room? (berth) ──▶ ring     a worker gives it to the kernel
//!                     ▲                    │  │
//!                     │ kept, in line ─────┘  ├───▶ threads  one of the member's own waits for it
//!                     │                       └───▶ memory   at once
//!   machines ◀── Lane::complete ◀────────────────────────────┘
//! ```
//!
//! Everything that is the same whoever carries it out stands above the back ends, and once: who may have room on a ring and
//! who is suspected of hanging ([`berth`]), elevators, trying again part by part, what an error is to the engine, counting,
//! whom to drive ([`lane`]). Below them are an operation as a ring does it ([`ring`], [`zeroing`]) and as a thread does it
//! ([`threads`]). A batch is a turn: what a worker's turn submits reaches the kernel together, and what a turn finds ended is
//! told before anything is driven.
//!
//! # Members come and go
//!
//! ```text
//!   register ──▶ used ──▶ drain: nothing new; what is out, in line, queued or in the elevator ends ──▶ close: the device is
//!                                                                                                     dropped when it returns
//! ```
//!
//! The table of members is read without a lock and replaced as a whole. One who replaces it waits until all have let the
//! old one go: from then on every thread sees the new one, and none that saw the old one is on its way to a back end.
//! So what is registered is used by whoever comes later, and what is drained is not begun by anyone any more.
//! [check: a_member_registered_later_is_used_and_one_taken_out_is_closed]

pub(crate) mod berth;
mod lane;
mod member;
mod operation;
mod ring;
pub(crate) mod threads;
mod zeroing;

use std::io;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use braid_engine::array::MemberId;
use braid_member::Member;
use braid_ondisk::Superblock;

use crate::core::Core;
use crate::sync::{Arc, Mutex, thread};

pub(crate) use lane::{Lane, follows, request};
pub(crate) use member::{MemberHandle, Place, is_memory};
pub(crate) use operation::Operation;

/// How often it is looked whether a member that is taken out is idle by now. Rare enough to be nobody's cost, and no
/// request has to count itself for it.
#[cfg_attr(not(test), allow(dead_code, reason = "no job takes members out yet"))]
const DRAIN_INTERVAL: Duration = Duration::from_millis(1);

/// One member in the table.
#[derive(Clone)]
struct Entry {
    member: Arc<MemberHandle>,
    /// It is being taken out: nothing new for it.
    is_leaving: bool,
}

/// All members there are, by their names.
#[derive(Clone, Default)]
pub(crate) struct Table(Vec<Option<Entry>>);

impl Table {
    fn entry(&self, id: MemberId) -> Option<&Entry> {
        self.0.get(usize::from(id.0))?.as_ref()
    }

    /// A member, unless there is none of this name.
    pub(crate) fn get(&self, id: MemberId) -> Option<&Arc<MemberHandle>> {
        self.entry(id).map(|entry| &entry.member)
    }

    /// The same for something new: none if it is being taken out.
    pub(crate) fn open_to_new(&self, id: MemberId) -> Option<&Arc<MemberHandle>> {
        self.entry(id).filter(|entry| !entry.is_leaving).map(|entry| &entry.member)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<MemberHandle>> {
        self.0.iter().flatten().map(|entry| &entry.member)
    }
}

/// The members of one array.
pub(crate) struct Members {
    table: ArcSwap<Table>,
    /// One change at a time.
    changing: Mutex<()>,
    /// Threads of each where rings do not do it.
    threads_max: usize,
}

impl Members {
    pub(crate) fn new(threads_max: usize) -> Self {
        Self { table: ArcSwap::default(), changing: Mutex::default(), threads_max }
    }

    /// The members as they are now, for a short while: who takes one out waits until this is let go.
    pub(crate) fn load(&self) -> Guard<Arc<Table>> {
        self.table.load()
    }

    /// Changes the table, and waits until no thread has the old one any more.
    fn change(&self, change: impl FnOnce(&mut Vec<Option<Entry>>)) {
        let _one = self.changing.lock().expect("changing does not panic");
        let mut table = Table::clone(&self.load());
        change(&mut table.0);
        let mut old = self.table.swap(Arc::new(table));
        while Arc::get_mut(&mut old).is_none() {
            thread::yield_now();
        }
    }

    /// Ends all members' threads once they have done what is queued.
    pub(crate) fn stop(&self) {
        self.load().iter().for_each(|member| member.crew.stop());
    }

    /// Waits for them to end.
    pub(crate) fn join(&self) {
        self.load().iter().for_each(|member| member.crew.join());
    }
}

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
        member.crew.connect(self);
        let is_first = member.ports.set(ring::Ports::new(self, id)).is_ok();
        assert!(is_first, "it was just made");
        let is_on_ring =
            self.workers.is_some() && member.raw().is_some() && !member.berth.is_suspect();
        if !is_on_ring && !member.is_memory() {
            member.crew.man_all(&member).inspect_err(|_| {
                member.crew.stop();
                member.crew.join();
            })?;
        }
        if let Some(drivers) = &self.workers {
            // A process that is killed keeps the members' locks until what is in flight on its rings has ended, past the page
            // cache as well, where the opening that is written to has none: hence all openings.
            ring::files(&member).iter().for_each(|file| drivers.workers.register(file));
        }
        self.members.change(|table| {
            let index = usize::from(id.0);
            if table.len() <= index {
                table.resize(index + 1, None);
            }
            let is_free = table[index].is_none();
            assert!(is_free, "a name is used once at a time");
            table[index] = Some(Entry { member, is_leaving: false });
        });
        Ok(())
    }

    /// Begins nothing more at a member, and waits until everything that was asked of it has ended; false if that took
    /// longer than `patience`, and it has not. No worker may call it, nor may one that holds [`Members::load`].
    #[cfg_attr(not(test), allow(dead_code, reason = "no job takes members out yet"))]
    pub(crate) fn drain_member(self: &Arc<Self>, id: MemberId, patience: Duration) -> bool {
        self.members.change(|table| {
            if let Some(Some(entry)) = table.get_mut(usize::from(id.0)) {
                entry.is_leaving = true;
            }
        });
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

    #[cfg_attr(not(test), allow(dead_code, reason = "as above"))]
    fn is_idle(self: &Arc<Self>, member: &MemberHandle) -> bool {
        let lane = Lane::new(self, member);
        let counters = member.scheduler.counters(&lane);
        self.drive_heard(lane.into_heard(), None);
        counters.waiting_reads + counters.waiting_writes + counters.out == 0 && member.is_idle()
    }

    /// Closes a member that is drained, or waits until it is: when this returns its threads have ended, no ring knows its
    /// files, and its device has been dropped. The same holds for the caller as in [`Self::drain_member`].
    ///
    /// # Panics
    /// When there is none of this name.
    #[cfg_attr(not(test), allow(dead_code, reason = "as above"))]
    pub(crate) fn close_member(self: &Arc<Self>, id: MemberId) {
        let _whole_patience = self.drain_member(id, Duration::MAX);
        let member = self.members.load().get(id).map(Arc::clone).expect("it is registered");
        member.crew.stop();
        member.crew.join();
        // What a thread had taken from the queue may have given something to a ring.
        let _whole_patience = self.drain_member(id, Duration::MAX);
        self.unregister_files(&member);
        self.members.change(|table| table[usize::from(id.0)] = None);
        let last = Arc::into_inner(member);
        assert!(last.is_some(), "all who had the member had it from the table");
    }

    /// Has rings know no member any more, so that whoever closes them gives up their locks.
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
