//! Tests the client session against servers that lie.

use crate::common::{DriverOutput, STYLES, converse, plan, trace_client};
use braid_nbd_proto::{
    ClientClose, ClientEvent, ClientPlan, ClientSession, Command, Echo, ErrorCode, Goal,
    ReplyCodec, Style, SubmitError, wire,
};

const READ: Command = Command::Read { offset: 100, length: 10, dont_fragment: false };

/// A client in its transmission phase with `commands` in flight (cookie = index).
fn client(style: Style, commands: &[Command]) -> ClientSession {
    let plan = plan(Goal::Transmit, style);
    let negotiation = converse(plan.clone(), &[]).to_client;
    let mut session = ClientSession::new(plan);
    trace_client(&mut session, commands, &[&negotiation]);
    assert_eq!(session.in_flight_count(), commands.len());
    session
}

fn chunk(done: bool, kind: u16, cookie: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = wire::CHUNK_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&u16::from(done).to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn data(done: bool, offset: u64, length: usize) -> Vec<u8> {
    let mut body = offset.to_be_bytes().to_vec();
    body.resize(8 + length, 0xaa);
    chunk(done, wire::CHUNK_OFFSET_DATA, 0, &body)
}

fn hole(done: bool, offset: u64, length: u32) -> Vec<u8> {
    let mut body = offset.to_be_bytes().to_vec();
    body.extend_from_slice(&length.to_be_bytes());
    chunk(done, wire::CHUNK_OFFSET_HOLE, 0, &body)
}

fn last(session: &mut ClientSession, bytes: &[&[u8]]) -> ClientEvent {
    match trace_client(session, &[], bytes).pop() {
        Some(DriverOutput::Event(event)) => event,
        other => panic!("no event at the end but {other:?}"),
    }
}

/// The fields of a test request that a reply repeats: request 0 begins at byte 100, others at 0.
fn echo(cookie: u64) -> Echo {
    Echo { cookie, offset: if cookie == 0 { 100 } else { 0 } }
}

fn is_broken(event: &ClientEvent) -> bool {
    matches!(event, ClientEvent::Close(ClientClose::Broken(_)))
}

#[test]
fn a_read_may_come_in_pieces_in_any_order() {
    let none = chunk(true, wire::CHUNK_NONE, 0, &[]);
    let completed = ClientEvent::Completed { cookie: 0, result: Ok(()) };
    let orders: [&[&[u8]]; 4] = [
        &[&data(true, 100, 10)],
        &[&data(false, 100, 10), &none],
        &[&data(false, 104, 6), &hole(true, 100, 4)],
        &[&hole(false, 109, 1), &data(false, 100, 5), &data(false, 105, 4), &none],
    ];
    for order in orders {
        assert_eq!(last(&mut client(Style::Structured, &[READ]), order), completed);
    }
}

#[test]
fn success_with_missing_or_doubled_or_foreign_bytes_is_refused() {
    let none = chunk(true, wire::CHUNK_NONE, 0, &[]);
    let lies: [&[&[u8]]; 10] = [
        &[&none],
        &[&data(true, 100, 9)],
        &[&data(false, 100, 5), &data(false, 106, 4), &none],
        &[&data(false, 100, 6), &data(true, 105, 5)],
        &[&hole(false, 100, 10), &data(true, 100, 10)],
        &[&data(true, 99, 10)],
        &[&data(true, 100, 11)],
        &[&data(true, u64::MAX, 10)],
        &[&hole(true, 100, 0)],
        &[&hole(true, 100, u32::MAX)],
    ];
    for (index, lie) in lies.iter().enumerate() {
        let event = last(&mut client(Style::Structured, &[READ]), lie);
        assert!(is_broken(&event), "lie {index}: {event:?}");
    }
}

#[test]
fn errors_end_only_their_request() {
    let commands = [READ, Command::Flush];
    for style in STYLES {
        let codec = ReplyCodec::new(style);
        let mut session = client(style, &commands);
        let failed = codec.failure(echo(0), ErrorCode::Io, "member 3 is gone");
        let event = last(&mut session, &[&failed]);
        assert_eq!(event, ClientEvent::Completed { cookie: 0, result: Err(ErrorCode::Io) });
        let event = last(&mut session, &[codec.success(echo(1)).as_ref()]);
        assert_eq!(event, ClientEvent::Completed { cookie: 1, result: Ok(()) });
    }
}

#[test]
fn an_error_with_an_offset_fails_the_read_that_had_data() {
    let mut body = 5_u32.to_be_bytes().to_vec();
    body.extend_from_slice(&0_u16.to_be_bytes());
    body.extend_from_slice(&104_u64.to_be_bytes());
    let error = chunk(true, wire::CHUNK_ERROR_OFFSET, 0, &body);
    let event = last(&mut client(Style::Structured, &[READ]), &[&data(false, 100, 10), &error]);
    assert_eq!(event, ClientEvent::Completed { cookie: 0, result: Err(ErrorCode::Io) });
}

#[test]
fn replies_of_the_wrong_kind_are_refused() {
    let status = Command::BlockStatus { offset: 0, length: 512, one: true };
    let simple = ReplyCodec::new(Style::Simple);
    let extent = |length: u32| {
        let mut body = wire::CONTEXT_ALLOCATION_ID.to_be_bytes().to_vec();
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&0_u32.to_be_bytes());
        chunk(true, wire::CHUNK_BLOCK_STATUS, 0, &body)
    };
    assert!(is_broken(&last(
        &mut client(Style::Structured, &[READ]),
        &[simple.success(echo(0)).as_ref()]
    )));
    assert!(is_broken(&last(&mut client(Style::Simple, &[READ]), &[&data(true, 100, 10)])));
    assert!(is_broken(&last(
        &mut client(Style::Structured, &[READ]),
        &[simple.success(echo(77)).as_ref()]
    )));
    assert!(is_broken(&last(&mut client(Style::Structured, &[READ]), &[&extent(512)])));
    assert!(is_broken(&last(&mut client(Style::Structured, &[status]), &[&extent(513)])));
    assert!(is_broken(&last(&mut client(Style::Structured, &[status]), &[&extent(0)])));
    assert!(is_broken(&last(
        &mut client(Style::Structured, &[status]),
        &[simple.success(echo(0)).as_ref()]
    )));
    let several = Command::BlockStatus { offset: 0, length: 512, one: false };
    let two = |first: u32| {
        let mut body = wire::CONTEXT_ALLOCATION_ID.to_be_bytes().to_vec();
        for field in [first, 0, 4096, 3] {
            body.extend_from_slice(&field.to_be_bytes());
        }
        chunk(true, wire::CHUNK_BLOCK_STATUS, 0, &body)
    };
    let event = last(&mut client(Style::Structured, &[several]), &[&two(511)]);
    assert_eq!(event, ClientEvent::Completed { cookie: 0, result: Ok(()) });
    assert!(
        is_broken(&last(&mut client(Style::Structured, &[several]), &[&two(512)])),
        "one extent too many"
    );
    assert!(
        is_broken(&last(&mut client(Style::Structured, &[status]), &[&two(511)])),
        "one was asked for"
    );
    let none = chunk(true, wire::CHUNK_NONE, 0, &[]);
    assert!(is_broken(&last(&mut client(Style::Structured, &[status]), &[&none])));
    let event = last(&mut client(Style::Structured, &[status]), &[&extent(512)]);
    assert_eq!(event, ClientEvent::Completed { cookie: 0, result: Ok(()) });
    let zero_error = chunk(true, wire::CHUNK_ERROR, 0, &[0, 0, 0, 0, 0, 0]);
    assert!(is_broken(&last(&mut client(Style::Structured, &[READ]), &[&zero_error])));
}

