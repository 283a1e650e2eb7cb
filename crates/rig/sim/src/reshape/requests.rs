//! Requests in flight and at the border, and the border's gate.

use std::collections::VecDeque;
use std::ops::Range;

use braid_engine::array::{BorderChange, MovedPiece};
use braid_engine::request::{Operation, Progress, Regions, Request};
use braid_engine::reshape::{Border, BorderTicket, UnreadableSearch};

/// The purpose of a request.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Client,
    /// A client's write that must succeed.
    Heal,
    /// A part of a read of the whole array; sectors beyond the model's must be zeroes.
    ReadAll,
    /// The read of a piece that moves.
    PieceRead(MovedPiece),
    /// The read of a part of a piece, after a read of all of it had failed: the search, the part,
    /// and the piece's bytes so far.
    PartRead(MovedPiece, UnreadableSearch, Range<u64>, Vec<u8>),
    /// The read of a window that begins here and is to be copied.
    WindowRead(u64),
    /// The read of a part of a window to be copied: the window's start, the search, its bytes so
    /// far.
    WindowPartRead(u64, UnreadableSearch, Vec<u8>),
    /// The write of the piece that begins here, with these lost sectors.
    PieceWritten(u64, Vec<Range<u64>>),
}

/// A request in whole sectors that is in flight.
pub(super) struct Flight {
    pub(super) request: Request,
    pub(super) progress: Progress,
    pub(super) began: u64,
    pub(super) purpose: Purpose,
    pub(super) ticket: Option<BorderTicket>,
}

/// A request that waits at the border.
pub(super) struct Held {
    pub(super) request: Request,
    pub(super) payload: Option<Vec<u8>>,
    pub(super) began: u64,
    pub(super) purpose: Purpose,
}

/// The border, and the requests that it holds.
pub(super) struct Gate {
    pub(super) regions: Regions,
    pub(super) border: Option<Border>,
    pub(super) waiting: VecDeque<Held>,
}

/// An effect of the array that is carried out in order.
pub(super) enum Task {
    Border(BorderChange),
    Move(MovedPiece),
    Keep(u64, u64),
}

/// The border's answer to a request that it does not admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The request waits.
    Held,
    /// The request fails: its window was overwritten in part.
    Failed,
}

impl Gate {
    pub(super) fn new(regions: Regions) -> Self {
        let border = regions.is_reshaping().then(Border::default);
        Self { regions, border, waiting: VecDeque::new() }
    }

    pub(super) fn enter(&mut self, request: &Request) -> Result<Option<BorderTicket>, Refused> {
        let Some(border) = &mut self.border else { return Ok(None) };
        let range = request.start.0..request.start.0 + request.sectors;
        if border.has_failed(&range) {
            return Err(Refused::Failed);
        }
        let ticket = border.enter(range, request.operation != Operation::Read);
        ticket.map(Some).ok_or(Refused::Held)
    }
}
