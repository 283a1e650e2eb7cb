//! The thread of one client on a TLS endpoint: the gate, the handshake, and then bytes both ways.
//!
//! ```text
//!              receive ──▶ plain ──▶ inner        while less than [`HELD_BYTES_MAX`] waits for the
//!   client                                          connection to take it
//!              flush ◀── records ◀── inner        once the client has taken all earlier records
//! ```
//!
//! So the thread stops reading from a client that sends more than its connection takes, as the
//! server does without TLS. A client that takes no replies blocks its connection's sends, and the
//! connection cuts the client at its own deadline. The thread waits for both sockets without a
//! timeout.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid_nbd_proto::{CloseReason, GateEvent, TlsGate, wire};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_nodelay};
use rustls::ServerConnection;

use super::Tls;
use super::pump_registry::PumpEntry;
use crate::dealer::Dealer;
use crate::limits::STOP_PROGRESS_DEADLINE;

/// Limit of decrypted bytes that wait for the connection, at which the thread stops receiving.
const HELD_BYTES_MAX: usize = 256 * 1024;

const TURN_BYTES: usize = 128 * 1024;

#[derive(Debug, thiserror::Error)]
enum EndCause {
    #[error("the client: {0}")]
    Gate(CloseReason),
    #[error("something came between the word for TLS and its beginning")]
    Injected,
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the negotiation took too long")]
    Late,
    #[error("the client has gone")]
    Gone,
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for EndCause {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// The format of bytes on the client's socket.
enum WireFormat {
    Tls(Box<ServerConnection>),
    Plain(Vec<u8>),
}

struct Line {
    client: UnixStream,
    format: WireFormat,
}

/// An admitted client, with the decrypted bytes that it has sent so far. The thread drops the
/// connection's greeting, and passes these bytes to the connection.
struct AdmittedClient {
    line: Line,
    heard: Vec<u8>,
}

pub(super) fn serve(tls: &Tls, socket: (OwnedFd, bool), dealer: &Dealer, entry: &PumpEntry) {
    let ended = run(tls, socket, dealer, entry);
    if let Err(ended) = ended {
        dealer.shared.counters.negotiations_failed.add(1);
        tracing::debug!(target: "braid_frontend_nbd::client", why = %ended, "client is not let in by TLS");
    }
}

/// Returns an error only for a client that is not admitted; a connection reports its own end.
fn run(
    tls: &Tls,
    (socket, is_tcp): (OwnedFd, bool),
    dealer: &Dealer,
    entry: &PumpEntry,
) -> Result<(), EndCause> {
    if is_tcp {
        set_tcp_nodelay(&socket, true)?;
        set_socket_keepalive(&socket, true)?;
    }
    let client = UnixStream::from(socket);
    client.set_nonblocking(true)?;
    let end = Instant::now() + dealer.shared.settings.handshake_deadline;
    let AdmittedClient { line, heard } = let_in(tls, client, end)?;
    if dealer.shared.stopping.load(Ordering::Acquire) {
        return Err(EndCause::Gone);
    }
    entry.is_in();
    let (mut inner, connections) = UnixStream::pair()?;
    dealer.begin(connections.into(), false);
    inner.set_read_timeout(Some(dealer.shared.settings.handshake_deadline))?;
    // Drops the connection's greeting, since the gate has greeted the client already. If no
    // greeting comes, the connection does not exist.
    if inner.read_exact(&mut [0; wire::GREETING_BYTES]).is_err() {
        return Err(EndCause::Gone);
    }
    inner.set_nonblocking(true)?;
    // The result is dropped, since the connection itself counts how it ended.
    let _ended = pump(line, inner, heard);
    Ok(())
}

fn let_in(tls: &Tls, mut client: UnixStream, end: Instant) -> Result<AdmittedClient, EndCause> {
    let mut gate = TlsGate::new(tls.is_required);
    let (mut buffer, mut length, mut taken) = ([0; 4096], 0, 0);
    loop {
        while let Some(event) = gate.poll_event() {
            let heard = buffer.get(taken..length).unwrap_or_default();
            match event {
                GateEvent::Transmit(bytes) => send_all(&mut client, &bytes, end)?,
                GateEvent::Close(reason) => return Err(EndCause::Gate(reason)),
                GateEvent::Plain(bytes) => {
                    let heard = [&bytes, heard].concat();
                    return Ok(AdmittedClient {
                        line: Line { client, format: WireFormat::Plain(Vec::new()) },
                        heard,
                    });
                }
                // Refuses bytes that came with STARTTLS: an attacker could have injected them.
                GateEvent::StartTls { .. } if !heard.is_empty() => return Err(EndCause::Injected),
                GateEvent::StartTls { client_flags } => {
                    let connection = ServerConnection::new(std::sync::Arc::clone(&tls.config))?;
                    let mut line = Line { client, format: WireFormat::Tls(Box::new(connection)) };
                    line.shake_hands(end)?;
                    return Ok(AdmittedClient { line, heard: client_flags.to_be_bytes().to_vec() });
                }
            }
        }
        wait(&client, PollFlags::IN, end)?;
        length = match client.read(&mut buffer) {
            Ok(0) => return Err(EndCause::Gone),
            Ok(length) => length,
            Err(error) if is_early(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        taken = gate.handle_bytes(buffer.get(..length).unwrap_or_default());
    }
}

impl Line {
    fn shake_hands(&mut self, end: Instant) -> Result<(), EndCause> {
        loop {
            self.flush()?;
            let WireFormat::Tls(tls) = &mut self.format else { return Ok(()) };
            let is_out = tls.wants_write();
            if !tls.is_handshaking() && !is_out {
                // Replies can be longer than rustls buffers by default, so rustls's limit is
                // lifted.
                tls.set_buffer_limit(None);
                return Ok(());
            }
            wait(&self.client, if is_out { PollFlags::OUT } else { PollFlags::IN }, end)?;
            if is_out {
                continue;
            }
            match tls.read_tls(&mut self.client) {
                Ok(0) => return Err(EndCause::Gone),
                Err(error) if !is_early(&error) => return Err(error.into()),
                Ok(_) | Err(_) => {}
            }
            if let Err(error) = tls.process_new_packets() {
                // Sends the client the reason for the failure, if the client still reads.
                let _told = tls.write_tls(&mut self.client);
                return Err(error.into());
            }
        }
    }

    /// Appends received bytes to `plain`; returns whether the client has ended its sending.
    fn receive(&mut self, plain: &mut Vec<u8>) -> Result<bool, EndCause> {
        let start = plain.len();
        match &mut self.format {
            WireFormat::Plain(_) => {
                plain.resize(start + TURN_BYTES, 0);
                let read = self.client.read(&mut plain[start..]);
                plain.truncate(start + *read.as_ref().unwrap_or(&0));
                over(read)
            }
            WireFormat::Tls(tls) => {
                let is_over = over(tls.read_tls(&mut self.client))?;
                let state = match tls.process_new_packets() {
                    Ok(state) => state,
                    Err(error) => {
                        let _told = tls.write_tls(&mut self.client);
                        return Err(error.into());
                    }
                };
                plain.resize(start + state.plaintext_bytes_to_read(), 0);
                tls.reader().read_exact(&mut plain[start..])?;
                Ok(is_over || state.peer_has_closed())
            }
        }
    }

    fn send(&mut self, plain: &[u8]) -> Result<(), EndCause> {
        match &mut self.format {
            WireFormat::Plain(waiting) => waiting.extend_from_slice(plain),
            WireFormat::Tls(tls) => tls.writer().write_all(plain)?,
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), EndCause> {
        while self.waits() {
            let sent = match &mut self.format {
                WireFormat::Tls(tls) => tls.write_tls(&mut self.client),
                WireFormat::Plain(waiting) => self.client.write(waiting).inspect(|sent| {
                    waiting.drain(..sent);
                }),
            };
            match sent {
                Ok(0) => return Err(EndCause::Gone),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn waits(&self) -> bool {
        match &self.format {
            WireFormat::Tls(tls) => tls.wants_write(),
            WireFormat::Plain(waiting) => !waiting.is_empty(),
        }
    }

    /// Ends sending, and gives the client [`STOP_PROGRESS_DEADLINE`] to take the last bytes.
    fn close(&mut self) -> Result<(), EndCause> {
        if let WireFormat::Tls(tls) = &mut self.format {
            tls.send_close_notify();
        }
        let end = Instant::now() + STOP_PROGRESS_DEADLINE;
        loop {
            self.flush()?;
            if !self.waits() {
                self.client.shutdown(Shutdown::Write)?;
                return Ok(());
            }
            wait(&self.client, PollFlags::OUT, end)?;
        }
    }
}

/// Moves bytes both ways, those in `plain` first, until the connection has ended and the client has
/// taken all bytes.
fn pump(mut line: Line, mut inner: UnixStream, mut plain: Vec<u8>) -> Result<(), EndCause> {
    let mut buffer = vec![0; TURN_BYTES];
    // Bytes after the handshake are buffered already, and `poll` does not report them again.
    let mut is_over = line.receive(&mut plain)?;
    let (mut written, mut is_told) = (0, false);
    loop {
        let has_plain = written < plain.len();
        if is_over && !has_plain && !is_told {
            is_told = true;
            // Fails if the connection has closed by itself; the loop then reads its last bytes.
            let _ = inner.shutdown(Shutdown::Write);
        }
        let has_room = !is_over && plain.len() - written < HELD_BYTES_MAX;
        let waits = line.waits();
        let flag = |is_wanted, flag| if is_wanted { flag } else { PollFlags::empty() };
        let clients = flag(has_room, PollFlags::IN) | flag(waits, PollFlags::OUT);
        let inners = flag(!waits, PollFlags::IN) | flag(has_plain, PollFlags::OUT);
        let mut polled = [
            PollFd::from_borrowed_fd(line.client.as_fd(), clients),
            PollFd::from_borrowed_fd(inner.as_fd(), inners),
        ];
        // Polls a socket only for wanted events; otherwise a closed peer would be reported for
        // ever. At least one event is always wanted.
        let wanted = match (clients.is_empty(), inners.is_empty()) {
            (true, _) => &mut polled[1..],
            (_, true) => &mut polled[..1],
            (false, false) => &mut polled[..],
        };
        match poll(wanted, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let [is_client, is_inner] = polled.map(|one| !one.revents().is_empty());
        // Any event leads to a read or write, whose result shows the state of the socket.
        if is_client && waits {
            line.flush()?;
        }
        if is_client && has_room {
            is_over |= line.receive(&mut plain)?;
        }
        if (is_inner || is_client) && written < plain.len() {
            match some(inner.write(&plain[written..])) {
                Ok(length) => written += length,
                // The connection reads no more bytes, but its last bytes may still wait for the
                // client to take them.
                Err(_) => (is_over, written) = (true, plain.len()),
            }
            if written == plain.len() {
                plain.clear();
                written = 0;
            }
        }
        if is_inner && !waits {
            match inner.read(&mut buffer) {
                Ok(0) => return line.close(),
                read => {
                    let length = some(read)?;
                    line.send(&buffer[..length])?;
                }
            }
        }
    }
}

/// The number of bytes that a call moved; 0 if the call would have blocked.
fn some(moved: io::Result<usize>) -> io::Result<usize> {
    match moved {
        Err(error) if is_early(&error) => Ok(0),
        moved => moved,
    }
}

fn over(read: io::Result<usize>) -> Result<bool, EndCause> {
    match read {
        Ok(length) => Ok(length == 0),
        Err(error) if is_early(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn send_all(client: &mut UnixStream, mut bytes: &[u8], end: Instant) -> Result<(), EndCause> {
    while !bytes.is_empty() {
        match some(client.write(bytes))? {
            0 => wait(client, PollFlags::OUT, end)?,
            sent => (_, bytes) = bytes.split_at(sent),
        }
    }
    Ok(())
}

fn wait(socket: &UnixStream, events: PollFlags, end: Instant) -> Result<(), EndCause> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(EndCause::Late);
        }
        let left = Timespec::try_from(left + Duration::from_millis(1)).expect("seconds at most");
        match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), events)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}
