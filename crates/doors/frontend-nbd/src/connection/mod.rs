//! One connection from accept to close, as a machine without socket, thread or clock.
//!
//! Where it stands: a transport ([`crate::threads`], [`crate::ring`]) owns the socket and carries
//! out the connection's tasks. The [`intake`] turns bytes into requests, the [`outbox`] turns
//! outcomes into replies; the connection decides which of the two may proceed. The session, in
//! `braid-nbd-proto`, decides all questions of the protocol.
//!
//! ```text
//!                  ┌── receive ─► transport ── received ──┐
//!                  │                                      ▼
//!   Negotiating ── final reply ──► Transmitting ── DISC, EOF, stopping, protocol ──► Draining
//!        │                          │        ▲                      all replies are out │
//!        │ deadline, EOF,           ▼        │                                          ▼
//!        │ protocol, evicted     task ─► export ─► finished ─► batch ─► sent          Ending
//!        ▼                                                                              │
//!      Closed ◄──── the socket breaks, a panic, cut: from everywhere ───────────────────┘
//! ```
//!
//! In `Ending`, sending ends, and input is discarded until EOF.
//!
//! The capitalised names are `Stage`s. While draining, the connection reads no more requests, and
//! sends the replies of the requests in flight.
//!
//! A client that has sent half a payload, or takes no reply, must move a stride before its deadline
//! ([`progress`]; `limits.rs` has the length). `registry.rs` chooses the connection that is cut to
//! make room for a new one. A wait for the export or the budget has no deadline.
//!
//! How to drive the connection: after each input call [`Connection::advance`]; then carry out the
//! results of `take_tasks`, `receive`, `batch` and `takes_end_of_sending`, one receive and batch at
//! a time.
//!
//! Invariants
//! - Only an idle limit makes an idle client lose its connection: `tests/hostile.rs`,
//!   `crate::registry`.
//! - A request begins only when the limits have room for it:
//!   `tests/server.rs::a_connection_with_its_fill_in_flight_is_not_read_from`.
//! - A request that is longer than a [`stretch`] is answered once, and ends after the current
//!   stretch when its client has gone or the server stops: `tests/stretches.rs`.

mod intake;
mod outbox;
mod progress;
mod stretch;
mod write_guesses;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid_nbd_proto::{
    BlockSizes, Command, Echo, ErrorCode, ExportDescription, Extent, NegotiationResult, Refusal,
    Request,
};

use crate::budget::{Bell, request_bytes_max};
use crate::export::Export;
use crate::notice::Notice;
use crate::registry::Pulse;
use braid_ring::Payload;
use braid_ring::client::{ClientRequest, Outcome};

use crate::limits::{
    CLOSE_TIMEOUT, CONTENDED_DEADLINE, EXTENTS_MAX, STOP_PROGRESS_DEADLINE, TURNED_AWAY_DEADLINE,
};
use crate::shared::Shared;
use intake::{Event, Intake, Write};
use outbox::{BeginResult, GrowthResult, Kind, Ledger, Outbox};
use progress::Progress;

pub(crate) use intake::ReceiveBuffers;
pub(crate) use outbox::Batch;

/// A task that the transport carries out on the connection's export.
#[derive(Debug)]
pub(crate) enum Task {
    /// Submit the request; its outcome goes to [`Connection::finished`] with this slot.
    Submit { slot: u32, request: ClientRequest },
    /// Pass a client's claim to this export, and the answer to [`Connection::claimed`].
    Claim { export_index: usize, words: String },
    /// Ask the export for extents, and pass them to [`Connection::described`].
    Describe { slot: u32, offset: u64, length: u64, extents_max: usize },
}

impl Task {
    /// The slot of the task's request; `None` for a claim, which is no request.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Submit { slot, .. } | Self::Describe { slot, .. } => Some(*slot),
            Self::Claim { .. } => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Negotiating { deadline: Instant },
    Transmitting,
    Draining,
    Ending { deadline: Instant },
    Closed,
}

#[derive(Debug)]
enum WaitingRequest {
    Request(Request),
    Refused { echo: Echo, refusal: Refusal },
}

