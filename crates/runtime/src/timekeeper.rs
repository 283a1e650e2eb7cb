//! Keeps the time: what is done when a moment has come, by a worker or by a thread of its own.
//!
//! Where it stands: above the loop, which it wakes. Which moments there are, and which sleeper has them, is
//! [`crate::alarm`]'s.

use std::io;

use braid_engine::Instant;
use braid_ring::{Wake, Worker};

use crate::alarm::{LOOK_INTERVAL, Rang, Slept, Start, Woken};
use crate::core::Core;
use crate::events::{ArrayEvent, Machine, ShardEvent};
use crate::executor::submitter::Submitter;
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

    fn set_next_look(&self) {
        let interval_ns = u64::try_from(LOOK_INTERVAL.as_nanos()).expect("half a second");
        let due = Instant(self.clock.now().0 + interval_ns);
        self.arm(self.alarm.set_look(due));
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
                self.look_at_members();
                self.set_next_look();
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

    /// A file that was deleted still takes writes, but no program will ever find them again. And a member that has work for which
    /// no thread could be started gets one now, if it can be had.
    fn look_at_members(self: &Arc<Self>) {
        let members = self.members.load();
        let mut heard = Vec::new();
        for member in members.iter() {
            member.admission.look();
            let submitter = Submitter::new(self, member);
            // Nothing new is asked of one that is being taken out: no thread may be left to answer.
            submitter.look(members.open_to_new(member.id()).is_some());
            heard.push(submitter.into_heard());
        }
        // Who changes the table waits for those that hold it.
        drop(members);
        heard.into_iter().for_each(|machines| self.drive_heard(machines, None));
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

/// The thread's body. It holds no lasting share of the core, so that dropping the volume ends it.
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
