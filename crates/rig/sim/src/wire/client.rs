//! The client's end of a connection: sends requests and checks replies.
//!
//! Each reply must have the expected error, and data or extents of the right length. No request may
//! be acknowledged before the array answers it. The model checks the data.

use braid_engine::request::RequestId;
use braid_nbd_proto::{ClientEvent, Command, ErrorCode, Extent, wire};

use super::server::code;
use super::{ClientAction, ClientEnd, Ending, InvalidRequest, PendingRequest};
use crate::call::{CallClient, written};
use crate::content::SECTOR;
use crate::model::End;
use crate::world::World;

impl ClientEnd {
    /// The index of the array's byte `offset` in the data of the read `cookie`.
    fn place_of(&self, cookie: u64, offset: u64) -> usize {
        let pending = self.pending.get(&cookie).expect("the session knows who asked");
        let Command::Read { offset: first, .. } = pending.command else {
            panic!("data for {:?}", pending.command)
        };
        (offset - first) as usize
    }

    fn take_data(&mut self, bytes: &[u8]) {
        let (cookie, place) = self.filling.expect("data comes behind its header");
        let pending = self.pending.get_mut(&cookie).expect("it has a place");
        pending.data[place..place + bytes.len()].copy_from_slice(bytes);
        self.filling = Some((cookie, place + bytes.len()));
    }
}

impl World {
    /// A client takes an action. During the negotiation the action waits, unless it breaks the
    /// protocol or the connection.
    pub(crate) fn say(&mut self, index: usize, say: ClientAction) {
        let at = self.clock.step;
        let size_bytes = self.geometry.capacity_sectors() * SECTOR as u64;
        let connection = self.connection(index);
        if !connection.is_open() {
            return;
        }
        if !connection.client.is_ready && !matches!(say, ClientAction::Cut | ClientAction::Garbage)
        {
            connection.client.backlog.push_back(say);
            return;
        }
        let id = self.name();
        let connection = self.connection(index);
        let cookie = connection.client.next_cookie;
        connection.client.next_cookie = cookie.wrapping_add(1);
        match say {
            ClientAction::Ask(command) => self.say_command((index, cookie, id), command),
            ClientAction::Invalid(invalid) => {
                let style = self.connection(index).client.style;
                let (mut header, error) = invalid.header(cookie, size_bytes);
                // An extended reply repeats the request's offset, which the flush registered below
                // does not have.
                if style.is_extended() && header.offset != 0 {
                    return self.say(index, ClientAction::Invalid(InvalidRequest::UnknownFlag));
                }
                self.tally.count("nbd-crooked");
                // Registers a flush in the client session in the place of the invalid request, so
                // that the session expects a reply without data.
                let stand_in = self.connection(index).client.session.submit(cookie, Command::Flush);
                stand_in.expect("a flush can always be asked for");
                let connection = self.connection(index);
                let is_write = header.kind == wire::CMD_WRITE;
                if style.is_extended() {
                    header.flags |= if is_write { wire::CMD_FLAG_PAYLOAD_LEN } else { 0 };
                    connection.to_server.push(&header.encode_extended());
                } else {
                    connection.to_server.push(&header.encode());
                }
                if is_write {
                    connection.to_server.push(&vec![0x5A; header.length as usize]);
                }
                let forbidden = matches!(
                    invalid,
                    InvalidRequest::TrimBeyond
                        | InvalidRequest::WriteBeyond
                        | InvalidRequest::ZeroesBeyond
                );
                let forbidden = forbidden && connection.client.is_read_only;
                let error = if forbidden { ErrorCode::Permission } else { error };
                self.wait_for(index, cookie, (id, at), (Command::Flush, Some(error)));
            }
            ClientAction::Garbage => {
                self.tally.count("nbd-garbage");
                let connection = self.connection(index);
                connection.to_server.push(&[0xA5; 40]);
                connection.ending = Ending::Said;
            }
            ClientAction::Part { offset, length, sent } => {
                let command = Command::Write { offset, length, fua: false };
                let style = connection.client.style;
                let mut bytes = command.bytes(cookie, style).to_vec();
                bytes.extend(written(id, offset, length.into()));
                bytes.truncate(sent.min(bytes.len() - 1));
                self.tally.count(if bytes.len() > style.request_bytes() {
                    "nbd-cut-in-payload"
                } else {
                    "nbd-cut-in-header"
                });
                let connection = self.connection(index);
                connection.to_server.push(&bytes);
                connection.ending = Ending::Breaks;
            }
            ClientAction::Cut => self.cut(index),
            ClientAction::Disconnect => {
                self.tally.count("nbd-disconnect");
                let connection = self.connection(index);
                let goodbye = connection.client.session.disconnect();
                connection.to_server.push(&goodbye);
                connection.ending = Ending::Said;
            }
        }
    }

    fn say_command(&mut self, (index, cookie, id): (usize, u64, RequestId), command: Command) {
        let at = self.clock.step;
        let connection = self.connection(index);
        let Ok(header) = connection.client.session.submit(cookie, command) else {
            // The command needs a feature that this client did not negotiate, so the session
            // rejects it.
            self.tally.count("nbd-not-negotiated");
            return;
        };
        connection.to_server.push(&header);
        if let Command::Write { offset, length, .. } = command {
            connection.to_server.push(&written(id, offset, length.into()));
        }
        let changes = !matches!(
            command,
            Command::Read { .. }
                | Command::Flush
                | Command::Cache { .. }
                | Command::BlockStatus { .. }
        );
        let refusal = (changes && connection.client.is_read_only).then_some(ErrorCode::Permission);
        self.note("say", [index as u64, cookie, id.0]);
        self.wait_for(index, cookie, (id, at), (command, refusal));
    }

