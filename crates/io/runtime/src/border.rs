//! The border between the two shapes of a reshape, for requests from many threads: admits requests,
//! holds requests that must wait, and reports when earlier requests have ended.
//!
//! Place in the flow: next to [`crate::write_admission`]. The engine's [`Border`] decides. Only an
//! array that was opened in a reshape has this file's gate; requests of other arrays bypass it.
//!
//! ```text
//!   issue ─▶ enter ─┬─ admitted: the split of the moment, and a ticket until the answer
//!                   ├─ held: kept here ◀── the array moves the border: all kept requests begin
//!                   └─ failed: a window in place is overwritten in part, and closed
//! ```

use std::collections::VecDeque;

use braid_engine::array::{BorderChange, WindowAccess};
use braid_engine::request::{Operation, Regions, Request, Split};
use braid_engine::reshape::{Border, BorderTicket};
use braid_ring::Payload;

use crate::requests::Resumption;
use crate::sync::Mutex;

/// A request in whole sectors, with its payload and its continuation.
pub(crate) struct HeldRequest {
    pub(crate) request: Request,
    pub(crate) payload: Option<Payload>,
    pub(crate) completion: Resumption,
}

/// A request that may begin.
pub(crate) struct AdmittedRequest {
    pub(crate) held: HeldRequest,
    pub(crate) pieces: Split,
    pub(crate) ticket: BorderTicket,
}

pub(crate) struct BorderGate {
    state: Mutex<State>,
}

struct State {
    border: Border,
    regions: Regions,
    waiting: VecDeque<HeldRequest>,
}

/// The border's answer to a request.
pub(crate) enum Entry {
    Admitted(AdmittedRequest),
    Held(HeldRequest),
    /// The request's sectors cannot be read or written in either shape.
    Failed(HeldRequest),
}

/// The consequences of a change of the border.
pub(crate) struct BorderTurn {
    /// Requests that begin or fail now.
    pub(crate) entries: Vec<Entry>,
    /// Whether all requests from before the window that moves next have ended.
    pub(crate) is_passed: bool,
}

impl State {
    fn admit(&mut self, held: HeldRequest) -> Entry {
        let Request { start, sectors, operation, .. } = held.request;
        let range = start.0..start.0 + sectors;
        if self.border.has_failed(&range) {
            return Entry::Failed(held);
        }
        match self.border.enter(range, operation != Operation::Read) {
            Some(ticket) => {
                let pieces = self.regions.split(&held.request);
                Entry::Admitted(AdmittedRequest { held, pieces, ticket })
            }
            None => Entry::Held(held),
        }
    }
}

impl BorderGate {
    pub(crate) fn new(regions: Regions) -> Self {
        let (border, waiting) = Default::default();
        Self { state: Mutex::new(State { border, regions, waiting }) }
    }

    /// Admits a request or fails it; `None` if the gate holds it.
    pub(crate) fn enter(&self, request: HeldRequest) -> Option<Entry> {
        let mut state = self.state.lock().expect("counting does not panic");
        match state.admit(request) {
            Entry::Held(held) => {
                state.waiting.push_back(held);
                None
            }
            entry => Some(entry),
        }
    }

    /// Ends an admitted request. True if it was the last request that the array waited for.
    pub(crate) fn leave(&self, ticket: BorderTicket) -> bool {
        self.state.lock().expect("counting does not panic").border.leave(ticket)
    }

    /// The border's position, as superblocks record it.
    pub(crate) fn position(&self) -> u64 {
        self.state.lock().expect("looking does not panic").regions.border().unwrap_or(0)
    }

    /// The distribution over shards of requests that go to only one of the two shapes.
    pub(crate) fn on_side(&self, is_after: bool) -> Regions {
        self.state.lock().expect("looking does not panic").regions.on_side(is_after)
    }

    /// Moves the border. The caller owns the array, so changes arrive in the order of its turns.
    pub(crate) fn turn(&self, change: BorderChange) -> BorderTurn {
        let mut state = self.state.lock().expect("counting does not panic");
        let state = &mut *state;
        state.regions = state.regions.with_border(change.position);
        state.border.release();
        if let Some((sectors, WindowAccess::Fails)) = &change.window {
            state.border.fail(sectors.clone());
        }
        let waiting = std::mem::take(&mut state.waiting);
        let entries = waiting.into_iter().map(|held| state.admit(held)).collect();
        let held = change.window.filter(|(_, access)| *access != WindowAccess::Fails);
        let is_passed = held.is_some_and(|(sectors, access)| {
            state.border.hold(sectors, access == WindowAccess::AllWait);
            state.border.is_passed()
        });
        BorderTurn { entries, is_passed }
    }
}
