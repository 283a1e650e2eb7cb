//! Requests in flight: their payload, what is still to be cut and answered, and whom to tell.

use std::collections::HashMap;

use braid_engine::request::{Fault, Piece, Progress, RequestId, ShardIndex, Split};
use braid_ring::Payload;

use crate::arena::SharedBytes;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::flaw::{self, Flaw};
use crate::sync::{Arc, Mutex, thread};

/// Pieces of one request that may be with the shards at once. A request that zeroes a whole array
/// has a million; the rest is cut as these are answered. In models it is so low that this happens.
const PIECES_OUT_MAX: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Tables, so that threads seldom meet at one lock.
const TABLES: usize = 16;

/// Called once with the request's end; the payload comes back with it.
pub(crate) type Completion = Box<dyn FnOnce(Result<(), Fault>, Option<Payload>) + Send>;

/// Pieces with the shard that each goes to.
pub(crate) type Pieces = Vec<(ShardIndex, Piece)>;

/// One request in flight.
pub(crate) struct Request {
    payload: Option<SharedBytes>,
    second: Mutex<Option<Arc<Second>>>,
    course: Mutex<Course>,
    completion: Mutex<Option<Completion>>,
}

/// A payload's second side: what is made instead of reads that were forsaken, which may write the first one
/// until they end (`braid_engine::buffer`).
pub(crate) struct Second {
    bytes: SharedBytes,
    /// Runs that were made, or are being made: offset and length.
    made: Mutex<Vec<(usize, usize)>>,
}

impl Second {
    pub(crate) fn bytes(&self) -> &SharedBytes {
        &self.bytes
    }

    /// Something is about to be written there.
    pub(crate) fn note_made(&self, offset: usize, length_bytes: usize) {
        self.made.lock().expect("noting does not panic").push((offset, length_bytes));
    }
}

struct Course {
    progress: Progress,
    pieces: Option<Split>,
    /// Pieces that were answered early and need the payload still. Below zero while a piece's letting
    /// go has been heard of before its answer.
    held: i64,
    is_answered: bool,
    /// The payload's first side is left to reads that were forsaken.
    is_left: bool,
}

impl Request {
    /// A request's payload.
    ///
    /// # Panics
    /// When it has none: the engine named bytes that no client lent.
    pub(crate) fn payload(&self) -> &SharedBytes {
        self.payload.as_ref().expect("an operation with a payload")
    }

    /// The second side of a request's payload, which comes to be when it is first named.
    pub(crate) fn second(&self) -> Arc<Second> {
        let mut second = self.second.lock().expect("making it does not panic");
        Arc::clone(second.get_or_insert_with(|| {
            // Zeroes: what is not made stays with the client only if its request failed.
            let bytes = SharedBytes::new(Payload::zeroed(self.payload().length_bytes()));
            Arc::new(Second { bytes, made: Mutex::default() })
        }))
    }

