//! Requests in flight: their payload, the pieces still to be cut and answered, and the client.
//!
//! A request that is over leaves its memory to a later one. So requests allocate only while more
//! are in flight than ever before (`tests/allocations.rs`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use braid_engine::cause::Cause;
use braid_engine::request::{self, Fault, Piece, Progress, RequestId, ShardIndex, Split};
use braid_engine::reshape::BorderTicket;
use braid_ring::Payload;

use crate::shared_bytes::SharedBytes;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Mutex, MutexGuard, thread};

/// Maximum pieces of one request that shards may have at once. A request that zeroes a whole array
/// has a million pieces; later pieces are cut as earlier ones are answered. Models use a low limit
/// so that requests exceed it.
const PIECES_OUT_MAX: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Number of tables of requests: several, so that threads seldom meet at one lock.
const TABLES: usize = 16;

/// Maximum finished requests whose memory a table keeps; the lab's machines have no more in flight.
const SPARES_MAX: usize = 256;

/// The continuation that is kept with a request, and returned at its end.
#[cfg(not(loom))]
pub(crate) use crate::pending_request::Resumption;
/// The continuation in models that test requests alone.
#[cfg(loom)]
pub(crate) type Resumption = Box<dyn FnOnce(Result<(), Fault>, Option<Payload>) + Send>;

#[derive(Default)]
pub(crate) struct Request {
    asked: Option<request::Request>,
    payload: Option<SharedBytes>,
    shadow: Mutex<Option<Arc<Shadow>>>,
    state: Mutex<State>,
    completion: Mutex<Option<Resumption>>,
}

/// A payload's shadow buffer, for the bytes reconstructed in place of abandoned reads. Until those
/// reads end, they may write the client's own buffer (`braid_engine::buffer`).
pub(crate) struct Shadow {
    bytes: SharedBytes,
    /// Runs that are reconstructed or will be: offset and length.
    made: Mutex<Vec<(usize, usize)>>,
}

impl Shadow {
    pub(crate) fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// Notes a run that is about to be reconstructed.
    pub(crate) fn note_made(&self, offset: usize, length_bytes: usize) {
        self.made.lock().expect("noting does not panic").push((offset, length_bytes));
    }
}

#[derive(Default)]
struct State {
    progress: Progress,
    pieces: Option<Split>,
    /// Pieces that were acknowledged early and still need the payload. The number is negative if a
    /// piece's release arrived before the piece's answer.
    payload_users: i64,
    is_answered: bool,
    /// Whether abandoned reads may still write the client's own buffer.
    is_left: bool,
    /// The failure of a member that made the last failed piece fail, if any.
    cause: Option<Cause>,
    /// The request's ticket for the border of a reshape, until the request is answered.
    ticket: Option<BorderTicket>,
}

impl Request {
    /// The request's payload. Panics if the request has none: the engine named bytes that no client
    /// lent.
    pub(crate) fn payload(&self) -> &SharedBytes {
        self.payload.as_ref().expect("an operation with a payload")
    }

    /// The shadow buffer of a request's payload, created on first use.
    pub(crate) fn shadow(&self) -> Arc<Shadow> {
        let mut shadow = self.shadow.lock().expect("making it does not panic");
        Arc::clone(shadow.get_or_insert_with(|| {
            // The buffer begins as zeroes: bytes that were not reconstructed reach the client only
            // if its request failed.
            let bytes = SharedBytes::new(Payload::zeroed(self.payload().length_bytes()));
            Arc::new(Shadow { bytes, made: Mutex::default() })
        }))
    }

