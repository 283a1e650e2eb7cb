//! The server's half of an NBD session. Input: 1 byte of piece size, 1 byte of flags, then the
//! client's stream.
//!
//! Flag 1 completes the handshake first, with structured replies and the meta context, or with
//! extended headers (flag 8); flag 2 shuts the server down; flag 16 takes claims. Invariants: no
//! panic; no more memory than the option limit; no request that leaves its export. The whole stream
//! gives the same events as its pieces. The same holds for the gate, with required TLS (flag 4) or
//! optional TLS.
#![no_main]

use std::sync::Arc;

use braid_nbd_proto::{
    BlockSizes, Command, ExportDescription, GateEvent, RequestHeader, ServerEvent, ServerSession,
    Style, TlsGate, limits, wire,
};
use libfuzzer_sys::fuzz_target;

const SIZE_BYTES: u64 = 100_000;

fn session(flags: u8) -> ServerSession {
    let export = ExportDescription {
        name: "array".into(),
        is_withdrawn: false,
        description: "RAID-1 of 2 members".into(),
        size_bytes: SIZE_BYTES,
        read_only: false,
        multi_conn: true,
        block_sizes: BlockSizes::BYTE_GRANULAR,
    };
    let frozen = ExportDescription { name: "frozen".into(), read_only: true, ..export.clone() };
    let mut session = ServerSession::new(Arc::new([export, frozen]));
    if flags & 1 != 0 {
        let mut context = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
        context.extend_from_slice(b"base:allocation");
        let mut handshake = 3_u32.to_be_bytes().to_vec();
        let is_extended = flags & 8 != 0;
        let style =
            if is_extended { wire::OPT_EXTENDED_HEADERS } else { wire::OPT_STRUCTURED_REPLY };
        handshake.extend(wire::encode_option(style, &[]));
        handshake.extend(wire::encode_option(wire::OPT_SET_META_CONTEXT, &context));
        handshake.extend(wire::encode_option(wire::OPT_GO, &[0; 6]));
        feed(&mut session, &handshake, usize::MAX);
        assert!(session.is_negotiated());
    }
    if flags & 2 != 0 {
        session.handle_shutdown();
    }
    if flags & 16 != 0 {
        session.take_claims();
    }
    session
}

/// The events so far. Claims are answered by the length of their words.
fn polled(session: &mut ServerSession) -> Vec<ServerEvent> {
    let mut events = Vec::new();
    while let Some(event) = session.poll_event() {
        if let ServerEvent::Claim { words, .. } = &event {
            let claimed = ExportDescription {
                name: "array".into(),
                is_withdrawn: false,
                description: "claimed".into(),
                size_bytes: SIZE_BYTES,
                read_only: false,
                multi_conn: true,
                block_sizes: BlockSizes::BYTE_GRANULAR,
            };
            let is_served = words.len() % 2 == 0;
            session.answer_claim(if is_served { Ok(claimed) } else { Err("no".into()) });
        }
        events.push(event);
    }
    events
}

fn feed(session: &mut ServerSession, stream: &[u8], piece_bytes: usize) -> Vec<ServerEvent> {
    let mut events = polled(session);
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
            events.extend(polled(session));
            assert!(session.buffered_bytes() <= limits::OPTION_BYTES_MAX);
            if taken == 0 {
                return events;
            }
            rest = &rest[taken..];
        }
    }
    events
}

fn hear(flags: u8, stream: &[u8], piece_bytes: usize) -> Vec<GateEvent> {
    let mut gate = TlsGate::new(flags & 4 != 0);
    for piece in stream.chunks(piece_bytes.min(stream.len()).max(1)) {
        gate.handle_bytes(piece);
    }
    std::iter::from_fn(|| gate.poll_event()).collect()
}

fuzz_target!(|input: &[u8]| {
    let Some(([piece_bytes, flags], stream)) = input.split_first_chunk::<2>() else { return };
    let whole = feed(&mut session(*flags), stream, usize::MAX);
    let pieces = feed(&mut session(*flags), stream, usize::from(*piece_bytes));
    assert_eq!(whole, pieces);
    let heard = hear(*flags, stream, usize::MAX);
    assert_eq!(heard, hear(*flags, stream, usize::from(*piece_bytes)));
    let mut style = if flags & 1 == 0 { Style::Simple } else { Style::Structured };
    if flags & 9 == 9 {
        style = Style::Extended;
    }
    for event in &whole {
        match event {
            ServerEvent::Negotiated(negotiated) => style = negotiated.codec.style(),
            ServerEvent::Request(request) => {
                let header = request.command.header(request.cookie);
                let end = header.offset.checked_add(header.length);
                assert!(end.is_some_and(|end| end <= SIZE_BYTES));
                assert!(header.length > 0 || request.command == Command::Flush);
                // The bytes that a client sends for the command parse to the same command.
                let sent =
                    RequestHeader::decode(&request.command.bytes(request.cookie, style), style);
                let sent = sent.expect("it is well formed");
                assert_eq!((sent.echo(), sent.length), (request.echo(), header.length));
                assert_eq!(sent.payload_bytes(style), request.command.payload_bytes().into());
            }
            _ => {}
        }
    }
});
