//! The gate before TLS: the greeting, the client's flags, and options up to STARTTLS.
//!
//! Where it stands: in front of a [`super::ServerSession`], on endpoints with TLS. The gate takes
//! bytes and yields events as a session does. The gate ends in one of three ways: TLS begins, the
//! client continues without TLS, or the client is gone. Then the session takes over. The driver
//! drops the session's own greeting, and gives the session the client's flags again.
//!
//! | option | where TLS is required (FORCEDTLS) | where it may be used (SELECTIVETLS) |
//! |---|---|---|
//! | STARTTLS | ACK, TLS begins | the same |
//! | STARTTLS with data | INVALID | the same |
//! | ABORT | ACK, the end | the session's, in plain text from now on |
//! | EXPORT_NAME | the end: no error reply exists | the same |
//! | others | TLS_REQD | the same |
//!
//! Bytes that arrived before TLS do not count afterwards: an attacker in the middle could have
//! injected them.
//!
//! Source: `doc/proto.md`, "TLS support".
//!
//! - Any split of the client's bytes gives the same events, and the gate keeps no more than an
//!   option's header: [check: a_gate_hears_the_same_however_bytes_are_cut].

use std::collections::VecDeque;

use super::CloseReason;
use crate::collect::{Collector, Cursor};
use crate::limits::OPTIONS_MAX;
use crate::wire;

/// An event of a gate, for its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateEvent {
    /// Send these bytes to the client; they are whole messages.
    Transmit(Vec<u8>),
    /// The client's next bytes are TLS. Inside TLS the client sends its options again, under these
    /// flags.
    StartTls {
        /// The client's flags.
        client_flags: u32,
    },
    /// The client does not use TLS. The session gets these bytes, then the rest of the stream.
    Plain(Vec<u8>),
    /// Read no more from the client.
    Close(CloseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    OptionHeader,
    /// Skips the data of an option, then answers the option.
    Skip {
        option: u32,
        remaining: u32,
    },
    Over,
}

/// The gate before TLS: see the module's comment.
#[derive(Debug)]
pub struct TlsGate {
    is_required: bool,
    phase: Phase,
    collector: Collector,
    client_flags: u32,
    options_seen: u32,
    events: VecDeque<GateEvent>,
}

impl TlsGate {
    /// Makes a gate that waits for a client; if `is_required`, no client is admitted without TLS.
    #[must_use]
    pub fn new(is_required: bool) -> Self {
        let mut collector = Collector::default();
        collector.expect(4);
        let events = VecDeque::from([GateEvent::Transmit(wire::encode_greeting())]);
        let (client_flags, options_seen) = (0, 0);
        Self {
            is_required,
            phase: Phase::ClientFlags,
            collector,
            client_flags,
            options_seen,
            events,
        }
    }

    /// The gate's next event, oldest first.
    pub fn poll_event(&mut self) -> Option<GateEvent> {
        self.events.pop_front()
    }

    /// Takes the client's bytes; returns the number consumed. The other bytes belong to TLS or to
    /// the session.
    pub fn handle_bytes(&mut self, input: &[u8]) -> usize {
        let mut rest = input;
        while self.phase != Phase::Over && !rest.is_empty() {
            let taken = match self.phase {
                Phase::Skip { option, remaining } => self.skip(option, remaining, rest.len()),
                _ => {
                    let taken = self.collector.fill(rest);
                    if self.collector.is_complete() {
                        self.on_message();
                    }
                    taken
                }
            };
            (_, rest) = rest.split_at(taken);
        }
        input.len().saturating_sub(rest.len())
    }

