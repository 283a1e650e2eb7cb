//! The transport on io_uring workers: one worker serves each connection, which has no threads of
//! its own.
//!
//! Where it stands: the transport carries out the tasks of a [`Connection`] with operations of
//! `braid-ring`. [`WorkerConnections`] is one worker's part of a server: the connections dealt to
//! it. A *link* is a connection with its socket and its operations. Links do nothing while a turn's
//! completions arrive; then all links proceed at once:
//!
//! ```text
//!   completions: received, sent ─┐
//!   other threads: finished ─────┼─► listed ─► advance ─► tasks ─► export
//!   moments: deadlines ──────────┘                ▲  (ends at once) │
//!                                                 └──── finished ◄──┘
//!                     then, once for each link: one send with all replies, one receive
//! ```
//!
//! So requests that arrive together are submitted together, and replies that are ready together
//! leave in one call. A request that ends on another thread goes to an inbox, and wakes the worker.
//!
//! Invariants
//! - A link is dropped only when the ring has none of its memory and the export none of its
//!   requests, so a token names one connection: asserted in `complete`, and all of
//!   `tests/over_the_ring.rs`.
//! - A panic, of this crate or of an export, ends in this module:
//!   `tests/hostile.rs::a_panicking_export_costs_one_connection`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use braid_ring::client::{Outcome, Receiver, Token};
use braid_ring::{Handler, Inbox, Operation, Segments, Wake, Worker, Workers};

use crate::budget::Bell;
use crate::connection::{Batch, Connection, Identity, ReceiveBuffers, Task};
use crate::shared::Shared;
use crate::socket::Socket;
use crate::task::slot_of;
use crate::task::{TaskResult, perform};

/// Delay after a deadline that means: the worker was stopped, or had no processor.
const LATE: Duration = Duration::from_secs(1);

/// The kind of event, in the low bits of a token; the link's index is in the bits above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Received = 0,
    Sent = 1,
    Deadline = 2,
    Turn = 3,
    CloseAll = 4,
    LookAll = 5,
}

impl Event {
    const BITS: u32 = 3;

    fn token(self, link: usize) -> u64 {
        ((link as u64) << Self::BITS) | self as u64
    }

    fn of(token: u64) -> (Self, usize) {
        let events =
            [Self::Received, Self::Sent, Self::Deadline, Self::Turn, Self::CloseAll, Self::LookAll];
        let number = usize::try_from(token & ((1 << Self::BITS) - 1)).expect("three bits");
        let link = usize::try_from(token >> Self::BITS).expect("made from an index");
        (events[number], link)
    }
}

enum WorkerMessage {
    /// An operation of the export has ended.
    Finished { token: Token, outcome: Outcome },
    /// The connection's bell has rung: memory may be free. If the index belongs to another
    /// connection by now, advancing that connection does no harm.
    Memory { index: usize },
}

struct LinkBell {
    connections: Weak<WorkerConnections>,
    index: usize,
}

impl Bell for LinkBell {
    fn ring(&self) {
        if let Some(connections) = self.connections.upgrade() {
            connections.post(WorkerMessage::Memory { index: self.index });
        }
    }
}

struct Link {
    id: u64,
    connection: Connection,
    /// The link's socket; `None` once it is closed.
    socket: Option<Arc<Socket>>,
    receiving: Option<ReceiveBuffers>,
    sending: Option<Batch>,
    /// A batch of replies of which only a part has been sent.
    continued: Option<Batch>,
    to_send: Segments,
    to_receive: Segments,
    /// The deadline for which the worker has set a timer.
    wakes_at: Option<Instant>,
    is_listed: bool,
    is_touched: bool,
}

#[derive(Default)]
struct State {
    links: Vec<Option<Box<Link>>>,
    free: Vec<usize>,
    listed: Vec<usize>,
    /// Links that were advanced in this turn.
    touched: Vec<usize>,
    messages: Vec<WorkerMessage>,
    tasks: Vec<Task>,
    is_put_off: bool,
}

