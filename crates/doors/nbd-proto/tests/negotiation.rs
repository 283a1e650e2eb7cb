//! Tests every option, in every relevant state, by its bytes.

use crate::common::catalog;
use braid_nbd_proto::{
    CloseReason, Echo, NegotiationResult, ServerEvent, ServerSession, Style, wire,
};

fn send(session: &mut ServerSession, bytes: &[u8]) -> Vec<ServerEvent> {
    let mut events = Vec::new();
    let mut rest = bytes;
    loop {
        events.extend(std::iter::from_fn(|| session.poll_event()));
        if rest.is_empty() {
            return events;
        }
        let taken = session.handle_bytes(rest);
        events.extend(std::iter::from_fn(|| session.poll_event()));
        if taken == 0 {
            return events;
        }
        rest = &rest[taken..];
    }
}

fn fixed_newstyle(client_flags: u32) -> ServerSession {
    let mut session = ServerSession::new(catalog());
    let events = send(&mut session, &client_flags.to_be_bytes());
    assert_eq!(events, [ServerEvent::Transmit(wire::encode_greeting())]);
    session
}

/// Sends one option; returns its replies as (reply type, data).
fn ask(session: &mut ServerSession, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut replies = Vec::new();
    for event in send(session, &wire::encode_option(option, data)) {
        let ServerEvent::Transmit(bytes) = event else { continue };
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            assert_eq!(rest[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
            assert_eq!(rest[8..12], option.to_be_bytes());
            let kind = u32::from_be_bytes(rest[12..16].try_into().unwrap());
            let length = u32::from_be_bytes(rest[16..20].try_into().unwrap()) as usize;
            replies.push((kind, rest[20..20 + length].to_vec()));
            rest = &rest[20 + length..];
        }
    }
    replies
}

fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

fn info(name: &str, items: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(items.len() as u16).to_be_bytes());
    items.iter().for_each(|item| data.extend_from_slice(&item.to_be_bytes()));
    data
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}