pub(crate) struct Connection {
    shared: Arc<Shared>,
    id: u64,
    stage: Stage,
    export: Option<Arc<dyn Export>>,
    intake: Intake,
    outbox: Outbox,
    waiting: Option<WaitingRequest>,
    tasks: Vec<Task>,
    /// The transport must end the socket's sending direction.
    ends_sending: bool,
    /// The client disconnected without NBD_CMD_DISC.
    is_forsaken: bool,
    progress: Progress,
    pulse: Arc<Pulse>,
}

pub(crate) struct Identity {
    pub(crate) id: u64,
    /// A record in which the connection notes that it is at work or idle.
    pub(crate) pulse: Arc<Pulse>,
    /// The reason if the server turns the client away; else `None`.
    pub(crate) refusal: Option<String>,
}

impl Connection {
    /// Makes a connection with its greeting ready to send. `bell` is rung when the transport should
    /// call [`Self::advance`].
    pub(crate) fn new(
        shared: &Arc<Shared>,
        identity: Identity,
        now: Instant,
        bell: Arc<dyn Bell>,
    ) -> Self {
        let Identity { id, pulse, refusal } = identity;
        let request_bytes_max = request_bytes_max(shared.budget.limit_bytes());
        let describe = |export: &Arc<dyn Export>| describe(export.as_ref(), request_bytes_max);
        let takes_claims = shared.exports.iter().any(|export| export.takes_claims());
        let catalog = shared.exports.iter().map(describe);
        let time = match refusal {
            Some(_) => TURNED_AWAY_DEADLINE,
            None => shared.settings.handshake_deadline,
        };
        let purse = shared.budget.purse();
        Self {
            shared: Arc::clone(shared),
            id,
            stage: Stage::Negotiating { deadline: now + time },
            export: None,
            intake: Intake::new(catalog.collect(), refusal, takes_claims),
            outbox: Outbox::new(purse, bell),
            waiting: None,
            tasks: Vec::new(),
            ends_sending: false,
            is_forsaken: false,
            progress: Progress::new(now),
            pulse,
        }
    }

    pub(crate) fn export(&self) -> Option<&Arc<dyn Export>> {
        self.export.as_ref()
    }

    /// The export on which the task is carried out.
    pub(crate) fn export_of(&self, task: &Task) -> Arc<dyn Export> {
        let export = match task {
            Task::Claim { export_index, .. } => &self.shared.exports[*export_index],
            Task::Submit { .. } | Task::Describe { .. } => {
                self.export.as_ref().expect("requests come after negotiation")
            }
        };
        Arc::clone(export)
    }

    /// Handles the export's answer to the client's claim.
    pub(crate) fn claimed(&mut self, claimed: Result<Arc<dyn Export>, String>, now: Instant) {
        if self.is_closed() {
            return;
        }
        let request_bytes_max = request_bytes_max(self.shared.budget.limit_bytes());
        let answer = claimed.map(|export| {
            let description = describe(export.as_ref(), request_bytes_max);
            self.export = Some(export);
            description
        });
        self.intake.answer_claim(answer);
        self.advance(now);
    }

