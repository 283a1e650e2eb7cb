//! The server's end of a connection: the shipped session, and the parts of front end and command
//! around it.
//!
//! Where it stands: it does the work of `frontend-nbd/connection` and of the command's
//! `DiskExport`, without threads and sockets. Commands become requests in bytes, and faults become
//! error values. Both tables are copies of those in the front end and the command, because neither
//! the protocol nor the engine knows the other.

use braid_engine::request::{ByteOperation, ByteRequest, Denial, Fault};
use braid_nbd_proto::{
    CloseReason, Command, Echo, ErrorCode, Extent, Request, ServerEvent, sound_extents,
};

use super::{Ending, PendingRequest, State};
use crate::call::{Call, CallClient, CallError};
use crate::requests::FlushFor;
use crate::world::World;

/// Most extents in a reply, as in the front end.
const EXTENTS_MAX: usize = 1024;

/// The request in bytes for a command; `None` if the command does not access the array's sectors.
fn in_bytes(command: Command) -> Option<ByteRequest> {
    let (operation, offset, length) = match command {
        Command::Read { offset, length, .. } => (ByteOperation::Read, offset, length.into()),
        Command::Write { offset, length, fua } => {
            (ByteOperation::Write { durable: fua }, offset, length.into())
        }
        Command::Trim { offset, length, fua } => {
            (ByteOperation::Trim { durable: fua }, offset, length)
        }
        Command::WriteZeroes { offset, length, fua, may_punch, fast } => {
            (ByteOperation::WriteZeroes { may_punch, fast, durable: fua }, offset, length)
        }
        Command::Flush | Command::Cache { .. } | Command::BlockStatus { .. } => return None,
    };
    Some(ByteRequest { operation, offset, length })
}

/// The error code for the client, as `DiskExport` and the front end choose it.
pub(super) fn code(error: CallError) -> ErrorCode {
    match error {
        CallError::Denied(Denial::OutOfRange) => ErrorCode::Invalid,
        CallError::Denied(Denial::NotFast) => ErrorCode::Unsupported,
        CallError::Denied(Denial::ReadOnly) | CallError::Failed(Fault::ReadOnly) => {
            ErrorCode::Permission
        }
        CallError::Failed(Fault::NoSpace) => ErrorCode::NoSpace,
        CallError::Failed(Fault::Unreadable | Fault::Lost | Fault::Unwritable) => ErrorCode::Io,
    }
}

impl World {
    pub(super) fn server_takes(&mut self, index: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let connection = self.connection(index);
            if connection.state != State::Open {
                return;
            }
            let pending = connection.server.session.payload_pending() as usize;
            let taken = if pending > 0 {
                let taken = pending.min(rest.len());
                let (request, payload) = connection.server.receiving.as_mut().expect("a write");
                payload.extend_from_slice(&rest[..taken]);
                connection.server.session.payload_consumed(taken as u32);
                let request = *request;
                if taken == pending {
                    let (_, payload) = connection.server.receiving.take().expect("it was there");
                    self.serve(index, request, payload);
                }
                taken
            } else {
                connection.server.session.handle_bytes(rest)
            };
            rest = &rest[taken..];
            self.hear_server(index);
        }
    }

    /// Handles the events of a server session, as the front end's reader does.
    pub(super) fn hear_server(&mut self, index: usize) {
        while let Some(event) = self.connection(index).server.session.poll_event() {
            let connection = self.connection(index);
            match event {
                ServerEvent::Transmit(bytes) => connection.to_client.push(&bytes),
                ServerEvent::Negotiated(negotiated) => {
                    connection.server.negotiated = Some(negotiated)
                }
                ServerEvent::Claim { .. } => unreachable!("the exports take no claims"),
                ServerEvent::Request(request) => {
                    if let Command::Write { .. } = request.command {
                        connection.server.receiving = Some((request, Vec::new()));
                    } else {
                        self.serve(index, request, Vec::new());
                    }
                }
                ServerEvent::Refused { echo, refusal } => {
                    let codec = connection.server.negotiated.expect("requests come later").codec;
                    let reply = codec.failure(echo, refusal.error, refusal.reason);
                    connection.to_client.push(&reply);
                }
                ServerEvent::Close(reason) => {
                    let name = match reason {
                        CloseReason::Disconnected => "nbd-left",
                        _ => "nbd-thrown-out",
                    };
                    assert_eq!(connection.ending, Ending::Said, "closed for no reason: {reason}");
                    connection.state = State::Leaving;
                    self.tally.count(name);
                }
            }
        }
    }

    /// Starts a request that was wholly received, as the front end's reader does.
    fn serve(&mut self, index: usize, request: Request, payload: Vec<u8>) {
        let (echo, Request { cookie, command }) = (request.echo(), request);
        let connection = self.connection(index);
        connection.server.serving += 1;
        let pending = connection.client.pending.get(&cookie).expect("the client asked");
        assert_eq!(pending.command, command, "the session keeps the command");
        let (id, at) = (pending.id, pending.at);
        let codec = connection.server.negotiated.expect("requests come later").codec;
        if let Some(request) = in_bytes(command) {
            let who = CallClient::Wire { connection: index, cookie };
            return self.begin_call((id, request), payload, (at, who));
        }
        let reply = match command {
            Command::Flush => {
                let who = FlushFor::Wire { connection: index, cookie };
                self.start_flush(at, who);
                return;
            }
            Command::BlockStatus { length, one, .. } => {
                let extents = [Extent { length_bytes: length, flags: 0 }];
                let extents_max = if one { 1 } else { EXTENTS_MAX };
                codec.block_status(echo, &sound_extents(&extents, length, extents_max))
            }
            _ => codec.success(echo).as_ref().to_vec(),
        };
        self.send(index, &reply);
    }

    fn send(&mut self, index: usize, reply: &[u8]) {
        let connection = self.connection(index);
        connection.server.serving -= 1;
        connection.to_client.push(reply);
    }

    /// The array has answered a request of a connection: sends the reply.
    pub(crate) fn reply(
        &mut self,
        index: usize,
        cookie: u64,
        call: Call,
        result: Result<(), CallError>,
    ) {
        let connection = self.connection(index);
        let codec = connection.server.negotiated.expect("requests come later").codec;
        let echo = Echo { cookie, offset: call.request.offset };
        let reply = match (result, call.request.operation) {
            (Err(error), _) => codec.failure(echo, code(error), "failed"),
            (Ok(()), ByteOperation::Read) => {
                let length = call.request.length as u32;
                let mut reply = codec.data(echo, length).as_ref().to_vec();
                reply.extend_from_slice(&call.payload);
                reply
            }
            (Ok(()), _) => codec.success(echo).as_ref().to_vec(),
        };
        let pending = connection.client.pending.get_mut(&cookie).expect("the client waits");
        let before = pending.id;
        pending.outcome = Some((call, result));
        let waits = |pending: &PendingRequest| pending.outcome.is_none() && pending.id < before;
        if connection.client.pending.values().any(waits) {
            self.tally.count("nbd-out-of-order");
        }
        self.send(index, &reply);
    }

    pub(crate) fn reply_to_flush(&mut self, index: usize, cookie: u64, result: Result<(), Fault>) {
        let connection = self.connection(index);
        if connection.state == State::Closed {
            return;
        }
        let codec = connection.server.negotiated.expect("requests come later").codec;
        let echo = Echo { cookie, offset: 0 };
        let reply = match result {
            Ok(()) => codec.success(echo).as_ref().to_vec(),
            Err(fault) => codec.failure(echo, code(CallError::Failed(fault)), "failed"),
        };
        self.send(index, &reply);
    }
}