#[test]
fn submission_keeps_to_what_was_negotiated() {
    let mut session = client(Style::Simple, &[READ]);
    let beyond = Command::Read { offset: 99_999, length: 2, dont_fragment: false };
    assert_eq!(session.submit(1, beyond), Err(SubmitError::Range));
    let empty = Command::Read { offset: 0, length: 0, dont_fragment: false };
    assert_eq!(session.submit(1, empty), Err(SubmitError::Range));
    assert_eq!(session.submit(0, READ), Err(SubmitError::CookieInUse(0)));
    let whole = Command::Read { offset: 0, length: 9, dont_fragment: true };
    assert_eq!(session.submit(1, whole), Err(SubmitError::NotNegotiated));
    let status = Command::BlockStatus { offset: 0, length: 9, one: true };
    assert_eq!(session.submit(1, status), Err(SubmitError::NotNegotiated));
    let fresh = &mut ClientSession::new(plan(Goal::Transmit, Style::Simple));
    assert_eq!(fresh.submit(1, READ), Err(SubmitError::NotReady));
}

#[test]
fn servers_without_go_are_asked_by_export_name() {
    let mut session = ClientSession::new(plan(Goal::Transmit, Style::Simple));
    let mut refusal = Vec::new();
    wire::encode_option_reply(&mut refusal, wire::OPT_GO, wire::REP_ERR_UNSUP, b"what?");
    let seen = trace_client(&mut session, &[], &[&wire::encode_greeting(), &refusal]);
    let by_name = wire::encode_option(wire::OPT_EXPORT_NAME, b"array");
    assert_eq!(seen.last(), Some(&DriverOutput::Event(ClientEvent::Transmit(by_name))));
    let mut answer = 4096_u64.to_be_bytes().to_vec();
    answer.extend_from_slice(&1_u16.to_be_bytes());
    let event = last(&mut session, &[&answer]);
    assert!(matches!(event, ClientEvent::Ready(info) if info.size_bytes == 4096));
}

