//! The connections to a member's server, and their renewal.
//!
//! ```text
//!           ┌────────────── a connection fails ──────────────┐
//!           │                                                ▼
//!   Up, generation n                        Down: all connections are cut and given back
//!           ▲                                                │ one caller mends
//!           └─ connected, unflushed writes sent again ◀──────┤
//!              generation n + 1                              └─ for too long, another size ─▶ Over
//! ```
//!
//! - A connection carries one request at a time; a call takes a connection and gives it back.
//! - No request of generation n ends after the first of generation n + 1 begins: the caller that
//!   mends waits until all connections of generation n were given back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use braid_nbd_client::{Client, ClientError, Command, Connector, Cutter, ErrorCode, wire};
use rustix::io::Errno;

use braid_ownership::{Mark, mark_before, refused_by};

use super::ownership::{Ownership, boot_ns, next_session};
use super::unflushed::{FlushMark, Unflushed, UnflushedWrites};
use crate::MemberError;

/// A member whose server cannot be reached for longer is lost.
pub(super) const UNREACHABLE_LIMIT: Duration = Duration::from_secs(600);
/// The same limit for a member that is only read: a command waits for the member, and no array.
pub(super) const UNREADABLE_LIMIT: Duration = Duration::from_secs(10);
/// Connections to one export: enough for a queue on a fast network.
const CONNECTIONS_MAX: usize = 16;
/// Copies of unflushed writes take at most this many bytes, plus those of the writes in flight.
const COPIES_BYTES_MAX: usize = 64 << 20;
/// The pause before the second attempt to connect, and the longest pause.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// An owner's process reads a sector from a server that has answered nothing for this long.
const ASK_PAUSE_NS: u64 = 200_000_000;

/// One request, short enough for the server.
pub(super) enum RemoteRequest<'a> {
    Read { offset_bytes: u64, buffer: &'a mut [u8] },
    Write { offset_bytes: u64, bytes: &'a [u8], durable: bool },
    Zero { offset_bytes: u64, length_bytes: u64, may_punch: bool },
    Flush,
}

/// Whole blocks around some bytes.
pub(super) struct Blocks {
    pub(super) start_bytes: u64,
    pub(super) length: usize,
    /// Bytes of the first block before the wanted bytes.
    pub(super) skipped: usize,
}

impl Blocks {
    pub(super) fn around(offset_bytes: u64, length: usize, block_bytes: u64) -> Self {
        let skipped = offset_bytes % block_bytes;
        let end_bytes = (offset_bytes + length as u64).next_multiple_of(block_bytes);
        let start_bytes = offset_bytes - skipped;
        let small = |bytes| usize::try_from(bytes).expect("little more than what is wanted");
        Self { start_bytes, length: small(end_bytes - start_bytes), skipped: small(skipped) }
    }
}

/// The state of a link, for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkLook {
    /// Whether the server can be reached, as far as is known.
    pub is_up: bool,
    /// The reason why the last connection was lost; empty if none was.
    pub last_loss: String,
    /// Connections that were made anew after a loss.
    pub reconnects: u64,
    /// Mean time of the last requests.
    pub mean_latency: Duration,
}

#[derive(Debug)]
enum Phase {
    Up,
    Down { since: Instant, is_mending: bool },
    Over,
}

struct State {
    phase: Phase,
    generation: u64,
    idle: Vec<(u64, Client)>,
    cutters: BTreeMap<u64, Cutter>,
    next_token: u64,
    /// Connections of this generation that callers hold, or are making.
    in_use: usize,
    connections_max: usize,
    unflushed: UnflushedWrites,
    last_loss: String,
    latency_ns: u64,
    /// The session of the claim with which connections of this generation are made.
    session: u64,
    /// When the last request that was answered had been sent, by [`boot_ns`]; `None` without an
    /// [`Ownership`].
    answered_ns: Option<u64>,
}

/// A connection that a caller holds.
struct Lease {
    client: Client,
    token: u64,
    generation: u64,
    /// The writes that ended before the caller got the connection.
    mark: FlushMark,
    /// When the request was sent, if the member has an owner.
    sent_ns: Option<u64>,
}

