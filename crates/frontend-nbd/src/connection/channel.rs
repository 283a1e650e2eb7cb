//! Between those who finish requests and the one who writes replies.
//!
//! Where it stands: the reader begins requests here and waits for room; completions, on any thread, leave replies; the
//! writer takes them in that order. A request counts as in flight until its reply has been sent, so a client that does
//! not read its replies stops being read from.
//!
//! ```text
//!   open ── finish (reader done) ──► finishing ── nothing in flight ──► the writer ends
//!     └──── close (socket broken) ─► closed: replies are dropped, begin answers false
//! ```

use std::collections::VecDeque;
use std::sync::PoisonError;

use braid_nbd_proto::ReplyHeader;

use crate::export::Payload;
use crate::limits::{IN_FLIGHT_BYTES_MAX, IN_FLIGHT_REQUESTS_MAX, REPLIES_PER_SEND};
use crate::sync::{self, Condvar, Flaw, Mutex, MutexGuard};

/// The first part of a reply.
#[derive(Debug)]
pub(super) enum Head {
    Header(ReplyHeader),
    Bytes(Vec<u8>),
}

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Header(header) => header.as_ref(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// One reply, ready to send.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) head: Head,
    pub(super) payload: Option<Payload>,
    pub(super) cost_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    replies: VecDeque<Reply>,
    in_flight: usize,
    in_flight_bytes: usize,
    finishing: bool,
    closed: bool,
}

/// The replies of one connection, and its accounts of what is in flight.
#[derive(Debug, Default)]
pub(super) struct Channel {
    state: Mutex<State>,
    room: Condvar,
    work: Condvar,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room for one more request; false if the connection is broken.
    pub(super) fn begin(&self, cost_bytes: usize) -> bool {
        let full = |state: &mut State| {
            let bytes = state.in_flight_bytes.saturating_add(cost_bytes);
            let crowded = state.in_flight >= IN_FLIGHT_REQUESTS_MAX;
            let heavy = state.in_flight_bytes > 0 && bytes > IN_FLIGHT_BYTES_MAX;
            !state.closed && (crowded || heavy)
        };
        let waited = self.room.wait_while(self.lock(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return false;
        }
        state.in_flight += 1;
        state.in_flight_bytes += cost_bytes;
        true
    }

    /// Leaves a reply for the writer; a broken connection drops it.
    pub(super) fn reply(&self, reply: Reply) {
        let mut state = self.lock();
        if !state.closed {
            state.replies.push_back(reply);
        }
        drop(state);
        self.work.notify_one();
    }

    /// Ends requests whose replies have been sent, or will never be.
    pub(super) fn end(&self, requests: usize, cost_bytes: usize) {
        let mut state = self.lock();
        state.in_flight -= requests;
        state.in_flight_bytes -= cost_bytes;
        drop(state);
        if !sync::has(Flaw::EndSilent) {
            self.room.notify_one();
        }
        self.work.notify_one();
    }

    /// Says that no more requests will begin.
    pub(super) fn finish(&self) {
        self.lock().finishing = true;
        if !sync::has(Flaw::FinishSilent) {
            self.work.notify_one();
        }
    }

    /// Says that the connection is broken.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.replies);
        drop(state);
        drop(dropped);
        if !sync::has(Flaw::CloseForgetsReader) {
            self.room.notify_all();
        }
        self.work.notify_all();
    }

    /// Waits for replies; `None` when there will be no more.
    pub(super) fn take_batch(&self) -> Option<Vec<Reply>> {
        let idle = |state: &mut State| {
            let over = state.closed || (state.finishing && state.in_flight == 0);
            state.replies.is_empty() && !over
        };
        let waited = self.work.wait_while(self.lock(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.replies.is_empty() {
            return None;
        }
        let count = state.replies.len().min(REPLIES_PER_SEND);
        Some(state.replies.drain(..count).collect())
    }
}
