//! The transport that needs only threads: a reader and a writer for each connection.
//!
//! Where it stands: this transport carries out the tasks of a [`Connection`] with blocking calls,
//! where io_uring is not allowed. The reader does everything but sending. The writer sends replies
//! in the order in which requests end, as many per system call as are waiting. A request may end on
//! any thread.
//!
//! This transport and [`crate::ring`] are two separate transports, not one over two kinds of ring.
//! The two transports share the [`Connection`], its tasks ([`crate::task`]) and the registry. They
//! differ in waiting and waking: threads use a lock and two conditions, the ring an inbox and
//! turns. They also differ in noticing a stalled client: threads use timeouts of calls, the ring
//! uses timers. Threads that imitated a ring would need one more thread that polls sockets, and a
//! hand-over to that thread for each request.
//!
//! ```text
//!   reader:  advance ─► tasks ─► export          writer:  batch ─► send ─► sent
//!              ▲  └─► receive                                 ▲               │
//!              └────── room ◄──────────────────────────── work ◄── finished   │
//!                       ▲─────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants
//! - No thread waits for a wake-up that never comes: `models`, under shuttle.
//! - A panic, of this crate or of an export, ends in this module:
//!   `tests/hostile.rs::a_panicking_export_costs_one_connection`.

#[cfg(all(test, shuttle))]
mod models;

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use braid_ring::client::{Outcome, Receiver, RequestError, Token};

use crate::budget::Bell;
use crate::connection::{Batch, Connection, Identity, ReceiveBuffers, Task};
use crate::limits::{CONTENDED_DEADLINE, STACK_BYTES, STOP_PROGRESS_DEADLINE, STRIDE_BYTES};
use crate::shared::Shared;
use crate::socket::Socket;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{self, Condvar, Flaw, Mutex, MutexGuard};
use crate::task::{TaskResult, perform, slot_of};

pub(crate) fn serve(shared: &Arc<Shared>, identity: Identity, socket: &Arc<Socket>) {
    let line = Arc::new_cyclic(|line: &Weak<Line>| {
        let bell: Arc<dyn Bell> = Arc::new(LineBell(Weak::clone(line)));
        Line {
            shared: Arc::clone(shared),
            connection: Mutex::new(Connection::new(shared, identity, Instant::now(), bell)),
            room: Condvar::new(),
            work: Condvar::new(),
        }
    });
    let mut reader = Reader { shared, socket, line: &line, writer: None, has_timeout: true };
    if catch_unwind(AssertUnwindSafe(|| reader.run())).is_err() {
        shared.counters.panics.add(1);
    }
    line.close();
    socket.cut();
    if let Some(writer) = reader.writer.take() {
        writer.join().expect("the writer catches its own panics");
    }
}

struct Line {
    shared: Arc<Shared>,
    connection: Mutex<Connection>,
    /// The reader thread waits on this condition.
    room: Condvar,
    /// The writer thread waits on this condition.
    work: Condvar,
}

struct LineBell(Weak<Line>);

impl Bell for LineBell {
    fn ring(&self) {
        if let Some(line) = self.0.upgrade() {
            // Takes the connection's lock, so that the bell does not ring between the reader's
            // check and its sleep.
            drop(line.connection.lock().unwrap_or_else(PoisonError::into_inner));
            line.room.notify_one();
        }
    }
}

/// The locked connection. Drop unlocks it, then rings the budget's bells: ringing takes the locks
/// of other connections, whose threads may be ringing this connection's bell.
struct ConnectionGuard<'a> {
    line: &'a Line,
    connection: Option<MutexGuard<'a, Connection>>,
}

impl Deref for ConnectionGuard<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_deref().expect("until it is dropped")
    }
}

impl DerefMut for ConnectionGuard<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_deref_mut().expect("until it is dropped")
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.connection = None;
        self.line.shared.budget.ring();
    }
}

