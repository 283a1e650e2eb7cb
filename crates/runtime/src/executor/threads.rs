//! The back end that needs nothing but threads: a queue and a few of them for each member, each of which waits for one call
//! to the operating system at a time.
//!
//! A member that stalls holds up its own threads and no other member's.
//!
//! Where rings do the work a member has no thread until there is something that a ring cannot do; then it has one. If the
//! operating system has no thread to give just then, the work waits, and the alarm tries again
//! (`tests/threads.rs`: `an_array_on_rings_has_no_threads_of_its_own`). A member that may keep the caller has all of its
//! threads there as well, and nothing of it is for rings ([`super::berth`]).

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::OnceLock;

use braid_engine::computation::Span;
use braid_engine::effect::MemberOperation;
use braid_member::MemberError;
use smallvec::SmallVec;

use super::lane::Lane;
use super::member::MemberHandle;
use super::operation::{Flight, Item, Operation, span_of};
use crate::arena::{self, ShardMemory};
use crate::core::{AbortOnPanic, Core};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Condvar, Mutex, Weak, thread};

/// A member's threads, and what waits for them.
pub(crate) struct Crew {
    queue: Queue<Operation>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// How many there are.
    count: AtomicUsize,
    /// How many are started where rings cannot be used.
    count_max: usize,
    /// A look is asked for, and has not ended.
    is_looking: AtomicBool,
    /// Whom they serve.
    core: OnceLock<Weak<Core>>,
}

/// Work that waits for a thread.
pub(crate) struct Queue<W> {
    state: Mutex<QueueState<W>>,
    changed: Condvar,
}

struct QueueState<W> {
    work: VecDeque<W>,
    stopped: bool,
}

impl<W> Queue<W> {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(QueueState { work: VecDeque::new(), stopped: false });
        Self { state, changed: Condvar::new() }
    }

    pub(crate) fn push(&self, work: W) {
        self.state.lock().expect("queueing does not panic").work.push_back(work);
        self.changed.notify_one();
    }

    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.state.lock().expect("queueing does not panic").work.is_empty()
    }

    /// Whether the threads are to end.
    fn is_stopped(&self) -> bool {
        self.state.lock().expect("queueing does not panic").stopped
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.state.lock().expect("queueing does not panic").stopped = true;
        self.changed.notify_all();
    }

    /// Waits for work; `None` once the queue is stopped and empty.
    pub(crate) fn next(&self) -> Option<W> {
        let state = self.state.lock().expect("queueing does not panic");
        let idle = |state: &mut QueueState<W>| state.work.is_empty() && !state.stopped;
        let waited = self.changed.wait_while(state, idle);
        let mut state = waited.expect("queueing does not panic");
        if state.stopped && flaw::has(Flaw::QueueEndsEarly) {
            return None;
        }
        state.work.pop_front()
    }
}