    /// The bytes of a read with abandoned parts: reconstructed runs come from the shadow buffer,
    /// other runs from the client's own buffer, which no read writes any more.
    fn join(&self, result: Result<(), Fault>) -> Payload {
        let shadow = self.shadow.lock().expect("making it does not panic").take();
        let Some(mut shadow) = shadow else {
            return Payload::zeroed(self.payload().length_bytes());
        };
        alone(&mut shadow);
        let Shadow { bytes, made } = Arc::try_unwrap(shadow).ok().expect("found to be alone");
        let mut joined = bytes.into_payload();
        if result.is_ok() {
            let mut made = made.into_inner().expect("noting does not panic");
            made.sort_unstable();
            let mut from = 0;
            for (offset, length_bytes) in made.into_iter().chain([(joined.len(), 0)]) {
                if from < offset {
                    self.payload().copy_to(from, &mut joined[from..offset]);
                }
                from = from.max(offset + length_bytes);
            }
        }
        joined
    }

    pub(crate) fn asked(&self) -> Option<&request::Request> {
        self.asked.as_ref()
    }

    /// Notes a member's failure as the cause of a failed piece.
    pub(crate) fn note_cause(&self, cause: Cause) {
        self.state.lock().expect("noting does not panic").cause = Some(cause);
    }

    pub(crate) fn note_ticket(&self, ticket: BorderTicket) {
        self.state.lock().expect("noting does not panic").ticket = Some(ticket);
    }

    pub(crate) fn take_ticket(&self) -> Option<BorderTicket> {
        self.state.lock().expect("taking does not panic").ticket.take()
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.state.lock().expect("looking does not panic").cause
    }

    /// Gives `hand_out` the pieces that may go out now. Returns the request's answer if no piece is
    /// in flight.
    pub(crate) fn cut(
        &self,
        mut hand_out: impl FnMut(ShardIndex, Piece),
    ) -> Option<Result<(), Fault>> {
        let mut state = self.state.lock().expect("cutting does not panic");
        while state.progress.outstanding() < PIECES_OUT_MAX {
            // After a failure the remaining pieces are pointless: the client gets one answer for
            // the whole request.
            let next = if state.progress.has_failed() {
                None
            } else {
                state.pieces.as_mut().and_then(Iterator::next)
            };
            let Some((shard, piece)) = next else {
                let last =
                    if flaw::has(Flaw::CutTwice) { state.pieces } else { state.pieces.take() };
                return last.and_then(|_| state.progress.issued_all());
            };
            state.progress.issue();
            hand_out(shard, piece);
        }
        None
    }

    /// Notes a piece's answer, which says whether the piece still needs the payload, and whether it
    /// leaves the client's own buffer to abandoned reads. Returns the request's answer with the
    /// last piece.
    pub(crate) fn reply(
        &self,
        result: Result<(), Fault>,
        (keeps_payload, leaves_payload): (bool, bool),
    ) -> Option<Result<(), Fault>> {
        let mut state = self.state.lock().expect("counting does not panic");
        state.payload_users += i64::from(keeps_payload);
        state.is_left |= leaves_payload;
        state.progress.reply(result)
    }

    /// Marks the request as answered. Returns whether its payload is still in use, and whether
    /// abandoned reads may write the payload.
    fn answer(&self) -> (bool, bool) {
        let mut state = self.state.lock().expect("counting does not panic");
        state.is_answered = true;
        (state.payload_users != 0, state.is_left)
    }

    /// Notes that a piece no longer needs the payload; true if no other piece does.
    fn release_payload(&self) -> bool {
        let mut state = self.state.lock().expect("counting does not panic");
        state.payload_users -= 1;
        state.is_answered && state.payload_users == 0
    }
}

#[derive(Default)]
pub(crate) struct Requests {
    tables: [Mutex<Table>; TABLES],
    next: AtomicU64,
}

#[derive(Default)]
struct Table {
    in_flight: HashMap<u64, Arc<Request>, BuildHasherDefault<Spread>>,
    /// Finished requests that only this table references.
    spares: Vec<Arc<Request>>,
}

