//! All workers together: starting, handing work to them, stopping.
//!
//! `Settings` holds the defaults: as many workers as processors, up to four, with 256 entries each.
//!
//! # Stopping
//!
//! A stop first closes the inboxes to all threads but the workers themselves. Then each worker ends
//! operations that wait for peers. The worker goes on until no work is under way on *any* worker,
//! because one worker may give work to another. The work under way is one number. Every item in an
//! inbox counts one until it has been handled. Every worker counts one while it has operations in
//! flight or tasks. An item is counted before it is pushed. A worker counts itself before it stops
//! counting the items that it took. So the number is zero only when all work is done.
//! [check: stop_waits_for_what_is_in_flight] [check: a_stop_under_load_loses_nothing]

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::counters::{Counters, Tally};
use crate::error::RingError;
use crate::files::Descriptor;
use crate::flight::Flight;
use crate::inbox::{Bell, Inbox};
use crate::operation::{Handler, Operation, Wake};
use crate::setup;
use crate::worker::Worker;

/// Settings of the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of workers; at least 1.
    pub workers: usize,
    /// Entries of the submission queue, rounded up to a power of two; more operations wait.
    pub entries: u32,
    /// The name of the threads.
    pub name: &'static str,
    /// How long an idle worker polls before it sleeps. Meanwhile the worker occupies a processor,
    /// and new work begins without a wake-up.
    pub busy_poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Beyond four workers, one more worker costs the others more than it gains on one array.
        Self {
            workers: cores.min(4),
            entries: 256,
            name: "braid-worker",
            busy_poll: Duration::ZERO,
        }
    }
}

/// Code to run on a worker.
pub type Call = Box<dyn FnOnce(&Worker) + Send>;

pub(crate) enum Item {
    Wake(Arc<dyn Wake>, u64),
    Call(Call),
    Submit(Operation, Arc<dyn Handler>, u64),
    WakeAt(Instant, Arc<dyn Wake>, u64),
    Cancel(Arc<dyn Handler>, u64),
}

/// The workers have been stopped; work given to them now would never be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the workers are stopping")]
pub struct WorkersStopped;

pub(crate) struct Mailbox {
    pub(crate) inbox: Inbox<Item>,
    /// Written to wake a sleeping worker. No code reads it: the kernel reports each write.
    pub(crate) bell: OwnedFd,
    pub(crate) tally: Arc<Tally>,
}

pub(crate) struct Shared {
    pub(crate) mailboxes: Vec<Mailbox>,
    stopping: AtomicBool,
    pub(crate) under_way: AtomicUsize,
    pub(crate) busy_poll: Duration,
}

impl Shared {
    fn new(workers: usize, busy_poll: Duration) -> Result<Self, RingError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let failed = |errno: Errno| RingError::System { call: "eventfd", error: errno.into() };
        let mailbox = |_| -> Result<Mailbox, RingError> {
            let bell = eventfd(0, flags).map_err(failed)?;
            Ok(Mailbox { inbox: Inbox::new(false), bell, tally: Arc::default() })
        };
        let mailboxes = (0..workers).map(mailbox).collect::<Result<_, _>>()?;
        let (stopping, under_way) = (AtomicBool::new(false), AtomicUsize::new(workers));
        Ok(Self { mailboxes, stopping, under_way, busy_poll })
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether a stop was requested and no work is left.
    pub(crate) fn is_over(&self) -> bool {
        self.is_stopping() && self.under_way.load(Ordering::SeqCst) == 0
    }

