//! Tests extended headers by their bytes, which are written out from the specification, in both
//! directions.
//!
//! The tests with clients that others wrote are in `crates/cli/tests/e2e/extended_headers.rs`.

use std::sync::Arc;

use crate::common::{DriverOutput, converse, plan, trace_client, trace_server};
use braid_nbd_proto::{
    BlockSizes, ClientClose, ClientEvent, ClientSession, CloseReason, Command, Echo, ErrorCode,
    ExportDescription, Extent, Goal, ReplyCodec, Request, ServerEvent, ServerSession, Style,
    SubmitError, limits, wire,
};

/// Size in bytes of an export that is larger than any range in 32 bits.
const HUGE: u64 = 3 << 40;

/// A server session in transmission with extended headers and `base:allocation`, over an export of
/// [`HUGE`] bytes.
fn transmitting() -> ServerSession {
    let export = ExportDescription {
        name: "array".into(),
        is_withdrawn: false,
        description: String::new(),
        size_bytes: HUGE,
        read_only: false,
        multi_conn: true,
        block_sizes: BlockSizes::BYTE_GRANULAR,
    };
    let mut session = ServerSession::new(Arc::new([export]));
    let client = [
        b"\0\0\0\x03".to_vec(),
        b"IHAVEOPT\0\0\0\x0b\0\0\0\0".to_vec(),
        b"IHAVEOPT\0\0\0\x0a\0\0\0\x1b\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation".to_vec(),
        b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0".to_vec(),
    ];
    let seen = trace_server(&mut session, &[&client.concat()]);
    let sent = |seen: &DriverOutput<ServerEvent>| match seen {
        DriverOutput::Event(ServerEvent::Transmit(bytes)) => Some(bytes.clone()),
        _ => None,
    };
    let ack = b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x0b\0\0\0\x01\0\0\0\0".to_vec();
    assert!(seen.iter().filter_map(sent).any(|bytes| bytes == ack));
    assert!(session.is_negotiated());
    session
}

/// A request's bytes: magic, flags, type, cookie, offset, length.
fn request(flags: u16, kind: u16, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0x21, 0xe4, 0x1c, 0x71];
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(b"cookie!!");
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    assert_eq!(bytes.len(), 32);
    bytes
}

const COOKIE: u64 = u64::from_be_bytes(*b"cookie!!");

fn asked(seen: &[DriverOutput<ServerEvent>]) -> Command {
    let [DriverOutput::Event(ServerEvent::Request(Request { cookie: COOKIE, command }))] = seen
    else {
        panic!("{seen:?}");
    };
    *command
}

#[test]
fn ranges_of_64_bits_are_asked_for_by_their_bytes() {
    let (no_hole, fast) = (2, 16);
    let whole = (0, HUGE);
    let cases = [
        (0, 4, Command::Trim { offset: 0, length: HUGE, fua: false }),
        (1, 4, Command::Trim { offset: 0, length: HUGE, fua: true }),
        (0, 5, Command::Cache { offset: 0, length: HUGE }),
        (8, 7, Command::BlockStatus { offset: 0, length: HUGE, one: true }),
        (
            no_hole | fast,
            6,
            Command::WriteZeroes {
                offset: 0,
                length: HUGE,
                fua: false,
                may_punch: false,
                fast: true,
            },
        ),
    ];
    for (flags, kind, command) in cases {
        let bytes = request(flags, kind, whole.0, whole.1);
        assert_eq!(asked(&trace_server(&mut transmitting(), &[&bytes])), command);
        assert_eq!(&command.bytes(COOKIE, Style::Extended)[..], bytes, "and sent so");
    }
}