    fn on_message(&mut self) {
        let message = self.collector.take();
        let mut cursor = Cursor::new(&message);
        if self.phase == Phase::ClientFlags {
            self.client_flags = cursor.u32().expect("four bytes were collected");
            let known = u32::from(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
            if self.client_flags & !known != 0 {
                return self
                    .end(GateEvent::Close(CloseReason::UnknownClientFlags(self.client_flags)));
            }
            return self.expect_option();
        }
        let header = (cursor.u64(), cursor.u32(), cursor.u32());
        let (Some(magic), Some(option), Some(length)) = header else {
            unreachable!("sixteen bytes were collected");
        };
        if magic != wire::OPTION_MAGIC {
            return self.end(GateEvent::Close(CloseReason::BadOptionMagic));
        }
        let is_first = self.options_seen == 0;
        if option != wire::OPT_STARTTLS && !self.is_required && is_first {
            let mut bytes = self.client_flags.to_be_bytes().to_vec();
            bytes.extend_from_slice(&message);
            return self.end(GateEvent::Plain(bytes));
        }
        if option == wire::OPT_EXPORT_NAME {
            return self.end(GateEvent::Close(CloseReason::TlsRequired));
        }
        if self.options_seen == OPTIONS_MAX {
            return self.end(GateEvent::Close(CloseReason::TooManyOptions));
        }
        self.options_seen = self.options_seen.saturating_add(1);
        match length {
            0 => self.answer(option, true),
            remaining => self.phase = Phase::Skip { option, remaining },
        }
    }

    fn skip(&mut self, option: u32, remaining: u32, available: usize) -> usize {
        let taken = remaining.min(u32::try_from(available).unwrap_or(u32::MAX));
        match remaining.saturating_sub(taken) {
            0 => self.answer(option, false),
            left => self.phase = Phase::Skip { option, remaining: left },
        }
        usize::try_from(taken).expect("taken is at most a usize")
    }

    fn answer(&mut self, option: u32, is_empty: bool) {
        match option {
            wire::OPT_STARTTLS if is_empty => {
                self.reply(option, wire::REP_ACK, &[]);
                let client_flags = self.client_flags;
                self.end(GateEvent::StartTls { client_flags });
            }
            wire::OPT_STARTTLS => {
                self.reply(option, wire::REP_ERR_INVALID, b"the option takes no data");
                self.expect_option();
            }
            wire::OPT_ABORT => {
                self.reply(option, wire::REP_ACK, &[]);
                self.end(GateEvent::Close(CloseReason::Aborted));
            }
            _ => {
                self.reply(option, wire::REP_ERR_TLS_REQD, b"TLS comes before all other options");
                self.expect_option();
            }
        }
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        let mut bytes = Vec::new();
        wire::encode_option_reply(&mut bytes, option, kind, data);
        self.events.push_back(GateEvent::Transmit(bytes));
    }

    fn expect_option(&mut self) {
        self.phase = Phase::OptionHeader;
        self.collector.expect(wire::OPTION_HEADER_BYTES);
    }

    fn end(&mut self, event: GateEvent) {
        self.phase = Phase::Over;
        self.collector = Collector::default();
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::encode_option;

    fn flags(flags: u16) -> Vec<u8> {
        u32::from(flags).to_be_bytes().to_vec()
    }

    const BOTH: u16 = wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES;

    /// Gives the client's `bytes` to a gate, `step` at a time. Returns the gate's events except the
    /// greeting, and the number of bytes that the gate did not consume.
    fn heard(is_required: bool, bytes: &[u8], step: usize) -> (Vec<GateEvent>, usize) {
        let mut gate = TlsGate::new(is_required);
        let taken: usize = bytes.chunks(step).map(|part| gate.handle_bytes(part)).sum();
        let events: Vec<_> = std::iter::from_fn(|| gate.poll_event()).collect();
        assert_eq!(events.first(), Some(&GateEvent::Transmit(wire::encode_greeting())));
        (events.into_iter().skip(1).collect(), bytes.len().saturating_sub(taken))
    }

    fn kinds(events: &[GateEvent]) -> Vec<u32> {
        let kind = |event: &GateEvent| match event {
            GateEvent::Transmit(bytes) => {
                let kind = bytes.get(12..16).and_then(|kind| kind.try_into().ok());
                kind.map(u32::from_be_bytes)
            }
            _ => None,
        };
        events.iter().filter_map(kind).collect()
    }

    #[test]
    fn tls_begins_behind_starttls_and_all_else_is_told_to_use_it() {
        let client = [
            flags(BOTH),
            encode_option(wire::OPT_LIST, &[]),
            encode_option(wire::OPT_GO, &[7; 5000]),
            encode_option(wire::OPT_STARTTLS, b"x"),
            encode_option(wire::OPT_STARTTLS, &[]),
            b"\x16\x03\x01".to_vec(),
        ];
        let (events, left) = heard(true, &client.concat(), usize::MAX);
        let required = wire::REP_ERR_TLS_REQD;
        let answers = [required, required, wire::REP_ERR_INVALID, wire::REP_ACK];
        assert_eq!(kinds(&events), answers);
        assert_eq!(events.last(), Some(&GateEvent::StartTls { client_flags: u32::from(BOTH) }));
        assert_eq!(left, 3, "what follows is TLS's");
        let (events, _) =
            heard(true, &[flags(0), encode_option(wire::OPT_STARTTLS, &[])].concat(), usize::MAX);
        let begins = GateEvent::StartTls { client_flags: 0 };
        assert_eq!((kinds(&events), events.last()), (vec![wire::REP_ACK], Some(&begins)));
    }

    #[test]
    fn a_gate_hears_the_same_however_bytes_are_cut() {
        let clients = [
            [
                flags(BOTH),
                encode_option(wire::OPT_LIST, b"abc"),
                encode_option(wire::OPT_STARTTLS, &[]),
            ],
            [
                flags(BOTH),
                encode_option(wire::OPT_GO, b"abc"),
                encode_option(wire::OPT_ABORT, b"bye"),
            ],
            [flags(0), encode_option(wire::OPT_STARTTLS, &[]), Vec::new()],
            [flags(BOTH), encode_option(wire::OPT_EXPORT_NAME, b"tank"), Vec::new()],
            [flags(1 << 9), Vec::new(), Vec::new()],
            [flags(BOTH), vec![0; 16], Vec::new()],
        ];
        for (client, is_required) in clients.iter().flat_map(|one| [(one, true), (one, false)]) {
            let bytes = client.concat();
            let whole = heard(is_required, &bytes, usize::MAX);
            for step in 1..20 {
                // Compares only events: the number of bytes left over depends on the split.
                assert_eq!(heard(is_required, &bytes, step).0, whole.0, "{step} {client:?}");
            }
        }
    }

    #[test]
    fn where_tls_may_be_used_the_first_option_decides() {
        let go = encode_option(wire::OPT_GO, b"data");
        let (events, left) = heard(false, &[flags(BOTH), go.clone()].concat(), usize::MAX);
        let header = go.get(..16).expect("a header");
        assert_eq!(events, [GateEvent::Plain([&flags(BOTH), header].concat())]);
        assert_eq!(left, 4, "the session takes the data itself");
        let bytes = [flags(BOTH), encode_option(wire::OPT_STARTTLS, b"x"), go].concat();
        let (events, _) = heard(false, &bytes, usize::MAX);
        assert_eq!(kinds(&events), [wire::REP_ERR_INVALID, wire::REP_ERR_TLS_REQD]);
    }

    #[test]
    fn a_client_that_never_asks_for_tls_is_cut_off() {
        let options = (0..50).flat_map(|_| encode_option(wire::OPT_LIST, &[]));
        let bytes: Vec<u8> = flags(BOTH).into_iter().chain(options).collect();
        let (events, _) = heard(true, &bytes, 7);
        assert_eq!(events.last(), Some(&GateEvent::Close(CloseReason::TooManyOptions)));
        assert_eq!(kinds(&events).len(), usize::try_from(OPTIONS_MAX).expect("few"));
    }
}
