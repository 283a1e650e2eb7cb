//! A client's request on its course: each step given to the engine, its end awaited, the next one taken.
//!
//! Where it stands: between [`crate::Volume`], which asks, and the requests in whole sectors that shards know
//! ([`crate::requests`]). What a request's steps are is decided by the engine's [`Course`].
//!
//! ```text
//!   Volume ─▶ turnstile ─▶ step ─▶ request ─▶ pieces ─▶ shards
//!                           ▲                            │
//!                           └──── completion ◀── replies ┘     no step left ─▶ whoever asked
//! ```
//!
//! Nobody waits: a walk lies with the request that its step became, and is taken up again by whoever answers that.

use braid_engine::request::{
    ByteRequest, Course, Fault, Next, Operation, Patch, Request, Step, Way,
};
use braid_geometry::{LogicalSector, SECTOR_BYTES};
use braid_ring::{NoMemory, Payload};

use crate::core::{ArrayEvent, Core, Machine};
use crate::slate::Slate;
use crate::sync::Arc;
use crate::volume::{Done, Outcome, VolumeError};
use crate::waiter::Waiter;

/// Who asked, and is told once.
pub(crate) enum Asker {
    /// Called.
    Done(Done),
    /// Woken.
    Caller(Arc<Waiter>),
}

/// A client, to be told how its request ended.
pub(crate) struct Client {
    pub(crate) asker: Asker,
    /// It waits for the members.
    pub(crate) is_urgent: bool,
}

/// A request on its course.
pub(crate) struct Walk {
    course: Course,
    /// How it goes through the turnstile, until it has left.
    inside: Option<Way>,
    payload: Option<Payload>,
    /// Whole sectors around bytes that do not fill them.
    around: Payload,
    client: Client,
}

/// What lies with a request to the engine until it is answered.
pub(crate) enum Completion {
    /// All that a walk has to do.
    Whole(Walk),
    /// Sectors at the edge of a patch; from where on, and how many.
    Fetched(Walk, Patch, (LogicalSector, u64)),
    /// A patch.
    Stored(Walk),
    /// A walk's last step.
    Flushed(Walk),
    /// A client's own flush.
    Flush(Client),
}

impl Core {
    /// Tells a client how its request ended.
    pub(crate) fn tell(&self, client: Client, outcome: Outcome) {
        if client.is_urgent {
            self.turns.appease();
        }
        match client.asker {
            Asker::Done(done) => done(outcome),
            Asker::Caller(waiter) => waiter.tell(outcome),
        }
        self.clients.in_flight.leave();
    }

    /// Begins a request that is allowed.
    pub(crate) fn set_out(
        self: &Arc<Self>,
        request: &ByteRequest,
        payload: Option<Payload>,
        client: Client,
    ) {
        let course = Course::new(request);
        let inside = course.way();
        let walk = Walk { course, inside, payload, around: Payload::default(), client };
        let walk = match inside {
            Some(way) => self.clients.turnstile.enter(way, walk),
            None => Some(walk),
        };
        if let Some(walk) = walk {
            self.go_on(walk, Ok(()));
        }
    }

    /// The step before came out as `result`: takes the next one, or answers.
    fn go_on(self: &Arc<Self>, mut walk: Walk, result: Result<(), VolumeError>) {
        match walk.course.next(result) {
            Next::Answer(result) => {
                self.leave(&mut walk);
                self.tell(walk.client, Outcome { result, payload: walk.payload });
            }
            Next::Step(Step::Whole { operation, start, sectors }) => {
                let payload = walk.payload.take();
                self.issue((start, sectors), operation, payload, Completion::Whole(walk));
            }
            Next::Step(Step::Fetch { patch, start, sectors }) => {
                if walk.is_read() {
                    // What is fetched comes to be the payload, so that a long read needs its memory once.
                    walk.payload = None;
                }
                let Ok(fetched) = zeroed(sectors) else {
                    return self.go_on(walk, Err(VolumeError::NoMemory));
                };
                let range = (start, sectors);
                let completion = Completion::Fetched(walk, patch, range);
                self.issue(range, Operation::Read, Some(fetched), completion);
            }
            Next::Step(Step::Take { patch }) => {
                walk.payload.as_mut().expect("what was fetched").cut(patch.middle());
                self.go_on(walk, Ok(()));
            }
            Next::Step(Step::Store { patch, durable }) => {
                if walk.lay_over(&patch).is_err() {
                    return self.go_on(walk, Err(VolumeError::NoMemory));
                }
                let around = Some(std::mem::take(&mut walk.around));
                let (range, operation) =
                    ((patch.start, patch.sectors), Operation::Write { durable });
                self.issue(range, operation, around, Completion::Stored(walk));
            }
            Next::Step(Step::Flush) => {
                self.leave(&mut walk);
                self.flush(Completion::Flushed(walk));
            }
        }
    }

