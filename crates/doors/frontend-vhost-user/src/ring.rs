//! One ring in a guest's memory: its requests, and their answers. The ring handles the event index
//! (VIRTIO_F_EVENT_IDX), by which each side limits the notifications that it gets.
//!
//! A ring with an impossible state (more requests than it has room for, one request twice) is
//! broken. The door takes no more requests from such a ring, since its content cannot be trusted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_virtio_proto::inflight::FormatError;
use braid_virtio_proto::{Chain, ChainError, Table};
use virtio_queue::{Queue, QueueOwnedT, QueueT};

use crate::inflight::Part;
use crate::memory::Memory;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("a ring of {0} entries is none")]
    Size(u32),
    #[error("a ring is not within the guest's memory")]
    Place,
    #[error("a ring says that there is more in it than it has room for")]
    Index,
    #[error("a ring has request {0}, which it cannot have, or has already")]
    Head(u16),
    #[error(transparent)]
    Table(#[from] FormatError),
}

/// The position of a ring, in the client's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) entries: u16,
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// The index of the next request, if no table of requests in flight gives this index.
    pub(crate) base: u16,
    pub(crate) has_event_index: bool,
}

pub(crate) struct Ring {
    queue: Queue,
    memory: Arc<Memory>,
    part: Option<Part>,
    /// For each possible first descriptor, whether its request was taken and not answered.
    taken: Vec<bool>,
}

impl Ring {
    /// Opens a ring; returns it with the requests that a dead server took and did not answer.
    pub(crate) fn start(
        setup: &Setup,
        memory: Arc<Memory>,
        part: Option<Part>,
    ) -> Result<(Self, Vec<u16>), Broken> {
        let entries = setup.entries;
        let mut queue = Queue::new(entries).map_err(|_| Broken::Size(entries.into()))?;
        let guest = |user| memory.guest_of(user).ok_or(Broken::Place);
        let placed = queue
            .try_set_desc_table_address(guest(setup.descriptors)?)
            .and(queue.try_set_avail_ring_address(guest(setup.available)?))
            .and(queue.try_set_used_ring_address(guest(setup.used)?));
        placed.map_err(|_| Broken::Place)?;
        queue.set_event_idx(setup.has_event_index);
        queue.set_ready(true);
        if !queue.is_valid(memory.map()) {
            return Err(Broken::Place);
        }
        let used = queue.used_idx(memory.map(), Ordering::Acquire).map_err(|_| Broken::Place)?.0;
        queue.set_next_used(used);
        queue.set_next_avail(setup.base);
        let taken = vec![false; usize::from(entries)];
        let mut ring = Self { queue, memory, part, taken };
        let Some(part) = &mut ring.part else { return Ok((ring, Vec::new())) };
        let left = part.recover(used)?.in_flight;
        for head in &left {
            let place = ring.taken.get_mut(usize::from(*head)).ok_or(Broken::Head(*head))?;
            *place = true;
        }
        // Each request that was taken so far has been answered or is in `left`.
        let count = u16::try_from(left.len()).expect("no more than there are entries");
        ring.queue.set_next_avail(used.wrapping_add(count));
        Ok((ring, left))
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn set_memory(&mut self, memory: Arc<Memory>) -> Result<(), Broken> {
        self.memory = memory;
        if self.queue.is_valid(self.memory.map()) { Ok(()) } else { Err(Broken::Place) }
    }

    pub(crate) fn take(&mut self) -> Result<Option<u16>, Broken> {
        let head = match self.queue.iter(self.memory.map()) {
            Ok(mut heads) => heads.next().map(|chain| chain.head_index()),
            Err(_) => return Err(Broken::Index),
        };
        let Some(head) = head else { return Ok(None) };
        match self.taken.get_mut(usize::from(head)) {
            Some(is_taken @ false) => *is_taken = true,
            _ => return Err(Broken::Head(head)),
        }
        if let Some(part) = &mut self.part {
            part.take(head);
        }
        Ok(Some(head))
    }

    pub(crate) fn chain(&self, head: u16) -> Result<Chain, ChainError> {
        let table = Table { address: self.queue.desc_table(), entries: self.queue.size() };
        Chain::walk(table, head, |address| self.memory.descriptor(address))
    }

    pub(crate) fn answer(&mut self, head: u16, written_bytes: u32) -> Result<(), Broken> {
        let is_taken = std::mem::replace(&mut self.taken[usize::from(head)], false);
        assert!(is_taken, "a request is answered once");
        if let Some(part) = &self.part {
            part.begin_answer(head);
        }
        let added = self.queue.add_used(self.memory.map(), head, written_bytes);
        added.map_err(|_| Broken::Place)?;
        if let Some(part) = &self.part {
            part.end_answer(head, self.queue.next_used());
        }
        Ok(())
    }

    /// Whether the guest wants a call for the answers since the last call of this function.
    pub(crate) fn wants_call(&mut self) -> bool {
        // If the ring cannot be read, an extra call does no harm.
        self.queue.needs_notification(self.memory.map()).unwrap_or(true)
    }

    /// Asks the guest to kick for new requests; returns whether new requests have arrived already.
    pub(crate) fn listen(&mut self) -> Result<bool, Broken> {
        self.queue.enable_notification(self.memory.map()).map_err(|_| Broken::Place)
    }

    pub(crate) fn base(&self) -> u16 {
        self.queue.next_avail()
    }
}
