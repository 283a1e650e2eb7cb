//! Requests in flight: their payload, what is still to be cut and answered, and whom to tell.
//!
//! A request that is over leaves its memory to a later one, so that nothing is allocated for a request once as many have
//! been in flight as ever are (`tests/allocations.rs`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use braid_engine::cause::Cause;
use braid_engine::request::{self, Fault, Piece, Progress, RequestId, ShardIndex, Split};
use braid_ring::Payload;

use crate::shared_bytes::SharedBytes;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Mutex, MutexGuard, thread};

/// Pieces of one request that may be with the shards at once. A request that zeroes a whole array
/// has a million; the rest is cut as these are answered. In models it is so low that this happens.
const PIECES_OUT_MAX: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Tables, so that threads seldom meet at one lock.
const TABLES: usize = 16;

/// Requests that are over whose memory a table keeps: as many as may be in flight in it, on the machines we know.
const SPARES_MAX: usize = 256;

/// Kept with a request, and given back with its end.
#[cfg(not(loom))]
pub(crate) use crate::pending_request::Resumption;
/// The same in models of requests alone.
#[cfg(loom)]
pub(crate) type Resumption = Box<dyn FnOnce(Result<(), Fault>, Option<Payload>) + Send>;

/// One request in flight.
#[derive(Default)]
pub(crate) struct Request {
    /// What is asked; nothing of a flush.
    asked: Option<request::Request>,
    payload: Option<SharedBytes>,
    shadow: Mutex<Option<Arc<Shadow>>>,
    state: Mutex<State>,
    completion: Mutex<Option<Resumption>>,
}

/// A payload's shadow buffer: what is made instead of reads that were abandoned, which may write the client's own
/// until they end (`braid_engine::buffer`).
pub(crate) struct Shadow {
    bytes: SharedBytes,
    /// Runs that were made, or are being made: offset and length.
    made: Mutex<Vec<(usize, usize)>>,
}

impl Shadow {
    pub(crate) fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// Something is about to be written there.
    pub(crate) fn note_made(&self, offset: usize, length_bytes: usize) {
        self.made.lock().expect("noting does not panic").push((offset, length_bytes));
    }
}

#[derive(Default)]
struct State {
    progress: Progress,
    pieces: Option<Split>,
    /// Pieces that were answered early and need the payload still. Below zero while a piece's release
    /// has been heard of before its answer.
    payload_users: i64,
    is_answered: bool,
    /// The client's own buffer is left to reads that were abandoned.
    is_left: bool,
    /// What failed at a member for the last piece that failed, if anything did.
    cause: Option<Cause>,
}

impl Request {
    /// A request's payload.
    ///
    /// # Panics
    /// When it has none: the engine named bytes that no client lent.
    pub(crate) fn payload(&self) -> &SharedBytes {
        self.payload.as_ref().expect("an operation with a payload")
    }

    /// The shadow buffer of a request's payload, which comes to be when it is first named.
    pub(crate) fn shadow(&self) -> Arc<Shadow> {
        let mut shadow = self.shadow.lock().expect("making it does not panic");
        Arc::clone(shadow.get_or_insert_with(|| {
            // Zeroes: what is not made stays with the client only if its request failed.
            let bytes = SharedBytes::new(Payload::zeroed(self.payload().length_bytes()));
            Arc::new(Shadow { bytes, made: Mutex::default() })
        }))
    }

    /// The bytes of a read of which parts were abandoned: what was made in the shadow buffer, and the rest of
    /// the client's own, of which nothing is written any more.
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

    /// What is asked; nothing of a flush.
    pub(crate) fn asked(&self) -> Option<&request::Request> {
        self.asked.as_ref()
    }

    /// Notes what failed at a member for one of its pieces.
    pub(crate) fn note_cause(&self, cause: Cause) {
        self.state.lock().expect("noting does not panic").cause = Some(cause);
    }

