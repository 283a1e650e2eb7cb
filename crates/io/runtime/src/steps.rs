//! A client's request, step by step: the shards get one step, and the next step begins at its end.
//!
//! Place in the flow: below the loop ([`crate::drive`]). The loop calls this file with the
//! machines' answers. Each call notes in `machines` the machines that got events, and the loop
//! drives them.
//! ```text
//!   Volume ─▶ start ─▶ admitted? ─▶ step ─▶ request ─▶ pieces ─▶ shards
//!                                    ▲                             │
//!                                    └──── complete ◀── replies ───┘
//!                                             └─ no step left ─▶ the client gets the outcome
//! ```
//! No thread waits. A client's remaining steps are kept with the engine's request that the current
//! step became. The thread that carries out the last reply to the current step begins the next
//! step.

use std::collections::VecDeque;
use std::ops::Range;

use braid_engine::array::{BorderChange, MovedPiece};
use braid_engine::effect::PieceReply;
use braid_engine::request::{ByteRequest, Fault, Next, Operation, Request, RequestId, Split, Step};
use braid_engine::reshape::{BorderTicket, UnreadableSearch, fill_lost};
use braid_geometry::{LogicalSector, SECTOR_BYTES};
use braid_ondisk::CopiedWindow;
use braid_ring::Payload;

use crate::border::{AdmittedRequest, BorderGate, BorderTurn, Entry, HeldRequest};
use crate::core::Core;
use crate::events::{ArrayEvent, Machine, ShardEvent};
use crate::log;
use crate::pending_request::{
    Client, PartialRead, PendingRequest, ReshapeRead, Resumption, zeroed,
};
use crate::requests;
use crate::sync::Arc;
use braid_ring::client::{Outcome, RequestError};

type Machines = VecDeque<Machine>;

impl Core {
    pub(crate) fn tell(&self, client: Client, outcome: Outcome) {
        if client.is_urgent {
            self.turns.appease();
        }
        if let Some(began) = client.began {
            self.pacing.ended(&self.clock, began);
        }
        client.tell(outcome);
        self.clients.in_flight.leave();
    }

    /// Notes that a client's timed request has begun, and wakes the array if the request ends a
    /// silence.
    pub(crate) fn note_client(&self, machines: &mut Machines) {
        if self.pacing.ends_silence() {
            self.array.push(ArrayEvent::Pace);
            machines.push_back(Machine::Array);
        }
    }

    /// Begins a request that passed its checks.
    pub(crate) fn start(
        &self,
        request: &ByteRequest,
        payload: Option<Payload>,
        client: Client,
        machines: &mut Machines,
    ) {
        let request = PendingRequest::new(request, payload, client);
        let request = match request.admitted {
            Some(mode) => self.clients.write_admission.enter(mode, request),
            None => Some(request),
        };
        if let Some(request) = request {
            self.advance(request, Ok(()), machines);
        }
    }

    /// The previous step ended with `result`: begins the next step, or answers the client.
    fn advance(
        &self,
        mut request: PendingRequest,
        result: Result<(), RequestError>,
        machines: &mut Machines,
    ) {
        match request.plan.next(result) {
            Next::Answer(result) => {
                self.leave(&mut request, machines);
                self.tell(request.client, Outcome { result, payload: request.payload });
            }
            Next::Step(Step::Whole { operation, start, sectors }) => {
                let payload = request.payload.take();
                let completion = Resumption::Whole(request);
                self.issue((start, sectors), operation, (payload, completion), machines);
            }
            Next::Step(Step::Fetch { patch, start, sectors }) => {
                if request.is_read() {
                    // The sectors that were read become the payload, so that a long read needs
                    // memory only once.
                    request.payload = None;
                }
                let Ok(fetched) = zeroed(sectors) else {
                    return self.advance(request, Err(RequestError::NoMemory), machines);
                };
                let range = (start, sectors);
                let completion = Resumption::Fetched(request, patch, range);
                self.issue(range, Operation::Read, (Some(fetched), completion), machines);
            }
            Next::Step(Step::Take { patch }) => {
                request.payload.as_mut().expect("what was fetched").cut(patch.middle());
                self.advance(request, Ok(()), machines);
            }
            Next::Step(Step::Store { patch, durable }) => {
                if request.lay_over(&patch).is_err() {
                    return self.advance(request, Err(RequestError::NoMemory), machines);
                }
                let around = Some(request.take_around());
                let (range, operation) =
                    ((patch.start, patch.sectors), Operation::Write { durable });
                self.issue(range, operation, (around, Resumption::Stored(request)), machines);
            }
            Next::Step(Step::Flush) => {
                self.leave(&mut request, machines);
                self.flush(Resumption::Flushed(request), machines);
            }
        }
    }

