//! Keeps the time: acts when a moment has come, on a worker or on a thread of its own.
//!
//! Place in the flow: above the loop, which it wakes. [`crate::alarm`] knows the moments and
//! sleepers.

use std::io;

use braid_engine::array::MemberId;
use braid_member::{Sentinel, SentinelEvent};
use braid_ring::{Wake, Worker};

use crate::alarm::{AlarmOutcome, SleepEnd, Start, WakeTarget};
use crate::core::Core;
use crate::events::{ArrayEvent, Machine, ShardEvent};
use crate::executor::submitter::Submitter;
use crate::looks::Next;
use crate::members::handle::MemberHandle;
use crate::sync::{Arc, Weak, thread};

/// Receives moments from workers. Its reference to the array is weak, since a moment may lie far
/// ahead.
struct AlarmPort(Weak<Core>);

impl Core {
    /// Starts the alarm. Fails if a thread is needed and cannot be started.
    pub(crate) fn keep_time(self: &Arc<Self>) -> io::Result<()> {
        self.alarm.connect(start_of(Arc::downgrade(self)));
        match &self.workers {
            Some(drivers) => drivers.connect(Arc::new(AlarmPort(Arc::downgrade(self)))),
            None => self.alarm.keep_by_thread()?,
        }
        self.set_next_look();
        Ok(())
    }

    /// Acts on a moment for which a worker or the alarm's thread slept, and which has come.
    fn rang(self: &Arc<Self>, place: usize) {
        match self.alarm.rang(place, self.clock.now()) {
            AlarmOutcome::Nothing => {}
            AlarmOutcome::Later(arm) => self.arm(Some(arm)),
            AlarmOutcome::Wake(target) => self.wake_up(target),
        }
    }

    fn wake_up(self: &Arc<Self>, target: WakeTarget) {
        match target {
            WakeTarget::Held(member) => self.dispatch_held(member),
            WakeTarget::Look => {
                // Read before the check of the members, since the check may give members' threads
                // work.
                let are_idle = self.are_members_idle();
                self.look_at_members();
                self.look_again_or_rest(are_idle);
            }
            WakeTarget::Due(machine) => {
                match machine {
                    Machine::Array => self.array.push(ArrayEvent::Timeout),
                    Machine::Shard(index) => self.shard(index).combiner.push(ShardEvent::Timeout),
                };
                self.drive(machine);
            }
        }
    }

    /// Whether no member has operations in flight, and no member is watched after it was slow to
    /// answer.
    fn are_members_idle(&self) -> bool {
        let is_well = |member: &Arc<MemberHandle>| {
            let is_back = !member.array_operations.has_left() || !member.rejoining.is_waiting();
            member.is_idle() && !member.admission.is_suspect() && is_back
        };
        self.members.load().iter().all(is_well)
    }

    /// Sets the time of the next check of the members, unless the checks can rest.
    fn look_again_or_rest(self: &Arc<Self>, are_idle: bool) {
        match self.looks.note_look(are_idle) {
            Next::Look => self.set_next_look(),
            Next::LookOnce => {
                if !self.hears_of_all() {
                    self.looks.stay_awake();
                }
                // One more check finds changes from before the sentinel watched.
                self.set_next_look();
            }
            Next::Rest => {}
        }
    }

    /// Makes the sentinel watch all members; returns false if it cannot.
    fn hears_of_all(self: &Arc<Self>) -> bool {
        // A model's members are no files, and its time does not cover a wait for the kernel.
        if cfg!(any(loom, shuttle)) {
            return false;
        }
        let members = self.members.load();
        let mut findable = members.iter().filter(|member| member.has_place()).peekable();
        if findable.peek().is_none() {
            return true;
        }
        let sentinel = self.end.sentinel.get().or_else(|| self.start_hearing().ok());
        // A vanished member need not be watched: the array knows that already, or the next check
        // reports it.
        let is_heard = |sentinel: &Sentinel, member: &MemberHandle| {
            sentinel.watch(member.path()).is_ok() || member.device.has_vanished()
        };
        sentinel.is_some_and(|sentinel| findable.all(|member| is_heard(sentinel, member)))
    }