pub(crate) struct WorkerConnections {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    index: usize,
    state: Mutex<State>,
    inbox: Inbox<WorkerMessage>,
}

pub(crate) fn deal(shared: &Arc<Shared>, workers: &Arc<Workers>) -> Vec<Arc<WorkerConnections>> {
    let of = |index| WorkerConnections {
        shared: Arc::clone(shared),
        workers: Arc::clone(workers),
        index,
        state: Mutex::default(),
        inbox: Inbox::new(true),
    };
    (0..workers.count()).map(|index| Arc::new(of(index))).collect()
}

impl Receiver for WorkerConnections {
    fn receive(self: Arc<Self>, token: Token, outcome: Outcome) {
        self.post(WorkerMessage::Finished { token, outcome });
    }
}

impl Handler for WorkerConnections {
    fn complete(self: Arc<Self>, worker: &Worker, completion: braid_ring::Completion) {
        let braid_ring::Completion { token, result, mut operation, .. } = completion;
        let (event, index) = Event::of(token);
        let memory = operation.memory().map(std::mem::take).expect("both have memory");
        drop(operation);
        let mut state = lock(&self.state);
        let link = state.link(index);
        self.guard(link, |link| match event {
            Event::Received => link.received(memory, result),
            Event::Sent => link.sent(memory, result),
            other => unreachable!("{other:?} is no operation"),
        });
        state.list(index);
        self.put_off(&mut state, worker);
    }
}

impl Wake for WorkerConnections {
    fn wake(self: Arc<Self>, worker: &Worker, token: u64) {
        let mut state = lock(&self.state);
        match Event::of(token) {
            (Event::Deadline, index) => {
                // If the index belongs to another connection by now, an extra look at that
                // connection does no harm.
                let Some(link) = state.links[index].as_mut() else { return };
                let now = Instant::now();
                if link.wakes_at.is_some_and(|at| at + LATE <= now) {
                    link.connection.was_not_looked_after(now);
                }
                // An outdated timer may fire as well: keep the time of one that has not fired yet.
                link.wakes_at = link.wakes_at.filter(|at| *at > now);
                link.connection.handle_time(now);
                state.list(index);
            }
            (Event::CloseAll, _) => {
                for index in 0..state.links.len() {
                    if let Some(link) = state.links[index].as_mut() {
                        link.connection.close();
                        state.list(index);
                    }
                }
            }
            (Event::LookAll, _) => {
                for index in 0..state.links.len() {
                    if state.links[index].is_some() {
                        state.list(index);
                    }
                }
            }
            _ => state.is_put_off = false,
        }
        self.turn(&mut state, worker);
    }
}

impl WorkerConnections {
    fn post(self: &Arc<Self>, message: WorkerMessage) {
        let bell = self.inbox.push(message, false);
        // Workers that have stopped have closed every connection, so drop the outcomes for these.
        if let Ok(braid_ring::Bell::Ring) = bell
            && self.call(Event::Turn).is_err()
        {
            let _awake = self.inbox.close();
            self.inbox.take(&mut Vec::new());
        }
    }

    fn call(self: &Arc<Self>, event: Event) -> Result<(), braid_ring::WorkersStopped> {
        let sleeper: Arc<dyn Wake> = Arc::<Self>::clone(self);
        self.workers.wake(self.index, sleeper, event.token(0))
    }

    pub(crate) fn begin(self: &Arc<Self>, identity: Identity, socket: Arc<Socket>) -> bool {
        let connections = Arc::clone(self);
        let add = Box::new(move |worker: &Worker| connections.add(worker, identity, socket));
        self.workers.post(self.index, add).is_ok()
    }

    pub(crate) fn close_all(self: &Arc<Self>) {
        // Fails only if the workers have stopped, which have then closed their connections.
        let _ = self.call(Event::CloseAll);
    }

    /// Advances all connections, so that they notice the server's stop.
    pub(crate) fn look_all(self: &Arc<Self>) {
        // Fails only if the workers have stopped, which have then closed their connections.
        let _ = self.call(Event::LookAll);
    }