    /// Resumes the continuation of a request.
    fn complete(
        &self,
        completion: Resumption,
        result: Result<(), Fault>,
        payload: Option<Payload>,
        machines: &mut Machines,
    ) {
        let fault = result.err();
        let result = result.map_err(error);
        match completion {
            Resumption::WindowRead(start) => {
                let bytes = payload.expect("what was read");
                self.was_read(ReshapeRead::Window, start, bytes, (fault, machines));
            }
            Resumption::PieceRead(piece) => {
                let bytes = payload.expect("what was read");
                self.was_read(ReshapeRead::Piece(piece), piece.start, bytes, (fault, machines));
            }
            Resumption::PartRead(read) => self.part_was_read(read, payload, fault, machines),
            Resumption::PieceWritten(start, lost) => {
                self.piece_moved(start, fault.map_or(Ok(lost), Err), machines);
            }
            Resumption::Whole(mut request) => {
                request.payload = payload;
                self.advance(request, result, machines);
            }
            Resumption::Fetched(mut request, _, _) if request.is_read() => {
                request.payload = payload;
                self.advance(request, result, machines);
            }
            Resumption::Fetched(mut request, patch, (start, sectors)) => {
                let mut result = result;
                if let (Ok(()), Some(fetched)) = (result, &payload) {
                    result = request.around(&patch).map(|around| {
                        around[patch.place(start, sectors)].copy_from_slice(fetched);
                    });
                }
                drop(payload);
                self.advance(request, result, machines);
            }
            Resumption::Stored(request) | Resumption::Flushed(request) => {
                self.advance(request, result, machines);
            }
            Resumption::Flush(client) => self.tell(client, Outcome { result, payload }),
        }
    }

    pub(crate) fn flush(&self, completion: Resumption, machines: &mut Machines) {
        let id = self.clients.requests.name();
        drop(self.clients.requests.insert(id, None, None, completion));
        self.array.push(ArrayEvent::FlushRequest(id));
        machines.push_back(Machine::Array);
    }

    /// Ends a request's write admission, and begins the held requests that may begin now.
    fn leave(&self, request: &mut PendingRequest, machines: &mut Machines) {
        if let Some(mode) = request.admitted.take() {
            let admission = &self.clients.write_admission;
            admission.leave(mode, |next| self.advance(next, Ok(()), machines));
        }
    }

    /// Gives a request in whole sectors to the shards.
    fn issue(
        &self,
        (start, sectors): (LogicalSector, u64),
        operation: Operation,
        (payload, completion): (Option<Payload>, Resumption),
        machines: &mut Machines,
    ) {
        let id = self.clients.requests.name();
        let request = Request { id, operation, start, sectors };
        if let Some(border) = &self.clients.border {
            let held = HeldRequest { request, payload, completion };
            if let Some(entry) = border.enter(held) {
                self.begin_at_border(entry, machines);
            }
            return;
        }
        let pieces = self.clients.regions.split(&request);
        self.hand_in(id, pieces, (payload, completion), None, machines);
    }

    fn hand_in(
        &self,
        id: RequestId,
        pieces: Split,
        (payload, completion): (Option<Payload>, Resumption),
        ticket: Option<BorderTicket>,
        machines: &mut Machines,
    ) {
        let request = self.clients.requests.insert(id, Some(pieces), payload, completion);
        if let Some(ticket) = ticket {
            request.note_ticket(ticket);
        }
        let answer = self.hand_out(&request, machines);
        assert!(answer.is_none(), "a request that is not empty has a piece to wait for");
    }

