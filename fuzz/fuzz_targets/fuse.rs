//! A FUSE message. Input: 1 byte of flags, 2 bytes of a WRITE's payload length, then the message.
//!
//! Invariants: no panic; no read, write or zeroing outside the file; an answer contains its own
//! length; a read-only file never changes.
#![no_main]

use std::time::SystemTime;

use braid_fuse_proto::wire::InHeader;
use braid_fuse_proto::{File, Head, Owner, Request, Step, Wishes};
use libfuzzer_sys::fuzz_target;

const SIZE_BYTES: u64 = 10_000_000;

fuzz_target!(|input: &[u8]| {
    let [flags, low, high, message @ ..] = input else { return };
    let payload_bytes = usize::from(u16::from_le_bytes([*low, *high]));
    let read_only = flags & 1 != 0;
    let head = match flags & 2 {
        0 => Head::parse(message, message.len() + payload_bytes),
        _ => Head::parse_ring(message),
    };
    let Ok(head) = head else { return };
    let arguments = &message[size_of::<InHeader>()..];
    let Ok(request) = Request::parse(&head, arguments, payload_bytes) else { return };
    let now = SystemTime::UNIX_EPOCH;
    let mut file = File::new(SIZE_BYTES, read_only, Owner { uid: 1, gid: 2 }, now);
    let wishes = Wishes { over_rings: true, request_bytes_max: 1 << 20 };
    match file.decide(&head, &request, (wishes, now)) {
        Step::Read { offset, length } => {
            assert!(length > 0 && length <= 1 << 20 && offset + u64::from(length) <= SIZE_BYTES);
        }
        Step::Write { offset, length, .. } => {
            assert!(!read_only && length as usize == payload_bytes);
            assert!(offset + u64::from(length) <= SIZE_BYTES);
        }
        Step::Zero { offset, length, .. } => {
            assert!(!read_only && length > 0 && offset + length <= SIZE_BYTES);
        }
        Step::Flush => assert!(!read_only),
        Step::Answer(reply) | Step::Begin(reply, _) => {
            let said = u32::from_ne_bytes(reply.bytes()[..4].try_into().expect("four"));
            assert_eq!(said as usize, reply.bytes().len());
        }
        Step::Silent => {}
    }
});
