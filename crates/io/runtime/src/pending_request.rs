//! A client's request between two of its steps, and the client that receives its outcome.
//!
//! Place in the flow: kept with the engine's request in whole sectors that the current step became
//! ([`crate::requests`]). When the engine's request is answered, [`crate::steps`] resumes the
//! client's request. The engine's [`RequestPlan`] decides the steps.

use braid_engine::Instant;
use std::ops::Range;

use braid_engine::array::MovedPiece;
use braid_engine::request::{AdmissionMode, ByteRequest, Patch, RequestPlan};
use braid_engine::reshape::UnreadableSearch;
use braid_geometry::{LogicalSector, SECTOR_BYTES};
use braid_ring::client::{Completion, Outcome, RequestError};
use braid_ring::{NoMemory, Payload};

use crate::sync::Arc;
use crate::waiter::Waiter;

/// The receiver of a request's outcome, called once.
pub(crate) enum OutcomeReceiver {
    /// A completion of a door, or a function.
    Completion(Completion),
    /// A caller that waits, and is woken with the outcome.
    Caller(Arc<Waiter>),
}

pub(crate) struct Client {
    pub(crate) receiver: OutcomeReceiver,
    /// Whether the request's client waits until the members have the data.
    pub(crate) is_urgent: bool,
    /// When the request began, if the request is timed ([`crate::pacing`]).
    pub(crate) began: Option<Instant>,
}

impl Client {
    pub(crate) fn tell(self, outcome: Outcome) {
        match self.receiver {
            OutcomeReceiver::Completion(completion) => completion.complete(outcome),
            OutcomeReceiver::Caller(waiter) => waiter.tell(outcome),
        }
    }
}

pub(crate) struct PendingRequest {
    /// The request's steps; each step begins when the one before has ended.
    pub(crate) plan: RequestPlan,
    /// The request's write admission, until it is released.
    pub(crate) admitted: Option<AdmissionMode>,
    pub(crate) payload: Option<Payload>,
    /// Memory for the whole sectors around bytes that do not fill their sectors.
    around: Payload,
    pub(crate) client: Client,
}

/// The continuation kept with a request to the engine until it is answered.
pub(crate) enum Resumption {
    /// The only step of a request that is in whole sectors.
    Whole(PendingRequest),
    /// A read of the sectors at the edges of a patch, with their first sector and count.
    Fetched(PendingRequest, Patch, (LogicalSector, u64)),
    Stored(PendingRequest),
    /// The last step of a durable write that was patched.
    Flushed(PendingRequest),
    Flush(Client),
    /// A window of a reshape was read, to be copied.
    WindowRead(u64),
    /// A piece of a reshape was read from the old shape.
    PieceRead(MovedPiece),
    /// A part of a window or piece was read, after a read of the whole had failed.
    PartRead(Box<PartialRead>),
    /// The piece of a reshape that begins at this sector was written in the new shape, with other
    /// content in the place of these lost sectors.
    PieceWritten(u64, Vec<Range<u64>>),
}

/// A read of a reshape that failed, and is made again in parts.
pub(crate) struct PartialRead {
    pub(crate) purpose: ReshapeRead,
    pub(crate) search: UnreadableSearch,
    /// The part that is being read.
    pub(crate) part: Range<u64>,
    /// First sector of the whole read, and the bytes read so far.
    pub(crate) start: u64,
    pub(crate) bytes: Payload,
}

/// The purpose of a read in the old shape.
#[derive(Clone, Copy)]
pub(crate) enum ReshapeRead {
    /// A window is to be copied.
    Window,
    /// A piece is to be moved.
    Piece(MovedPiece),
}

impl PendingRequest {
    pub(crate) fn new(request: &ByteRequest, payload: Option<Payload>, client: Client) -> Self {
        let plan = RequestPlan::new(request);
        let admitted = plan.mode();
        Self { plan, admitted, payload, around: Payload::default(), client }
    }

    /// Whether the request needs no write admission and no memory around a patch, since it changes
    /// nothing.
    pub(crate) fn is_read(&self) -> bool {
        self.plan.mode().is_none()
    }

    /// Takes the memory around a patch, which is to be written.
    pub(crate) fn take_around(&mut self) -> Payload {
        std::mem::take(&mut self.around)
    }

    /// The memory around `patch`. Writes that need such memory run alone, so only one is in use.
    pub(crate) fn around(&mut self, patch: &Patch) -> Result<&mut [u8], RequestError> {
        let length = patch.sectors * SECTOR_BYTES;
        if self.around.len() as u64 != length {
            self.around = zeroed(patch.sectors).map_err(|_| RequestError::NoMemory)?;
        }
        Ok(&mut self.around)
    }

    /// Copies the payload, or zeroes, over the sectors that were read around the patch.
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

/// Zeroed memory for as many sectors as a client asked for.
pub(crate) fn zeroed(sectors: u64) -> Result<Payload, NoMemory> {
    let bytes = usize::try_from(sectors * SECTOR_BYTES).expect("addresses have 64 bits here");
    Payload::try_zeroed(bytes)
}