fn negotiated(events: &[ServerEvent]) -> NegotiationResult {
    let found = events.iter().find_map(|event| match event {
        ServerEvent::Negotiated(negotiated) => Some(*negotiated),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("not negotiated: {events:?}"))
}

#[test]
fn unknown_client_flags_end_the_session() {
    for flags in [4_u32, 0x8000_0000, u32::MAX] {
        let mut session = ServerSession::new(catalog());
        let events = send(&mut session, &flags.to_be_bytes());
        let close = ServerEvent::Close(CloseReason::UnknownClientFlags(flags));
        assert_eq!(events.last(), Some(&close));
        assert_eq!(session.handle_bytes(b"more"), 0);
    }
}

#[test]
fn options_are_answered_whether_or_not_the_client_said_it_knows_them() {
    let asked = |flags, option, data: &[u8]| ask(&mut fixed_newstyle(flags), option, data);
    let data = info("array", &[]);
    for (option, data) in [(wire::OPT_LIST, &[][..]), (wire::OPT_INFO, &data), (77, b"x")] {
        let replies = asked(0, option, data);
        assert!(!replies.is_empty());
        assert_eq!(replies, asked(1, option, data), "option {option}");
    }
    let mut session = fixed_newstyle(0);
    let events = send(&mut session, &wire::encode_option(wire::OPT_GO, &data));
    assert_eq!(negotiated(&events).export_index, 0);
    let mut session = fixed_newstyle(0);
    let events = send(&mut session, &wire::encode_option(wire::OPT_EXPORT_NAME, b""));
    let ServerEvent::Transmit(bytes) = &events[0] else { panic!("{events:?}") };
    assert_eq!(bytes.len(), 10 + 124);
    assert_eq!(negotiated(&events).export_index, 0);
}

#[test]
fn export_name_finds_names_and_ends_on_strangers() {
    for (name, index) in [("array", 0), ("frozen", 1), ("", 0)] {
        let mut session = fixed_newstyle(3);
        let events =
            send(&mut session, &wire::encode_option(wire::OPT_EXPORT_NAME, name.as_bytes()));
        let ServerEvent::Transmit(bytes) = &events[0] else { panic!("{events:?}") };
        assert_eq!(bytes.len(), 10);
        assert_eq!(negotiated(&events).export_index, index);
    }
    for name in ["stranger", "arra", "array\0", "ARRAY"] {
        let mut session = fixed_newstyle(3);
        let events =
            send(&mut session, &wire::encode_option(wire::OPT_EXPORT_NAME, name.as_bytes()));
        assert_eq!(events, [ServerEvent::Close(CloseReason::UnknownExport)]);
    }
}

#[test]
fn go_and_info_tell_what_was_asked() {
    let mut session = fixed_newstyle(3);
    let replies = ask(&mut session, wire::OPT_INFO, &info("frozen", &[]));
    assert_eq!(kinds(&replies), [wire::REP_INFO, wire::REP_ACK]);
    assert_eq!(replies[0].1.len(), 12);
    let flags = u16::from_be_bytes(replies[0].1[10..12].try_into().unwrap());
    assert_eq!(flags, 0b101_0000_1111, "read-only, flush, fua, multi-conn, cache");
    let items = [wire::INFO_NAME, wire::INFO_DESCRIPTION, wire::INFO_BLOCK_SIZE, 3, 999];
    let replies = ask(&mut session, wire::OPT_INFO, &info("frozen", &items));
    assert_eq!(kinds(&replies), [wire::REP_INFO, wire::REP_INFO, wire::REP_INFO, wire::REP_ACK]);
    assert_eq!(replies[1].1, b"\0\x01frozen");
    assert_eq!(replies[2].1, b"\0\x03\0\0\x02\0\0\0\x10\0\0\x10\0\0");
    let replies = ask(&mut session, wire::OPT_INFO, &info("array", &[wire::INFO_DESCRIPTION]));
    assert_eq!(kinds(&replies), [wire::REP_INFO, wire::REP_INFO, wire::REP_ACK]);
    assert_eq!(replies[1].1, b"\0\x02RAID-1 of 2 members");
    let replies = ask(&mut session, wire::OPT_GO, &info("stranger", &[]));
    assert_eq!(kinds(&replies), [wire::REP_ERR_UNKNOWN]);
    let events = send(&mut session, &wire::encode_option(wire::OPT_GO, &info("", &[])));
    assert_eq!(negotiated(&events).export_index, 0);
    assert!(!negotiated(&events).codec.style().has_chunks());
}

#[test]
fn options_without_data_refuse_data() {
    let without = [
        wire::OPT_LIST,
        wire::OPT_STRUCTURED_REPLY,
        wire::OPT_STARTTLS,
        wire::OPT_EXTENDED_HEADERS,
    ];
    for option in without {
        let mut session = fixed_newstyle(3);
        assert_eq!(kinds(&ask(&mut session, option, b"x")), [wire::REP_ERR_INVALID]);
        let events = send(&mut session, &wire::encode_option(wire::OPT_GO, &info("", &[])));
        assert!(!negotiated(&events).codec.style().has_chunks(), "a refused option left a trace");
    }
}

#[test]
fn every_option_with_every_wrong_length_is_invalid_and_harmless() {
    let mut full: Vec<(u32, Vec<u8>)> = vec![];
    for option in [wire::OPT_INFO, wire::OPT_GO] {
        full.push((option, info("array", &[1, 3])));
    }
    for option in [wire::OPT_LIST_META_CONTEXT, wire::OPT_SET_META_CONTEXT] {
        full.push((option, contexts("array", &["base:allocation"])));
    }
    for (option, data) in full {
        for length in (0..data.len()).chain([data.len() + 1]) {
            let mut wrong = data.clone();
            wrong.resize(length, 0);
            let mut session = fixed_newstyle(3);
            ask(&mut session, wire::OPT_STRUCTURED_REPLY, &[]);
            let replies = ask(&mut session, option, &wrong);
            assert_eq!(kinds(&replies), [wire::REP_ERR_INVALID], "option {option}, {length} bytes");
            assert_eq!(kinds(&ask(&mut session, wire::OPT_STRUCTURED_REPLY, &[])), [wire::REP_ACK]);
        }
    }
}

#[test]
fn unknown_and_unsupported_options_are_told_so() {
    let unsupported = [0, 4, wire::OPT_STARTTLS, 12, 1 << 31, u32::MAX];
    let mut session = fixed_newstyle(3);
    for option in unsupported {
        assert_eq!(kinds(&ask(&mut session, option, &[])), [wire::REP_ERR_UNSUP], "{option}");
    }
}

#[test]
fn what_is_withdrawn_is_not_found_and_not_listed() {
    let mut exports = catalog().to_vec();
    exports[0].is_withdrawn = true;
    let mut session = ServerSession::new(exports.into());
    send(&mut session, &3_u32.to_be_bytes());
    let listed = ask(&mut session, wire::OPT_LIST, &[]);
    assert_eq!(listed[0], (wire::REP_SERVER, b"\0\0\0\x06frozen".to_vec()));
    assert_eq!(kinds(&listed[1..]), [wire::REP_ACK]);
    let replies = ask(&mut session, wire::OPT_INFO, &info("array", &[]));
    assert_eq!(kinds(&replies), [wire::REP_ERR_UNKNOWN]);
    let replies = ask(&mut session, wire::OPT_INFO, &info("", &[wire::INFO_NAME]));
    assert_eq!(replies[1].1, b"\0\x01frozen", "the next is the default");
}

#[test]
fn extended_headers_take_precedence_and_stay() {
    for before in [&[][..], &[wire::OPT_STRUCTURED_REPLY], &[wire::OPT_EXTENDED_HEADERS]] {
        let mut session = fixed_newstyle(3);
        for option in before {
            assert_eq!(kinds(&ask(&mut session, *option, &[])), [wire::REP_ACK]);
        }
        assert_eq!(kinds(&ask(&mut session, wire::OPT_EXTENDED_HEADERS, &[])), [wire::REP_ACK]);
        let replies = ask(&mut session, wire::OPT_STRUCTURED_REPLY, &[]);
        assert_eq!(kinds(&replies), [wire::REP_ERR_EXT_HEADER_REQD], "they are not taken back");
        let base = contexts("", &["base:allocation"]);
        let replies = ask(&mut session, wire::OPT_SET_META_CONTEXT, &base);
        assert_eq!(kinds(&replies), [wire::REP_META_CONTEXT, wire::REP_ACK]);
        let replies = ask(&mut session, wire::OPT_INFO, &info("", &[]));
        assert_ne!(replies[0].1[11] & 1 << 7, 0, "don't fragment is understood");
        assert_eq!(replies[0].1[10] & 1 << 4, 0, "BLOCK_STATUS has no payload");
        let events = send(&mut session, &wire::encode_option(wire::OPT_GO, &info("", &[])));
        assert_eq!(negotiated(&events).codec.style(), Style::Extended);
        assert!(negotiated(&events).allocation_context);
    }
    let mut session = fixed_newstyle(3);
    ask(&mut session, wire::OPT_EXTENDED_HEADERS, &[]);
    let events = send(&mut session, &wire::encode_option(wire::OPT_EXPORT_NAME, b"array"));
    assert_eq!(events, [ServerEvent::Close(CloseReason::ExportNameExtended)]);
}

#[test]
fn the_thirty_third_option_ends_the_session() {
    let mut session = fixed_newstyle(3);
    for _ in 0..32 {
        assert_eq!(kinds(&ask(&mut session, wire::OPT_STRUCTURED_REPLY, &[])), [wire::REP_ACK]);
    }
    let events = send(&mut session, &wire::encode_option(wire::OPT_STRUCTURED_REPLY, &[]));
    assert_eq!(events, [ServerEvent::Close(CloseReason::TooManyOptions)]);
}

#[test]
fn abort_is_acknowledged_and_its_data_ignored() {
    for data in [&b""[..], b"goodbye"] {
        let mut session = fixed_newstyle(3);
        let events = send(&mut session, &wire::encode_option(wire::OPT_ABORT, data));
        assert_eq!(events.len(), 2);
        assert_eq!(events[1], ServerEvent::Close(CloseReason::Aborted));
    }
}

#[test]
fn listing_contexts_follows_the_queries() {
    let mut session = fixed_newstyle(3);
    let before = ask(&mut session, wire::OPT_LIST_META_CONTEXT, &contexts("", &[]));
    assert_eq!(kinds(&before), [wire::REP_ERR_INVALID], "structured replies come first");
    ask(&mut session, wire::OPT_STRUCTURED_REPLY, &[]);
    let found = [wire::REP_META_CONTEXT, wire::REP_ACK];
    let cases: [(&[&str], &[u32]); 6] = [
        (&[], &found),
        (&["base:"], &found),
        (&["base:allocation", "base:", "base:allocation"], &found),
        (&["qemu:dirty-bitmap"], &[wire::REP_ACK]),
        (&["base:other"], &[wire::REP_ACK]),
        (&["no colon", ""], &[wire::REP_ACK]),
    ];
    for (queries, want) in cases {
        let replies = ask(&mut session, wire::OPT_LIST_META_CONTEXT, &contexts("array", queries));
        assert_eq!(kinds(&replies), want, "{queries:?}");
    }
    for queries in [&[][..], &["base:"], &["base:other"]] {
        let replies = ask(&mut session, wire::OPT_SET_META_CONTEXT, &contexts("array", queries));
        assert_eq!(kinds(&replies), [wire::REP_ACK], "SET has no wildcard: {queries:?}");
    }
    let replies = ask(&mut session, wire::OPT_LIST_META_CONTEXT, &contexts("stranger", &[]));
    assert_eq!(kinds(&replies), [wire::REP_ERR_UNKNOWN]);
}

/// Selects contexts by each of these (export, queries) in turn; returns whether GO of `export` has
/// a context.
fn selected(sets: &[(&str, &[&str])], export: &str) -> bool {
    let mut session = fixed_newstyle(3);
    ask(&mut session, wire::OPT_STRUCTURED_REPLY, &[]);
    for (name, queries) in sets {
        ask(&mut session, wire::OPT_SET_META_CONTEXT, &contexts(name, queries));
    }
    let events = send(&mut session, &wire::encode_option(wire::OPT_GO, &info(export, &[])));
    negotiated(&events).allocation_context
}

#[test]
fn contexts_belong_to_one_export() {
    let base: &[&str] = &["base:allocation"];
    assert!(selected(&[("array", base)], "array"));
    assert!(selected(&[("", base)], "array"));
    assert!(!selected(&[], "array"));
    assert!(!selected(&[("frozen", base)], "array"));
    assert!(!selected(&[("array", base), ("frozen", base)], "array"), "the last one counts");
    assert!(!selected(&[("array", base), ("array", &[])], "array"), "no query selects nothing");
    assert!(!selected(&[("array", &["base:"])], "array"), "SET has no wildcard");
    assert!(!selected(&[("array", base), ("stranger", base)], "array"), "a failed SET clears");
    assert!(!selected(&[("array", base), ("array", &[&"q".repeat(4097)])], "array"));
    assert!(!selected(&[("array", base), ("array", &[&"q".repeat(65_536)])], "array"));
}

#[test]
fn shutdown_is_told_to_options_and_requests() {
    let mut session = fixed_newstyle(3);
    session.handle_shutdown();
    let replies = ask(&mut session, wire::OPT_GO, &info("", &[]));
    assert_eq!(kinds(&replies), [wire::REP_ERR_SHUTDOWN]);
    let events = send(&mut session, &wire::encode_option(wire::OPT_ABORT, &[]));
    assert_eq!(events.last(), Some(&ServerEvent::Close(CloseReason::Aborted)));

    let mut session = fixed_newstyle(3);
    send(&mut session, &wire::encode_option(wire::OPT_GO, &info("", &[])));
    session.handle_shutdown();
    let flush = braid_nbd_proto::Command::Flush.header(5).encode();
    let events = send(&mut session, &flush);
    let [ServerEvent::Refused { echo: Echo { cookie: 5, .. }, refusal }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(refusal.error, braid_nbd_proto::ErrorCode::Shutdown);
}

#[test]
fn a_client_that_is_turned_away_is_told_why() {
    let mut session = fixed_newstyle(3);
    session.turn_away("all places are taken".to_owned());
    for option in [wire::OPT_STRUCTURED_REPLY, wire::OPT_LIST, wire::OPT_GO] {
        let events = send(&mut session, &wire::encode_option(option, &info("", &[])));
        let [ServerEvent::Transmit(reply)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(reply[12..16], wire::REP_ERR_POLICY.to_be_bytes());
        assert!(reply.ends_with(b"all places are taken"));
    }
    let events = send(&mut session, &wire::encode_option(wire::OPT_EXPORT_NAME, b"array"));
    assert_eq!(events[..], [ServerEvent::Close(CloseReason::TurnedAway)]);
    assert!(!session.is_negotiated());
}

#[test]
fn feeding_stops_behind_the_message_that_made_an_event() {
    let mut session = fixed_newstyle(3);
    let one = wire::encode_option(wire::OPT_STRUCTURED_REPLY, &[]);
    let two = [one.clone(), one.clone()].concat();
    assert_eq!(session.handle_bytes(&two), one.len());
    assert!(session.poll_event().is_some());
    assert!(session.poll_event().is_none());
}

#[test]
fn a_claim_waits_for_its_answer_and_no_byte_is_taken_meanwhile() {
    let go = |words: &str| wire::encode_option(wire::OPT_GO, &info(words, &[]));
    let mut session = fixed_newstyle(3);
    let refused = ask(&mut session, wire::OPT_GO, &info("array?epoch=1", &[]));
    assert_eq!(kinds(&refused), [wire::REP_ERR_UNKNOWN], "it takes no claims");
    session.take_claims();
    let claim = ServerEvent::Claim { export_index: 0, words: "epoch=1".into() };
    let request = wire::encode_option(wire::OPT_LIST, &[]);
    let pipelined = [go("array?epoch=1"), request].concat();
    let taken = session.handle_bytes(&pipelined);
    assert_eq!(session.poll_event(), Some(claim.clone()));
    assert_eq!((session.poll_event(), session.handle_bytes(&pipelined[taken..])), (None, 0));
    session.answer_claim(Err("another owner has it".into()));
    let Some(ServerEvent::Transmit(refusal)) = session.poll_event() else { panic!("a reply") };
    assert!(refusal.ends_with(b"another owner has it"));
    assert!(!session.is_negotiated());
    // The negotiation continues, and another claim is served as its answer says.
    assert!(session.handle_bytes(&pipelined[taken..]) > 0);
    while session.poll_event().is_some() {}
    assert_eq!(send(&mut session, &go("array?epoch=1")), [claim]);
    let claimed = braid_nbd_proto::ExportDescription { size_bytes: 512, ..catalog()[0].clone() };
    session.answer_claim(Ok(claimed));
    assert!(matches!(session.poll_event(), Some(ServerEvent::Transmit(_))));
    assert!(matches!(session.poll_event(), Some(ServerEvent::Negotiated(_))));
    let unknown = ask(&mut fixed_newstyle(3), wire::OPT_GO, &info("nothing?epoch=1", &[]));
    assert_eq!(kinds(&unknown), [wire::REP_ERR_UNKNOWN]);
}