    fn add(self: &Arc<Self>, worker: &Worker, identity: Identity, socket: Arc<Socket>) {
        let id = identity.id;
        let mut state = lock(&self.state);
        let index = state.free.pop().unwrap_or_else(|| {
            state.links.push(None);
            state.links.len() - 1
        });
        let bell: Arc<dyn Bell> = Arc::new(LinkBell { connections: Arc::downgrade(self), index });
        let connection = || Connection::new(&self.shared, identity, Instant::now(), bell);
        let Ok(connection) = catch_unwind(AssertUnwindSafe(connection)) else {
            self.shared.counters.panics.add(1);
            state.free.push(index);
            drop(socket);
            return self.shared.registry.leave(id);
        };
        let link = Box::new(Link {
            id,
            connection,
            socket: Some(socket),
            receiving: None,
            sending: None,
            continued: None,
            to_send: Segments::new(),
            to_receive: Segments::new(),
            wakes_at: None,
            is_listed: false,
            is_touched: false,
        });
        state.links[index] = Some(link);
        state.list(index);
        self.turn(&mut state, worker);
    }

    /// Schedules a turn that runs after all completions that have arrived.
    fn put_off(self: &Arc<Self>, state: &mut State, worker: &Worker) {
        if !std::mem::replace(&mut state.is_put_off, true) {
            worker.afterwards(Arc::<Self>::clone(self), Event::Turn.token(0));
        }
    }

    /// Runs `body` for one link; a panic in it closes the link's connection.
    fn guard(&self, link: &mut Link, body: impl FnOnce(&mut Link)) {
        if catch_unwind(AssertUnwindSafe(|| body(link))).is_err() {
            self.shared.counters.panics.add(1);
            link.connection.close();
        }
    }

    fn turn(self: &Arc<Self>, state: &mut State, worker: &Worker) {
        let now = Instant::now();
        loop {
            self.take_messages(state);
            if state.listed.is_empty() && self.inbox.sleep() {
                break;
            }
            for place in 0..state.listed.len() {
                self.advance(state, place, now);
            }
            state.listed.clear();
        }
        let mut touched = std::mem::take(&mut state.touched);
        for index in touched.drain(..) {
            self.carry(state, index, worker);
        }
        state.touched = touched;
        // The budget's bells only push a message to an inbox, whose lock is held for a moment.
        self.shared.budget.ring();
    }

    fn take_messages(&self, state: &mut State) {
        let mut messages = std::mem::take(&mut state.messages);
        self.inbox.take(&mut messages);
        for one in messages.drain(..) {
            match one {
                WorkerMessage::Finished { token, outcome } => {
                    let index = usize::try_from(token.client).expect("made from an index");
                    let link = state.link(index);
                    self.guard(link, |link| link.connection.finished(slot_of(token), outcome));
                    state.list(index);
                }
                WorkerMessage::Memory { index } => {
                    let Some(link) = state.links[index].as_mut() else { continue };
                    let is_gone = || link.socket.as_ref().is_some_and(|socket| socket.is_hung_up());
                    if link.connection.waits_for_memory() && is_gone() {
                        link.connection.close();
                    }
                    state.list(index);
                }
            }
        }
        state.messages = messages;
    }