    fn begin_at_border(&self, entry: Entry, machines: &mut Machines) {
        match entry {
            Entry::Admitted(AdmittedRequest { held, pieces, ticket }) => {
                let HeldRequest { request, payload, completion } = held;
                self.hand_in(request.id, pieces, (payload, completion), Some(ticket), machines);
            }
            Entry::Failed(HeldRequest { payload, completion, .. }) => {
                self.complete(completion, Err(Fault::Unreadable), payload, machines);
            }
            Entry::Held(_) => unreachable!("the gate keeps what is held"),
        }
    }

    /// Moves the border of a reshape.
    pub(crate) fn turn_border(&self, change: BorderChange) -> BorderTurn {
        self.clients.border.as_ref().expect("only a reshape has a border").turn(change)
    }

    /// Begins the requests that the border held.
    pub(crate) fn begin_after(&self, turn: BorderTurn, machines: &mut Machines) {
        let BorderTurn { entries, is_passed } = turn;
        entries.into_iter().for_each(|one| self.begin_at_border(one, machines));
        if is_passed {
            self.border_is_passed(machines);
        }
    }

    fn border_is_passed(&self, machines: &mut Machines) {
        self.array.push(ArrayEvent::BorderPassed);
        machines.push_back(Machine::Array);
    }

    /// Moves a piece of the array to the new shape: reads it from the old shape, then writes it.
    /// Sectors that the old shape does not have become zeroes.
    pub(crate) fn move_piece(&self, piece: MovedPiece, machines: &mut Machines) {
        let MovedPiece { start, moved_sectors, zeroed_sectors, is_copied } = piece;
        if is_copied && moved_sectors > 0 {
            match self.copied(start, moved_sectors) {
                Some((payload, lost)) => self.write_piece(piece, payload, &lost, machines),
                None => self.piece_moved(start, Err(Fault::NoSpace), machines),
            }
        } else if moved_sectors > 0 {
            let Ok(payload) = zeroed(moved_sectors) else {
                return self.piece_moved(start, Err(Fault::NoSpace), machines);
            };
            let completion = Resumption::PieceRead(piece);
            let range = (start, moved_sectors);
            self.issue_on_side(false, range, Operation::Read, (Some(payload), completion), machines)
        } else {
            let operation = Operation::WriteZeroes { may_punch: true, durable: false };
            let completion = Resumption::PieceWritten(start, Vec::new());
            let range = (start, zeroed_sectors);
            self.issue_on_side(true, range, operation, (None, completion), machines);
        }
    }

    /// Copies a window of the old shape: reads it, then writes the copy durably. The array waits.
    pub(crate) fn copy_window(&self, (start, sectors): (u64, u64), machines: &mut Machines) {
        let Ok(payload) = zeroed(sectors) else {
            return self.window_kept(Err(Fault::NoSpace), machines);
        };
        let continuation = (Some(payload), Resumption::WindowRead(start));
        self.issue_on_side(false, (start, sectors), Operation::Read, continuation, machines);
    }

    /// Handles the result of a read in the old shape. If the read failed, finds the sectors that no
    /// member can give.
    fn was_read(
        &self,
        purpose: ReshapeRead,
        start: u64,
        bytes: Payload,
        (fault, machines): (Option<Fault>, &mut Machines),
    ) {
        match fault {
            None => self.use_read(purpose, (start, bytes), Vec::new(), machines),
            Some(Fault::Unreadable) => {
                let end = start + bytes.len() as u64 / SECTOR_BYTES;
                let search = UnreadableSearch::of(start..end);
                let read = PartialRead { purpose, search, part: 0..0, start, bytes };
                self.read_next_part(Box::new(read), machines);
            }
            Some(fault) => self.read_failed(purpose, fault, machines),
        }
    }

