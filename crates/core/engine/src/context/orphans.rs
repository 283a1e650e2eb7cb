//! Requests that were in flight at members when these members left the array.
//!
//! A disk that hangs may answer in ten seconds, or never. So its requests end for their owners when
//! a view without the disk arrives, as if the disk had failed them. The memory of such a request
//! stays reserved until the disk ends the request: the disk may still read and write that memory.
//!
//! ```text
//!   under way ──a view without the member──▶ orphan: the owner hears an error
//!                                              └──the member ends it──▶ its memory is free
//! ```

use std::collections::BTreeMap;

use braid_geometry::Slot;
use smallvec::SmallVec;

use super::pieces::PieceKey;
use crate::array::ArrayView;
use crate::ids::{IoId, MemberId};

/// The memory of a request at a member that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservedMemory {
    /// No memory, or memory that is never reused.
    Nothing,
    Payload(PieceKey),
    /// The blocks and payloads of a batch, named by the number of its frame.
    Frame(u32),
    /// The blocks of a read or of background work, named by its index.
    Place(u32),
}

/// Requests at members that left, which have not ended.
#[derive(Debug, Default)]
pub(crate) struct OrphanRequests(BTreeMap<IoId, ReservedMemory>);

impl OrphanRequests {
    pub(super) fn note(&mut self, id: IoId, memory: ReservedMemory) {
        let before = self.0.insert(id, memory);
        assert!(before.is_none(), "a request is orphaned once");
    }

    /// Ends a request, and returns its memory if its member had left.
    #[inline]
    pub(super) fn end(&mut self, id: IoId) -> Option<ReservedMemory> {
        if self.0.is_empty() {
            return None; // The usual case.
        }
        self.0.remove(&id)
    }
}

/// Members that left their slots between two views of the array.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    members: SmallVec<[(Slot, MemberId); 2]>,
    replacements: SmallVec<[(Slot, MemberId); 2]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OrphanRequest {
    pub(crate) id: IoId,
    pub(crate) member: MemberId,
    pub(crate) memory: ReservedMemory,
}

impl Departures {
    /// The members that left between the views `old` and `new`.
    pub(crate) fn between(old: &ArrayView, new: &ArrayView) -> Self {
        let mut departures = Self::default();
        for (slot, old) in (0..).map(Slot).zip(&old.slots) {
            let Some(old) = old else { continue };
            let new = new.member(slot);
            if new.is_none_or(|new| new.id != old.id) {
                departures.members.push((slot, old.id));
            }
            let is_in = |id| new.is_some_and(|new| new.id == id || new.replacement == Some(id));
            let replacement = old.replacement.filter(|id| !is_in(*id));
            departures.replacements.extend(replacement.map(|id| (slot, id)));
        }
        departures
    }

    pub(crate) fn is_none(&self) -> bool {
        self.members.is_empty() && self.replacements.is_empty()
    }

    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.member(slot).is_some()
    }

    pub(super) fn went(&self, member: MemberId) -> bool {
        self.members.iter().chain(&self.replacements).any(|(_, id)| *id == member)
    }

    pub(super) fn member(&self, slot: Slot) -> Option<MemberId> {
        self.members.iter().find(|(of, _)| *of == slot).map(|(_, id)| *id)
    }

    pub(super) fn replacement(&self, slot: Slot) -> Option<MemberId> {
        self.replacements.iter().find(|(of, _)| *of == slot).map(|(_, id)| *id)
    }
}