impl Crew {
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            queue: Queue::new(),
            threads: Mutex::default(),
            count: AtomicUsize::new(0),
            count_max,
            is_looking: AtomicBool::new(false),
            core: OnceLock::new(),
        }
    }

    /// Says whom the threads are to serve.
    pub(super) fn connect(&self, core: &Arc<Core>) {
        let is_first = self.core.set(Arc::downgrade(core)).is_ok();
        assert!(is_first, "a member is registered once");
    }

    /// Leaves an operation for the member's threads, of which there is one at least from then on.
    pub(super) fn push(&self, member: &MemberHandle, operation: Operation) {
        self.queue.push(operation);
        self.man_if_needed(member);
    }

    /// Starts a thread if there is work and none to do it.
    pub(crate) fn man_if_needed(&self, member: &MemberHandle) {
        // One does what a ring cannot do; what is not for rings at all has all of them.
        let wanted = if member.berth.is_suspect() { self.count_max } else { 1 };
        if self.count.load(Ordering::Acquire) >= wanted || self.queue.is_empty() {
            return;
        }
        let Some(core) = self.core.get().and_then(Weak::upgrade) else { return };
        let members = core.members.load();
        if let Some(member) = members.get(member.id()) {
            // If there is none to be had, the alarm tries again.
            let _ = self.man(member, wanted);
        }
    }

    /// Starts as many as there may be.
    ///
    /// # Errors
    /// One could not be started.
    pub(super) fn man_all(&self, member: &Arc<MemberHandle>) -> io::Result<()> {
        self.man(member, self.count_max)
    }

    /// Starts threads until there are so many, unless the member was stopped: no one would wait for them, and they would
    /// keep the device open. What is left for them then will not be done, as with a read that was forsaken.
    fn man(&self, member: &Arc<MemberHandle>, count: usize) -> io::Result<()> {
        let mut threads = self.threads.lock().expect("starting does not panic");
        // Stopping comes before threads are taken out to be waited for: one that is started in spite of it is among them.
        if self.queue.is_stopped() {
            return Ok(());
        }
        for _ in self.count.load(Ordering::Acquire)..count {
            let (core, member) = (self.core.get().cloned(), Arc::clone(member));
            let core = core.expect("it is registered");
            let body = move || run(&core, &member);
            threads.push(thread::Builder::new().name("braid-member".into()).spawn(body)?);
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Ends the threads once the queue is empty.
    pub(super) fn stop(&self) {
        self.queue.stop();
    }

    /// Waits for all of them to end.
    pub(super) fn join(&self) {
        let next = || self.threads.lock().expect("starting does not panic").pop();
        while let Some(thread) = next() {
            thread.join().expect("a thread of an array does not panic");
        }
    }

    /// Whether nothing waits for them.
    #[cfg_attr(not(test), allow(dead_code, reason = "no computation takes members out yet"))]
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a look has not ended.
    pub(super) fn is_looking(&self) -> bool {
        self.is_looking.load(Ordering::Acquire)
    }

    /// Notes that a look is asked for; false if one is already.
    pub(super) fn begin_look(&self) -> bool {
        !self.is_looking.swap(true, Ordering::AcqRel)
    }

    /// It has ended.
    pub(super) fn end_look(&self) {
        self.is_looking.store(false, Ordering::Release);
    }
}

/// A thread's body: works the queue until it is stopped.
fn run(core: &Weak<Core>, member: &MemberHandle) {
    while let Some(operation) = member.crew.queue.next() {
        let Some(core) = core.upgrade() else { return };
        // The member's scheduler is a machine as well.
        let _guard = AbortOnPanic::new();
        let lane = Lane::new(&core, member);
        // A look is no request: that it ends says nothing of those.
        let is_request = !matches!(operation, Operation::Look);
        if is_request {
            member.berth.begin_aside();
        }
        lane.perform(operation);
        core.drive_heard(lane.into_heard(), None);
        if is_request {
            member.berth.end_aside();
        }
    }
}

/// Carries an operation out, on the thread that calls.
pub(super) fn perform(
    core: &Core,
    member: &MemberHandle,
    operation: &Operation,
) -> Result<(), MemberError> {
    let device = &member.device;
    match operation {
        Operation::Io(flight) if flight.parts().len() > 1 => vector(core, member, flight),
        Operation::Io(flight) | Operation::Apart(flight) => transfer(core, member, flight.first()),
        Operation::Flush => device.flush(),
        Operation::Metadata { bytes, offset_bytes, .. } => {
            device.write_at(bytes, *offset_bytes, true)
        }
        Operation::Look if device.has_vanished() => Err(MemberError::Truncated),
        Operation::Look => Ok(()),
    }
}

/// One part by itself.
pub(super) fn transfer(
    core: &Core,
    member: &MemberHandle,
    (shard, io): &Item,
) -> Result<(), MemberError> {
    let (memory, device) = (&core.shard(*shard).memory, &member.device);
    let (offset_bytes, length_bytes) = member.range(io);
    match io.operation {
        MemberOperation::Read { .. } => {
            let read = |bytes: &mut [u8]| device.read_at(bytes, offset_bytes);
            // A read that was forsaken has no request to read for.
            memory.write(span_of(io, length_bytes), read).unwrap_or(Ok(()))
        }
        MemberOperation::Write { durable, .. } => {
            let write = |bytes: &[u8]| device.write_at(bytes, offset_bytes, durable);
            memory.read(span_of(io, length_bytes), write)
        }
        MemberOperation::Zero { may_punch, durable } => {
            device.zero(offset_bytes, length_bytes, may_punch)?;
            if durable { device.flush() } else { Ok(()) }
        }
    }
}

/// Adjacent parts of one kind in one call.
fn vector(core: &Core, member: &MemberHandle, flight: &Flight) -> Result<(), MemberError> {
    let (offset_bytes, _) = member.range(&flight.first().1);
    let span = |(shard, io): &Item| (&core.shard(*shard).memory, span_of(io, member.range(io).1));
    let spans: SmallVec<[(&ShardMemory, Span); 16]> = flight.parts().iter().map(span).collect();
    match flight.first().1.operation {
        MemberOperation::Read { .. } => {
            let read = |buffers: &mut [IoSliceMut<'_>]| {
                member.device.read_vectored_at(buffers, offset_bytes)
            };
            // Some of them may have no request to read for any more; each by itself, it shows.
            arena::write_all(&spans, read).unwrap_or(Err(MemberError::Truncated))
        }
        MemberOperation::Write { durable, .. } => arena::read_all(&spans, |buffers| {
            member.device.write_vectored_at(buffers, offset_bytes, durable)
        }),
        MemberOperation::Zero { .. } => panic!("zeroing is not merged"),
    }
}
