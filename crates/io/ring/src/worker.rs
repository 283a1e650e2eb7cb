//! One worker: a thread, its ring, and the loop around them.
//!
//! Only the worker's own thread touches a worker's fields; other threads leave items in its inbox.
//! Handlers are called with nothing borrowed, so they may call back.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::counters::add;
use crate::files::Descriptor;
use crate::flight::{EndedOperation, Flight};
use crate::operation::{Handler, Operation, Wake};
use crate::timers::Timers;
use crate::workers::{Item, Mailbox, Shared};

/// How long a stop waits for peers to receive pending sends.
const SENDING_GRACE: Duration = Duration::from_secs(2);

enum Task {
    Wake(Arc<dyn Wake>, u64),
    Posted(Item),
}

/// A worker, as code that runs on its thread sees it.
pub struct Worker {
    index: usize,
    shared: Arc<Shared>,
    flight: RefCell<Flight>,
    timers: RefCell<Timers>,
    tasks: RefCell<Vec<Task>>,
    /// Whether this worker counts as work under way: see [`Shared`].
    is_counted: Cell<bool>,
    sends_until: Cell<Option<Instant>>,
    /// The number of the current batch of completions, as in `Self::batch`.
    batch: Cell<u64>,
}

/// The last batch number that any worker used.
static BATCHES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CURRENT: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<Shared>, flight: Flight) -> Self {
        Self {
            index,
            shared,
            flight: RefCell::new(flight),
            timers: RefCell::default(),
            tasks: RefCell::default(),
            is_counted: Cell::new(true),
            sends_until: Cell::new(None),
            batch: Cell::new(0),
        }
    }

    pub(crate) fn current() -> Option<Rc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// This worker's number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The number of the batch of completions that is being delivered, unique in this process; 0
    /// before the first batch. All operations of a batch ended before the first completion was
    /// delivered.
    pub fn batch(&self) -> u64 {
        self.batch.get()
    }

    /// Gives an operation to this worker's ring. The operation reaches the kernel at the end of
    /// this turn.
    ///
    /// # Panics
    /// If the operation would write into constant memory, or has more than 256 segments.
    pub fn submit(&self, operation: Operation, handler: Arc<dyn Handler>, token: u64) {
        self.flight.borrow_mut().submit(operation, handler, token);
    }

    /// Registers a file with this worker's ring, which makes operations on it a little cheaper. The
    /// file stays open until [`Self::unregister`], or the worker's end. If the ring's table is
    /// full, nothing happens.
    pub fn register(&self, file: &Descriptor) {
        self.flight.borrow_mut().register(file);
    }

    /// Undoes [`Self::register`]. A file without other holders or operations in flight is closed.
    pub fn unregister(&self, file: &Descriptor) {
        self.flight.borrow_mut().unregister(file);
    }

    /// Ends the operations of `handler` with `token` on this worker early. Each operation still
    /// completes: as `ECANCELED`, or, if the cancel came too late, with its own result.
    pub fn cancel(&self, handler: &Arc<dyn Handler>, token: u64) {
        let is_meant = |of: &Arc<dyn Handler>, name: u64, _: &Operation| {
            name == token && std::ptr::addr_eq(Arc::as_ptr(of), Arc::as_ptr(handler))
        };
        self.flight.borrow_mut().cancel(is_meant);
    }

    /// Calls [`Wake::wake`] once this turn's completions have all been delivered.
    pub fn afterwards(&self, sleeper: Arc<dyn Wake>, token: u64) {
        self.tasks.borrow_mut().push(Task::Wake(sleeper, token));
    }

    /// Calls [`Wake::wake`] at the moment `at`, or soon after. The call cannot be cancelled: a
    /// sleeper that no longer needs it ignores it. A stop drops the timer and reports that
    /// ([`Wake::forgotten`]).
    pub fn wake_at(&self, at: Instant, sleeper: Arc<dyn Wake>, token: u64) {
        self.timers.borrow_mut().add(at, sleeper, token);
    }

    pub(crate) fn put_off(&self, item: Item) {
        self.tasks.borrow_mut().push(Task::Posted(item));
    }

    fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[self.index]
    }

    /// The thread's body: runs until a stop is requested and no work is left.
    pub(crate) fn run(self: Rc<Self>) {
        CURRENT.set(Some(Rc::clone(&self)));
        self.flight.borrow_mut().watch(self.mailbox().bell.as_fd());
        let (mut ended, mut items, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            add(&self.mailbox().tally.turns, 1);
            self.tell(&mut ended);
            self.mailbox().inbox.take(&mut items);
            let posted = items.len();
            if posted > 0 {
                self.count();
                add(&self.mailbox().tally.posted, posted);
            }
            self.tasks.borrow_mut().extend(items.drain(..).map(Task::Posted));
            self.look_at_the_clock();
            std::mem::swap(&mut *self.tasks.borrow_mut(), &mut tasks);
            tasks.drain(..).for_each(|task| self.perform(task));
            self.shared.uncount(posted);
            if self.shared.is_stopping() && self.is_over() {
                break;
            }
            self.sleep();
        }
        CURRENT.set(None);
        self.flight.borrow_mut().unregister_all();
        let forgotten = self.timers.borrow_mut().take();
        forgotten.for_each(|(sleeper, token)| sleeper.forgotten(token));
    }

    fn tell(&self, ended: &mut Vec<EndedOperation>) {
        let mut flight = self.flight.borrow_mut();
        if flight.reap(ended) {
            flight.watch(self.mailbox().bell.as_fd());
        }
        drop(flight);
        if !ended.is_empty() {
            self.batch.set(BATCHES.fetch_add(1, Ordering::Relaxed) + 1);
        }
        for EndedOperation { handler, completion } in ended.drain(..) {
            handler.complete(self, completion);
        }
    }

    fn look_at_the_clock(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        loop {
            let due = self.timers.borrow_mut().due(now);
            let Some((sleeper, token)) = due else { return };
            sleeper.wake(self, token);
        }
    }

    fn perform(&self, task: Task) {
        match task {
            Task::Wake(sleeper, token) | Task::Posted(Item::Wake(sleeper, token)) => {
                sleeper.wake(self, token);
            }
            Task::Posted(Item::Call(call)) => call(self),
            Task::Posted(Item::Submit(operation, handler, token)) => {
                self.submit(operation, handler, token);
            }
            Task::Posted(Item::WakeAt(at, sleeper, token)) => self.wake_at(at, sleeper, token),
            Task::Posted(Item::Cancel(handler, token)) => self.cancel(&handler, token),
        }
    }

    /// Submits this turn's entries, then polls for up to `busy_poll`. Returns whether it found
    /// work.
    fn polls(&self) -> bool {
        let longest = self.shared.busy_poll;
        if longest.is_zero() || !self.tasks.borrow().is_empty() || self.shared.is_stopping() {
            return false;
        }
        let mut flight = self.flight.borrow_mut();
        flight.enter(None);
        let timers = self.timers.borrow();
        let begun = Instant::now();
        loop {
            if flight.has_ended() || self.mailbox().inbox.has_items() || self.shared.is_stopping() {
                return true;
            }
            let now = Instant::now();
            let is_due = timers.until_next(now).is_some_and(|left| left.is_zero());
            if is_due || now - begun >= longest {
                return is_due;
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&self) {
        if self.polls() {
            return;
        }
        // Checked only after this worker has marked itself as asleep. The thread that ends the last
        // operation checks for sleepers afterwards, so one of the two sees the other.
        let is_idle = self.tasks.borrow().is_empty()
            && self.mailbox().inbox.sleep()
            && !self.shared.is_over();
        let sleep = is_idle.then(|| {
            let nearest = match self.timers.borrow().is_empty() {
                true => None,
                false => self.timers.borrow().until_next(Instant::now()),
            };
            let grace = self.shared.is_stopping().then_some(SENDING_GRACE);
            [nearest, grace].into_iter().flatten().min()
        });
        self.flight.borrow_mut().enter(sleep);
    }

    fn count(&self) {
        if !self.is_counted.replace(true) {
            self.shared.under_way.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_over(&self) -> bool {
        let now = Instant::now();
        let sends_until = self.sends_until.get().unwrap_or(now + SENDING_GRACE);
        self.sends_until.set(Some(sends_until));
        let mut flight = self.flight.borrow_mut();
        flight.cancel(|_, _, operation| {
            let is_send = matches!(operation, Operation::Send { .. });
            operation.waits_for_a_peer() || (is_send && now >= sends_until)
        });
        if flight.in_flight() > 0 || !self.tasks.borrow().is_empty() {
            self.count();
            return false;
        }
        if self.is_counted.replace(false) {
            self.shared.uncount(1);
        }
        self.shared.is_over()
    }
}
