//! The transport on io_uring workers: each connection lives on one of them, and no thread is its own.
//!
//! Where it stands: it carries out what a [`Connection`] asks, with operations of `braid-ring`. A *desk* is the part of a
//! server that one worker has: the connections dealt to it, each in a *seat*. A desk does nothing while a turn's
//! completions are told, and then everything at once:
//!
//! ```text
//!   completions: received, sent ─┐
//!   other threads: finished ─────┼─► listed ─► advance ─► tasks ─► export
//!   moments: deadlines ──────────┘                ▲  (ends at once) │
//!                                                 └──── finished ◄──┘
//!                     then, once for each seat: one send with all replies, one receive
//! ```
//!
//! So requests that came together are submitted together, and replies that are ready together leave in one system
//! call. What ends on another thread is left in the desk's list, and the worker is woken if it sleeps.
//!
//! Invariants
//! - A seat is free only when none of its memory is out and none of its requests with the export, so that a token names
//!   one connection: asserted in `complete`, and all of `tests/over_the_ring.rs`.
//! - A panic, ours or an export's, ends here: `tests/hostile.rs::a_panicking_export_costs_one_connection`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use braid_ring::{Handler, Inbox, Operation, Segments, Wake, Worker, Workers};

use crate::budget::Bell;
use crate::connection::{Batch, Connection, Identity, Receive, Task};
use crate::export::{Outcome, Receiver, Token};
use crate::server::Shared;
use crate::socket::Socket;
use crate::task::{Done, perform};

/// A worker that tells a connection the time so late was stopped, or had no processor.
const LATE: Duration = Duration::from_secs(1);

/// What a worker's token says to a desk; a seat's index stands above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errand {
    Received = 0,
    Sent = 1,
    Deadline = 2,
    Turn = 3,
    CloseAll = 4,
    LookAll = 5,
}

impl Errand {
    const BITS: u32 = 3;

    fn token(self, seat: usize) -> u64 {
        ((seat as u64) << Self::BITS) | self as u64
    }

    fn of(token: u64) -> (Self, usize) {
        let errands =
            [Self::Received, Self::Sent, Self::Deadline, Self::Turn, Self::CloseAll, Self::LookAll];
        let number = usize::try_from(token & ((1 << Self::BITS) - 1)).expect("three bits");
        let seat = usize::try_from(token >> Self::BITS).expect("made from an index");
        (errands[number], seat)
    }
}

/// Something for a seat, from whatever thread.
enum Left {
    /// The end of an operation.
    Finished { token: Token, outcome: Option<Outcome> },
    /// There may be memory for it now; by then it may be somebody else's, whom it tells nothing new.
    Memory { index: usize },
}

/// Has a seat ask for memory again.
struct SeatBell {
    desk: Weak<Desk>,
    index: usize,
}

impl Bell for SeatBell {
    fn ring(&self) {
        if let Some(desk) = self.desk.upgrade() {
            desk.leave(Left::Memory { index: self.index });
        }
    }
}

/// One connection.
struct Seat {
    id: u64,
    connection: Connection,
    /// Until it is closed.
    socket: Option<Arc<Socket>>,
    receiving: Option<Receive>,
    sending: Option<Batch>,
    /// A batch of which more is to be sent.
    continued: Option<Batch>,
    /// Lists of memory, while they are not out.
    to_send: Segments,
    to_receive: Segments,
    /// The moment that the worker knows of.
    wakes_at: Option<Instant>,
    is_listed: bool,
    is_touched: bool,
}

/// What only the desk's worker touches.
#[derive(Default)]
struct State {
    seats: Vec<Option<Box<Seat>>>,
    free: Vec<usize>,
    /// Seats to be advanced.
    listed: Vec<usize>,
    /// Seats that were, in this turn.
    touched: Vec<usize>,
    /// Memory of lists that are empty between turns.
    left: Vec<Left>,
    tasks: Vec<Task>,
    is_put_off: bool,
}

/// See the module.
pub(crate) struct Desk {
    shared: Arc<Shared>,
    workers: Arc<Workers>,
    /// The worker's.
    index: usize,
    state: Mutex<State>,
    /// Left by anybody.
    left: Inbox<Left>,
}

/// One desk for each worker.
pub(crate) fn desks(shared: &Arc<Shared>, workers: &Arc<Workers>) -> Vec<Arc<Desk>> {
    let desk = |index| Desk {
        shared: Arc::clone(shared),
        workers: Arc::clone(workers),
        index,
        state: Mutex::default(),
        left: Inbox::new(true),
    };
    (0..workers.count()).map(|index| Arc::new(desk(index))).collect()
}

impl Receiver for Desk {
    fn receive(self: Arc<Self>, token: Token, outcome: Option<Outcome>) {
        self.leave(Left::Finished { token, outcome });
    }
}