impl ConnectionGuard<'_> {
    /// Waits for room. If bells of other connections must be rung, rings those and does not wait.
    fn wait_for_room(mut self) {
        if !self.line.shared.budget.is_due()
            && let Some(connection) = self.connection.take()
        {
            let woken = self.line.room.wait(connection);
            self.connection = Some(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Receiver for Line {
    fn receive(self: Arc<Self>, token: Token, outcome: Outcome) {
        if outcome.result == Err(RequestError::Dropped) && sync::has(Flaw::DropUnanswered) {
            return;
        }
        self.lock().finished(slot_of(token), outcome);
        self.work.notify_one();
    }
}

enum Step {
    Perform,
    Send(Batch),
    StartWriter,
    Receive(ReceiveBuffers, Option<Instant>),
    EndSending,
    Over,
}

impl Line {
    fn lock(&self) -> ConnectionGuard<'_> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        ConnectionGuard { line: self, connection: Some(connection) }
    }

    fn next_step(&self, socket: &Socket, tasks: &mut Vec<Task>, has_writer: bool) -> Step {
        loop {
            let mut connection = self.lock();
            let now = Instant::now();
            connection.end_stage(now);
            if connection.waits_for_memory() && socket.is_hung_up() {
                connection.close();
            }
            connection.advance(now);
            if connection.has_batch() {
                self.work.notify_one(); // to send the reply of a refused request
            }
            if connection.is_closed() {
                return Step::Over;
            }
            connection.take_tasks(tasks);
            if !tasks.is_empty() {
                return Step::Perform;
            }
            if connection.takes_end_of_sending() {
                return Step::EndSending;
            }
            if !has_writer {
                // During negotiation one thread serves both directions.
                match connection.batch() {
                    Some(batch) => return Step::Send(batch),
                    None if connection.export().is_some() => return Step::StartWriter,
                    None => {}
                }
            }
            if let Some(receive) = connection.receive() {
                return Step::Receive(receive, connection.stage_deadline());
            }
            connection.wait_for_room();
        }
    }

    /// Waits for replies to send, or for tasks that a finished stretch left while the reader is
    /// blocked in a receive. `None` when there will be no more replies.
    fn next_batch(&self, tasks: &mut Vec<Task>) -> Option<Batch> {
        let idle = |connection: &mut Connection| {
            !connection.has_batch() && !connection.has_tasks() && !connection.sends_no_more()
        };
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.work.wait_while(connection, idle);
        let mut connection = waited.unwrap_or_else(PoisonError::into_inner);
        connection.take_tasks(tasks);
        connection.batch()
    }

    fn perform(self: &Arc<Self>, tasks: &mut Vec<Task>) {
        let receiver: Arc<dyn Receiver> = Arc::<Self>::clone(self);
        let mut goes_on = true;
        for task in tasks.drain(..) {
            if !goes_on {
                task.slot().into_iter().for_each(|slot| self.lock().abandon(slot));
                continue;
            }
            let export = self.lock().export_of(&task);
            match perform(task, &*export, &receiver, 0) {
                TaskResult::Submitted => {}
                TaskResult::Described { slot, extents, asked } => {
                    self.lock().described(slot, &extents, asked);
                    self.work.notify_one();
                }
                TaskResult::Claimed(claimed) => self.lock().claimed(claimed, Instant::now()),
                TaskResult::Panicked { undone } => {
                    goes_on = false;
                    self.shared.counters.panics.add(1);
                    self.close();
                    undone.into_iter().for_each(|slot| self.lock().abandon(slot));
                }
            }
        }
    }

    fn sent(&self, batch: Batch, result: io::Result<()>) {
        let is_broken = result.is_err();
        let mut connection = self.lock();
        connection.sent(batch, result);
        // The reader may be blocked in a receive for long, so the writer thread notes whether the
        // connection is idle.
        connection.beat(Instant::now());
        drop(connection);
        if !sync::has(if is_broken { Flaw::CloseForgetsReader } else { Flaw::EndSilent }) {
            self.room.notify_one();
        }
    }

    fn close(&self) {
        self.lock().close();
        self.room.notify_one();
        if !sync::has(Flaw::FinishSilent) {
            self.work.notify_one();
        }
    }
}

struct Reader<'a> {
    shared: &'a Arc<Shared>,
    socket: &'a Arc<Socket>,
    line: &'a Arc<Line>,
    writer: Option<JoinHandle<()>>,
    has_timeout: bool,
}

impl Reader<'_> {
    fn run(&mut self) {
        let mut tasks = Vec::new();
        loop {
            match self.line.next_step(self.socket, &mut tasks, self.writer.is_some()) {
                Step::Perform => self.line.perform(&mut tasks),
                Step::Send(mut batch) => {
                    let deadline = self.line.lock().stage_deadline();
                    let result = self
                        .set_deadline(deadline)
                        .and_then(|()| send_all(self.socket, &mut batch, |_| false));
                    self.line.sent(batch, result);
                }
                Step::StartWriter => match self.start_writer() {
                    Ok(writer) => self.writer = Some(writer),
                    Err(_) => return, // no writer thread: drop the connection
                },
                Step::Receive(mut receive, deadline) => {
                    let result = self.set_deadline(deadline);
                    let result = result.and_then(|()| self.receive(&mut receive, deadline));
                    self.line.lock().received(receive, result);
                }
                Step::EndSending => self.socket.stop_sending(),
                Step::Over => return,
            }
        }
    }

    /// Receives into lent memory. A client that has sent no part of a payload may take any time.
    fn receive(
        &self,
        receive: &mut ReceiveBuffers,
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        loop {
            let asked_at = Instant::now();
            let whole = receive.is_whole();
            let mut parts: Vec<_> = receive.parts().map(IoSliceMut::new).collect();
            let result = self.socket.receive(&mut parts, whole);
            match &result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && deadline.is_none() => {
                    let mut connection = self.line.lock();
                    let now = Instant::now();
                    if asked_at + 2 * CONTENDED_DEADLINE <= now {
                        connection.was_not_looked_after(now);
                    }
                    if connection.is_not_sent_to(now) {
                        connection.cut_for_stalling();
                        return result;
                    }
                }
                _ => return result,
            }
        }
    }

    /// Sets the timeout of the next call on the socket to `deadline`, or else to the progress
    /// deadline.
    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if left.is_some() {
            self.socket.set_timeouts(left, left)?;
        } else if self.has_timeout {
            let time = self.shared.settings.progress_deadline;
            // The reader wakes to check whether other connections need its memory; the writer wakes
            // to check also whether to stop.
            let receiving = time.min(CONTENDED_DEADLINE);
            self.socket
                .set_timeouts(Some(receiving), Some(time.min(STOP_PROGRESS_DEADLINE / 4)))?;
        }
        self.has_timeout = left.is_some();
        Ok(())
    }

    fn start_writer(&mut self) -> io::Result<JoinHandle<()>> {
        self.set_deadline(None)?;
        let (shared, socket) = (Arc::clone(self.shared), Arc::clone(self.socket));
        let line = Arc::clone(self.line);
        let builder = Builder::new().name("nbd-write".into()).stack_size(STACK_BYTES);
        builder.spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| write(&socket, &line))).is_err() {
                shared.counters.panics.add(1);
                line.close();
                socket.cut();
            }
        })
    }
}

