//! Keeps the time: what is done when a moment has come, by a worker or by a thread of its own.
//!
//! Where it stands: above the loop, which it wakes. Which moments there are, and which sleeper has them, is
//! [`crate::alarm`]'s.

use std::io;

use braid_engine::array::MemberId;
use braid_member::{Sentinel, Word};
use braid_ring::{Wake, Worker};

use crate::alarm::{Rang, Slept, Start, Woken};
use crate::core::Core;
use crate::events::{ArrayEvent, Machine, ShardEvent};
use crate::executor::submitter::Submitter;
use crate::looks::Next;
use crate::members::handle::MemberHandle;
use crate::sync::{Arc, Weak, thread};

/// What workers tell of moments. It keeps no array: a moment may be far away.
struct AlarmPort(Weak<Core>);

impl Core {
    /// Begins to keep the time.
    ///
    /// # Errors
    /// It needs a thread, and there is none to be had.
    pub(crate) fn keep_time(self: &Arc<Self>) -> io::Result<()> {
        self.alarm.connect(start_of(Arc::downgrade(self)));
        match &self.workers {
            Some(drivers) => drivers.connect(Arc::new(AlarmPort(Arc::downgrade(self)))),
            None => self.alarm.keep_by_thread()?,
        }
        self.set_next_look();
        Ok(())
    }

    /// A moment that a sleeper was given has come.
    fn rang(self: &Arc<Self>, place: usize) {
        match self.alarm.rang(place, self.clock.now()) {
            Rang::Nothing => {}
            Rang::Later(arm) => self.arm(Some(arm)),
            Rang::Woken(woken) => self.wake_up(woken),
        }
    }

    fn wake_up(self: &Arc<Self>, woken: Woken) {
        match woken {
            Woken::Held(member) => self.dispatch_held(member),
            Woken::Look => {
                // Before: a look may be a member's threads' work.
                let are_idle = self.are_members_idle();
                self.look_at_members();
                self.look_again_or_rest(are_idle);
            }
            Woken::Due(machine) => {
                match machine {
                    Machine::Array => self.array.push(ArrayEvent::Timeout),
                    Machine::Shard(index) => self.shard(index).combiner.push(ShardEvent::Timeout),
                };
                self.drive(machine);
            }
        }
    }

    /// Whether nothing is under way at any member, and none is to be watched for how it answers.
    fn are_members_idle(&self) -> bool {
        let is_well = |member: &Arc<MemberHandle>| {
            let is_back = !member.for_array.has_left() || !member.rejoining.is_waiting();
            member.is_idle() && !member.admission.is_suspect() && is_back
        };
        self.members.load().iter().all(is_well)
    }

    /// Members are looked at once more after a while, unless nothing can come of it.
    fn look_again_or_rest(self: &Arc<Self>, are_idle: bool) {
        match self.looks.note_look(are_idle) {
            Next::Look => self.set_next_look(),
            Next::LookOnce => {
                if !self.hears_of_all() {
                    self.looks.stay_awake();
                }
                // What has happened before it was listened for is seen by this look.
                self.set_next_look();
            }
            Next::Rest => {}
        }
    }

    /// Has all members listened for; false if that cannot be.
    fn hears_of_all(self: &Arc<Self>) -> bool {
        // A model's members are no files, and the kernel would be waited for outside its time.
        if cfg!(any(loom, shuttle)) {
            return false;
        }
        let members = self.members.load();
        let mut findable = members.iter().filter(|member| member.has_place()).peekable();
        if findable.peek().is_none() {
            return true;
        }
        let sentinel = self.end.sentinel.get().or_else(|| self.start_hearing().ok());
        // Of one that has vanished there is no more to be heard; the array knows, or the next look tells it.
        let is_heard = |sentinel: &Sentinel, member: &MemberHandle| {
            sentinel.watch(member.path()).is_ok() || member.device.has_vanished()
        };
        sentinel.is_some_and(|sentinel| findable.all(|member| is_heard(sentinel, member)))
    }

    /// Starts to hear of members. One looks at a time, so none else starts meanwhile.
    ///
    /// # Errors
    /// The kernel has nothing for it, or no thread.
    fn start_hearing(self: &Arc<Self>) -> io::Result<&Arc<Sentinel>> {
        let sentinel = Arc::new(Sentinel::new()?);
        let (core, hearing) = (Arc::clone(self), Arc::clone(&sentinel));
        let hear = move || {
            while hearing.wait().is_ok_and(|word| word == Word::Look) {
                // As if something were asked: a look that is under way may have passed this member by already, and is not to
                // be the last.
                core.note_asked();
            }
        };
        let thread = thread::Builder::new().name("braid-names".into()).spawn(hear)?;
        self.end.threads.lock().expect("starting does not panic").push(thread);
        let sentinel = self.end.sentinel.get_or_init(|| sentinel);
        // Who stops ends the one that it finds.
        if self.alarm.is_stopped() {
            sentinel.end();
        }
        Ok(sentinel)
    }

    /// A file that was deleted still takes writes, but no program will ever find them again. And a member that has work for which
    /// no thread could be started gets one now, if it can be had.
    fn look_at_members(self: &Arc<Self>) {
        let members = self.members.load();
        let (mut heard, mut silent, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for member in members.iter() {
            member.look();
            match member.for_array.has_left() {
                true => left.extend(member.rejoining.is_waiting().then(|| member.id())),
                false => silent.extend(member.silent_ms().map(|ms| (member.id(), ms))),
            }
            let submitter = Submitter::new(self, member);
            // Nothing new is asked of one that is being taken out: no thread may be left to answer.
            // Nor of one that has left: whether it is there shows when it comes back.
            let is_open = members.open_to_new(member.id()).is_some();
            submitter.look(is_open && !member.for_array.has_left());
            heard.extend(submitter.into_heard());
        }
        // Who changes the table waits for those that hold it.
        drop(members);
        heard.into_iter().for_each(|machine| self.drive(machine));
        self.note_silence(silent);
        for id in left {
            let is_idle = |member: &Arc<MemberHandle>| self.is_idle(member);
            if self.members.load().get(id).is_some_and(is_idle) {
                self.look_at_left(id);
            }
        }
    }

    /// The array hears of members that have not answered for long, if it has been too long.
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

/// The thread's body. It has a share of the core while it sleeps, which may be an hour: who is done with the array stops the alarm.
fn run(core: &Weak<Core>) {
    while let Some(core) = core.upgrade() {
        match core.alarm.sleep(&core.clock) {
            Slept::Stopped => return,
            Slept::Until(place) => core.rang(place),
            Slept::Disturbed => {}
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