/// A request that succeeded.
enum Ended {
    Write(Unflushed),
    /// A flush covers the writes up to its lease's mark.
    Flush,
}

pub(super) struct Link {
    connector: Connector,
    size_bytes: u64,
    transmission_flags: u16,
    keeps_copies: bool,
    block_bytes: u64,
    limit: Duration,
    ownership: Option<Arc<Ownership>>,
    /// The server forgot this process's claim: another owner may have written the member.
    is_forgotten: AtomicBool,
    /// Bytes that stay the same on the member while it is in use, and their offset.
    mark: OnceLock<(u64, Vec<u8>)>,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Link").field("uri", self.connector.uri()).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(
        connector: Connector,
        first: Client,
        (has_multi_conn, has_flush, block_bytes): (bool, bool, u64),
        (limit, ownership, session): (Duration, Option<Arc<Ownership>>, u64),
    ) -> Result<Self, ClientError> {
        let info = first.info();
        let (size_bytes, transmission_flags) = (info.size_bytes, info.transmission_flags);
        let state = State {
            phase: Phase::Up,
            generation: 0,
            cutters: BTreeMap::from([(0, first.cutter()?)]),
            idle: vec![(0, first)],
            next_token: 1,
            in_use: 0,
            // Without the flag a flush covers the writes of its own connection only.
            connections_max: if has_multi_conn { CONNECTIONS_MAX } else { 1 },
            unflushed: UnflushedWrites::default(),
            last_loss: String::new(),
            latency_ns: 0,
            session,
            answered_ns: None,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(Self {
            connector,
            size_bytes,
            transmission_flags,
            keeps_copies: has_flush,
            block_bytes,
            limit,
            ownership,
            is_forgotten: AtomicBool::new(false),
            mark: OnceLock::new(),
            state,
            changed,
        })
    }

    /// Has each new connection checked for these bytes, so that nothing is written to another
    /// device that the URI may lead to by now.
    pub(super) fn expect(&self, offset_bytes: u64, bytes: &[u8]) {
        // Only the first call counts: its caller knows the superblock, and the name in it stays.
        let _ = self.mark.set((offset_bytes, bytes.to_vec()));
    }

    pub(super) fn connections_max(&self) -> usize {
        self.lock().connections_max
    }

    pub(super) fn copies_are_many(&self) -> bool {
        self.lock().unflushed.memory_bytes() > COPIES_BYTES_MAX
    }

    pub(super) fn look(&self) -> LinkLook {
        let state = self.lock();
        LinkLook {
            is_up: matches!(state.phase, Phase::Up),
            last_loss: state.last_loss.clone(),
            reconnects: state.generation,
            mean_latency: Duration::from_nanos(state.latency_ns),
        }
    }

    pub(super) fn answered_ns(&self) -> Option<u64> {
        self.lock().answered_ns
    }

    /// Ends all calls with an error, now and later.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        state.phase = Phase::Over;
        state.cut();
        self.changed.notify_all();
    }

    /// Sends a request until the server has answered it.
    ///
    /// # Errors
    /// The server cannot be reached any more. The server's own answer is the inner result.
    pub(super) fn call(
        &self,
        mut request: RemoteRequest<'_>,
    ) -> Result<Result<(), ErrorCode>, MemberError> {
        loop {
            let mut lease = self.take()?;
            let begun = Instant::now();
            lease.sent_ns = self.ownership.as_ref().map(|_| boot_ns());
            match perform(&mut lease.client, &mut request) {
                // A server that shuts down may start again.
                Err(ClientError::Refused(ErrorCode::Shutdown)) => {
                    self.lose(&lease, "the server is being shut down");
                }
                // The next connection's claim says whether the member has another owner.
                Err(ClientError::Refused(ErrorCode::Permission)) if self.ownership.is_some() => {
                    self.lose(&lease, "the server serves another owner");
                }
                Err(ClientError::Refused(code)) => {
                    self.give_back(lease, begun, None);
                    return Ok(Err(code));
                }
                // The request was not sent.
                Err(ClientError::Unsendable(_)) => {
                    self.give_back(lease, begun, None);
                    return Ok(Err(ErrorCode::Invalid));
                }
                Err(error) => self.lose(&lease, &reasons(&error)),
                Ok(()) => {
                    let ended = self.ended(&request);
                    self.give_back(lease, begun, ended);
                    return Ok(Ok(()));
                }
            }
        }
    }

    /// The change to the copies of writes after a request succeeded.
    fn ended(&self, request: &RemoteRequest<'_>) -> Option<Ended> {
        let write = match *request {
            RemoteRequest::Read { .. } => return None,
            RemoteRequest::Flush => return Some(Ended::Flush),
            // A durable write is kept too: an older write to the same blocks must not be sent after
            // it.
            RemoteRequest::Write { offset_bytes, bytes, .. } if self.keeps_copies => {
                Unflushed::Write { offset_bytes, bytes: bytes.to_vec() }
            }
            RemoteRequest::Zero { offset_bytes, length_bytes, may_punch } if self.keeps_copies => {
                Unflushed::Zero { offset_bytes, length_bytes, may_punch }
            }
            RemoteRequest::Write { .. } | RemoteRequest::Zero { .. } => return None,
        };
        Some(Ended::Write(write))
    }

    /// Sends a small read whenever the server has answered nothing for a while, as long as the link
    /// lives. So an owner knows that it still has the member.
    pub(super) fn keep_asking(self: &Arc<Self>) -> std::io::Result<()> {
        let link = Arc::downgrade(self);
        let run = move || {
            while let Some(link) = link.upgrade() {
                let answered_ns = link.lock().answered_ns.unwrap_or_default();
                if boot_ns().saturating_sub(answered_ns) >= ASK_PAUSE_NS {
                    let mut buffer = [0; 512];
                    let request = RemoteRequest::Read { offset_bytes: 0, buffer: &mut buffer };
                    // Other callers get the error, too.
                    if link.call(request).is_err() {
                        return;
                    }
                }
                drop(link);
                std::thread::sleep(Duration::from_nanos(ASK_PAUSE_NS / 2));
            }
        };
        std::thread::Builder::new().name("braid-link".into()).spawn(run).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for one request: an idle one, a new one, or a new link's first.
    fn take(&self) -> Result<Lease, MemberError> {
        let mut state = self.lock();
        loop {
            match &mut state.phase {
                Phase::Over => return Err(gone()),
                Phase::Down { is_mending: true, .. } => {}
                Phase::Down { since, is_mending } => {
                    *is_mending = true;
                    let since = *since;
                    return self.mend(state, since);
                }
                Phase::Up => {
                    let generation = state.generation;
                    if let Some((token, client)) = state.idle.pop() {
                        state.in_use += 1;
                        return Ok(state.lease(token, client));
                    }
                    if state.in_use < state.connections_max {
                        state.in_use += 1;
                        let session = state.session;
                        drop(state);
                        match self.add(generation, session) {
                            Some(lease) => return Ok(lease),
                            None => state = self.lock(),
                        }
                        continue;
                    }
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes one more connection of a generation. If the server takes no more, the link keeps to
    /// its present connections.
    fn add(&self, generation: u64, session: u64) -> Option<Lease> {
        let made = self.connect(session);
        let mut state = self.lock();
        let is_current = state.generation == generation && matches!(state.phase, Phase::Up);
        let (client, cutter) = match made {
            Ok(made) if is_current => made,
            Ok(_) => {
                state.in_use -= 1;
                self.changed.notify_all();
                return None;
            }
            Err(error) => {
                state.in_use -= 1;
                let others = state.in_use + state.idle.len();
                if others > 0 {
                    state.connections_max = others;
                } else if is_current {
                    state.goes_down(reasons(&error));
                }
                self.changed.notify_all();
                return None;
            }
        };
        let token = state.register(cutter);
        Some(state.lease(token, client))
    }

    fn connect(&self, session: u64) -> Result<(Client, Cutter), ClientError> {
        let (client, before) = connect_as(&self.connector, self.ownership.as_deref(), session)?;
        let own = self.ownership.as_ref().map(|ownership| ownership.mark);
        if before != own {
            self.is_forgotten.store(true, Ordering::Release);
            return Err(ClientError::Declined("the server has forgotten this owner".to_owned()));
        }
        let cutter = client.cutter()?;
        Ok((client, cutter))
    }

    fn give_back(&self, lease: Lease, begun: Instant, ended: Option<Ended>) {
        let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut state = self.lock();
        match ended {
            Some(Ended::Write(write)) => state.unflushed.keep(write),
            Some(Ended::Flush) => state.unflushed.forget(lease.mark),
            None => {}
        }
        state.in_use -= 1;
        state.answered_ns = state.answered_ns.max(lease.sent_ns);
        state.latency_ns = (state.latency_ns / 8 * 7).saturating_add(took_ns / 8);
        if state.generation == lease.generation && matches!(state.phase, Phase::Up) {
            state.idle.push((lease.token, lease.client));
        } else {
            state.cutters.remove(&lease.token);
        }
        // A caller that mends waits for the last connection; other callers wait for any connection.
        self.changed.notify_all();
    }

    /// Gives back a connection that failed: the link is down.
    fn lose(&self, lease: &Lease, why: &str) {
        let mut state = self.lock();
        state.in_use -= 1;
        state.cutters.remove(&lease.token);
        if state.generation == lease.generation && matches!(state.phase, Phase::Up) {
            state.goes_down(why.to_owned());
        }
        self.changed.notify_all();
    }

    /// Connects until the server answers, and sends unflushed writes again.
    fn mend<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        since: Instant,
    ) -> Result<Lease, MemberError> {
        while state.in_use > 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut pause = PAUSE_MIN;
        loop {
            let unflushed = state.unflushed.all();
            state.session = next_session();
            let session = state.session;
            drop(state);
            let connected = self.connect(session);
            state = self.lock();
            if matches!(state.phase, Phase::Over) {
                return Err(gone());
            }
            let made = match connected {
                Ok((client, cutter)) => {
                    // From now on the link can be given up while the server is silent.
                    let token = state.register(cutter);
                    drop(state);
                    let made = self.renew(client, &unflushed).map(|client| (token, client));
                    state = self.lock();
                    if made.is_err() {
                        state.cutters.remove(&token);
                    }
                    made
                }
                Err(_) if self.is_forgotten.load(Ordering::Acquire) => Err(Renewal::OtherDevice),
                Err(_) => Err(Renewal::NotYet),
            };
            match made {
                _ if matches!(state.phase, Phase::Over) => return Err(gone()),
                Ok((token, client)) => {
                    state.phase = Phase::Up;
                    state.generation += 1;
                    state.in_use = 1;
                    self.changed.notify_all();
                    return Ok(state.lease(token, client));
                }
                Err(Renewal::OtherDevice) => {
                    state.phase = Phase::Over;
                    self.changed.notify_all();
                    return Err(gone());
                }
                Err(Renewal::NotYet) if since.elapsed() > self.limit => {
                    state.phase = Phase::Over;
                    self.changed.notify_all();
                    return Err(gone());
                }
                Err(Renewal::NotYet) => {}
            }
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Checks that a new connection leads to the same export, and sends unflushed writes again.
    fn renew(&self, mut client: Client, unflushed: &[Arc<Unflushed>]) -> Result<Client, Renewal> {
        let (size_bytes, flags) = (client.info().size_bytes, client.info().transmission_flags);
        let is_able = flags & self.transmission_flags == self.transmission_flags;
        let is_read_only = |flags| flags & wire::TRANSMIT_READ_ONLY != 0;
        let is_as_before = is_read_only(flags) == is_read_only(self.transmission_flags);
        if size_bytes != self.size_bytes || !is_able || !is_as_before {
            return Err(Renewal::OtherDevice);
        }
        if let Some((offset_bytes, expected)) = self.mark.get() {
            let around = Blocks::around(*offset_bytes, expected.len(), self.block_bytes);
            let mut found = vec![0; around.length];
            client.read(around.start_bytes, &mut found).map_err(|_| Renewal::NotYet)?;
            if found[around.skipped..][..expected.len()] != **expected {
                return Err(Renewal::OtherDevice);
            }
        }
        for write in unflushed {
            let mut request = match **write {
                Unflushed::Write { offset_bytes, ref bytes } => {
                    RemoteRequest::Write { offset_bytes, bytes, durable: false }
                }
                Unflushed::Zero { offset_bytes, length_bytes, may_punch } => {
                    RemoteRequest::Zero { offset_bytes, length_bytes, may_punch }
                }
            };
            match perform(&mut client, &mut request) {
                Ok(()) => {}
                // An answered write is lost. No later flush may succeed.
                Err(ClientError::Refused(code)) if code != ErrorCode::Shutdown => {
                    return Err(Renewal::OtherDevice);
                }
                Err(_) => return Err(Renewal::NotYet),
            }
        }
        Ok(client)
    }
}

/// Why a link is not up again.
enum Renewal {
    /// The server does not answer yet.
    NotYet,
    /// The export is not the former member any more.
    OtherDevice,
}

impl State {
    fn lease(&self, token: u64, client: Client) -> Lease {
        let (generation, mark, sent_ns) = (self.generation, self.unflushed.mark(), None);
        Lease { client, token, generation, mark, sent_ns }
    }

    fn register(&mut self, cutter: Cutter) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.cutters.insert(token, cutter);
        token
    }

    fn goes_down(&mut self, why: String) {
        self.phase = Phase::Down { since: Instant::now(), is_mending: false };
        self.last_loss = why;
        self.cut();
    }

    /// Ends all connections: callers that hold one get an error.
    fn cut(&mut self) {
        self.idle.clear();
        self.cutters.values().for_each(Cutter::cut);
        self.cutters.clear();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut state = self.lock();
        for (_, client) in std::mem::take(&mut state.idle) {
            // The disconnect fails if the server is gone.
            let _ = client.disconnect();
        }
    }
}

/// An error with its causes, in one line.
pub(super) fn reasons(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Connects, with a claim if there is an ownership. Returns the mark that the server had before;
/// `None` if the server had no mark, or without a claim.
pub(super) fn connect_as(
    connector: &Connector,
    ownership: Option<&Ownership>,
    session: u64,
) -> Result<(Client, Option<Mark>), ClientError> {
    let Some(ownership) = ownership else { return Ok((connector.connect()?, None)) };
    let claimed = connector.connect_with(&ownership.claim(session).to_string());
    let client = claimed.inspect_err(|error| {
        if let ClientError::Declined(words) = error
            && let Some(mark) = refused_by(words)
            // A later link of this process is no other owner.
            && mark.supersedes(&ownership.mark)
        {
            (ownership.refused)(mark);
        }
    })?;
    let words = client.info().description.as_deref().unwrap_or_default();
    match mark_before(words) {
        Some(before) => Ok((client, before)),
        None => {
            let why = "the server takes no claims: it is no `braid member`";
            Err(ClientError::Declined(why.to_owned()))
        }
    }
}

fn gone() -> MemberError {
    MemberError::Gone { errno: Errno::NODEV.raw_os_error() }
}

fn perform(client: &mut Client, request: &mut RemoteRequest<'_>) -> Result<(), ClientError> {
    match request {
        RemoteRequest::Read { offset_bytes, buffer } => client.read(*offset_bytes, buffer),
        RemoteRequest::Write { offset_bytes, bytes, durable } => {
            client.write(*offset_bytes, bytes, *durable)
        }
        RemoteRequest::Zero { offset_bytes, length_bytes, may_punch } => {
            let (offset, length) = (*offset_bytes, *length_bytes);
            let (fua, fast) = (false, false);
            let may_punch = *may_punch;
            let command = Command::WriteZeroes { offset, length, fua, may_punch, fast };
            client.call(command, &[], &mut []).map(drop)
        }
        RemoteRequest::Flush => client.flush(),
    }
}
