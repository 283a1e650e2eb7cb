//! The table of requests in flight (taken and not answered), in memory that outlives the server.
//!
//! The client owns the memory of the table, and gives it to the next server. Each queue has a head,
//! and an entry for each descriptor that can begin a chain:
//!
//! ```text
//!   bytes   0  features  8  version  10  entries  12  last head  14  used index  16  entries ...
//!   entry   0  in flight  1..6  nothing  6  next in the batch  8  counter
//! ```
//!
//! To take a request the server stores its counter, then *in flight*. To answer it the server
//! stores *last head*, then the used ring and its index, then not *in flight*, then *used index*.
//! If the server dies after storing the ring's index and before storing *used index*, these two
//! differ. In that case the request of *last head* was answered
//! [check: what_is_in_flight_is_asked_for_once_after_a_crash].

use crate::limits::{QUEUE_ENTRIES_MAX, QUEUES_MAX};

const HEAD_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;

/// The parts of queues begin at multiples of this many bytes, so that no two share a cache line.
const ALIGNMENT: u64 = 64;

/// Offsets of the fields of a queue's part of the table, from its beginning.
#[allow(missing_docs)] // each is what its name says
pub mod at {
    pub const VERSION: u64 = 8;
    pub const ENTRIES: u64 = 10;
    pub const LAST_HEAD: u64 = 12;
    pub const USED_INDEX: u64 = 14;
    pub const IN_FLIGHT: u64 = 0;
    pub const NEXT: u64 = 6;
    pub const COUNTER: u64 = 8;
}

/// The version of the table's layout.
pub const VERSION: u16 = 1;

/// The entry of one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Whether the request that begins at this descriptor was taken and not answered.
    pub is_in_flight: bool,
    /// The request that was answered before this one in the same batch.
    pub next: u16,
    /// The request's number in the order of taking.
    pub counter: u64,
}

/// A server's notes of its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerNotes {
    /// The last request that the server was about to answer.
    pub last_head: u16,
    /// The ring's used index after the answers that the server has noted.
    pub used_index: u16,
}

/// The requests that a dead server left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredRequests {
    /// Requests that were answered, but not noted as answered.
    pub answered: Vec<u16>,
    /// Requests without an answer, in the order in which the device took them.
    pub in_flight: Vec<u16>,
    /// The counter that the next request gets.
    pub counter: u64,
}

/// Why memory holds no valid table of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The number of queues or entries is impossible.
    #[error("a table of {queues} queues of {entries} entries is none")]
    Shape {
        /// Number of queues.
        queues: u16,
        /// Number of entries of each queue.
        entries: u16,
    },
    /// The ring has more new answers than the queue has entries.
    #[error("{0} answers are not noted, which no server leaves")]
    Answers(u16),
}

/// Length in bytes of a queue's part of the table.
#[must_use]
pub const fn queue_bytes(entries: u16) -> u64 {
    let bytes = (entries as u64).saturating_mul(ENTRY_BYTES).saturating_add(HEAD_BYTES);
    bytes.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT)
}

/// Length in bytes of a table of requests in flight.
///
/// # Errors
/// The number of queues or entries is impossible.
pub const fn table_bytes(queues: u16, entries: u16) -> Result<u64, FormatError> {
    let is_one =
        queues >= 1 && queues <= QUEUES_MAX && entries >= 1 && entries <= QUEUE_ENTRIES_MAX;
    if !is_one {
        return Err(FormatError::Shape { queues, entries });
    }
    Ok(queue_bytes(entries).saturating_mul(queues as u64))
}

/// Offset of an entry, from the beginning of its queue's part of the table.
#[must_use]
pub const fn place_of(entry: u16) -> u64 {
    (entry as u64).saturating_mul(ENTRY_BYTES).saturating_add(HEAD_BYTES)
}