impl Handler for Desk {
    fn complete(self: Arc<Self>, worker: &Worker, completion: braid_ring::Completion) {
        let braid_ring::Completion { token, result, mut operation, .. } = completion;
        let (errand, index) = Errand::of(token);
        let memory = operation.memory().map(std::mem::take).expect("both have memory");
        drop(operation);
        let mut state = lock(&self.state);
        let seat = state.seat(index);
        self.guard(seat, |seat| match errand {
            Errand::Received => seat.received(memory, result),
            Errand::Sent => seat.sent(memory, result),
            other => unreachable!("{other:?} is no operation"),
        });
        state.list(index);
        self.put_off(&mut state, worker);
    }
}

impl Wake for Desk {
    fn wake(self: Arc<Self>, worker: &Worker, token: u64) {
        let mut state = lock(&self.state);
        match Errand::of(token) {
            (Errand::Deadline, index) => {
                // It may be somebody else's seat by now; then this tells it nothing new.
                let Some(seat) = state.seats[index].as_mut() else { return };
                let now = Instant::now();
                if seat.wakes_at.is_some_and(|at| at + LATE <= now) {
                    seat.connection.was_not_looked_after(now);
                }
                // One that was put forward has been there already.
                seat.wakes_at = seat.wakes_at.filter(|at| *at > now);
                seat.connection.handle_time(now);
                state.list(index);
            }
            (Errand::CloseAll, _) => {
                for index in 0..state.seats.len() {
                    if let Some(seat) = state.seats[index].as_mut() {
                        seat.connection.close();
                        state.list(index);
                    }
                }
            }
            (Errand::LookAll, _) => {
                for index in 0..state.seats.len() {
                    if state.seats[index].is_some() {
                        state.list(index);
                    }
                }
            }
            _ => state.is_put_off = false,
        }
        self.turn(&mut state, worker);
    }
}

impl Desk {
    fn leave(self: &Arc<Self>, left: Left) {
        let bell = self.left.push(left, false);
        // Workers that have stopped have stopped every connection as well: what is left for one is for nobody.
        if let Ok(braid_ring::Bell::Ring) = bell
            && self.call(Errand::Turn).is_err()
        {
            let _awake = self.left.close();
            self.left.take(&mut Vec::new());
        }
    }

    fn call(self: &Arc<Self>, errand: Errand) -> Result<(), braid_ring::Refused> {
        let sleeper: Arc<dyn Wake> = Arc::<Self>::clone(self);
        self.workers.wake(self.index, sleeper, errand.token(0))
    }

    /// Takes a connection in; false if the workers have stopped.
    pub(crate) fn begin(self: &Arc<Self>, identity: Identity, socket: Arc<Socket>) -> bool {
        let desk = Arc::clone(self);
        let seat = Box::new(move |worker: &Worker| desk.seat(worker, identity, socket));
        self.workers.post(self.index, seat).is_ok()
    }

    /// Ends all connections, whatever they are doing.
    pub(crate) fn close_all(self: &Arc<Self>) {
        // Workers that have stopped serve nobody any more.
        let _ = self.call(Errand::CloseAll);
    }

    /// Has all connections look at what has changed: the server stops.
    pub(crate) fn look_all(self: &Arc<Self>) {
        // As in `close_all`.
        let _ = self.call(Errand::LookAll);
    }

