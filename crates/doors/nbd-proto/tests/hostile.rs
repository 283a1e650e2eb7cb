//! Tests hostile peers: lengths at every limit, garbage at every position, and bounded memory.

use crate::common::{DriverOutput, catalog, converse, pieces, plan, trace_client, trace_server};
use braid_nbd_proto::{
    ClientSession, CloseReason, Command, Echo, ErrorCode, Goal, RequestHeader, ServerEvent,
    ServerSession, Style, limits, wire,
};
use proptest::prelude::*;

const CAP: u32 = limits::OPTION_BYTES_MAX as u32;
const BOUNDARY: [u32; 10] =
    [0, 1, 4095, 4096, 4097, CAP - 1, CAP, CAP + 1, i32::MAX as u32, u32::MAX];

fn negotiating() -> ServerSession {
    let mut session = ServerSession::new(catalog());
    trace_server(&mut session, &[&3_u32.to_be_bytes()]);
    session
}

fn transmitting() -> ServerSession {
    let mut session = negotiating();
    trace_server(&mut session, &[&wire::encode_option(wire::OPT_GO, &[0; 6])]);
    assert!(session.is_negotiated());
    session
}

fn option_header(option: u32, length: u32) -> Vec<u8> {
    let mut header = wire::encode_option(option, &[]);
    header[12..16].copy_from_slice(&length.to_be_bytes());
    header
}

#[test]
fn memory_stays_within_the_option_limit() {
    for option in (0..13).chain([u32::MAX]) {
        for length in BOUNDARY {
            let mut session = negotiating();
            let header = option_header(option, length);
            trace_server(&mut session, &[&header]);
            assert!(session.buffered_bytes() <= limits::OPTION_BYTES_MAX, "{option} {length}");
            // Sends up to 200 KB of the announced payload; afterwards the session must still be in
            // a valid state.
            let sent = vec![0xff_u8; (length as usize).min(200_000)];
            let seen = trace_server(&mut session, &pieces(&sent, &[1, 4096, 65_536]));
            assert!(session.buffered_bytes() <= limits::OPTION_BYTES_MAX, "{option} {length}");
            let replied: usize = seen
                .iter()
                .map(|seen| match seen {
                    DriverOutput::Event(ServerEvent::Transmit(bytes)) => bytes.len(),
                    _ => 0,
                })
                .sum();
            assert!(replied < 1024, "{option} {length} was answered with {replied} bytes");
        }
    }
}

