//! The client's half of an NBD session. Input: 1 byte of piece size, 1 byte of flags, then the
//! server's stream.
//!
//! Flag 1 completes the handshake first, with four requests in flight; flag 2 negotiates structured
//! replies, flag 4 also extended headers. Without flag 1, flag 8 begins with TLS. Invariants: no
//! panic; data only inside the request that the data answers, and no byte of it twice. A request
//! succeeds only with all its data. The whole stream gives the same events as its pieces.
#![no_main]

use std::collections::BTreeMap;

use braid_nbd_proto::{ClientEvent, ClientPlan, ClientSession, Command, Goal, wire};
use libfuzzer_sys::fuzz_target;

const READ: Command = Command::Read { offset: 100, length: 64, dont_fragment: false };

fn session(flags: u8) -> ClientSession {
    let structured = flags & 2 != 0;
    let extended = structured && flags & 4 != 0;
    let mut session = ClientSession::new(ClientPlan {
        export: String::new(),
        goal: Goal::Transmit,
        start_tls: flags & 9 == 8,
        structured_replies: structured,
        extended_headers: extended,
        allocation_context: structured,
    });
    if flags & 1 == 0 {
        return session;
    }
    let mut handshake = wire::encode_greeting();
    if structured {
        let style = if extended { wire::OPT_EXTENDED_HEADERS } else { wire::OPT_STRUCTURED_REPLY };
        wire::encode_option_reply(&mut handshake, style, wire::REP_ACK, &[]);
        let context = b"\0\0\0\x01base:allocation";
        let option = wire::OPT_SET_META_CONTEXT;
        wire::encode_option_reply(&mut handshake, option, wire::REP_META_CONTEXT, context);
        wire::encode_option_reply(&mut handshake, option, wire::REP_ACK, &[]);
    }
    let info = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    wire::encode_option_reply(&mut handshake, wire::OPT_GO, wire::REP_INFO, &info);
    wire::encode_option_reply(&mut handshake, wire::OPT_GO, wire::REP_ACK, &[]);
    feed(&mut session, &handshake, usize::MAX);
    let mut commands =
        vec![READ, Command::Write { offset: 0, length: 9, fua: false }, Command::Flush];
    if structured {
        commands.push(Command::BlockStatus { offset: 0, length: 4096, one: false });
    }
    for (cookie, command) in commands.into_iter().enumerate() {
        session.submit(cookie as u64, command).unwrap();
    }
    session
}

fn feed(session: &mut ClientSession, stream: &[u8], piece_bytes: usize) -> Vec<ClientEvent> {
    let mut events = Vec::new();
    for mut rest in stream.chunks(piece_bytes.min(stream.len()).max(1)) {
        while !rest.is_empty() {
            let pending = session.payload_pending() as usize;
            let taken = if pending > 0 {
                let taken = pending.min(rest.len());
                session.payload_consumed(taken as u32);
                taken
            } else {
                session.handle_bytes(rest)
            };
            while let Some(event) = session.poll_event() {
                if event == ClientEvent::StartTls {
                    session.tls_is_up();
                }
                events.push(event);
            }
            if taken == 0 {
                return events;
            }
            rest = &rest[taken..];
        }
    }
    events
}

fuzz_target!(|input: &[u8]| {
    let Some(([piece_bytes, flags], stream)) = input.split_first_chunk::<2>() else { return };
    let whole = feed(&mut session(*flags), stream, usize::MAX);
    let pieces = feed(&mut session(*flags), stream, usize::from(*piece_bytes));
    assert_eq!(whole, pieces);
    let mut arrived: BTreeMap<u64, u32> = BTreeMap::new();
    for event in &whole {
        match event {
            ClientEvent::Data { cookie, offset, length }
            | ClientEvent::Hole { cookie, offset, length } => {
                assert!(*cookie == 0 && *offset >= 100 && *offset + u64::from(*length) <= 164);
                *arrived.entry(*cookie).or_default() += length;
                assert!(arrived[cookie] <= 64);
            }
            ClientEvent::Completed { cookie: 0, result: Ok(()) } => {
                assert_eq!(arrived.get(&0), Some(&64))
            }
            _ => {}
        }
    }
});