    fn part_was_read(
        &self,
        mut read: Box<PartialRead>,
        payload: Option<Payload>,
        fault: Option<Fault>,
        machines: &mut Machines,
    ) {
        if let Some(fault) = fault.filter(|fault| *fault != Fault::Unreadable) {
            return self.read_failed(read.purpose, fault, machines);
        }
        if fault.is_none() {
            let payload = payload.expect("what was read");
            let offset = (read.part.start - read.start) * SECTOR_BYTES;
            let offset = usize::try_from(offset).expect("in memory");
            read.bytes[offset..offset + payload.len()].copy_from_slice(&payload);
        }
        let part = read.part.clone();
        read.search.ended(part, fault.is_none());
        self.read_next_part(read, machines);
    }

    fn read_next_part(&self, mut read: Box<PartialRead>, machines: &mut Machines) {
        let Some(part) = read.search.next_part() else {
            let PartialRead { purpose, search, start, bytes, .. } = *read;
            return match search.lost() {
                Some(lost) => self.use_read(purpose, (start, bytes), lost, machines),
                None => self.read_failed(purpose, Fault::Unreadable, machines),
            };
        };
        let range = (part.start, part.end - part.start);
        let Ok(payload) = zeroed(range.1) else {
            return self.read_failed(read.purpose, Fault::NoSpace, machines);
        };
        read.part = part;
        let continuation = (Some(payload), Resumption::PartRead(read));
        self.issue_on_side(false, range, Operation::Read, continuation, machines);
    }

    fn use_read(
        &self,
        purpose: ReshapeRead,
        (start, bytes): (u64, Payload),
        lost: Vec<Range<u64>>,
        machines: &mut Machines,
    ) {
        match purpose {
            ReshapeRead::Window => self.keep_window(start, &bytes, lost, machines),
            ReshapeRead::Piece(piece) => self.write_piece(piece, bytes, &lost, machines),
        }
    }

    fn read_failed(&self, purpose: ReshapeRead, fault: Fault, machines: &mut Machines) {
        match purpose {
            ReshapeRead::Window => self.window_kept(Err(fault), machines),
            ReshapeRead::Piece(piece) => self.piece_moved(piece.start, Err(fault), machines),
        }
    }

    fn window_kept(&self, result: Result<(), Fault>, machines: &mut Machines) {
        self.array.push(ArrayEvent::Kept(result));
        machines.push_back(Machine::Array);
    }

    fn keep_window(
        &self,
        start: u64,
        bytes: &[u8],
        lost: Vec<Range<u64>>,
        machines: &mut Machines,
    ) {
        let sectors = start..start + bytes.len() as u64 / SECTOR_BYTES;
        let window = CopiedWindow { sectors, bytes: bytes.to_vec(), lost };
        if window.lost.is_empty() {
            let kept = self.keep_copy(window);
            return self.window_kept(kept, machines);
        }
        // The array decides before the copy is kept: a window with a valid copy moves in any case.
        self.array.push(ArrayEvent::LossyWindow(window));
        machines.push_back(Machine::Array);
    }

    /// Keeps the copy of a window durably.
    pub(crate) fn keep_copy(&self, window: CopiedWindow) -> Result<(), Fault> {
        let copy = self.window_copy.as_ref().ok_or(Fault::NoSpace)?;
        // The copied window begins or ends at the border, so the file records the border's position
        // with the window.
        let position = self.clients.border.as_ref().map_or(0, BorderGate::position);
        let point = self.reshape_point.map(|point| point.moved_to(position));
        let point = point.expect("a window has a reshape");
        let kept = copy.keep(&window, point).map_err(|error| {
            log::no_window_copy(&error);
            Fault::NoSpace
        });
        *self.copied_window.lock().expect("keeping does not panic") = Some(window);
        kept
    }

    /// Sectors of the window of which the driver has a valid copy, and the lost sectors of the
    /// whole window. `None` if the copy does not hold the sectors.
    fn copied(&self, start: u64, sectors: u64) -> Option<(Payload, Vec<Range<u64>>)> {
        let copied = self.copied_window.lock().expect("looking does not panic");
        let window = copied.as_ref()?;
        let offset = usize::try_from((start - window.sectors.start) * SECTOR_BYTES).ok()?;
        let mut payload = zeroed(sectors).ok()?;
        let length = payload.len();
        payload.copy_from_slice(window.bytes.get(offset..offset + length)?);
        Some((payload, window.lost.clone()))
    }