#[test]
fn oversized_options_are_consumed_and_answered_too_big() {
    for option in [2, 3, 5, 6, 7, 8, 9, 10, 11, 4711] {
        let mut session = negotiating();
        let mut stream = option_header(option, CAP + 1);
        stream.resize(stream.len() + limits::OPTION_BYTES_MAX + 1, 0x5a);
        stream.extend(wire::encode_option(wire::OPT_STRUCTURED_REPLY, &[]));
        let seen = trace_server(&mut session, &pieces(&stream, &[777]));
        let kinds: Vec<u32> = seen
            .iter()
            .map(|seen| match seen {
                DriverOutput::Event(ServerEvent::Transmit(bytes)) => {
                    u32::from_be_bytes(bytes[12..16].try_into().unwrap())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, [wire::REP_ERR_TOO_BIG, wire::REP_ACK], "option {option}");
    }
    for length in [4097, CAP, CAP + 1, u32::MAX] {
        let seen =
            trace_server(&mut negotiating(), &[&option_header(wire::OPT_EXPORT_NAME, length)]);
        assert_eq!(seen, [DriverOutput::Event(ServerEvent::Close(CloseReason::UnknownExport))]);
    }
}

#[test]
fn bad_magics_end_the_session() {
    let seen = trace_server(&mut negotiating(), &[&[0; 16]]);
    assert_eq!(seen, [DriverOutput::Event(ServerEvent::Close(CloseReason::BadOptionMagic))]);
    let seen = trace_server(&mut transmitting(), &[&[0; 28]]);
    assert_eq!(seen, [DriverOutput::Event(ServerEvent::Close(CloseReason::BadRequestMagic))]);
}

#[test]
fn refused_writes_are_swallowed_whole_and_the_next_request_served() {
    for length in [1, 100_001, limits::REQUEST_BYTES_MAX, limits::REQUEST_BYTES_MAX + 1] {
        let mut session = transmitting();
        let write = Command::Write { offset: 1 << 60, length, fua: false }.header(1).encode();
        assert!(trace_server(&mut session, &[&write]).is_empty(), "no reply before the payload");
        assert_eq!(session.payload_pending(), 0);
        let block = vec![0xee; 1 << 20];
        let mut left = length as usize;
        let mut seen = Vec::new();
        while left > 0 {
            let now = left.min(block.len());
            seen.extend(trace_server(&mut session, &[&block[..now]]));
            left -= now;
        }
        assert!(matches!(
            seen[..],
            [DriverOutput::Event(ServerEvent::Refused { echo: Echo { cookie: 1, .. }, .. })]
        ));
        assert!(session.buffered_bytes() <= 64);
        let read = Command::Read { offset: 0, length: 1, dont_fragment: false }.header(2).encode();
        let seen = trace_server(&mut session, &[&read]);
        assert!(matches!(seen[..], [DriverOutput::Event(ServerEvent::Request(_))]));
    }
}

#[test]
fn monstrous_writes_end_the_session() {
    for length in [limits::DISCARD_BYTES_MAX + 1, u32::MAX] {
        let write = Command::Write { offset: 0, length, fua: false }.header(1).encode();
        let seen = trace_server(&mut transmitting(), &[&write]);
        assert_eq!(
            seen,
            [DriverOutput::Event(ServerEvent::Close(CloseReason::PayloadTooLarge(length.into())))]
        );
    }
}

#[test]
fn unknown_commands_are_refused_without_a_payload() {
    for kind in [8_u16, 9, 255, u16::MAX] {
        let mut session = transmitting();
        let header =
            RequestHeader { flags: 0, kind, cookie: 9, offset: 0, length: u32::MAX.into() };
        let seen = trace_server(&mut session, &[&header.encode()]);
        let [DriverOutput::Event(ServerEvent::Refused { echo: Echo { cookie: 9, .. }, refusal })] =
            &seen[..]
        else {
            panic!("{seen:?}");
        };
        assert_eq!(refusal.error, ErrorCode::Invalid);
    }
}

/// A stream of a valid conversation, with random changes.
fn almost(stream: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = stream.len();
    let change = (0..length, any::<u8>());
    (prop::collection::vec(change, 0..6), 0..length).prop_map(move |(changes, cut)| {
        let mut bytes = stream.clone();
        changes.into_iter().for_each(|(at, value)| bytes[at] = value);
        bytes.truncate(length - cut / 4);
        bytes
    })
}

fn commands() -> Vec<Command> {
    vec![
        Command::Read { offset: 5, length: 700, dont_fragment: true },
        Command::BlockStatus { offset: 0, length: 512, one: false },
        Command::Write { offset: 3, length: 300, fua: true },
        Command::Flush,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_conversations_never_panic_the_server(
        bytes in almost(converse(plan(Goal::Transmit, Style::Structured), &commands()).to_server),
        lengths in prop::collection::vec(1_usize..64, 1..8),
    ) {
        let mut session = ServerSession::new(catalog());
        trace_server(&mut session, &pieces(&bytes, &lengths));
        prop_assert!(session.buffered_bytes() <= limits::OPTION_BYTES_MAX);
    }

    #[test]
    fn damaged_conversations_never_panic_the_client(
        bytes in almost(converse(plan(Goal::Transmit, Style::Structured), &commands()).to_client),
        lengths in prop::collection::vec(1_usize..64, 1..8),
    ) {
        let mut session = ClientSession::new(plan(Goal::Transmit, Style::Structured));
        trace_client(&mut session, &[], &pieces(&bytes, &lengths));
    }

    #[test]
    fn noise_never_panics_either_half(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        trace_server(&mut ServerSession::new(catalog()), &[&bytes]);
        trace_server(&mut negotiating(), &[&bytes]);
        trace_server(&mut transmitting(), &[&bytes]);
        trace_client(&mut ClientSession::new(plan(Goal::List, Style::Simple)), &[], &[&bytes]);
    }
}