#[test]
fn a_write_has_the_flag_and_its_payload() {
    let command = Command::Write { offset: HUGE - 3, length: 3, fua: true };
    let bytes = request(1 | 32, 1, HUGE - 3, 3);
    assert_eq!(&command.bytes(COOKIE, Style::Extended)[..], bytes);
    let mut session = transmitting();
    let seen = trace_server(&mut session, &[&bytes, b"abc", &request(0, 3, 0, 0)]);
    assert_eq!(asked(&seen[..1]), command);
    assert_eq!(seen[1], DriverOutput::Payload(b"abc".to_vec()));
    assert_eq!(asked(&seen[2..]), Command::Flush);
}

#[test]
fn a_payload_where_none_belongs_is_swallowed_and_refused() {
    for kind in [0, 3, 4, 5, 6, 7, 99] {
        let mut session = transmitting();
        let bytes = [request(32, kind, 0, 700), vec![0xaa; 700], request(0, 3, 0, 0)].concat();
        let seen = trace_server(&mut session, &[&bytes]);
        let DriverOutput::Event(ServerEvent::Refused { echo, refusal }) = &seen[0] else {
            panic!("{seen:?}");
        };
        assert_eq!(
            (*echo, refusal.error),
            (Echo { cookie: COOKIE, offset: 0 }, ErrorCode::Invalid)
        );
        assert_eq!(asked(&seen[1..]), Command::Flush, "the next request was found");
    }
}

#[test]
fn a_write_without_the_flag_is_refused_and_nothing_follows_it() {
    let mut session = transmitting();
    let bytes = [request(0, 1, 0, 700), request(0, 3, 0, 0)].concat();
    let seen = trace_server(&mut session, &[&bytes]);
    assert!(matches!(seen[0], DriverOutput::Event(ServerEvent::Refused { .. })));
    assert_eq!(asked(&seen[1..]), Command::Flush);
}

#[test]
fn lengths_at_the_end_of_the_numbers_are_harmless() {
    let refused = [
        (0, 0, 0, 1 << 32),
        (0, 0, 0, u64::MAX),
        (0, 4, 0, HUGE + 1),
        (0, 4, 1, u64::MAX),
        (0, 7, HUGE, 1),
        (0, 6, u64::MAX, u64::MAX),
        (0, 1, 0, u64::MAX),
    ];
    for (flags, kind, offset, length) in refused {
        let bytes = [request(flags, kind, offset, length), request(0, 3, 0, 0)].concat();
        let seen = trace_server(&mut transmitting(), &[&bytes]);
        let DriverOutput::Event(ServerEvent::Refused { echo, .. }) = &seen[0] else {
            panic!("{seen:?}")
        };
        assert_eq!(*echo, Echo { cookie: COOKIE, offset }, "the offset is told back");
        assert_eq!(asked(&seen[1..]), Command::Flush);
    }
    for length in [u64::from(limits::DISCARD_BYTES_MAX) + 1, 1 << 32, (1 << 32) + 3, u64::MAX] {
        for kind in [1, 4] {
            let seen = trace_server(&mut transmitting(), &[&request(32, kind, 0, length)]);
            let close = CloseReason::PayloadTooLarge(length);
            assert_eq!(seen, [DriverOutput::Event(ServerEvent::Close(close))]);
        }
    }
}

#[test]
fn headers_of_the_other_length_end_the_session() {
    let compact = Command::Flush.header(1).encode();
    let seen = trace_server(&mut transmitting(), &[&compact, &[0; 4]]);
    assert_eq!(seen, [DriverOutput::Event(ServerEvent::Close(CloseReason::BadRequestMagic))]);
    let plain = converse(plan(Goal::Transmit, Style::Structured), &[]).to_server;
    let negotiation = &plain[..plain.len() - 28];
    let mut session = ServerSession::new(crate::common::catalog());
    trace_server(&mut session, &[negotiation]);
    assert!(session.is_negotiated());
    let seen = trace_server(&mut session, &[&request(0, 3, 0, 0)]);
    assert_eq!(seen, [DriverOutput::Event(ServerEvent::Close(CloseReason::BadRequestMagic))]);
}