    fn seat(self: &Arc<Self>, worker: &Worker, identity: Identity, socket: Arc<Socket>) {
        let id = identity.id;
        let mut state = lock(&self.state);
        let index = state.free.pop().unwrap_or_else(|| {
            state.seats.push(None);
            state.seats.len() - 1
        });
        let bell: Arc<dyn Bell> = Arc::new(SeatBell { desk: Arc::downgrade(self), index });
        let connection = || Connection::new(&self.shared, identity, Instant::now(), bell);
        let Ok(connection) = catch_unwind(AssertUnwindSafe(connection)) else {
            self.shared.counters.panics.add(1);
            state.free.push(index);
            drop(socket);
            return self.shared.registry.leave(id);
        };
        let seat = Box::new(Seat {
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
        state.seats[index] = Some(seat);
        state.list(index);
        self.turn(&mut state, worker);
    }

    /// Has a turn once all completions have been told.
    fn put_off(self: &Arc<Self>, state: &mut State, worker: &Worker) {
        if !std::mem::replace(&mut state.is_put_off, true) {
            worker.afterwards(Arc::<Self>::clone(self), Errand::Turn.token(0));
        }
    }

    /// Runs our own code for one seat; if it panics, that connection is over.
    fn guard(&self, seat: &mut Seat, body: impl FnOnce(&mut Seat)) {
        if catch_unwind(AssertUnwindSafe(|| body(seat))).is_err() {
            self.shared.counters.panics.add(1);
            seat.connection.close();
        }
    }

    /// Goes on with everybody who is listed, until nobody is.
    fn turn(self: &Arc<Self>, state: &mut State, worker: &Worker) {
        let now = Instant::now();
        loop {
            self.take_left(state);
            if state.listed.is_empty() && self.left.sleep() {
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
        // Bells are left in inboxes, which are nobody's lock for long.
        self.shared.budget.ring();
    }

    fn take_left(&self, state: &mut State) {
        let mut left = std::mem::take(&mut state.left);
        self.left.take(&mut left);
        for one in left.drain(..) {
            match one {
                Left::Finished { token, outcome } => {
                    let index = usize::try_from(token.connection).expect("made from an index");
                    let seat = state.seat(index);
                    self.guard(seat, |seat| seat.connection.finished(token.slot, outcome));
                    state.list(index);
                }
                Left::Memory { index } => {
                    let Some(seat) = state.seats[index].as_mut() else { continue };
                    let is_gone = || seat.socket.as_ref().is_some_and(|socket| socket.is_hung_up());
                    if seat.connection.waits_for_memory() && is_gone() {
                        seat.connection.close();
                    }
                    state.list(index);
                }
            }
        }
        state.left = left;
    }

    /// Has one listed seat go on, and carries out on the export what it asks.
    fn advance(self: &Arc<Self>, state: &mut State, place: usize, now: Instant) {
        let State { seats, listed, touched, tasks, .. } = state;
        let index = listed[place];
        let seat = seats[index].as_mut().expect("whoever is listed has a seat");
        seat.is_listed = false;
        if !std::mem::replace(&mut seat.is_touched, true) {
            touched.push(index);
        }
        self.guard(seat, |seat| {
            seat.connection.advance(now);
            seat.connection.take_tasks(tasks);
        });
        if tasks.is_empty() {
            return;
        }
        let export = seat.connection.export().map(Arc::clone);
        let export = export.expect("a task comes after negotiation");
        let receiver: Arc<dyn Receiver> = Arc::<Self>::clone(self);
        for task in tasks.drain(..) {
            if seat.connection.is_closed() {
                seat.connection.abandon(task.slot());
                continue;
            }
            match perform(task, &*export, &receiver, index as u64) {
                Done::Submitted => {}
                Done::Described { slot, extents, asked } => {
                    self.guard(seat, |seat| seat.connection.described(slot, &extents, asked));
                }
                Done::Panicked { undone } => {
                    self.shared.counters.panics.add(1);
                    seat.connection.close();
                    undone.into_iter().for_each(|slot| seat.connection.abandon(slot));
                }
            }
        }
    }

    /// Gives a seat's operations to the ring, and lets it go when it is over.
    fn carry(self: &Arc<Self>, state: &mut State, index: usize, worker: &Worker) {
        let seat = state.seat(index);
        seat.is_touched = false;
        self.guard(seat, |seat| {
            let Some(socket) = &seat.socket else { return };
            if seat.connection.is_closed() {
                return socket.cut();
            }
            let descriptor = || socket.descriptor();
            let next = match seat.continued.take() {
                Some(batch) => {
                    seat.connection.goes_on_sending();
                    Some(batch)
                }
                None => seat.connection.batch(),
            };
            if let Some(mut batch) = next {
                let mut memory = std::mem::take(&mut seat.to_send);
                batch.lend(&mut memory);
                let send = Operation::Send { socket: descriptor(), memory, more: false };
                seat.sending = Some(batch);
                worker.submit(send, Arc::<Self>::clone(self), Errand::Sent.token(index));
            }
            if seat.connection.takes_end_of_sending() {
                socket.stop_sending();
            }
            if let Some(mut receive) = seat.connection.receive() {
                let mut memory = std::mem::take(&mut seat.to_receive);
                receive.lend(&mut memory);
                let whole = receive.is_whole();
                let operation = Operation::Receive { socket: descriptor(), memory, whole };
                seat.receiving = Some(receive);
                worker.submit(operation, Arc::<Self>::clone(self), Errand::Received.token(index));
            }
            // One that moves on has its deadline moved on; it is looked at when the first one comes.
            let is_earlier = |at: &Instant| seat.wakes_at.is_none_or(|wakes_at| *at < wakes_at);
            if let Some(at) = seat.connection.deadline().filter(is_earlier) {
                seat.wakes_at = Some(at);
                worker.wake_at(at, Arc::<Self>::clone(self), Errand::Deadline.token(index));
            }
        });
        if seat.connection.is_closed()
            && let Some(batch) = seat.continued.take()
        {
            seat.connection.sent(batch, Err(io::ErrorKind::BrokenPipe.into()));
        }
        let is_idle = seat.receiving.is_none() && seat.sending.is_none();
        if seat.connection.is_closed() && is_idle && seat.socket.take().is_some() {
            self.shared.registry.leave(seat.id);
        }
        if seat.connection.is_gone() && is_idle {
            state.seats[index] = None;
            state.free.push(index);
        }
    }
}

impl State {
    fn seat(&mut self, index: usize) -> &mut Seat {
        self.seats[index].as_mut().expect("a seat is kept while anything of it is away")
    }

    fn list(&mut self, index: usize) {
        if !std::mem::replace(&mut self.seat(index).is_listed, true) {
            self.listed.push(index);
        }
    }
}

impl Seat {
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
