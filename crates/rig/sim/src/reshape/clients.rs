//! Clients, and the part of the runtime between them and the machines: the border's gate, requests
//! in pieces, and the pieces of the array that move.
//!
//! Each read is checked against the model at its answer.

use std::ops::Range;

use braid_engine::array::{BorderChange, MovedPiece, WindowAccess};
use braid_engine::effect::PieceReply;
use braid_engine::request::{Fault, Operation, Progress, Regions, Request, RequestId};
use braid_engine::reshape::{BorderTicket, UnreadableSearch, fill_lost};
use braid_geometry::LogicalSector;

use super::requests::{Flight, Held, Purpose, Refused, Task};
use super::strip::Strip;
use super::world::{Event, Running, World};
use crate::content::{SECTOR, Version, ZEROES, bytes, fill};
use crate::memory::Payload;
use crate::model::End;

/// Longest request of a client, in sectors.
const SECTORS_MAX: u64 = 60;

impl Running {
    /// A shard keeps a payload no longer.
    pub(super) fn release(&mut self, request: RequestId) {
        let count = self.kept.get_mut(&request).expect("it was kept");
        *count -= 1;
        if *count == 0 {
            self.kept.remove(&request);
            if !self.flights.contains_key(&request) {
                self.payloads.remove(&request);
            }
        }
    }

    /// Whether a client's write of this sector is in flight.
    pub(super) fn is_written(&self, sector: u64) -> bool {
        self.writes_in_flight(&(sector..sector + 1))
    }

    /// Whether a client's write of some of these sectors is in flight.
    fn writes_in_flight(&self, range: &Range<u64>) -> bool {
        self.flights.values().any(|flight| {
            let Request { operation, start, sectors, .. } = flight.request;
            let is_clients = matches!(flight.purpose, Purpose::Client | Purpose::Heal);
            let touches = start.0 < range.end && range.start < start.0 + sectors;
            is_clients && operation.is_write() && touches
        })
    }

    fn oldest_read(&self) -> u64 {
        let reads = self.flights.values().filter(|flight| !flight.request.operation.is_write());
        let held = self.gate.waiting.iter().filter(|held| !held.request.operation.is_write());
        reads.map(|one| one.began).chain(held.map(|one| one.began)).min().unwrap_or(u64::MAX)
    }
}