    /// Goes on with what lay with a request.
    pub(crate) fn complete(
        self: &Arc<Self>,
        completion: Completion,
        result: Result<(), Fault>,
        payload: Option<Payload>,
    ) {
        let result = result.map_err(error);
        match completion {
            Completion::Whole(mut walk) => {
                walk.payload = payload;
                self.go_on(walk, result);
            }
            Completion::Fetched(mut walk, _, _) if walk.is_read() => {
                walk.payload = payload;
                self.go_on(walk, result);
            }
            Completion::Fetched(mut walk, patch, (start, sectors)) => {
                let mut result = result;
                if let (Ok(()), Some(fetched)) = (result, &payload) {
                    result = walk.around(&patch).map(|around| {
                        around[patch.place(start, sectors)].copy_from_slice(fetched);
                    });
                }
                drop(payload);
                self.go_on(walk, result);
            }
            Completion::Stored(walk) | Completion::Flushed(walk) => self.go_on(walk, result),
            Completion::Flush(client) => self.tell(client, Outcome { result, payload }),
        }
    }

    /// Asks the array for a flush.
    pub(crate) fn flush(self: &Arc<Self>, completion: Completion) {
        let id = self.clients.requests.name();
        drop(self.clients.requests.insert(id, None, None, completion));
        self.array.push(ArrayEvent::FlushRequest(id));
        self.drive(Machine::Array);
    }

    fn leave(self: &Arc<Self>, walk: &mut Walk) {
        if let Some(way) = walk.inside.take() {
            self.clients.turnstile.leave(way, |next| self.go_on(next, Ok(())));
        }
    }

    /// Gives a request in whole sectors to the shards.
    fn issue(
        self: &Arc<Self>,
        (start, sectors): (LogicalSector, u64),
        operation: Operation,
        payload: Option<Payload>,
        completion: Completion,
    ) {
        let id = self.clients.requests.name();
        let pieces = self.clients.regions.split(&Request { id, operation, start, sectors });
        let request = self.clients.requests.insert(id, Some(pieces), payload, completion);
        let mut slate = Slate::take();
        let answer = self.hand_out(&request, &mut slate.machines);
        assert!(answer.is_none(), "a request that is not empty has a piece to wait for");
        drop(request);
        self.drive_all(slate);
    }
}

impl Walk {
    /// Reads change nothing, so they do not go through the turnstile; what does has memory around its patch.
    fn is_read(&self) -> bool {
        self.course.way().is_none()
    }

    /// The memory around `patch`. Writes that need some are alone, so that there is one of these at a time.
    fn around(&mut self, patch: &Patch) -> Result<&mut [u8], VolumeError> {
        let length = patch.sectors * SECTOR_BYTES;
        if self.around.len() as u64 != length {
            self.around = zeroed(patch.sectors).map_err(|_| VolumeError::NoMemory)?;
        }
        Ok(&mut self.around)
    }

    /// Lays the payload, or zeroes, over what was fetched.
    fn lay_over(&mut self, patch: &Patch) -> Result<(), VolumeError> {
        let payload = self.payload.take();
        let middle = &mut self.around(patch)?[patch.middle()];
        match &payload {
            Some(bytes) => middle.copy_from_slice(bytes),
            None => middle.fill(0),
        }
        self.payload = payload;
        Ok(())
    }
}

fn error(fault: Fault) -> VolumeError {
    match fault {
        Fault::ReadOnly => VolumeError::ReadOnly,
        Fault::NoSpace => VolumeError::NoSpace,
        Fault::Unreadable | Fault::Lost | Fault::Unwritable => VolumeError::Io(fault),
    }
}

/// Memory for so many sectors: as many as a client asked for.
fn zeroed(sectors: u64) -> Result<Payload, NoMemory> {
    let bytes = usize::try_from(sectors * SECTOR_BYTES).expect("addresses have 64 bits here");
    Payload::try_zeroed(bytes)
}