    /// The bytes of a read of which parts were forsaken: what was made on the second side, and the rest of
    /// the first, of which nothing is written any more.
    fn join(&self, result: Result<(), Fault>) -> Payload {
        let second = self.second.lock().expect("making it does not panic").take();
        let Some(second) = second else { return Payload::zeroed(self.payload().length_bytes()) };
        let Second { bytes, made } = unwrap(second);
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

    /// Pieces to hand out now, and the answer if there is nothing left to wait for.
    pub(crate) fn cut(&self) -> (Pieces, Option<Result<(), Fault>>) {
        let mut course = self.course.lock().expect("cutting does not panic");
        let mut pieces = Vec::new();
        while course.progress.outstanding() < PIECES_OUT_MAX {
            // After a failure the rest is pointless: the client gets one answer for all of it.
            let next = if course.progress.has_failed() {
                None
            } else {
                course.pieces.as_mut().and_then(Iterator::next)
            };
            let Some(piece) = next else {
                let last =
                    if flaw::has(Flaw::CutTwice) { course.pieces } else { course.pieces.take() };
                let answer = last.and_then(|_| course.progress.issued_all());
                return (pieces, answer);
            };
            course.progress.issue();
            pieces.push(piece);
        }
        (pieces, None)
    }

    /// Notes a piece's answer, whether it needs the payload still, and whether it leaves the first side of it
    /// to reads that were forsaken; the request's answer if it was the last.
    pub(crate) fn reply(
        &self,
        result: Result<(), Fault>,
        (keeps_payload, leaves_payload): (bool, bool),
    ) -> Option<Result<(), Fault>> {
        let mut course = self.course.lock().expect("counting does not panic");
        course.held += i64::from(keeps_payload);
        course.is_left |= leaves_payload;
        course.progress.reply(result)
    }

    /// Notes that it is answered. Whether its payload is needed still, and whether it is left.
    fn answer(&self) -> (bool, bool) {
        let mut course = self.course.lock().expect("counting does not panic");
        course.is_answered = true;
        (course.held != 0, course.is_left)
    }

    /// Notes that a piece needs the payload no longer. Whether nothing does.
    fn let_go(&self) -> bool {
        let mut course = self.course.lock().expect("counting does not panic");
        course.held -= 1;
        course.is_answered && course.held == 0
    }
}

/// All requests in flight.
#[derive(Default)]
pub(crate) struct Requests {
    tables: [Mutex<HashMap<u64, Arc<Request>>>; TABLES],
    next: AtomicU64,
}

impl Requests {
    /// A name that no other request has.
    pub(crate) fn name(&self) -> RequestId {
        RequestId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn table(&self, id: RequestId) -> &Mutex<HashMap<u64, Arc<Request>>> {
        let index = usize::try_from(id.0 % TABLES as u64).expect("below the number of tables");
        &self.tables[index]
    }

    pub(crate) fn insert(
        &self,
        id: RequestId,
        pieces: Option<Split>,
        payload: Option<Payload>,
        completion: Completion,
    ) -> Arc<Request> {
        let request = Arc::new(Request {
            payload: payload.map(SharedBytes::new),
            second: Mutex::new(None),
            course: Mutex::new(Course {
                progress: Progress::default(),
                pieces,
                held: 0,
                is_answered: false,
                is_left: false,
            }),
            completion: Mutex::new(Some(completion)),
        });
        let before = self
            .table(id)
            .lock()
            .expect("no holder of a table panics")
            .insert(id.0, Arc::clone(&request));
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

    /// A request, unless it is over: a read of it was forsaken then.
    pub(crate) fn find(&self, id: RequestId) -> Option<Arc<Request>> {
        let table = self.table(id).lock().expect("no holder of a table panics");
        table.get(&id.0).map(Arc::clone)
    }

    /// Answers a request: tells whoever asked, and gives the payload back if nothing needs it.
    pub(crate) fn finish(&self, id: RequestId, request: Arc<Request>, result: Result<(), Fault>) {
        let completion = request.completion.lock().expect("nobody panicked holding it").take();
        let completion = completion.expect("a request is answered once");
        let (is_held, is_left) = request.answer();
        if is_left {
            // Whoever may write the first side has the request, which ends with the last of them.
            let joined = request.join(result);
            let left = self.remove(id);
            drop((request, left));
            return completion(result, Some(joined));
        }
        drop(request);
        let payload = if is_held { None } else { self.take(id).payload };
        completion(result, payload.map(SharedBytes::into_payload));
    }

    /// A piece that was answered early needs its request's payload no longer.
    pub(crate) fn let_go(&self, id: RequestId) {
        let is_over = self.get(id).let_go();
        if is_over && !flaw::has(Flaw::PayloadStays) {
            drop(self.take(id));
        }
    }

    /// Requests that are not over, answered or not.
    #[cfg(all(test, loom))]
    pub(crate) fn count(&self) -> usize {
        self.tables.iter().map(|table| table.lock().expect("no holder panics").len()).sum()
    }

    /// Takes a request out that nobody names any more.
    fn take(&self, id: RequestId) -> Request {
        unwrap(self.remove(id))
    }

    fn remove(&self, id: RequestId) -> Arc<Request> {
        let mut table = self.table(id).lock().expect("no holder of a table panics");
        table.remove(&id.0).expect("a request ends once")
    }
}

/// What nobody needs any more. Another thread may hold it for the length of a copy that it has finished
/// already, or for a look at its answer; both are a few instructions from letting go.
fn unwrap<T>(mut shared: Arc<T>) -> T {
    loop {
        match Arc::try_unwrap(shared) {
            Ok(value) => return value,
            Err(still) => {
                shared = still;
                thread::yield_now();
            }
        }
    }
}