    /// Subtracts `things` from the work under way. At zero, wakes all workers, so that they see
    /// that they may end.
    pub(crate) fn uncount(&self, things: usize) {
        if things == 0 {
            return;
        }
        if self.under_way.fetch_sub(things, Ordering::SeqCst) == things && self.is_stopping() {
            for mailbox in &self.mailboxes {
                mailbox.ring(mailbox.inbox.disturb());
            }
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for mailbox in &self.mailboxes {
            mailbox.ring(mailbox.inbox.close());
        }
    }
}

impl Mailbox {
    fn ring(&self, bell: Bell) {
        if bell == Bell::Leave {
            return;
        }
        self.tally.wakes.fetch_add(1, Ordering::Relaxed);
        loop {
            match rustix::io::write(&self.bell, &1_u64.to_ne_bytes()) {
                // The eventfd is full after 2^64 wakes, and a full eventfd still wakes the worker.
                Ok(_) | Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(errno) => panic!("an eventfd can be written to: {errno}"),
            }
        }
    }
}

/// Threads with one ring each. Dropping this value stops the workers.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts the workers.
    ///
    /// # Errors
    /// io_uring is not available here ([`RingError::is_lack`]), or a thread could not be started.
    pub fn start(settings: &Settings) -> Result<Self, RingError> {
        let count = settings.workers.max(1);
        let shared = Arc::new(Shared::new(count, settings.busy_poll)?);
        let workers = Self { shared, threads: Mutex::default() };
        let (ready, started) = mpsc::channel();
        for index in 0..count {
            let (shared, ready) = (Arc::clone(&workers.shared), ready.clone());
            let entries = settings.entries.clamp(2, 32768);
            let body = move || run(index, shared, entries, ready);
            let thread = thread::Builder::new().name(settings.name.into()).spawn(body);
            let thread =
                thread.map_err(|error| RingError::System { call: "pthread_create", error });
            match thread {
                Ok(thread) => workers.lock().push(thread),
                Err(error) => {
                    // The workers that got no thread do not count as work under way.
                    workers.shared.uncount(count - index);
                    return Err(error);
                }
            }
        }
        drop(ready);
        // If one worker fails to start, dropping `workers` stops the others.
        started.iter().find_map(Result::err).map_or(Ok(workers), Err)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of workers.
    pub fn count(&self) -> usize {
        self.shared.mailboxes.len()
    }

    /// The worker that this thread runs, if this thread is one of these workers.
    pub fn current(&self) -> Option<Rc<Worker>> {
        Worker::current().filter(|worker| worker.is_of(&self.shared))
    }

    /// Gives an operation to this thread's own ring if this thread is one of these workers.
    /// Otherwise worker `otherwise` (modulo the number of workers) gets it.
    ///
    /// # Errors
    /// After [`Self::stop`], from a thread that is no worker; the handler is not called.
    pub fn submit(
        &self,
        otherwise: usize,
        operation: Operation,
        handler: Arc<dyn Handler>,
        token: u64,
    ) -> Result<(), WorkersStopped> {
        match self.current() {
            Some(worker) => {
                worker.submit(operation, handler, token);
                Ok(())
            }
            None => self.leave(otherwise, Item::Submit(operation, handler, token)),
        }
    }

    /// Soon calls [`Worker::register`] on each worker.
    pub fn register(&self, file: &Descriptor) {
        for on in 0..self.count() {
            let file = Descriptor::clone(file);
            // The post fails only if the workers are stopping, and then they need no registration.
            let _ = self.post(on, Box::new(move |worker| worker.register(&file)));
        }
    }

    /// Calls [`Worker::unregister`] on each worker. When this returns, all workers have released
    /// the file. If called on a worker's own thread, the other workers release it soon: workers do
    /// not wait for each other.
    pub fn unregister(&self, file: &Descriptor) {
        let (done, all_done) = mpsc::channel();
        for on in 0..self.count() {
            let (file, done) = (Descriptor::clone(file), done.clone());
            let unregister = move |worker: &Worker| {
                worker.unregister(&file);
                drop(file);
                // The send fails if the caller has stopped waiting.
                let _ = done.send(());
            };
            let _ = self.post(on, Box::new(unregister));
        }
        drop(done);
        if self.current().is_none() {
            all_done.iter().for_each(drop);
        }
    }

    /// Runs code on worker `on` (modulo the number of workers).
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub fn post(&self, on: usize, call: Call) -> Result<(), WorkersStopped> {
        self.leave(on, Item::Call(call))
    }

    /// Calls [`Wake::wake`] on worker `on` (modulo the number of workers), without allocating.
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub fn wake(
        &self,
        on: usize,
        sleeper: Arc<dyn Wake>,
        token: u64,
    ) -> Result<(), WorkersStopped> {
        self.leave(on, Item::Wake(sleeper, token))
    }

    /// Another worker that sleeps, if this thread is a worker. The sleeper may have been woken
    /// since.
    #[must_use]
    pub fn sleeper(&self) -> Option<usize> {
        let (own, count) = (self.current()?.index(), self.count());
        let mut others = (own + 1..own + count).map(|on| on % count);
        others.find(|on| self.shared.mailboxes[*on].inbox.seems_asleep())
    }

    /// Calls [`Worker::wake_at`] on this thread's own worker if this thread is one of these
    /// workers, else on worker `otherwise` (modulo the number of workers).
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub fn wake_at(
        &self,
        otherwise: usize,
        at: Instant,
        sleeper: Arc<dyn Wake>,
        token: u64,
    ) -> Result<(), WorkersStopped> {
        match self.current() {
            Some(worker) => {
                worker.wake_at(at, sleeper, token);
                Ok(())
            }
            None => self.leave(otherwise, Item::WakeAt(at, sleeper, token)),
        }
    }

    /// Calls [`Worker::cancel`] on worker `on` (modulo the number of workers).
    ///
    /// # Errors
    /// As for [`Self::submit`].
    pub fn cancel(
        &self,
        on: usize,
        handler: Arc<dyn Handler>,
        token: u64,
    ) -> Result<(), WorkersStopped> {
        self.leave(on, Item::Cancel(handler, token))
    }

    fn leave(&self, on: usize, item: Item) -> Result<(), WorkersStopped> {
        let on = on % self.count();
        let current = self.current();
        if let Some(worker) = current.as_ref().filter(|worker| worker.index() == on) {
            worker.put_off(item);
            return Ok(());
        }
        let mailbox = &self.shared.mailboxes[on];
        self.shared.under_way.fetch_add(1, Ordering::SeqCst);
        match mailbox.inbox.push(item, current.is_some()) {
            Ok(bell) => {
                mailbox.ring(bell);
                Ok(())
            }
            Err(_) => {
                self.shared.uncount(1);
                Err(WorkersStopped)
            }
        }
    }

    /// The counters of all workers, added up.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.shared.mailboxes.iter().for_each(|mailbox| mailbox.tally.add_to(&mut sum));
        sum
    }

