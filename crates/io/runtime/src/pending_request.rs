//! A client's request as it lies between two of its steps, and the client that is told of its end.
//!
//! Where it stands: kept with the request in whole sectors that its step became ([`crate::requests`]), and taken up again by
//! [`crate::steps`] when that has been answered. What the steps are is decided by the engine's [`RequestPlan`].

use braid_engine::Instant;
use braid_engine::request::{ByteRequest, Patch, RequestPlan, Way};
use braid_geometry::{LogicalSector, SECTOR_BYTES};
use braid_ring::client::{Completion, Outcome, RequestError};
use braid_ring::{NoMemory, Payload};

use crate::sync::Arc;
use crate::waiter::Waiter;

/// What is told of a request's end, once.
pub(crate) enum Asker {
    /// A door's, or a function.
    Completion(Completion),
    /// Woken.
    Caller(Arc<Waiter>),
}

/// A client, to be told how its request ended.
pub(crate) struct Client {
    pub(crate) asker: Asker,
    /// It waits for the members.
    pub(crate) is_urgent: bool,
    /// When it asked, if that is to be known ([`crate::pacing`]).
    pub(crate) began: Option<Instant>,
}

impl Client {
    /// Tells it, once.
    pub(crate) fn tell(self, outcome: Outcome) {
        match self.asker {
            Asker::Completion(completion) => completion.complete(outcome),
            Asker::Caller(waiter) => waiter.tell(outcome),
        }
    }
}

/// A client's request, between two of its steps.
pub(crate) struct PendingRequest {
    /// Its steps, of which the next is taken when the one before has ended.
    pub(crate) plan: RequestPlan,
    /// How it was admitted to change the array, until it gives that up.
    pub(crate) admitted: Option<Way>,
    pub(crate) payload: Option<Payload>,
    /// Whole sectors around bytes that do not fill them.
    around: Payload,
    pub(crate) client: Client,
}

/// What lies with a request to the engine until it is answered.
pub(crate) enum Resumption {
    /// The only step of a request in whole sectors.
    Whole(PendingRequest),
    /// Sectors at the edge of a patch; from where on, and how many.
    Fetched(PendingRequest, Patch, (LogicalSector, u64)),
    /// A patch.
    Stored(PendingRequest),
    /// The last step of a durable write that was patched.
    Flushed(PendingRequest),
    /// A client's own flush.
    Flush(Client),
}

impl PendingRequest {
    pub(crate) fn new(request: &ByteRequest, payload: Option<Payload>, client: Client) -> Self {
        let plan = RequestPlan::new(request);
        let admitted = plan.way();
        Self { plan, admitted, payload, around: Payload::default(), client }
    }

    /// Reads change nothing, so they need no admission; what does has memory around its patch.
    pub(crate) fn is_read(&self) -> bool {
        self.plan.way().is_none()
    }

    /// Takes the memory around a patch, to be written.
    pub(crate) fn take_around(&mut self) -> Payload {
        std::mem::take(&mut self.around)
    }

    /// The memory around `patch`. Writes that need some are alone, so that there is one of these at a time.
    pub(crate) fn around(&mut self, patch: &Patch) -> Result<&mut [u8], RequestError> {
        let length = patch.sectors * SECTOR_BYTES;
        if self.around.len() as u64 != length {
            self.around = zeroed(patch.sectors).map_err(|_| RequestError::NoMemory)?;
        }
        Ok(&mut self.around)
    }

    /// Lays the payload, or zeroes, over what was fetched.
    pub(crate) fn lay_over(&mut self, patch: &Patch) -> Result<(), RequestError> {
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

/// Memory for so many sectors: as many as a client asked for.
pub(crate) fn zeroed(sectors: u64) -> Result<Payload, NoMemory> {
    let bytes = usize::try_from(sectors * SECTOR_BYTES).expect("addresses have 64 bits here");
    Payload::try_zeroed(bytes)
}