    fn wait_for(
        &mut self,
        index: usize,
        cookie: u64,
        (id, at): (RequestId, u64),
        (command, refusal): (Command, Option<ErrorCode>),
    ) {
        self.tally.requests += 1;
        self.tally.count("nbd-requests");
        let length = if let Command::Read { length, .. } = command { length } else { 0 };
        let data = vec![0xAA; length as usize];
        let connection = self.connection(index);
        let (has_extents, outcome) = (false, None);
        let pending = PendingRequest { id, command, at, refusal, data, has_extents, outcome };
        connection.client.pending.insert(cookie, pending);
    }

    pub(super) fn client_takes(&mut self, index: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let connection = self.connection(index);
            let pending = connection.client.session.payload_pending() as usize;
            if pending > 0 {
                let taken = pending.min(rest.len());
                connection.client.take_data(&rest[..taken]);
                connection.client.session.payload_consumed(taken as u32);
                rest = &rest[taken..];
            } else {
                let taken = connection.client.session.handle_bytes(rest);
                assert!(taken > 0, "the client takes no more bytes");
                rest = &rest[taken..];
            }
            self.hear_client(index);
        }
    }

    fn hear_client(&mut self, index: usize) {
        while let Some(event) = self.connection(index).client.session.poll_event() {
            let connection = self.connection(index);
            match event {
                ClientEvent::Transmit(bytes) => connection.to_server.push(&bytes),
                ClientEvent::Ready(info) => {
                    connection.client.is_ready = true;
                    connection.client.style = info.style;
                    if info.style.is_extended() {
                        self.tally.count("nbd-extended");
                    }
                    let connection = self.connection(index);
                    let backlog = std::mem::take(&mut connection.client.backlog);
                    let size_bytes = self.geometry.capacity_sectors() * SECTOR as u64;
                    assert_eq!(info.size_bytes, size_bytes, "the export has another size");
                    let flag = wire::TRANSMIT_MULTI_CONN;
                    assert_ne!(info.transmission_flags & flag, 0, "a flush covers all connections");
                    backlog.into_iter().for_each(|say| self.say(index, say));
                }
                ClientEvent::Data { cookie, offset, .. } => {
                    let place = connection.client.place_of(cookie, offset);
                    connection.client.filling = Some((cookie, place));
                }
                ClientEvent::Hole { cookie, offset, length } => {
                    let place = connection.client.place_of(cookie, offset);
                    let pending =
                        connection.client.pending.get_mut(&cookie).expect("it has a place");
                    pending.data[place..place + length as usize].fill(0);
                }
                ClientEvent::BlockStatus { cookie, extents } => {
                    let pending =
                        connection.client.pending.get_mut(&cookie).expect("the session checks it");
                    let Command::BlockStatus { length, .. } = pending.command else {
                        panic!("extents for {:?}", pending.command)
                    };
                    let all = [Extent { length_bytes: length, flags: 0 }];
                    assert_eq!(extents, all, "everything is allocated data");
                    pending.has_extents = true;
                }
                ClientEvent::Completed { cookie, result } => self.completed(index, cookie, result),
                other => panic!("the client hears {other:?}"),
            }
        }
    }

    /// A client got the reply to a request: checks it.
    fn completed(&mut self, index: usize, cookie: u64, result: Result<(), ErrorCode>) {
        self.note("told", [index as u64, cookie, u64::from(result.is_ok())]);
        let pending = self.connection(index).client.pending.remove(&cookie).expect("it was asked");
        if let Some(due) = pending.refusal {
            assert_eq!(result, Err(due), "the server must refuse {:?}", pending.command);
            assert!(pending.outcome.is_none(), "a refused request reached the array");
            self.tally.count("nbd-refused");
            return;
        }
        match (pending.command, pending.outcome) {
            (Command::Flush, _) => {
                assert!(matches!(result, Ok(()) | Err(ErrorCode::Io)), "a flush: {result:?}");
                self.flush_known(pending.at, result.is_ok());
            }
            (Command::BlockStatus { .. }, _) => {
                assert!(result.is_ok() && pending.has_extents, "no block status: {result:?}");
                self.tally.count("nbd-block-status");
            }
            (Command::Cache { .. }, _) => assert_eq!(result, Ok(()), "a hint cannot fail"),
            (command, None) => panic!("{command:?}: {result:?}, and the array has not answered"),
            (command, Some((mut call, outcome))) => {
                assert_eq!(result, outcome.map_err(code), "{command:?} gets a wrong answer");
                if call.is_read() {
                    call.payload = pending.data;
                }
                self.conclude(&call, outcome);
            }
        }
    }

    /// A connection breaks: its client no longer waits for requests in flight.
    pub(super) fn cut(&mut self, index: usize) {
        self.tally.count("nbd-cut");
        self.note("cut", [index as u64, 0, 0]);
        for pending in self.connection(index).close() {
            if let Some((call, _)) = pending.outcome {
                self.end_parts(&call, End::Unsure);
            }
        }
        let mut orphans = 0;
        for call in self.engine.clients.calls.values_mut() {
            if matches!(call.who, CallClient::Wire { connection, .. } if connection == index) {
                call.who = CallClient::Gone;
                orphans += 1;
            }
        }
        *self.tally.counts.entry("nbd-orphans").or_default() += orphans;
    }
}