    pub(crate) fn stage_deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Negotiating { deadline } | Stage::Ending { deadline } => Some(deadline),
            Stage::Transmitting | Stage::Draining | Stage::Closed => None,
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        let time = self.shared.settings.progress_deadline;
        // Checks in any stage whether the server stops: a reader thread that waits for room has not
        // noticed the stop yet.
        if self.shared.stopping_since().is_some() {
            time.min(STOP_PROGRESS_DEADLINE)
        } else if self.outbox.is_in_the_way(&self.shared.budget) {
            time.min(CONTENDED_DEADLINE)
        } else {
            time
        }
    }

    /// Since when the client has moved less than a stride of a payload or reply.
    fn stalled_since(&self) -> Option<Instant> {
        match self.stage {
            Stage::Transmitting => self.progress.stalled_since(),
            Stage::Draining => {
                let stopping = self.shared.stopping_since();
                let since = self.progress.sending_since();
                since.map(|since| stopping.map_or(since, |stopping| since.max(stopping)))
            }
            Stage::Negotiating { .. } | Stage::Ending { .. } | Stage::Closed => None,
        }
    }

    /// The latest moment for the next [`Self::handle_time`]. Other connections may begin to wait
    /// for this connection's memory at any time, so a stalled client is checked twice.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let time = self.shared.settings.progress_deadline;
        let look = self.stalled_since().map(|since| {
            let soon = since + self.patience().min(CONTENDED_DEADLINE);
            if soon > self.progress.now() { soon } else { since + time }
        });
        self.stage_deadline().into_iter().chain(look).min()
    }

    /// Ends a stage whose deadline has passed, and cuts a stalled client.
    pub(crate) fn handle_time(&mut self, now: Instant) {
        self.end_stage(now);
        if self.stalled_since().is_some_and(|since| since + self.patience() <= now) {
            self.cut_for_stalling();
        }
    }

    /// Ends a stage whose deadline has passed, but cuts no stalled client: for the transport that
    /// notices stalled clients by timeouts of its calls.
    pub(crate) fn end_stage(&mut self, now: Instant) {
        self.progress.set_now(now);
        if self.stage_deadline().is_some_and(|deadline| deadline <= now) {
            self.close();
        }
    }

    /// Restarts the stall clock: the server did not run, so the stall is not the client's fault.
    pub(crate) fn was_not_looked_after(&mut self, now: Instant) {
        self.progress.begin_anew(now);
    }

    /// Whether the client has sent too little of its incoming payload for too long.
    pub(crate) fn is_not_sent_to(&self, now: Instant) -> bool {
        self.progress.receiving_since().is_some_and(|since| since + self.patience() <= now)
    }

    pub(crate) fn cut_for_stalling(&mut self) {
        if !self.is_closed() {
            let count = self.shared.counters.stalled.add(1);
            let is_stopping = self.shared.stopping_since().is_some();
            self.shared.notices.tell(Notice::Stalled { count, is_stopping });
            self.close();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_half_done(&self) -> bool {
        self.progress.stalled_since().is_some()
    }

    /// Whether the socket is no longer used. The export may still be carrying out requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Whether the connection is closed, and the export has none of its requests.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_closed() && self.outbox.in_flight() == 0
    }

    pub(crate) fn sends_no_more(&self) -> bool {
        matches!(self.stage, Stage::Ending { .. } | Stage::Closed)
    }

    /// Gives up the request of a task that the transport took and will not carry out.
    pub(crate) fn abandon(&mut self, slot: u32) {
        self.outbox.abandon(slot, &self.shared.budget);
    }

    pub(crate) fn close(&mut self) {
        if let Stage::Negotiating { .. } = self.stage {
            // A client that leaves in negotiation gets no notice; the counter records it.
            self.shared.counters.negotiations_failed.add(1);
        }
        if self.stage != Stage::Closed {
            self.stage = Stage::Closed;
            self.give_up_receiving();
            self.outbox.close(&self.shared.budget);
            for slot in std::mem::take(&mut self.tasks).iter().filter_map(Task::slot) {
                self.abandon(slot);
            }
        }
    }

    fn give_up_receiving(&mut self) {
        self.waiting = None;
        self.progress.end_receive();
        self.outbox.stop_waiting(&self.shared.budget);
        if let Some(slot) = self.intake.abandon() {
            self.give_up_write(slot);
        }
    }

    fn give_up_write(&mut self, slot: u32) {
        self.outbox.has_come(slot, false, &self.shared.budget);
        self.outbox.abandon(slot, &self.shared.budget);
    }

    /// Continues the connection as far as received bytes and free room allow.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.progress.set_now(now);
        self.count_receive();
        self.go_on();
        self.beat(now);
        if self.stage == Stage::Draining && self.outbox.in_flight() == 0 && self.outbox.is_quiet() {
            self.stage = Stage::Ending { deadline: now + CLOSE_TIMEOUT };
            self.ends_sending = true;
        }
    }

    /// Notes whether the connection is idle, for a transport that does not advance it after sends.
    pub(crate) fn beat(&self, now: Instant) {
        let is_idle = self.outbox.in_flight() == 0 && self.progress.receiving_since().is_none();
        self.pulse.beat(is_idle.then_some(now));
    }

    fn count_receive(&mut self) {
        if let Some(spent) = self.progress.count_receive()
            && self.stage == Stage::Transmitting
            && spent >= self.patience()
        {
            self.cut_for_stalling();
        }
    }

    fn go_on(&mut self) {
        while matches!(self.stage, Stage::Negotiating { .. } | Stage::Transmitting) {
            if self.shared.stopping.load(Ordering::Acquire) && self.stage == Stage::Transmitting {
                self.drain();
            } else if let Some(waiting) = self.waiting.take() {
                if let Some(waiting) = self.admit(waiting) {
                    self.waiting = Some(waiting);
                    return;
                }
            } else if let Some(slot) = self.intake.wants_memory() {
                if !self.grow(slot) {
                    return;
                }
            } else if let Some(event) = self.intake.poll() {
                self.handle(event);
            } else {
                return;
            }
        }
    }

    /// Gives the incoming payload more memory; false if the payload has to wait for memory.
    fn grow(&mut self, slot: u32) -> bool {
        let is_longer = match self.outbox.grow(slot, &self.shared.budget) {
            GrowthResult::To(bytes) => self.intake.grow(bytes).is_ok(),
            GrowthResult::Wait => return false,
            GrowthResult::Never => false,
        };
        if !is_longer {
            self.intake.give_up_memory();
            self.outbox.has_come(slot, false, &self.shared.budget);
        }
        // The client has filled all memory that its payload had, so its stride counts as complete.
        self.progress.stride_is_done();
        true
    }

    fn drain(&mut self) {
        self.stage = Stage::Draining;
        self.give_up_receiving();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Transmit(bytes) => {
                // Notes the end of negotiation before the client can learn of it, so that no client
                // that has negotiated is evicted.
                let is_last = self.intake.is_negotiated();
                if is_last && !self.shared.registry.note_negotiated(self.id) {
                    return self.close();
                }
                self.outbox.transmit(bytes);
            }
            Event::Negotiated(negotiated) => self.on_negotiated(negotiated),
            Event::Claim { export_index, words } => {
                self.tasks.push(Task::Claim { export_index, words });
            }
            Event::Request(request) => {
                self.shared.counters.requests.add(1);
                self.waiting = Some(WaitingRequest::Request(request));
            }
            Event::Refused { echo, refusal } => {
                self.shared.counters.requests.add(1);
                self.waiting = Some(WaitingRequest::Refused { echo, refusal });
            }
            Event::Written(Write { slot, offset, fua, payload, copied_bytes, .. }) => {
                self.progress.stride_is_done();
                self.outbox.has_come(slot, true, &self.shared.budget);
                self.shared.counters.bytes_written.add(payload.len() as u64);
                self.shared.counters.bytes_copied.add(copied_bytes as u64);
                let request = ClientRequest::Write { offset, payload, durable: fua };
                self.tasks.push(Task::Submit { slot, request });
            }
            Event::Skipped { slot } => {
                self.progress.stride_is_done();
                self.outbox.has_come(slot, false, &self.shared.budget);
                self.refuse_memory(slot);
            }
            Event::Close if self.stage == Stage::Transmitting => self.drain(),
            // Replies that wait are still sent.
            Event::Close => {
                self.shared.counters.negotiations_failed.add(1);
                self.drain();
            }
        }
    }

    fn on_negotiated(&mut self, negotiated: NegotiationResult) {
        self.shared.counters.negotiated.add(1);
        let listed = || Arc::clone(&self.shared.exports[negotiated.export_index]);
        self.export.get_or_insert_with(listed);
        self.outbox.set_codec(negotiated.codec);
        self.stage = Stage::Transmitting;
    }

    /// Begins a request, or returns the request if there is no room for it yet.
    fn admit(&mut self, waiting: WaitingRequest) -> Option<WaitingRequest> {
        let (echo, kind) = match &waiting {
            WaitingRequest::Refused { echo, .. } => (*echo, Kind::Other),
            WaitingRequest::Request(request) => {
                let kind = match request.command {
                    Command::Read { length, .. } => Kind::Read { length },
                    Command::Write { length, .. } => Kind::Write { length },
                    Command::BlockStatus { .. } => Kind::Describe,
                    _ => Kind::Other,
                };
                (request.echo(), kind)
            }
        };
        let budget = &self.shared.budget;
        let mut begun = self.outbox.begin(echo, kind, budget);
        let is_too_large = begun == BeginResult::TooLarge;
        if is_too_large {
            // A refused request needs only a slot for its answer.
            self.outbox.stop_waiting(budget);
            begun = self.outbox.begin(echo, Kind::Other, budget);
        }
        let BeginResult::Slot(slot, bytes) = begun else { return Some(waiting) };
        match waiting {
            WaitingRequest::Refused { refusal, .. } => {
                let ledger = Ledger::of(&self.shared);
                self.outbox.refuse(slot, refusal.error, refusal.reason, &ledger);
            }
            WaitingRequest::Request(Request { command, .. }) => match command {
                Command::Write { .. } => self.intake.open(slot, command, bytes),
                _ if is_too_large => self.refuse_memory(slot),
                _ => self.start(slot, command),
            },
        }
        None
    }

    fn refuse_memory(&mut self, slot: u32) {
        let ledger = Ledger::of(&self.shared);
        self.outbox.refuse(slot, ErrorCode::Memory, "the server has no memory for it", &ledger);
    }

    fn start(&mut self, slot: u32, command: Command) {
        let request = match command {
            Command::Read { offset, length, .. } => {
                let Ok(payload) = Payload::try_for_overwriting(length as usize) else {
                    return self.refuse_memory(slot);
                };
                ClientRequest::Read { offset, payload }
            }
            Command::Write { .. } => unreachable!("a write is opened before it is started"),
            Command::BlockStatus { offset, length, one } => {
                let extents_max = if one { 1 } else { EXTENTS_MAX };
                return self.tasks.push(Task::Describe { slot, offset, length, extents_max });
            }
            Command::Flush => ClientRequest::Flush,
            Command::Trim { .. } | Command::WriteZeroes { .. } => {
                return self.begin_stretches(slot, command);
            }
            Command::Cache { .. } => {
                let (done, ledger) =
                    (Outcome { result: Ok(()), payload: None }, Ledger::of(&self.shared));
                return self.outbox.finish(slot, done, &ledger);
            }
        };
        self.tasks.push(Task::Submit { slot, request });
    }

    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    pub(crate) fn take_tasks(&mut self, tasks: &mut Vec<Task>) {
        assert!(tasks.is_empty(), "what was taken before has been done");
        std::mem::swap(&mut self.tasks, tasks);
    }

    fn begin_stretches(&mut self, slot: u32, command: Command) {
        let export = self.export.as_ref().expect("requests come after negotiation");
        if let Command::WriteZeroes { offset, length, fast: true, .. } = command
            && length > export.stretch_bytes()
            && !export.zeroes_fast(offset, length)
        {
            let (error, ledger) = (ErrorCode::Unsupported, Ledger::of(&self.shared));
            return self.outbox.refuse(slot, error, "it would not be fast", &ledger);
        }
        self.next_stretch(slot, command);
    }

    fn next_stretch(&mut self, slot: u32, command: Command) {
        let export = self.export.as_ref().expect("requests come after negotiation");
        let (request, rest) = stretch::first(command, export.stretch_bytes());
        self.outbox.set_rest(slot, rest);
        self.tasks.push(Task::Submit { slot, request });
    }

    pub(crate) fn finished(&mut self, slot: u32, outcome: Outcome) {
        if outcome.result.is_ok()
            && !self.is_closed()
            && let Some(rest) = self.outbox.take_rest(slot)
        {
            if self.is_forsaken || self.shared.stopping.load(Ordering::Acquire) {
                let ledger = Ledger::of(&self.shared);
                let reason = "the server is being shut down, and the rest is left";
                return self.outbox.refuse(slot, ErrorCode::Shutdown, reason, &ledger);
            }
            return self.next_stretch(slot, rest);
        }
        self.outbox.finish(slot, outcome, &Ledger::of(&self.shared));
    }

    pub(crate) fn described(&mut self, slot: u32, extents: &[Extent], asked: (u64, usize)) {
        self.outbox.describe(slot, extents, asked, &Ledger::of(&self.shared));
    }

    /// Memory for the next receive; `None` while the memory is lent, or while the connection wants
    /// no bytes.
    pub(crate) fn receive(&mut self) -> Option<ReceiveBuffers> {
        let receive = match self.stage {
            // While a client does not read its answers, the connection receives no more options.
            Stage::Negotiating { .. } if self.outbox.is_quiet() => self.intake.receive(),
            Stage::Transmitting if self.waiting.is_none() && !self.outbox.waits_for_memory() => {
                self.intake.receive()
            }
            Stage::Ending { .. } => self.intake.receive_waste(),
            _ => None,
        };
        if let Some(receive) = &receive {
            self.progress.begin_receive(receive.is_in_payload());
        }
        receive
    }

    /// Handles the result of a receive; 0 bytes mean the end of the stream.
    pub(crate) fn received(&mut self, receive: ReceiveBuffers, result: io::Result<usize>) {
        let bytes = result.unwrap_or(0);
        let was_in_payload = self.progress.end_receive();
        match self.stage {
            Stage::Negotiating { .. } | Stage::Transmitting if bytes > 0 => {
                self.progress.moved(bytes, was_in_payload && receive.is_short_of(bytes));
                self.intake.received(receive, bytes);
                if self.stage_deadline().is_some() {
                    self.shared.registry.note_active(self.id);
                }
                return;
            }
            _ => {}
        }
        if let Some(slot) = self.intake.waste(receive) {
            self.give_up_write(slot);
        }
        match self.stage {
            Stage::Transmitting => {
                self.is_forsaken = true;
                self.drain();
            }
            Stage::Negotiating { .. } => self.close(),
            Stage::Ending { .. } if bytes == 0 => self.close(),
            Stage::Draining | Stage::Ending { .. } | Stage::Closed => {}
        }
    }

    pub(crate) fn has_batch(&self) -> bool {
        !self.is_closed() && self.outbox.has_batch()
    }

    /// Whether the connection waits for memory, and so would not notice that its client is gone.
    pub(crate) fn waits_for_memory(&self) -> bool {
        self.outbox.waits_for_memory()
    }

    pub(crate) fn batch(&mut self) -> Option<Batch> {
        if self.is_closed() {
            return None;
        }
        let batch = self.outbox.batch()?;
        self.progress.begin_send();
        Some(batch)
    }

    /// Notes that a part of a batch is sent, and that the transport sends the rest.
    pub(crate) fn goes_on_sending(&mut self) {
        self.progress.begin_send();
    }

    /// Takes back a batch after its sending succeeded or failed.
    pub(crate) fn sent(&mut self, batch: Batch, result: io::Result<()>) {
        self.progress.end_send();
        self.outbox.sent(batch, result.is_ok(), &self.shared.budget);
        if result.is_err() {
            // The client is gone: its requests still finish, and their replies are dropped.
            self.close();
        }
    }

    /// Whether the transport must end the sending direction now; true only once.
    pub(crate) fn takes_end_of_sending(&mut self) -> bool {
        std::mem::take(&mut self.ends_sending)
    }
}

impl<'a> Ledger<'a> {
    fn of(shared: &'a Shared) -> Self {
        Self { counters: &shared.counters, budget: &shared.budget }
    }
}

fn describe(export: &dyn Export, request_bytes_max: usize) -> ExportDescription {
    ExportDescription {
        name: export.name().to_owned(),
        is_withdrawn: export.is_withdrawn(),
        description: export.description(),
        size_bytes: export.size_bytes(),
        read_only: export.read_only(),
        multi_conn: true, // an export promises that Flush covers all connections
        block_sizes: within(export.block_sizes(), request_bytes_max),
    }
}

fn within(sizes: BlockSizes, request_bytes_max: usize) -> BlockSizes {
    let minimum = sizes.minimum_bytes();
    let most = u32::try_from(request_bytes_max).unwrap_or(u32::MAX).max(minimum).max(512);
    let maximum = sizes.maximum_bytes().min(most - most % minimum);
    // If the preferred size does not fit, uses the largest power of two that does.
    let preferred = sizes.preferred_bytes().min(1 << maximum.ilog2());
    BlockSizes::new(minimum, preferred, maximum).expect("no rule is broken by lower numbers")
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