    /// Stops the workers once all their work is done. Operations on files run to their end.
    /// Operations that wait for a peer end as cancelled, sends after two seconds; timers are
    /// dropped ([`Wake::forgotten`]). From then on only workers may give work to workers. Called on
    /// a worker's own thread, it requests the stop and does not wait for it.
    pub fn stop(&self) {
        self.shared.stop();
        if self.current().is_some() {
            return;
        }
        for thread in self.lock().drain(..) {
            thread.join().expect("a worker that panics ends the process");
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Workers({})", self.count())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends the process when a handler panics: see [`Handler`].
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

fn run(
    index: usize,
    shared: Arc<Shared>,
    entries: u32,
    ready: mpsc::Sender<Result<(), RingError>>,
) {
    let ring = match setup::ring(entries) {
        Ok(ring) => ring,
        Err(error) => {
            shared.uncount(1);
            // The send fails only if the starting thread has ended, and then no thread needs the
            // error.
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    // Dropped so that the starting thread, which listens until all senders are gone, can continue.
    drop(ready);
    let tally = Arc::clone(&shared.mailboxes[index].tally);
    let _guard = AbortOnPanic;
    Rc::new(Worker::new(index, shared, Flight::new(ring, tally))).run();
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn settings_are_within_reason() {
        let settings = Settings { workers: 0, entries: 0, name: "few", ..Settings::default() };
        let workers = Workers::start(&settings).expect("io_uring");
        assert_eq!(workers.count(), 1);
        workers.stop();
        assert_eq!(workers.post(0, Box::new(|_| ())), Err(WorkersStopped));
    }
}