    /// Starts the sentinel. Looks do not overlap, so no other thread starts a sentinel meanwhile.
    /// Fails if the kernel has no inotify to offer, or no thread starts.
    fn start_hearing(self: &Arc<Self>) -> io::Result<&Arc<Sentinel>> {
        let sentinel = Arc::new(Sentinel::new()?);
        let (core, hearing) = (Arc::clone(self), Arc::clone(&sentinel));
        let hear = move || {
            while hearing.wait().is_ok_and(|event| event == SentinelEvent::Look) {
                // A member's file may have gone: ask for a check of all files. A check under way
                // may have passed that file already, so another check follows.
                core.note_asked();
            }
        };
        let thread = thread::Builder::new().name("braid-names".into()).spawn(hear)?;
        self.end.threads.lock().expect("starting does not panic").push(thread);
        let sentinel = self.end.sentinel.get_or_init(|| sentinel);
        // The thread that stops the array may not have found this thread's sentinel. So this thread
        // checks for a stop and ends its own sentinel.
        if self.alarm.is_stopped() {
            sentinel.end();
        }
        Ok(sentinel)
    }

    /// Checks every member. A deleted file still takes writes, but no program will ever find their
    /// data again. A member whose work waits for a thread gets a thread now, if one can be started.
    fn look_at_members(self: &Arc<Self>) {
        let members = self.members.load();
        let (mut notified, mut silent, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for member in members.iter() {
            member.look();
            match member.array_operations.has_left() {
                true => left.extend(member.rejoining.is_waiting().then(|| member.id())),
                false => silent.extend(member.silent_ms().map(|ms| (member.id(), ms))),
            }
            let submitter = Submitter::new(self, member);
            // A member that is being removed gets no new operation, since it may have no thread
            // left to answer. A member that has left gets none either: its return shows whether it
            // still exists.
            let is_open = members.open_to_new(member.id()).is_some();
            submitter.look(is_open && !member.array_operations.has_left());
            notified.extend(submitter.into_notified());
        }
        // Dropped early, since a change of the table waits for its readers.
        drop(members);
        notified.into_iter().for_each(|machine| self.drive(machine));
        self.note_silence(silent);
        for id in left {
            let is_idle = |member: &Arc<MemberHandle>| self.is_idle(member);
            if self.members.load().get(id).is_some_and(is_idle) {
                self.look_at_left(id);
            }
        }
    }

    /// Reports members that have been silent for too long to the array.
    fn note_silence(self: &Arc<Self>, silent: Vec<(MemberId, u64)>) {
        let limit_ms = self.patience.lock().expect("setting does not panic").silence_ms;
        let longest_ms = silent.iter().map(|(_, silent_ms)| *silent_ms).max();
        if longest_ms.zip(limit_ms).is_some_and(|(longest_ms, limit_ms)| longest_ms >= limit_ms) {
            self.array.push(ArrayEvent::Silence(silent));
            self.drive(Machine::Array);
        }
    }
}

fn start_of(core: Weak<Core>) -> Start {
    Box::new(move || {
        let Some(of) = core.upgrade() else { return Ok(()) };
        let core = Weak::clone(&core);
        let thread = thread::Builder::new().name("braid-alarm".into()).spawn(move || run(&core))?;
        of.end.threads.lock().expect("starting does not panic").push(thread);
        Ok(())
    })
}

/// The alarm's thread. The thread holds a reference to the core while it sleeps, which may be an
/// hour. The thread that ends the array stops the alarm.
fn run(core: &Weak<Core>) {
    while let Some(core) = core.upgrade() {
        match core.alarm.sleep(&core.clock) {
            SleepEnd::Stopped => return,
            SleepEnd::Until(place) => core.rang(place),
            SleepEnd::Disturbed => {}
        }
    }
}

impl Wake for AlarmPort {
    fn wake(self: Arc<Self>, _: &Worker, token: u64) {
        let Some(core) = self.0.upgrade() else { return };
        core.rang(usize::try_from(token).expect("one of our tokens"));
    }

    fn forgotten(self: Arc<Self>, _: u64) {
        let Some(core) = self.0.upgrade() else { return };
        core.alarm.keep_without_workers();
    }
}