    fn issue_on_side(
        &self,
        is_after: bool,
        (start, sectors): (u64, u64),
        operation: Operation,
        continuation: (Option<Payload>, Resumption),
        machines: &mut Machines,
    ) {
        let border = self.clients.border.as_ref().expect("only a reshape has two shapes");
        let id = self.clients.requests.name();
        let start = LogicalSector(start);
        let pieces = border.on_side(is_after).split(&Request { id, operation, start, sectors });
        self.hand_in(id, pieces, continuation, None, machines);
    }

    fn write_piece(
        &self,
        piece: MovedPiece,
        mut read: Payload,
        lost: &[Range<u64>],
        machines: &mut Machines,
    ) {
        let MovedPiece { start, moved_sectors, zeroed_sectors, .. } = piece;
        let lost = fill_lost(&mut read, start, lost);
        let sectors = moved_sectors + zeroed_sectors;
        let written = match zeroed_sectors {
            0 => Ok(read),
            _ => zeroed(sectors).map(|mut whole| {
                whole[..read.len()].copy_from_slice(&read);
                whole
            }),
        };
        let Ok(written) = written else {
            return self.piece_moved(start, Err(Fault::NoSpace), machines);
        };
        let operation = Operation::Write { durable: false };
        let continuation = (Some(written), Resumption::PieceWritten(start, lost));
        self.issue_on_side(true, (start, sectors), operation, continuation, machines);
    }

    fn piece_moved(
        &self,
        start: u64,
        result: Result<Vec<Range<u64>>, Fault>,
        machines: &mut Machines,
    ) {
        self.array.push(ArrayEvent::Moved(start, result));
        machines.push_back(Machine::Array);
    }

    /// Hands out a request's next pieces; returns its answer if no piece is left to wait for.
    fn hand_out(
        &self,
        request: &requests::Request,
        machines: &mut Machines,
    ) -> Option<Result<(), Fault>> {
        request.cut(|index, piece| {
            self.shard(index).combiner.push(ShardEvent::Piece(piece));
            if !machines.contains(&Machine::Shard(index)) {
                machines.push_back(Machine::Shard(index));
            }
        })
    }

    pub(crate) fn reply(&self, reply: &PieceReply, machines: &mut Machines) {
        let request = self.clients.requests.get(reply.request);
        reply.cause.into_iter().for_each(|cause| request.note_cause(cause));
        let answer = request.reply(reply.result, (reply.keeps_payload, reply.leaves_payload));
        let answer = answer.or_else(|| self.hand_out(&request, machines));
        if let Some(answer) = answer {
            self.finish(reply.request, request, answer, machines);
        }
    }

    /// Handles the answer to a request in whole sectors, or to a flush.
    pub(crate) fn finish(
        &self,
        id: RequestId,
        request: Arc<requests::Request>,
        answer: Result<(), Fault>,
        machines: &mut Machines,
    ) {
        if let Err(fault) = answer {
            let why = (fault, request.cause());
            let members = self.members.load();
            self.clients.failures.failed(self.clock.now(), &members, request.asked(), why);
        }
        let ticket = self.clients.border.as_ref().zip(request.take_ticket());
        let (completion, payload) = self.clients.requests.finish(id, request, answer);
        if ticket.is_some_and(|(border, ticket)| border.leave(ticket)) {
            self.border_is_passed(machines);
        }
        self.complete(completion, answer, payload, machines);
    }
}

fn error(fault: Fault) -> RequestError {
    match fault {
        Fault::ReadOnly => RequestError::ReadOnly,
        Fault::NoSpace => RequestError::NoSpace,
        Fault::Unreadable | Fault::Lost | Fault::Unwritable => RequestError::Io(fault.words()),
    }
}
