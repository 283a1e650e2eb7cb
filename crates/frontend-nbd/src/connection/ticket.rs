//! The right and the duty to answer one request, once.
//!
//! Where it stands: made by the reader when a request begins, carried by the completion that the export calls. If the
//! export drops the completion, or panics, the ticket answers NBD_EIO in its place: no request hangs.

use std::sync::Arc;

use braid_nbd_proto::{ErrorCode, Extent, ReplyCodec};

use super::channel::{Channel, Head, Reply};
use crate::export::{Outcome, Payload};
use crate::server::Shared;
use crate::sync::{self, Flaw};

/// What a ticket needs to know of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read { offset: u64, length: u32 },
    Write { length: u32 },
    Other,
}

impl Kind {
    /// Payload bytes the request holds while it is in flight.
    pub(super) const fn cost_bytes(self) -> usize {
        match self {
            Self::Read { length, .. } | Self::Write { length } => length as usize,
            Self::Other => 0,
        }
    }
}

/// See the module.
pub(super) struct Ticket {
    shared: Arc<Shared>,
    channel: Arc<Channel>,
    codec: ReplyCodec,
    cookie: u64,
    kind: Kind,
    answered: bool,
}

impl Ticket {
    /// For a request that has begun on `channel`.
    pub(super) fn new(
        shared: &Arc<Shared>,
        channel: &Arc<Channel>,
        codec: ReplyCodec,
        cookie: u64,
        kind: Kind,
    ) -> Self {
        let (shared, channel) = (Arc::clone(shared), Arc::clone(channel));
        Self { shared, channel, codec, cookie, kind, answered: false }
    }

    /// Answers with what the export said.
    pub(super) fn complete(mut self, outcome: Outcome) {
        match (outcome.status, self.kind) {
            (Err(error), _) => self.fail(error.into(), &error.to_string()),
            (Ok(()), Kind::Read { offset, length }) => match outcome.payload {
                Some(payload) if payload.len() == length as usize => {
                    self.shared.counters.bytes_read.add(u64::from(length));
                    let header = self.codec.data(self.cookie, offset, length);
                    self.answer(Head::Header(header), Some(payload));
                }
                _ => self.fail_for_breach("the data of a read did not come back"),
            },
            (Ok(()), _) => self.answer(Head::Header(self.codec.success(self.cookie)), None),
        }
    }

    /// Answers BLOCK_STATUS.
    pub(super) fn block_status(mut self, extents: &[Extent]) {
        self.answer(Head::Bytes(self.codec.block_status(self.cookie, extents)), None);
    }

    /// Answers a request that was never started.
    pub(super) fn refuse(mut self, error: ErrorCode, reason: &str) {
        self.fail(error, reason);
    }

    /// Gives up a request whose client left in the middle of it.
    pub(super) fn abandon(mut self) {
        self.answered = true;
        self.channel.end(1, self.kind.cost_bytes());
    }

    fn fail_for_breach(&mut self, reason: &str) {
        self.shared.counters.contract_breaches.add(1);
        self.fail(ErrorCode::Io, reason);
    }

    fn fail(&mut self, error: ErrorCode, reason: &str) {
        self.shared.counters.error(error);
        self.answer(Head::Bytes(self.codec.failure(self.cookie, error, reason)), None);
    }

    fn answer(&mut self, head: Head, payload: Option<Payload>) {
        assert!(!self.answered, "a request is answered once");
        self.answered = true;
        let cost_bytes = self.kind.cost_bytes();
        self.channel.reply(Reply { head, payload, cost_bytes });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered && !sync::has(Flaw::DropUnanswered) {
            self.fail_for_breach("the request was dropped");
        }
    }
}
