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
    course: Mutex<Course>,
    completion: Mutex<Option<Completion>>,
}

struct Course {
    progress: Progress,
    pieces: Option<Split>,
}

impl Request {
    /// A request's payload.
    ///
    /// # Panics
    /// When it has none: the engine named bytes that no client lent.
    pub(crate) fn payload(&self) -> &SharedBytes {
        self.payload.as_ref().expect("an operation with a payload")
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

    /// Notes a piece's answer; the request's answer if it was the last.
    pub(crate) fn reply(&self, result: Result<(), Fault>) -> Option<Result<(), Fault>> {
        self.course.lock().expect("counting does not panic").progress.reply(result)
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
            course: Mutex::new(Course { progress: Progress::default(), pieces }),
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
        let table = self.table(id).lock().expect("no holder of a table panics");
        Arc::clone(table.get(&id.0).expect("a request in flight"))
    }

    /// Ends a request: gives the payload back and tells whoever asked.
    pub(crate) fn finish(&self, id: RequestId, result: Result<(), Fault>) {
        let mut request = self
            .table(id)
            .lock()
            .expect("no holder of a table panics")
            .remove(&id.0)
            .expect("a request is answered once");
        // Another thread may hold it for the length of a copy that it has finished already, or for
        // a look at its answer; both are a few instructions from letting go.
        let request = loop {
            match Arc::try_unwrap(request) {
                Ok(request) => break request,
                Err(shared) => {
                    request = shared;
                    thread::yield_now();
                }
            }
        };
        let completion = request.completion.into_inner().expect("nobody panicked holding it");
        let completion = completion.expect("a request is answered once");
        completion(result, request.payload.map(SharedBytes::into_payload));
    }
}