    /// What failed at a member for it, if anything did.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.state.lock().expect("looking does not panic").cause
    }

    /// Gives `hand_out` the pieces that are to go out now; the answer if there is nothing left to wait for.
    pub(crate) fn cut(
        &self,
        mut hand_out: impl FnMut(ShardIndex, Piece),
    ) -> Option<Result<(), Fault>> {
        let mut state = self.state.lock().expect("cutting does not panic");
        while state.progress.outstanding() < PIECES_OUT_MAX {
            // After a failure the rest is pointless: the client gets one answer for all of it.
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

    /// Notes a piece's answer, whether it needs the payload still, and whether it leaves the client's own buffer
    /// to reads that were abandoned; the request's answer if it was the last.
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

    /// Notes that it is answered. Whether its payload is needed still, and whether it is left.
    fn answer(&self) -> (bool, bool) {
        let mut state = self.state.lock().expect("counting does not panic");
        state.is_answered = true;
        (state.payload_users != 0, state.is_left)
    }

    /// Notes that a piece needs the payload no longer. Whether nothing does.
    fn release_payload(&self) -> bool {
        let mut state = self.state.lock().expect("counting does not panic");
        state.payload_users -= 1;
        state.is_answered && state.payload_users == 0
    }
}

/// All requests in flight.
#[derive(Default)]
pub(crate) struct Requests {
    tables: [Mutex<Table>; TABLES],
    next: AtomicU64,
}

#[derive(Default)]
struct Table {
    in_flight: HashMap<u64, Arc<Request>, BuildHasherDefault<Spread>>,
    /// Only this table has these.
    spares: Vec<Arc<Request>>,
}

/// Spreads names, which are numbers in a row that no client chooses.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, _: &[u8]) {
        unreachable!("names are numbers");
    }

    fn write_u64(&mut self, name: u64) {
        // The golden ratio's bits: numbers in a row come to lie far apart, in the upper half. Those of one table are alike
        // in their last bits, which a map looks at.
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

    /// A request in flight.
    ///
    /// # Panics
    /// When it is not: the engine named a request that has been answered.
    pub(crate) fn get(&self, id: RequestId) -> Arc<Request> {
        self.find(id).expect("a request in flight")
    }

    /// A request, unless it is over: a read of it was abandoned then.
    pub(crate) fn find(&self, id: RequestId) -> Option<Arc<Request>> {
        self.table(id).in_flight.get(&id.0).map(Arc::clone)
    }

    /// Notes that a request is answered: whom to tell, and the payload if nothing needs it.
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
            // A read that may still write the client's own buffer has the request, which ends with the last of them.
            let joined = request.join(result);
            drop(self.remove(id));
            return (completion, Some(joined));
        }
        drop(request);
        let payload = if is_used { None } else { self.end(id) };
        (completion, payload)
    }

    /// A piece that was answered early needs its request's payload no longer.
    pub(crate) fn release_payload(&self, id: RequestId) {
        let is_over = self.get(id).release_payload();
        if is_over && !flaw::has(Flaw::PayloadStays) {
            drop(self.end(id));
        }
    }

    /// Requests that are not over, answered or not.
    #[cfg(all(test, loom))]
    pub(crate) fn count(&self) -> usize {
        let in_flight = |table: &Mutex<Table>| {
            table.lock().expect("no holder of a table panics").in_flight.len()
        };
        self.tables.iter().map(in_flight).sum()
    }

    /// Takes a request out that nothing names any more, for its payload; its memory is kept for another.
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

/// What nothing needs any more. Another thread may hold it for the length of a copy that it has finished
/// already, or for a look at its answer; both are a few instructions from letting go.
fn alone<T>(shared: &mut Arc<T>) -> &mut T {
    while Arc::get_mut(shared).is_none() {
        thread::yield_now();
    }
    Arc::get_mut(shared).expect("just found to be alone")
}