/// A hash that spreads names, which are consecutive numbers that no client chooses.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, _: &[u8]) {
        unreachable!("names are numbers");
    }

    fn write_u64(&mut self, name: u64) {
        // The golden ratio's bits spread consecutive numbers over the upper half. The rotation is
        // needed because names in one table share their last bits, which a map looks at.
        self.0 = name.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Requests {
    /// A name that no other request has.
    pub(crate) fn name(&self) -> RequestId {
        RequestId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn table(&self, id: RequestId) -> MutexGuard<'_, Table> {
        let index = usize::try_from(id.0 % TABLES as u64).expect("below the number of tables");
        self.tables[index].lock().expect("no holder of a table panics")
    }

    pub(crate) fn insert(
        &self,
        id: RequestId,
        pieces: Option<Split>,
        payload: Option<Payload>,
        completion: Resumption,
    ) -> Arc<Request> {
        let mut table = self.table(id);
        let mut request = table.spares.pop().unwrap_or_default();
        let fresh = Arc::get_mut(&mut request).expect("only the table has a spare request");
        *fresh = Request {
            asked: pieces.as_ref().map(Split::request),
            payload: payload.map(SharedBytes::new),
            shadow: Mutex::default(),
            state: Mutex::new(State { pieces, ..State::default() }),
            completion: Mutex::new(Some(completion)),
        };
        let before = table.in_flight.insert(id.0, Arc::clone(&request));
        assert!(before.is_none(), "a request's name is its own");
        request
    }

    /// A request in flight. Panics if the request is not in flight: the engine named a request that
    /// was answered.
    pub(crate) fn get(&self, id: RequestId) -> Arc<Request> {
        self.find(id).expect("a request in flight")
    }

    /// A request; `None` if the request has ended, so that a read for it was abandoned.
    pub(crate) fn find(&self, id: RequestId) -> Option<Arc<Request>> {
        self.table(id).in_flight.get(&id.0).map(Arc::clone)
    }

    /// Notes a request's answer. Returns the continuation, and the payload if no piece needs it.
    pub(crate) fn finish(
        &self,
        id: RequestId,
        request: Arc<Request>,
        result: Result<(), Fault>,
    ) -> (Resumption, Option<Payload>) {
        let completion = request.completion.lock().expect("taking it does not panic").take();
        let completion = completion.expect("a request is answered once");
        let (is_used, is_left) = request.answer();
        if is_left {
            // A read that may still write the client's buffer holds the request, and the last such
            // read ends it.
            let joined = request.join(result);
            drop(self.remove(id));
            return (completion, Some(joined));
        }
        drop(request);
        let payload = if is_used { None } else { self.end(id) };
        (completion, payload)
    }

    /// Notes that a piece, acknowledged early, no longer needs its request's payload.
    pub(crate) fn release_payload(&self, id: RequestId) {
        let is_over = self.get(id).release_payload();
        if is_over && !flaw::has(Flaw::PayloadStays) {
            drop(self.end(id));
        }
    }

    #[cfg(all(test, loom))]
    pub(crate) fn count(&self) -> usize {
        let in_flight = |table: &Mutex<Table>| {
            table.lock().expect("no holder of a table panics").in_flight.len()
        };
        self.tables.iter().map(in_flight).sum()
    }

    /// Removes a request that no piece names any more, and returns its payload. The request's
    /// memory is reused.
    fn end(&self, id: RequestId) -> Option<Payload> {
        let mut request = self.remove(id);
        if flaw::has(Flaw::KeptInUse) {
            self.table(id).spares.push(request);
            return None;
        }
        let payload = alone(&mut request).payload.take();
        let mut table = self.table(id);
        if table.spares.len() < SPARES_MAX {
            table.spares.push(request);
        }
        drop(table);
        payload.map(SharedBytes::into_payload)
    }

    fn remove(&self, id: RequestId) -> Arc<Request> {
        self.table(id).in_flight.remove(&id.0).expect("a request ends once")
    }
}

/// Waits until `shared` is the only reference. Another thread may hold a reference at the end of a
/// finished copy, or to look at the answer, and soon drops it.
fn alone<T>(shared: &mut Arc<T>) -> &mut T {
    while Arc::get_mut(shared).is_none() {
        thread::yield_now();
    }
    Arc::get_mut(shared).expect("just found to be alone")
}
