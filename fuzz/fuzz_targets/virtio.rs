//! A guest's memory for a virtio block device, or a table that a server left.
//!
//! Input: 1 byte that chooses between them. For a guest: the device's size in sectors (8 bytes), a
//! head and the length of the descriptor table (2 bytes each), and the guest's memory, the table
//! first. For a server's table: a used index, the last head and the ring's index (2 bytes each),
//! and entries of 16 bytes.
//!
//! Invariants: no panic; a chain takes a bounded number of steps, and the lengths of its parts add
//! up to its total length. Each range read, written, discarded or zeroed lies within the device and
//! is not empty. No answered request is submitted again, and no request twice.
#![no_main]

use std::collections::BTreeSet;

use braid_virtio_proto::inflight::{AnswerNotes, Entry, recover};
use braid_virtio_proto::limits::{DESCRIPTORS_MAX, REQUEST_BYTES_MAX, STRETCH_BYTES};
use braid_virtio_proto::{Chain, Device, Request, Shape, Status, Table, configuration, offered};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&flags, rest)) = input.split_first() else { return };
    match flags & 3 {
        0 | 1 => request(rest, flags),
        2 => left(rest),
        _ => told(rest, flags),
    }
});

/// Parses a request in a guest's memory.
fn request(rest: &[u8], flags: u8) {
    let Some((sectors, rest)) = rest.split_first_chunk::<8>() else { return };
    let Some((&[head, more, entries, many], memory)) = rest.split_first_chunk::<4>() else {
        return;
    };
    let size_bytes = (u64::from_le_bytes(*sectors) & (u64::MAX >> 9)) << 9;
    let (is_read_only, is_written_through) = (flags & 4 != 0, flags & 8 != 0);
    let device = Device { size_bytes, is_read_only, is_written_through };
    let table = Table { address: 0, entries: u16::from_le_bytes([entries, many]) };
    let mut steps = 0;
    let walked = Chain::walk(table, u16::from_le_bytes([head, more]), |address| {
        steps += 1;
        let from = usize::try_from(address).ok()?;
        memory.get(from..from.checked_add(16)?)?.try_into().ok()
    });
    assert!(steps <= u32::from(DESCRIPTORS_MAX) + 1, "{steps}");
    let Ok(chain) = walked else { return };
    let sum = |runs: &mut dyn Iterator<Item = braid_virtio_proto::Run>| {
        runs.map(|run| u64::from(run.length)).sum::<u64>()
    };
    assert_eq!(sum(&mut chain.readable(0)), u64::from(chain.readable_bytes()));
    assert_eq!(sum(&mut chain.writable()), u64::from(chain.writable_bytes()));
    assert_eq!(chain.status().is_some(), chain.writable_bytes() > 0);
    let mut told = Vec::new();
    for run in chain.readable(0) {
        let room = Request::TELLING_BYTES - told.len();
        let length = room.min(run.length as usize);
        let from = usize::try_from(run.address).unwrap_or(usize::MAX);
        let Some(bytes) = memory.get(from..from.saturating_add(length)) else { return };
        told.extend(bytes);
    }
    let request = match Request::parse(&told, &chain, &device) {
        Ok(request) => request,
        Err(refused) => return assert_ne!(refused.status(), Status::Done),
    };
    let changes = !matches!(request, Request::Read { .. } | Request::Flush | Request::Id);
    assert!(!(changes && is_read_only), "{request:?}");
    let (offset, length, most) = match request {
        Request::Read { offset, length } => {
            assert_eq!(chain.writable_bytes(), length + 1);
            (offset, u64::from(length), REQUEST_BYTES_MAX)
        }
        Request::Write { offset, length, durable } => {
            assert_eq!((chain.readable_bytes(), durable), (length + 16, is_written_through));
            (offset, u64::from(length), REQUEST_BYTES_MAX)
        }
        Request::Discard { offset, length, .. } | Request::Zero { offset, length, .. } => {
            (offset, length, STRETCH_BYTES)
        }
        Request::Flush | Request::Id => return,
    };
    assert!(length > 0 && length.is_multiple_of(512) && length <= u64::from(most), "{request:?}");
    let end = offset.checked_add(length).expect("an end");
    assert!(end <= size_bytes, "{request:?} of {size_bytes}");
}

/// Recovers the requests that a server left unanswered in its table.
fn left(rest: &[u8]) {
    let Some((words, rest)) = rest.split_first_chunk::<6>() else { return };
    let word = |at: usize| u16::from_le_bytes([words[at], words[at + 1]]);
    let noted = AnswerNotes { used_index: word(0), last_head: word(2) };
    let (entries, _) = rest.as_chunks::<16>();
    let entries: Vec<Entry> = entries
        .iter()
        .map(|bytes| Entry {
            is_in_flight: bytes[0] & 1 != 0,
            next: u16::from_le_bytes([bytes[6], bytes[7]]),
            counter: u64::from_le_bytes(bytes[8..].try_into().expect("eight")),
        })
        .collect();
    let Ok(left) = recover(&entries, noted, word(4)) else { return };
    let again: BTreeSet<u16> = left.in_flight.iter().copied().collect();
    assert_eq!(again.len(), left.in_flight.len(), "nothing is asked for twice");
    assert!(left.answered.iter().all(|head| !again.contains(head)));
    for pair in left.in_flight.windows(2) {
        assert!(entries[usize::from(pair[0])].counter <= entries[usize::from(pair[1])].counter);
    }
    for (head, entry) in (0_u16..).zip(&entries) {
        let is_known = again.contains(&head) || left.answered.contains(&head);
        assert_eq!(again.contains(&head), entry.is_in_flight && !left.answered.contains(&head));
        assert!(is_known || !entry.is_in_flight);
    }
}

/// Reads a part of the device's configuration.
fn told(rest: &[u8], flags: u8) {
    let Some((&[from, length, block, unit], rest)) = rest.split_first_chunk::<4>() else { return };
    let Some((size, _)) = rest.split_first_chunk::<8>() else { return };
    let shape = Shape {
        size_bytes: u64::from_le_bytes(*size) & !511,
        is_read_only: flags & 4 != 0,
        logical_block_bytes: 512 << (block % 4),
        unit_bytes: 512 << (unit % 40),
    };
    let whole = configuration(&shape, 0, 512);
    let part = configuration(&shape, from.into(), length.into());
    assert_eq!(part, whole[usize::from(from)..][..usize::from(length)]);
    assert_eq!(whole[..8], (shape.size_bytes / 512).to_le_bytes());
    assert!(offered(&shape) != 0);
}