/// Sends replies until there will be no more, or until the socket breaks.
fn write(socket: &Socket, line: &Arc<Line>) {
    let goes_on = |spent: Duration| spent < line.lock().patience();
    let mut tasks = Vec::new();
    loop {
        let batch = line.next_batch(&mut tasks);
        let is_over = batch.is_none() && tasks.is_empty();
        if !tasks.is_empty() {
            line.perform(&mut tasks);
        }
        if is_over {
            return;
        }
        let Some(mut batch) = batch else { continue };
        let result = send_all(socket, &mut batch, goes_on);
        if result.is_err() {
            if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                line.lock().cut_for_stalling();
            }
            socket.cut();
        }
        line.sent(batch, result);
    }
}

/// Sends a batch. If calls have moved less than a stride, `goes_on` decides by the time spent
/// whether to continue.
fn send_all(
    socket: &Socket,
    batch: &mut Batch,
    goes_on: impl Fn(Duration) -> bool,
) -> io::Result<()> {
    let (mut moved_bytes, mut spent) = (0, Duration::ZERO);
    loop {
        let asked_at = Instant::now();
        let parts: Vec<IoSlice<'_>> = batch.parts().map(IoSlice::new).collect();
        let result = socket.send(&parts);
        drop(parts);
        // A send blocks no longer than this deadline; if more time passed, the server did not run.
        spent += asked_at.elapsed().min(STOP_PROGRESS_DEADLINE);
        match result {
            Ok(sent) if batch.advance(sent) => return Ok(()),
            Ok(sent) => {
                moved_bytes += sent;
                if moved_bytes >= STRIDE_BYTES {
                    (moved_bytes, spent) = (0, Duration::ZERO);
                } else if !goes_on(spent) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && goes_on(spent) => {}
            Err(error) => return Err(error),
        }
    }
}
