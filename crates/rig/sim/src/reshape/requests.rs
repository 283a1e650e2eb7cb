//! Requests in flight and at the border, and the border's gate.

use std::collections::VecDeque;

use braid_engine::array::{BorderChange, MovedPiece};
use braid_engine::request::{Operation, Progress, Regions, Request};
use braid_engine::reshape::{Border, BorderTicket};

/// The purpose of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Client,
    /// A read of the whole array; sectors beyond the model's must be zeroes.
    ReadAll,
    /// The read of a piece that moves.
    PieceRead(MovedPiece),
    /// The write of the piece that begins here.
    PieceWritten(u64),
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
}

impl Gate {
    pub(super) fn new(regions: Regions) -> Self {
        let border = regions.is_reshaping().then(Border::default);
        Self { regions, border, waiting: VecDeque::new() }
    }

    pub(super) fn enter(&mut self, request: &Request) -> Result<Option<BorderTicket>, ()> {
        let Some(border) = &mut self.border else { return Ok(None) };
        let range = request.start.0..request.start.0 + request.sectors;
        border.enter(range, request.operation != Operation::Read).map(Some).ok_or(())
    }
}
