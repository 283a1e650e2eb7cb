//! One connection: the reader's half.
//!
//! Where it stands: a thread per connection runs [`serve`] from accept to close. It negotiates, then turns requests
//! into [`Operation`]s; replies are the writer's ([`writer`]). It decides nothing about the protocol: that is the
//! session's, in `braid-nbd-proto`.
//!
//! ```text
//!   negotiate ── deadline, EOF, protocol ───────────────► closed
//!       │ Negotiated: the writer starts
//!       ▼
//!   transmit ◄───────────┐
//!       │ request        │ room in flight? payload received? ──► submitted
//!       ├────────────────┘
//!       │ DISC, EOF, server stopping, protocol
//!       ▼
//!   drain: replies in flight go out, sending ends, input is thrown away until the client closes ──► closed
//! ```
//!
//! Invariants
//! - A panic, ours or an export's, ends here: `tests/hostile.rs::a_panicking_export_costs_one_connection`.

mod channel;
#[cfg(all(test, shuttle))]
mod models;
mod ticket;
mod writer;

use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use braid_nbd_proto::{
    Command, ExportDescription, Negotiated, ReplyCodec, Request, ServerEvent, ServerSession,
    sound_extents,
};

use crate::export::{Export, Operation, Payload};
use crate::limits::{EXTENTS_MAX, INPUT_BYTES, INPUT_BYTES_NEGOTIATING, STACK_BYTES};
use crate::server::Shared;
use crate::socket::Socket;
use channel::Channel;
use ticket::{Kind, Ticket};

/// How long a client may take to close after its last reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one connection to its end.
pub(crate) fn serve(shared: &Arc<Shared>, id: u64, socket: &Arc<Socket>) {
    let mut reader =
        Reader { shared, id, socket, session: None, input: Input::new(INPUT_BYTES_NEGOTIATING) };
    if catch_unwind(AssertUnwindSafe(|| reader.run())).is_err() {
        shared.counters.panics.add(1);
    }
    socket.cut();
}

/// Bytes received and not yet used.
struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    fn new(size_bytes: usize) -> Self {
        Self { buffer: vec![0; size_bytes].into_boxed_slice(), start: 0, end: 0 }
    }

    fn filled(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end, "only received bytes can be used");
    }

    /// Receives into the empty buffer; 0 at the end of the stream.
    fn refill(&mut self, socket: &Socket) -> io::Result<usize> {
        assert!(self.filled().is_empty(), "what was received is used before more comes");
        self.start = 0;
        self.end = 0;
        self.end = socket.receive(&mut self.buffer)?;
        Ok(self.end)
    }

    /// Makes the buffer `size_bytes` long, keeping what is in it.
    fn grow(&mut self, size_bytes: usize) {
        let mut grown = Self::new(size_bytes.max(self.filled().len()));
        grown.end = self.filled().len();
        grown.buffer[..grown.end].copy_from_slice(self.filled());
        *self = grown;
    }
}

struct Reader<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
    socket: &'a Arc<Socket>,
    session: Option<ServerSession>,
    input: Input,
}