    /// Advances one listed link, and carries out its tasks on the export.
    fn advance(self: &Arc<Self>, state: &mut State, place: usize, now: Instant) {
        let State { links, listed, touched, tasks, .. } = state;
        let index = listed[place];
        let link = links[index].as_mut().expect("one that is listed is there");
        link.is_listed = false;
        if !std::mem::replace(&mut link.is_touched, true) {
            touched.push(index);
        }
        self.guard(link, |link| {
            link.connection.advance(now);
            link.connection.take_tasks(tasks);
        });
        if tasks.is_empty() {
            return;
        }
        let receiver: Arc<dyn Receiver> = Arc::<Self>::clone(self);
        for task in tasks.drain(..) {
            if link.connection.is_closed() {
                task.slot().into_iter().for_each(|slot| link.connection.abandon(slot));
                continue;
            }
            let export = link.connection.export_of(&task);
            match perform(task, &*export, &receiver, index as u64) {
                TaskResult::Submitted => {}
                TaskResult::Described { slot, extents, asked } => {
                    self.guard(link, |link| link.connection.described(slot, &extents, asked));
                }
                TaskResult::Claimed(_) => unreachable!("threads serve exports that take claims"),
                TaskResult::Panicked { undone } => {
                    self.shared.counters.panics.add(1);
                    link.connection.close();
                    undone.into_iter().for_each(|slot| link.connection.abandon(slot));
                }
            }
        }
    }

    /// Submits a link's operations to the ring, and drops the link when its connection is over.
    fn carry(self: &Arc<Self>, state: &mut State, index: usize, worker: &Worker) {
        let link = state.link(index);
        link.is_touched = false;
        self.guard(link, |link| {
            let Some(socket) = &link.socket else { return };
            if link.connection.is_closed() {
                return socket.cut();
            }
            let descriptor = || socket.descriptor();
            let next = match link.continued.take() {
                Some(batch) => {
                    link.connection.goes_on_sending();
                    Some(batch)
                }
                None => link.connection.batch(),
            };
            if let Some(mut batch) = next {
                let mut memory = std::mem::take(&mut link.to_send);
                batch.lend(&mut memory);
                let send = Operation::Send { socket: descriptor(), memory, more: false };
                link.sending = Some(batch);
                worker.submit(send, Arc::<Self>::clone(self), Event::Sent.token(index));
            }
            if link.connection.takes_end_of_sending() {
                socket.stop_sending();
            }
            if let Some(mut receive) = link.connection.receive() {
                let mut memory = std::mem::take(&mut link.to_receive);
                receive.lend(&mut memory);
                let whole = receive.is_whole();
                let operation = Operation::Receive { socket: descriptor(), memory, whole };
                link.receiving = Some(receive);
                worker.submit(operation, Arc::<Self>::clone(self), Event::Received.token(index));
            }
            // A deadline only moves later: keep the timer, and check the deadline again when it
            // fires.
            let is_earlier = |at: &Instant| link.wakes_at.is_none_or(|wakes_at| *at < wakes_at);
            if let Some(at) = link.connection.deadline().filter(is_earlier) {
                link.wakes_at = Some(at);
                worker.wake_at(at, Arc::<Self>::clone(self), Event::Deadline.token(index));
            }
        });
        if link.connection.is_closed()
            && let Some(batch) = link.continued.take()
        {
            link.connection.sent(batch, Err(io::ErrorKind::BrokenPipe.into()));
        }
        let is_idle = link.receiving.is_none() && link.sending.is_none();
        if link.connection.is_closed() && is_idle && link.socket.take().is_some() {
            self.shared.registry.leave(link.id);
        }
        if link.connection.is_gone() && is_idle {
            state.links[index] = None;
            state.free.push(index);
        }
    }
}

impl State {
    fn link(&mut self, index: usize) -> &mut Link {
        self.links[index].as_mut().expect("a link is kept while anything of it is out")
    }

    fn list(&mut self, index: usize) {
        if !std::mem::replace(&mut self.link(index).is_listed, true) {
            self.listed.push(index);
        }
    }
}

impl Link {
    fn received(&mut self, mut memory: Segments, result: io::Result<usize>) {
        let mut receive = self.receiving.take().expect("one receive is out");
        receive.take_back(&mut memory);
        self.to_receive = memory;
        self.connection.received(receive, result);
    }

    fn sent(&mut self, mut memory: Segments, result: io::Result<usize>) {
        let mut batch = self.sending.take().expect("one send is out");
        batch.take_back(&mut memory);
        self.to_send = memory;
        match result {
            Ok(bytes) if !batch.advance(bytes) => self.continued = Some(batch),
            result => self.connection.sent(batch, result.map(drop)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