#[test]
fn refusals_and_strangers_are_told_apart() {
    let mut refused = plan(Goal::Transmit, Style::Structured);
    refused.export = "stranger".into();
    let talk = converse(refused, &[]);
    let close = ClientClose::Refused { option: wire::OPT_GO, kind: wire::REP_ERR_UNKNOWN };
    assert_eq!(talk.seen.last(), Some(&DriverOutput::Event(ClientEvent::Close(close))));
    let mut session = ClientSession::new(plan(Goal::Transmit, Style::Structured));
    let event = last(&mut session, &[b"SSH-2.0-OpenSSH_9.2p1"]);
    assert_eq!(event, ClientEvent::Close(ClientClose::NotNbd));
}

/// Sends these option replies to a client that begins with TLS; returns the client's events.
fn by_tls(replies: &[(u32, u32)]) -> Vec<ClientEvent> {
    let mut session =
        ClientSession::new(ClientPlan { start_tls: true, ..plan(Goal::Transmit, Style::Simple) });
    let mut stream = wire::encode_greeting();
    for (option, kind) in replies {
        wire::encode_option_reply(&mut stream, *option, *kind, &[]);
    }
    let mut events = Vec::new();
    let mut rest = stream.as_slice();
    while !rest.is_empty() {
        let taken = session.handle_bytes(rest);
        rest = &rest[taken..];
        let before = events.len();
        while let Some(event) = session.poll_event() {
            if event == ClientEvent::StartTls {
                assert_eq!(session.handle_bytes(b"x"), 0, "bytes before TLS are not read");
                session.tls_is_up();
            }
            events.push(event);
        }
        if taken == 0 && events.len() == before {
            break;
        }
    }
    events
}

#[test]
fn tls_comes_before_every_other_option_or_not_at_all() {
    let option = |option, data: &[u8]| ClientEvent::Transmit(wire::encode_option(option, data));
    let events = by_tls(&[(wire::OPT_STARTTLS, wire::REP_ACK)]);
    assert_eq!(events[1], option(wire::OPT_STARTTLS, &[]));
    assert_eq!(events[2], ClientEvent::StartTls);
    assert!(matches!(&events[3], ClientEvent::Transmit(bytes) if bytes[8..12] == [0, 0, 0, 7]));
    let refused = by_tls(&[(wire::OPT_STARTTLS, wire::REP_ERR_UNSUP)]);
    let kind = wire::REP_ERR_UNSUP;
    let close = ClientClose::Refused { option: wire::OPT_STARTTLS, kind };
    assert_eq!(refused.last(), Some(&ClientEvent::Close(close)), "it does not go on without");
}
