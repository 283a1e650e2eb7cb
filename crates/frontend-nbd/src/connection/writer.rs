//! One connection: the writer's half.
//!
//! Where it stands: a thread per negotiated connection; it sends replies in the order in which requests were finished,
//! as many per system call as are waiting. Data goes from the export's buffer to the socket without a copy.

use std::io::IoSlice;

use super::channel::Channel;
use crate::socket::Socket;

/// Sends replies until there will be no more or the socket breaks.
pub(super) fn run(socket: &Socket, channel: &Channel) {
    while let Some(batch) = channel.take_batch() {
        let mut parts = Vec::with_capacity(batch.len() * 2);
        for reply in &batch {
            parts.push(IoSlice::new(reply.head.as_ref()));
            if let Some(payload) = &reply.payload {
                parts.push(IoSlice::new(payload.as_ref()));
            }
        }
        if socket.send_all(&mut parts).is_err() {
            // The client is gone: its requests still finish, their replies have nowhere to go.
            channel.close();
            socket.cut();
            return;
        }
        let cost_bytes = batch.iter().map(|reply| reply.cost_bytes).sum();
        channel.end(batch.len(), cost_bytes);
    }
}
