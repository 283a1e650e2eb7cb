//! A member's own threads: their work queue, and their number. Each thread waits for one system
//! call at a time ([`crate::executor`]).
//!
//! A member that stalls holds up its own threads and no other member's.
//!
//! If rings do the work, a member has no thread until an operation comes that a ring cannot do;
//! then it has one. If the operating system cannot start a thread, the operation waits, and the
//! alarm tries again (`tests/threads.rs`: `an_array_on_rings_has_no_threads_of_its_own`). A member
//! that may block its caller has all of its threads even if the array uses rings, and rings get
//! none of its operations ([`super::ring_admission`]).

use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;

use super::operation::Operation;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Condvar, Mutex, thread};

/// Starts one thread, which carries out queued operations until the queue is stopped
/// ([`MemberThreads::next`]).
pub(crate) type Start = Box<dyn Fn() -> io::Result<thread::JoinHandle<()>> + Send + Sync>;

/// A member's threads, and their queue.
pub(crate) struct MemberThreads {
    queue: Queue<Operation>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    count: AtomicUsize,
    /// Maximum number of threads; all of them run if rings do not do the work.
    count_max: usize,
    is_looking: AtomicBool,
    start: OnceLock<Start>,
}

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

    fn is_empty(&self) -> bool {
        self.state.lock().expect("queueing does not panic").work.is_empty()
    }

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

impl MemberThreads {
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            queue: Queue::new(),
            threads: Mutex::default(),
            count: AtomicUsize::new(0),
            count_max,
            is_looking: AtomicBool::new(false),
            start: OnceLock::new(),
        }
    }

    pub(crate) fn connect(&self, start: Start) {
        let is_first = self.start.set(start).is_ok();
        assert!(is_first, "a member is registered once");
    }

    /// Queues an operation for the threads and starts a thread if none runs. With `all`, because
    /// rings get none of the member's operations, starts all threads.
    pub(super) fn push(&self, operation: Operation, all: bool) {
        self.queue.push(operation);
        self.man_if_needed(all);
    }

    /// Waits for an operation; `None` if the calling thread must end.
    pub(crate) fn next(&self) -> Option<Operation> {
        self.queue.next()
    }

    /// Starts a thread if operations wait and none runs; with `all`, starts all threads.
    pub(super) fn man_if_needed(&self, all: bool) {
        // One thread is enough for the operations that rings cannot do.
        let wanted = if all { self.count_max } else { 1 };
        if self.count.load(Ordering::Acquire) < wanted && !self.queue.is_empty() {
            // If no thread starts, the alarm tries again.
            let _next_time = self.man(wanted);
        }
    }

    /// Starts all threads. Fails if the operating system cannot start them all.
    pub(crate) fn man_all(&self) -> io::Result<()> {
        self.man(self.count_max)
    }

    /// Starts threads up to `count`, unless the member was stopped: no caller would join new
    /// threads, which would keep the device open. Operations left in a stopped queue are never
    /// done, as with an abandoned read.
    fn man(&self, count: usize) -> io::Result<()> {
        let mut threads = self.threads.lock().expect("starting does not panic");
        // A stop marks the queue before it takes the threads out to join them. So either the stop
        // joins a thread that starts now, or the mark is seen here.
        if self.queue.is_stopped() {
            return Ok(());
        }
        let start = self.start.get().expect("it is registered");
        for _ in self.count.load(Ordering::Acquire)..count {
            threads.push(start()?);
            self.count.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Ends the threads once the queue is empty.
    pub(crate) fn stop(&self) {
        self.queue.stop();
    }

    pub(crate) fn join(&self) {
        let next = || self.threads.lock().expect("starting does not panic").pop();
        while let Some(thread) = next() {
            thread.join().expect("a thread of an array does not panic");
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn is_looking(&self) -> bool {
        self.is_looking.load(Ordering::Acquire)
    }

    /// Notes that a look at the member begins; returns false if one is pending already.
    pub(crate) fn begin_look(&self) -> bool {
        !self.is_looking.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_look(&self) {
        self.is_looking.store(false, Ordering::Release);
    }
}