impl Reader<'_> {
    fn run(&mut self) {
        let catalog = self.shared.exports.iter().map(|export| describe(export.as_ref()));
        self.session = Some(ServerSession::new(catalog.collect()));
        let negotiated = self.negotiate();
        match negotiated {
            Ok(Some(negotiated)) => {
                self.shared.counters.negotiated.add(1);
                self.transmit(negotiated);
            }
            // An end of negotiation has no one left to tell; the counter is its record.
            Ok(None) | Err(_) => self.shared.counters.negotiations_failed.add(1),
        }
    }

    fn session(&mut self) -> &mut ServerSession {
        self.session.as_mut().expect("the session is made first")
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Acquire)
    }

    /// The next event of the session; `None` at the end of the stream.
    fn next_event(&mut self, deadline: Option<Instant>) -> io::Result<Option<ServerEvent>> {
        loop {
            if let Some(event) = self.session().poll_event() {
                return Ok(Some(event));
            }
            if self.input.filled().is_empty() {
                self.set_deadline(deadline)?;
                if self.input.refill(self.socket)? == 0 {
                    return Ok(None);
                }
                if deadline.is_some() {
                    self.shared.registry.note_active(self.id);
                }
            }
            let session = self.session.as_mut().expect("the session is made first");
            let taken = session.handle_bytes(self.input.filled());
            self.input.consume(taken);
        }
    }

    /// Lets the next call on the socket wait no longer than until `deadline`.
    fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        let Some(deadline) = deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_timeout(Some(left))
    }

    fn negotiate(&mut self) -> io::Result<Option<Negotiated>> {
        let deadline = Some(Instant::now() + self.shared.settings.handshake_deadline);
        while let Some(event) = self.next_event(deadline)? {
            match event {
                ServerEvent::Transmit(bytes) => {
                    // Before the client can know: whoever has been let in is never evicted.
                    if self.session().is_negotiated()
                        && !self.shared.registry.note_negotiated(self.id)
                    {
                        return Ok(None);
                    }
                    self.set_deadline(deadline)?;
                    self.socket.send_all(&mut [IoSlice::new(&bytes)])?;
                }
                ServerEvent::Negotiated(negotiated) => {
                    self.socket.set_timeout(None)?;
                    self.input.grow(INPUT_BYTES);
                    return Ok(Some(negotiated));
                }
                ServerEvent::Close(_) => return Ok(None),
                other => unreachable!("{other:?} before negotiation is over"),
            }
        }
        Ok(None)
    }

    fn transmit(&mut self, negotiated: Negotiated) {
        let export = Arc::clone(&self.shared.exports[negotiated.export_index]);
        let codec = negotiated.codec;
        let Ok(writer) = Writer::start(self.shared, self.socket) else {
            return; // no thread to be had: the connection is refused late
        };
        while !self.is_stopping() {
            let going_on = match self.next_event(None) {
                Ok(Some(ServerEvent::Request(request))) => {
                    self.start(request, &export, codec, &writer.channel)
                }
                Ok(Some(ServerEvent::Refused { cookie, refusal })) => {
                    let kind = Kind::Other;
                    let ticket = self.ticket(&writer.channel, codec, cookie, kind);
                    ticket.map(|ticket| ticket.refuse(refusal.error, refusal.reason)).is_some()
                }
                Ok(Some(ServerEvent::Close(_)) | None) | Err(_) => false,
                Ok(Some(other)) => unreachable!("{other:?} after negotiation"),
            };
            if !going_on {
                break;
            }
        }
        writer.finish();
        self.await_close();
    }

    /// Ends sending and throws input away until the client closes, so that no reset overtakes the last replies.
    fn await_close(&mut self) {
        self.socket.stop_sending();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut scratch = [0; 4096];
        while self.set_deadline(Some(deadline)).is_ok() {
            if !matches!(self.socket.receive(&mut scratch), Ok(received) if received > 0) {
                break;
            }
        }
    }

    /// Waits for room in flight; `None` once the connection is broken.
    fn ticket(
        &self,
        channel: &Arc<Channel>,
        codec: ReplyCodec,
        cookie: u64,
        kind: Kind,
    ) -> Option<Ticket> {
        self.shared.counters.requests.add(1);
        let admitted = channel.begin(kind.cost_bytes());
        admitted.then(|| Ticket::new(self.shared, channel, codec, cookie, kind))
    }

    /// Starts one request; false once the connection is broken.
    fn start(
        &mut self,
        request: Request,
        export: &Arc<dyn Export>,
        codec: ReplyCodec,
        channel: &Arc<Channel>,
    ) -> bool {
        let kind = match request.command {
            Command::Read { offset, length, .. } => Kind::Read { offset, length },
            Command::Write { length, .. } => Kind::Write { length },
            _ => Kind::Other,
        };
        let Some(ticket) = self.ticket(channel, codec, request.cookie, kind) else { return false };
        let operation = match request.command {
            Command::Read { offset, length, .. } => {
                Operation::Read { offset, payload: self.allocate(export, length) }
            }
            Command::Write { offset, length, fua } => {
                let mut payload = self.allocate(export, length);
                if !self.receive_payload(payload.as_mut()) {
                    ticket.abandon();
                    return false;
                }
                self.shared.counters.bytes_written.add(u64::from(length));
                Operation::Write { offset, payload, fua }
            }
            Command::BlockStatus { offset, length, one } => {
                let extents_max = if one { 1 } else { EXTENTS_MAX };
                let extents = export.block_status(offset, length, extents_max);
                ticket.block_status(&sound_extents(&extents, length, extents_max));
                return true;
            }
            Command::Flush => Operation::Flush,
            Command::Trim { offset, length, fua } => Operation::Trim { offset, length, fua },
            Command::WriteZeroes { offset, length, fua, may_punch, fast } => {
                Operation::WriteZeroes { offset, length, fua, may_punch, fast }
            }
            Command::Cache { offset, length } => Operation::Cache { offset, length },
        };
        export.submit(operation, Box::new(move |outcome| ticket.complete(outcome)));
        true
    }

    fn allocate(&self, export: &Arc<dyn Export>, length: u32) -> Payload {
        let length_bytes = length as usize;
        let payload = export.allocate(length_bytes);
        if payload.len() == length_bytes {
            return payload;
        }
        self.shared.counters.contract_breaches.add(1);
        Payload::zeroed(length_bytes)
    }

    /// Moves the pending payload from the stream to `payload`; false if the stream ends before it does.
    fn receive_payload(&mut self, payload: &mut [u8]) -> bool {
        let mut filled = 0;
        while filled < payload.len() {
            let rest = &mut payload[filled..];
            let buffered = self.input.filled().len().min(rest.len());
            let received = if buffered > 0 {
                rest[..buffered].copy_from_slice(&self.input.filled()[..buffered]);
                self.input.consume(buffered);
                buffered
            } else {
                match self.socket.receive(rest) {
                    Ok(received) if received > 0 => received,
                    _ => return false,
                }
            };
            let consumed = u32::try_from(received).expect("a payload is at most 64 MiB");
            self.session().payload_consumed(consumed);
            filled += received;
        }
        true
    }
}