/// Reads a dead server's table, for a ring whose used index is `ring_index`. If no request is in
/// flight, the driver may have set up the ring anew, and any index is valid.
///
/// # Errors
/// No server leaves such a table.
pub fn recover(
    entries: &[Entry],
    noted: AnswerNotes,
    ring_index: u16,
) -> Result<RecoveredRequests, FormatError> {
    if !entries.iter().any(|entry| entry.is_in_flight) {
        return Ok(RecoveredRequests::default());
    }
    let unnoted = ring_index.wrapping_sub(noted.used_index);
    if usize::from(unnoted) > entries.len() {
        return Err(FormatError::Answers(unnoted));
    }
    let mut answered = Vec::new();
    let mut head = noted.last_head;
    for _ in 0..unnoted {
        let entry = entries.get(usize::from(head)).ok_or(FormatError::Answers(unnoted))?;
        answered.push(head);
        head = entry.next;
    }
    let is_left = |head: &u16| !answered.contains(head);
    let counters = (0_u16..).zip(entries).filter(|(_, entry)| entry.is_in_flight);
    let mut in_flight: Vec<(u64, u16)> = counters
        .filter(|(head, _)| is_left(head))
        .map(|(head, entry)| (entry.counter, head))
        .collect();
    in_flight.sort_unstable();
    let counter = in_flight.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
    let in_flight = in_flight.into_iter().map(|(_, head)| head).collect();
    Ok(RecoveredRequests { answered, in_flight, counter })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ENTRIES: usize = 8;

    /// A server that makes each store on its own, and can die before any of them.
    #[derive(Clone, Default)]
    struct Memory {
        entries: [Entry; ENTRIES],
        noted: AnswerNotes,
        /// The used ring: the requests that were answered.
        used: Vec<u16>,
    }

    impl Memory {
        fn ring_index(&self) -> u16 {
            u16::try_from(self.used.len() % 65536).expect("in range")
        }

        /// Makes one of the two stores by which a server takes a request: `step` 0 or 1.
        fn take(&mut self, head: u16, counter: u64, step: usize) {
            let entry = &mut self.entries[usize::from(head)];
            match step {
                0 => entry.counter = counter,
                _ => entry.is_in_flight = true,
            }
        }

        fn answer(&mut self, head: u16, step: usize) {
            match step {
                0 => self.noted.last_head = head,
                1 => self.used.push(head),
                2 => self.entries[usize::from(head)].is_in_flight = false,
                _ => self.noted.used_index = self.ring_index(),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_in_flight_is_asked_for_once_after_a_crash(
            stores_before_death in 0_usize..80, picks in proptest::collection::vec(any::<usize>(), 80),
        ) {
            let (mut memory, mut counter) = (Memory::default(), 0);
            let mut taken: Vec<u16> = Vec::new();
            let mut stores = stores_before_death;
            let mut dies = || { stores = stores.saturating_sub(1); stores == 0 };
            let mut asked = Vec::new();
            'life: for pick in picks {
                let free: Vec<u16> = (0..8).filter(|head| !taken.contains(head)).collect();
                if pick % 3 > 0 && !free.is_empty() {
                    let head = free[pick % free.len()];
                    taken.push(head);
                    asked.push(head);
                    for step in 0..2 {
                        if dies() { break 'life }
                        memory.take(head, counter, step);
                    }
                    counter += 1;
                } else if !taken.is_empty() {
                    let head = taken[pick % taken.len()];
                    for step in 0..4 {
                        if dies() { break 'life }
                        memory.answer(head, step);
                    }
                    taken.retain(|one| *one != head);
                }
            }
            let left = recover(&memory.entries, memory.noted, memory.ring_index()).expect("a server's");
            // Requests that were taken and not answered are submitted again. If the last request
            // was not marked yet, the next server takes this request from the ring anew.
            let unanswered: Vec<u16> = {
                let mut open = asked.clone();
                for head in &memory.used {
                    let at = open.iter().position(|one| one == head).expect("asked before");
                    open.remove(at);
                }
                open
            };
            let marked = left.in_flight.len();
            prop_assert!(unanswered.len() - marked <= 1, "{unanswered:?} {left:?}");
            prop_assert_eq!(&unanswered[..marked], &left.in_flight[..]);
            // The index of the next request follows from the numbers of answered and marked
            // requests.
            prop_assert!(asked.len() - (memory.used.len() + marked) <= 1);
        }
    }

    #[test]
    fn a_batch_that_was_not_noted_is_followed() {
        let mut entries = [Entry { is_in_flight: true, next: 0, counter: 0 }; 4];
        entries[2].next = 1;
        let noted = AnswerNotes { last_head: 2, used_index: u16::MAX };
        let left = recover(&entries, noted, 1).expect("a server's");
        assert_eq!((left.answered, left.in_flight), (vec![2, 1], vec![0, 3]));
    }

    #[test]
    fn what_no_server_leaves_is_refused() {
        let entries = [Entry { is_in_flight: true, ..Entry::default() }; 4];
        let anew =
            recover(&[Entry::default(); 4], AnswerNotes { last_head: 9, used_index: 700 }, 3);
        assert_eq!(anew, Ok(RecoveredRequests::default()));
        assert_eq!(recover(&entries, AnswerNotes::default(), 5), Err(FormatError::Answers(5)));
        let wild = AnswerNotes { last_head: 9, used_index: 0 };
        assert_eq!(recover(&entries, wild, 1), Err(FormatError::Answers(1)));
        assert!(recover(&entries, wild, 0).is_ok(), "it is not looked at");
        for (queues, entries) in [(0, 8), (QUEUES_MAX + 1, 8), (1, 0), (1, QUEUE_ENTRIES_MAX + 1)] {
            assert_eq!(table_bytes(queues, entries), Err(FormatError::Shape { queues, entries }));
        }
        assert_eq!((table_bytes(2, 128), queue_bytes(1)), (Ok(2 * 2112), 64));
        assert_eq!((place_of(0), place_of(127)), (16, 2048));
    }
}