/// A client in its transmission phase with this command in flight.
fn client(command: Command) -> ClientSession {
    let plan = plan(Goal::Transmit, Style::Extended);
    let negotiation = converse(plan.clone(), &[]).to_client;
    let mut session = ClientSession::new(plan);
    trace_client(&mut session, &[command], &[&negotiation]);
    assert_eq!(session.in_flight_count(), 1);
    session
}

/// A chunk's bytes: magic, DONE, type, cookie 0, offset, length, and the body.
fn chunk(kind: u16, offset: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x6e, 0x8a, 0x27, 0x8c, 0, 1];
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn status(count: u32, extents: &[(u64, u64)]) -> Vec<u8> {
    let mut body = wire::CONTEXT_ALLOCATION_ID.to_be_bytes().to_vec();
    body.extend_from_slice(&count.to_be_bytes());
    for (length, flags) in extents {
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&flags.to_be_bytes());
    }
    body
}

#[test]
fn a_client_reads_extents_of_both_lengths_and_believes_no_other() {
    let command = Command::BlockStatus { offset: 8, length: 4096, one: false };
    let heard = |bytes: &[u8]| trace_client(&mut client(command), &[], &[bytes]);
    let done = DriverOutput::Event(ClientEvent::Completed { cookie: 0, result: Ok(()) });
    let short = [1_u32, 512, 3].map(u32::to_be_bytes).concat();
    let good = [
        (chunk(6, 8, &status(1, &[(1 << 40, 3)])), (1 << 40, 3)),
        (chunk(6, 8, &status(0, &[(512, 0)])), (512, 0)),
        (chunk(5, 8, &short), (512, 3)),
    ];
    for (bytes, (length_bytes, flags)) in good {
        let extents = vec![Extent { length_bytes, flags }];
        let told = DriverOutput::Event(ClientEvent::BlockStatus { cookie: 0, extents });
        assert_eq!(heard(&bytes), [told, done.clone()]);
    }
    let bad = [
        chunk(6, 9, &status(1, &[(512, 0)])),
        chunk(6, 8, &status(2, &[(512, 0)])),
        chunk(6, 8, &status(0, &[])),
        chunk(6, 8, &status(1, &[(0, 0)])),
        chunk(6, 8, &status(2, &[(u64::MAX, 0), (u64::MAX, 0)])),
        chunk(6, 8, &status(1, &[(512, 1 << 32)])),
        chunk(0, 8, &[]),
        ReplyCodec::new(Style::Simple).success(Echo { cookie: 0, offset: 8 }).as_ref().to_vec(),
    ];
    for bytes in bad {
        let seen = heard(&bytes);
        let last = seen.last();
        let is_broken =
            matches!(last, Some(DriverOutput::Event(ClientEvent::Close(ClientClose::Broken(_)))));
        assert!(is_broken, "{last:?} after {bytes:x?}");
    }
}

#[test]
fn a_server_without_extended_headers_is_spoken_to_as_before() {
    let both = braid_nbd_proto::ClientPlan {
        structured_replies: true,
        ..plan(Goal::Transmit, Style::Extended)
    };
    let mut session = ClientSession::new(both);
    let mut refusal = Vec::new();
    wire::encode_option_reply(&mut refusal, wire::OPT_EXTENDED_HEADERS, wire::REP_ERR_UNSUP, b"");
    let seen = trace_client(&mut session, &[], &[&wire::encode_greeting(), &refusal]);
    let next = wire::encode_option(wire::OPT_STRUCTURED_REPLY, &[]);
    assert_eq!(seen.last(), Some(&DriverOutput::Event(ClientEvent::Transmit(next))));
    // The client refuses to send a range that compact headers cannot hold.
    let plan = plan(Goal::Transmit, Style::Structured);
    let mut session = ClientSession::new(plan.clone());
    trace_client(&mut session, &[], &[&converse(plan, &[]).to_client]);
    let trim = Command::Trim { offset: 0, length: 1 << 32, fua: false };
    assert_eq!(session.submit(1, trim), Err(SubmitError::NotNegotiated));
}