impl World {
    fn name(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// A client submits a request: any operation, on any sectors of the array.
    pub(super) fn issue_any(&mut self, run: &mut Running) {
        if self.random.chance(6) {
            return self.flush(run);
        }
        let size = self.size();
        let sectors = 1 + self.random.below(SECTORS_MAX.min(size));
        let start = self.random.below(size - sectors + 1);
        let durable = self.random.chance(20);
        let operation = match self.random.below(20) {
            0..9 => Operation::Read,
            9..18 => Operation::Write { durable },
            _ => Operation::WriteZeroes { may_punch: self.random.chance(50), durable },
        };
        self.issue(run, operation, (start, sectors), Purpose::Client);
    }

    pub(super) fn issue(
        &mut self,
        run: &mut Running,
        operation: Operation,
        (start, sectors): (u64, u64),
        purpose: Purpose,
    ) {
        run.issued += 1;
        self.tally.requests += 1;
        let id = self.name();
        let payload = match operation {
            Operation::Write { .. } => {
                let mut data = vec![0; sectors as usize * SECTOR];
                for (sector, out) in (start..).zip(data.chunks_exact_mut(SECTOR)) {
                    fill(id.0 as Version, sector, out);
                }
                self.model.begin((start, sectors), id.0, id.0 as Version);
                Some(data)
            }
            Operation::WriteZeroes { .. } | Operation::Trim => {
                self.model.begin((start, sectors), id.0, ZEROES);
                None
            }
            Operation::Read => Some(vec![0x77; sectors as usize * SECTOR]),
        };
        let request = Request { id, operation, start: LogicalSector(start), sectors };
        self.enter(run, Held { request, payload, began: self.step, purpose });
    }

    /// Begins a request, or leaves it at the border.
    fn enter(&mut self, run: &mut Running, held: Held) {
        match run.gate.enter(&held.request) {
            Ok(ticket) => {
                let regions = run.gate.regions;
                self.begin(run, held, (regions, ticket));
            }
            Err(Refused::Held) => {
                self.tally.count("held-at-the-border");
                run.gate.waiting.push_back(held);
            }
            Err(Refused::Failed) => self.fail_at_border(&held),
        }
    }

    /// A request to a closed window fails and changes nothing.
    fn fail_at_border(&mut self, held: &Held) {
        let Request { id, operation, start, sectors } = held.request;
        let touches =
            |closed: &Range<u64>| start.0 < closed.end && closed.start < start.0 + sectors;
        assert!(self.closed.as_ref().is_some_and(touches), "only a window in place is closed");
        self.tally.count("failed-at-the-border");
        if operation.is_write() {
            self.model.end((start.0, sectors), id.0, (held.began, self.step), End::Unsure);
        }
    }

    fn begin(
        &mut self,
        run: &mut Running,
        held: Held,
        (regions, ticket): (Regions, Option<BorderTicket>),
    ) {
        let Held { request, payload, began, purpose } = held;
        if let Some(data) = payload {
            let is_read = request.operation == Operation::Read;
            run.payloads.insert(request.id, Payload::new(data, is_read));
        }
        let mut progress = Progress::default();
        for (shard, piece) in regions.split(&request) {
            progress.issue();
            run.push(Event::Piece { shard: usize::from(shard.0), piece });
        }
        assert_eq!(progress.issued_all(), None, "no piece has been answered yet");
        run.flights.insert(request.id, Flight { request, progress, began, purpose, ticket });
    }

    fn flush(&mut self, run: &mut Running) {
        let id = self.name();
        run.flushes.insert(id, self.step);
        run.machines.array.handle_flush_request(self.now, id);
        self.drain_array(run);
    }

    pub(super) fn flushed(
        &mut self,
        run: &mut Running,
        request: RequestId,
        result: Result<(), Fault>,
    ) {
        let asked = run.flushes.remove(&request).expect("a client flushed");
        assert_eq!(result, Ok(()), "a flush fails");
        self.model.flushed(asked, run.oldest_read());
    }

    pub(super) fn carry_out(&mut self, run: &mut Running, task: Task) {
        match task {
            Task::Border(BorderChange { position, window }) => {
                let gate = &mut run.gate;
                gate.regions = gate.regions.with_border(position);
                let border = gate.border.as_mut().expect("a reshape has a border");
                border.release();
                self.closed = None;
                if let Some((sectors, WindowAccess::Fails)) = &window {
                    border.fail(sectors.clone());
                    self.closed = Some(sectors.clone());
                    self.tally.count("window-closed");
                }
                let gate = &mut run.gate;
                for one in std::mem::take(&mut gate.waiting) {
                    self.enter(run, one);
                }
                let window = window.filter(|(_, access)| *access != WindowAccess::Fails);
                let Some((sectors, access)) = window else { return };
                let border = run.gate.border.as_mut().expect("a reshape has a border");
                border.hold(sectors, access == WindowAccess::AllWait);
                if border.is_passed() {
                    run.push(Event::BorderPassed);
                }
            }
            Task::Keep(start, sectors) => self.copy_window(run, (start, sectors)),
            Task::Move(piece) => {
                let MovedPiece { start, moved_sectors, zeroed_sectors, is_copied } = piece;
                if self.plan.short_of_memory > 0 && self.random.chance(20) {
                    self.plan.short_of_memory -= 1;
                    run.push(Event::Moved { start, result: Err(Fault::NoSpace) });
                    return;
                }
                if is_copied && moved_sectors > 0 {
                    self.move_copied(run, piece);
                } else if moved_sectors > 0 {
                    let purpose = Purpose::PieceRead(piece);
                    let payload = vec![0x66; moved_sectors as usize * SECTOR];
                    let range = (start, moved_sectors);
                    self.move_on(run, (false, Operation::Read), range, Some(payload), purpose);
                } else {
                    let operation = Operation::WriteZeroes { may_punch: true, durable: false };
                    let purpose = Purpose::PieceWritten(start, Vec::new());
                    self.move_on(run, (true, operation), (start, zeroed_sectors), None, purpose);
                }
            }
        }
    }

    pub(super) fn move_on(
        &mut self,
        run: &mut Running,
        (is_after, operation): (bool, Operation),
        (start, sectors): (u64, u64),
        payload: Option<Vec<u8>>,
        purpose: Purpose,
    ) {
        let id = self.name();
        let request = Request { id, operation, start: LogicalSector(start), sectors };
        let held = Held { request, payload, began: self.step, purpose };
        let regions = run.gate.regions.on_side(is_after);
        self.begin(run, held, (regions, None));
    }

    pub(super) fn replied(&mut self, run: &mut Running, reply: &PieceReply) {
        let flight = run.flights.get_mut(&reply.request).expect("it is in flight");
        let Some(result) = flight.progress.reply(reply.result) else { return };
        let flight = run.flights.remove(&reply.request).expect("it is in flight");
        run.payloads.join(reply.request);
        let data = run.payloads.get(&reply.request).map(|payload| payload.data.clone());
        if !run.kept.contains_key(&reply.request) {
            run.payloads.remove(&reply.request);
        }
        if let (Some(border), Some(ticket)) = (&mut run.gate.border, flight.ticket)
            && border.leave(ticket)
        {
            run.push(Event::BorderPassed);
        }
        let Request { start, sectors, .. } = flight.request;
        if matches!(flight.purpose, Purpose::ReadAll) && result.is_err() && sectors > 1 {
            // The read is repeated in halves, to find the sectors that fail.
            let half = sectors / 2;
            self.issue(run, Operation::Read, (start.0, half), Purpose::ReadAll);
            let rest = (start.0 + half, sectors - half);
            return self.issue(run, Operation::Read, rest, Purpose::ReadAll);
        }
        match flight.purpose {
            Purpose::Client | Purpose::Heal | Purpose::ReadAll => {
                let range = flight.request.start.0..flight.request.start.0 + flight.request.sectors;
                let is_written = run.writes_in_flight(&range);
                self.answered(&flight, (result, is_written), data);
            }
            Purpose::PieceRead(piece) => {
                let data = data.expect("a read has a payload");
                match result {
                    Ok(()) => self.write_piece(run, piece, data, &[]),
                    Err(Fault::Unreadable) => {
                        let end = piece.start + piece.moved_sectors;
                        let search = UnreadableSearch::of(piece.start..end);
                        self.read_next_part(run, piece, search, data);
                    }
                    Err(fault) => run.push(Event::Moved { start: piece.start, result: Err(fault) }),
                }
            }
            Purpose::PartRead(piece, mut search, part, mut whole) => {
                if result.is_ok() {
                    let data = data.expect("a read has a payload");
                    let at = bytes(part.start - piece.start, part.end - part.start);
                    whole[at].copy_from_slice(&data);
                }
                search.ended(part, result.is_ok());
                self.read_next_part(run, piece, search, whole);
            }
            Purpose::WindowRead(start) => {
                let data = data.expect("a read has a payload");
                self.window_was_read(run, start, (result, data));
            }
            Purpose::WindowPartRead(start, search, whole) => {
                let data = data.expect("a read has a payload");
                let whole = (flight.request, (start, search, whole));
                self.window_part_was_read(run, whole, (result, data));
            }
            Purpose::PieceWritten(start, lost) => {
                run.push(Event::Moved { start, result: result.map(|()| lost) });
            }
        }
    }

    fn read_next_part(
        &mut self,
        run: &mut Running,
        piece: MovedPiece,
        mut search: UnreadableSearch,
        whole: Vec<u8>,
    ) {
        let Some(part) = search.next_part() else {
            let lost = search.lost().expect("arrays are small");
            return self.write_piece(run, piece, whole, &lost);
        };
        let range = (part.start, part.end - part.start);
        let payload = vec![0x55; range.1 as usize * SECTOR];
        let purpose = Purpose::PartRead(piece, search, part, whole);
        self.move_on(run, (false, Operation::Read), range, Some(payload), purpose);
    }

    pub(super) fn write_piece(
        &mut self,
        run: &mut Running,
        piece: MovedPiece,
        mut data: Vec<u8>,
        lost: &[Range<u64>],
    ) {
        let MovedPiece { start, moved_sectors, zeroed_sectors, .. } = piece;
        let lost = fill_lost(&mut data, start, lost);
        let sectors = moved_sectors + zeroed_sectors;
        data.resize(sectors as usize * SECTOR, 0);
        let operation = Operation::Write { durable: false };
        let purpose = Purpose::PieceWritten(start, lost);
        self.move_on(run, (true, operation), (start, sectors), Some(data), purpose);
    }

    /// Checks an answer to a client. `is_written`: a write of these sectors is in flight.
    fn answered(
        &mut self,
        flight: &Flight,
        (result, is_written): (Result<(), Fault>, bool),
        data: Option<Vec<u8>>,
    ) {
        let Flight { request, began, .. } = *flight;
        let Request { id, operation, start, sectors } = request;
        let (range, now) = ((start.0, sectors), self.step);
        match operation {
            Operation::Read => {
                let range = start.0..start.0 + sectors;
                if result.is_err() {
                    let may_fail = self.may_fail().any(|sector| range.contains(&sector));
                    assert!(may_fail, "a read of {range:?} fails: {result:?}");
                    self.tally.count("lost-sector-read");
                    return;
                }
                let lost = self.unreadable.range(range.clone()).next();
                assert!(lost.is_none() || is_written, "a read of {range:?} gives {lost:?}");
                let data = data.expect("a read has a payload");
                for (index, sector) in range.enumerate() {
                    self.check_sector(sector, &data[bytes(index as u64, 1)], began);
                }
            }
            Operation::Write { durable } | Operation::WriteZeroes { durable, .. } => {
                let written = start.0..start.0 + sectors;
                let is_sure = matches!(flight.purpose, Purpose::Heal);
                if result.is_err() {
                    let may_fail = !is_sure && self.may_fail_write(&written);
                    assert!(may_fail, "a write of {range:?} fails: {result:?}");
                    self.tally.count("write-next-to-lost-failed");
                    self.model.end(range, id.0, (began, now), End::Unsure);
                    // A part of the failed write may have healed some sectors.
                    self.may_be_healed(written);
                    return;
                }
                self.model.end(range, id.0, (began, now), End::Done { durable });
                // The sector can be read once its log no longer names it.
                self.may_be_healed(written);
            }
            Operation::Trim => unreachable!("no client trims"),
        }
    }

    /// From now on reads of these sectors need not fail.
    fn may_be_healed(&mut self, written: Range<u64>) {
        let healed: Vec<u64> = self.unreadable.range(written).copied().collect();
        healed.iter().for_each(|sector| _ = self.unreadable.remove(sector));
        self.endangered.extend(healed);
    }

    /// Whether a write may fail. In the old shape no batch can make the parity of a strip in which
    /// too much is unreadable, and no log names these sectors.
    fn may_fail_write(&self, written: &Range<u64>) -> bool {
        let shapes = [self.change.geometry_before(), self.change.geometry_after()];
        let is_next_to = |sector: u64| {
            let own = shapes.iter().filter(|one| sector < one.capacity_sectors());
            let mut strips =
                own.flat_map(|one| Strip::of(one, sector).sectors().collect::<Vec<_>>());
            strips.any(|other| written.contains(&other))
        };
        self.may_fail().any(is_next_to)
    }

    fn check_sector(&mut self, sector: u64, data: &[u8], began: u64) {
        self.tally.sectors_checked += 1;
        if sector >= self.size() {
            let is_zero = data.iter().all(|byte| *byte == 0);
            return assert!(is_zero, "sector {sector} of the new part is not zero");
        }
        let version = self.model.identify(sector, data);
        let fits = version.is_some_and(|version| self.model.may_read(sector, version, began));
        if !fits {
            let readable = self.model.readable(sector, began);
            panic!("sector {sector} reads as {version:?}, not one of {readable:?}");
        }
        let version = version.expect("it fits");
        self.model.pin(sector, version, (began, self.step), (true, true));
    }
}