/// The writer's thread; dropping it without [`Writer::finish`] (a panic) breaks the connection.
struct Writer {
    channel: Arc<Channel>,
    socket: Arc<Socket>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(shared: &Arc<Shared>, socket: &Arc<Socket>) -> io::Result<Self> {
        let channel = Arc::new(Channel::default());
        let (their_shared, their_socket) = (Arc::clone(shared), Arc::clone(socket));
        let their_channel = Arc::clone(&channel);
        let builder = std::thread::Builder::new().name("nbd-write".into()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || {
            let body = || writer::run(&their_socket, &their_channel);
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                their_shared.counters.panics.add(1);
                their_channel.close();
                their_socket.cut();
            }
        })?;
        Ok(Self { channel, socket: Arc::clone(socket), thread: Some(thread) })
    }

    /// Waits until the replies in flight are out.
    fn finish(mut self) {
        self.channel.finish();
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the writer catches its own panics");
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.channel.close();
            self.socket.cut();
            self.join();
        }
    }
}

fn describe(export: &dyn Export) -> ExportDescription {
    ExportDescription {
        name: export.name().to_owned(),
        size_bytes: export.size_bytes(),
        read_only: export.read_only(),
        multi_conn: true, // Export::submit promises that Flush covers all connections
        block_sizes: export.block_sizes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_input_keeps_its_bytes() {
        let mut input = Input::new(8);
        input.buffer.copy_from_slice(b"abcdefgh");
        input.end = 8;
        input.consume(3);
        input.grow(16);
        assert_eq!(input.filled(), b"defgh");
        assert_eq!(input.buffer.len(), 16);
    }
}
