//! The world's requests in whole sectors: it passes them to shards in pieces, and checks each
//! answer.

use braid_engine::array::{MemberId, MemberView};
use braid_engine::request::{Fault, Operation, Progress, Request, RequestId};
use braid_geometry::{Family, LogicalSector};
use braid_ondisk::Role;

use super::{Flight, FlushFor};
use crate::call::written;
use crate::content::{SECTOR, Version};
use crate::coverage::ArrayAction;
use crate::memory::Payload;
use crate::model::End;
use crate::schedule::Event;
use crate::world::World;

impl World {
    pub(crate) fn name(&mut self) -> RequestId {
        let name = self.next_request;
        self.next_request = RequestId(name.0 + 1);
        name
    }

    /// Submits a request in whole sectors without write admission. No request in bytes may be in
    /// flight.
    pub(crate) fn issue(&mut self, operation: Operation, start: u64, sectors: u64) -> RequestId {
        self.tally.requests += 1;
        let id = self.next_request;
        let (version, payload) = match operation {
            Operation::Write { .. } => {
                let (offset, length) = (start * SECTOR as u64, sectors * SECTOR as u64);
                let data = written(id, offset, length);
                (Some(id.0 as Version + 1), Some(Payload::new(data, false)))
            }
            Operation::WriteZeroes { .. } | Operation::Trim => (Some(0), None),
            Operation::Read => {
                let data = vec![0x77; sectors as usize * SECTOR];
                (None, Some(Payload::new(data, true)))
            }
        };
        if let Some(version) = version {
            self.model.begin((start, sectors), id.0, version);
        }
        self.start_flight(operation, (start, sectors), payload, None)
    }

    /// Submits a request in whole sectors to the engine. If `call` is given, the request is a step
    /// of that request in bytes.
    pub(crate) fn start_flight(
        &mut self,
        operation: Operation,
        (start, sectors): (u64, u64),
        payload: Option<Payload>,
        call: Option<RequestId>,
    ) -> RequestId {
        if operation.is_write() {
            self.check_nobody_patches(call, (start, sectors));
        }
        // A read of unreadable sectors rewrites them, which can fail as a write does.
        let may_write = operation.is_write() || !self.engine.plan.victims.is_empty();
        if self.taint.may_lie && may_write {
            self.rows_are_asked((start, sectors));
        }
        if operation == Operation::Read {
            self.count_routed((start, sectors));
        } else {
            self.engine.lost.write_begins((start, sectors));
        }
        let id = self.name();
        let began = self.clock.step;
        self.visit(ArrayAction::of(operation));
        let word = match operation {
            Operation::Read => "ask-read",
            Operation::Write { durable: false } => "ask-write",
            Operation::Write { durable: true } => "ask-fua",
            Operation::WriteZeroes { .. } => "ask-zero",
            Operation::Trim => "ask-trim",
        };
        self.note(word, [id.0, start, sectors]);
        let request = Request { id, operation, start: LogicalSector(start), sectors };
        let progress = Progress::default();
        let mut flight = Flight { request, progress, began, keep: false, call, writes_back: false };
        if operation == Operation::Trim {
            self.model.gives_up((start, sectors), None);
        }
        if let Some(payload) = payload {
            self.engine.payloads.insert(id, payload);
        }
        for (shard, piece) in self.engine.machines.regions.split(&request) {
            flight.progress.issue();
            self.engine.pending.push(Event::Piece { shard: usize::from(shard.0), piece });
        }
        assert_eq!(flight.progress.issued_all(), None, "no piece has been answered yet");
        self.engine.clients.flights.insert(id, flight);
        id
    }

    /// A client without a connection submits a flush.
    pub(crate) fn flush(&mut self) -> RequestId {
        self.tally.requests += 1;
        self.start_flush(self.clock.step, FlushFor::Client)
    }

    pub(crate) fn start_flush(&mut self, asked: u64, who: FlushFor) -> RequestId {
        let id = self.name();
        self.visit(ArrayAction::Flush);
        self.note("ask-flush", [id.0, 0, 0]);
        self.engine.clients.flushes.insert(id, (asked, who));
        self.engine.machines.array.handle_flush_request(self.clock.now, id);
        self.drain_array();
        id
    }

    pub(crate) fn answered(&mut self, id: RequestId, result: Result<(), Fault>) {
        self.note("answer", [id.0, u64::from(result.is_ok()), 0]);
        let flight = self.engine.clients.flights.remove(&id).expect("a request under way");
        self.engine.payloads.join(id);
        let Request { operation, start, sectors, .. } = flight.request;
        self.check_lost(&flight.request, flight.began, result);
        if operation == Operation::Trim {
            self.model.gives_up((start.0, sectors), Some(self.clock.step));
        } else if operation.is_write() {
            self.model.needs_again((start.0, sectors), flight.began);
        }
        if operation.is_write() && result.is_ok() {
            self.superblocks_have_told();
            let shards = &self.engine.machines.shards;
            if shards.iter().any(|side| side.early_until >= flight.began) {
                // The held write may be covered by a later write already, before the client gets
                // its answer.
                let write = flight.call.unwrap_or(id).0;
                self.model.released((start.0, sectors), write);
            }
        }
        if let Some(call) = flight.call {
            let is_held = self.engine.held.uses_payload(id);
            let payload = (!is_held).then(|| self.engine.payloads.remove(&id)).flatten();
            let data = payload.map(|payload| payload.data);
            let what = (operation, start.0, sectors);
            return self.step_answered(call, what, flight.began, (data, result));
        }
        self.engine.clients.answers.insert(id, result);
        if flight.writes_back {
            if !self.engine.held.uses_payload(id) {
                self.engine.payloads.remove(&id);
            }
            assert!(result.is_ok() || self.engine.trust.errors_allowed, "{:?}", flight.request);
            return;
        }
        self.check_error_allowed(result, &flight.request);
        let range = (start.0, sectors);
        let times = (flight.began, self.clock.step);
        match operation {
            Operation::Read => {
                if result.is_ok() {
                    let data = &self.engine.payloads[&id].data;
                    self.tally.sectors_checked += sectors;
                    if self.taint.is_calm() {
                        let trust = self.trust_now();
                        self.model.check_read(range, data, times, trust);
                    } else {
                        let data = data.clone();
                        self.check_read_among_lies(start.0, &data, times);
                    }
                }
            }
            Operation::Write { durable } | Operation::WriteZeroes { durable, .. } => {
                let end = if result.is_ok() { End::Done { durable } } else { End::Unsure };
                self.end_write(range, id.0, times, end);
            }
            Operation::Trim => self.end_write(range, id.0, times, End::Unsure),
        }
        let stays = flight.keep && result.is_ok() || self.engine.held.uses_payload(id);
        if !stays {
            self.engine.payloads.remove(&id);
        }
    }

    /// A client got the answer to a write: tells the model how the write ended.
    pub(crate) fn end_write(&mut self, range: (u64, u64), write: u64, times: (u64, u64), end: End) {
        self.model.end(range, write, times, end);
        self.cover(range);
    }

    /// A write was acknowledged. Before that, superblocks reached every member: absent disks are
    /// out, and disks that take part are in, whatever happened before.
    fn superblocks_have_told(&mut self) {
        self.engine.has_written = true;
        self.out.append(&mut self.absent);
        if self.geometry.level().family() != Family::Direct {
            let machines = &self.engine.machines;
            for (id, member) in (0..).map(MemberId).zip(&machines.members) {
                // In version 0.90 superblocks call a recovering member a spare, although the
                // shards' view has it.
                let has_offsets = self.metadata.design.version != braid_ondisk::Version::V0_90;
                let is_told = || has_offsets || self.all_have_in_slot(member.disk);
                let is_it = |one: &MemberView| one.id == id && is_told();
                let mut slots = machines.shards.iter().flat_map(|side| side.view.slots.iter());
                let is_in = slots.any(|slot| slot.as_ref().is_some_and(is_it));
                // The view may have only the newest member of a disk. An older member of that disk
                // proves nothing.
                let mut came = self.came.iter().filter(|one| **one > id);
                let is_replaced =
                    came.any(|one| machines.members[usize::from(one.0)].disk == member.disk);
                if is_in || !self.came.contains(&id) && !is_replaced {
                    self.unsure.remove(&member.disk);
                }
            }
        }
    }

    /// Whether the last superblock of each member in the shards' views has this disk in a slot.
    fn all_have_in_slot(&self, disk: usize) -> bool {
        let machines = &self.engine.machines;
        let number = usize::from(self.metadata.design.number(disk));
        let seated = machines.shards.iter().flat_map(|side| side.view.slots.iter().flatten());
        let mut tables =
            seated.map(|one| &machines.members[usize::from(one.id.0)].superblock.state.roles);
        tables.all(|roles| matches!(roles.get(number), Some(Role::Active(_))))
    }

    /// Whether no shard uses a disk for data: it is a spare, or is about to replace another disk.
    fn is_unused(&self, disk: usize) -> bool {
        let machines = &self.engine.machines;
        let views = || machines.shards.iter().map(|side| &side.view);
        let members = (0..).map(MemberId).zip(&machines.members);
        let mut ids = members.filter(|(_, member)| member.disk == disk).map(|(id, _)| id);
        self.is_spare(disk) && ids.all(|id| !views().any(|view| view.is_used(id)))
    }

    pub(crate) fn flush_answered(&mut self, id: RequestId, result: Result<(), Fault>) {
        self.note("answer", [id.0, u64::from(result.is_ok()), 1]);
        let (asked, who) = self.engine.clients.flushes.remove(&id).expect("a flush under way");
        let is_direct = self.geometry.level().family() == Family::Direct;
        let mut failed = self.engine.unflushed.difference(&self.out);
        let believed = failed.find(|disk| !self.is_unused(**disk));
        let told = result.is_err() || is_direct || believed.is_none();
        assert!(told, "a flush is acknowledged, but disk {believed:?} failed it and still counts");
        if result.is_ok() {
            self.check_flushed(asked);
        }
        match who {
            FlushFor::Client => {
                self.engine.clients.answers.insert(id, result);
                self.flush_known(asked, result.is_ok());
            }
            FlushFor::Call(call) => self.go_on(call, result),
            FlushFor::Wire { connection, cookie } => {
                self.reply_to_flush(connection, cookie, result);
            }
        }
    }

    /// A client got the result of a flush that it submitted at step `asked`.
    pub(crate) fn flush_known(&mut self, asked: u64, is_well: bool) {
        if is_well {
            self.model.flushed(asked, self.engine.clients.oldest_read());
        } else {
            assert!(self.engine.trust.errors_allowed, "a flush failed within tolerance");
        }
    }

    /// The content of the whole array, read as a client reads it. `None` if a part cannot be read.
    pub(crate) fn read_all(&mut self) -> Option<Vec<u8>> {
        let capacity = self.geometry.capacity_sectors();
        let length = 64;
        let starts: Vec<u64> = (0..capacity).step_by(length as usize).collect();
        let mut reads = Vec::new();
        for start in starts {
            let id = self.issue(Operation::Read, start, length.min(capacity - start));
            self.engine.clients.flights.get_mut(&id).expect("just issued").keep = true;
            reads.push(id);
        }
        self.settle();
        let mut content = Vec::with_capacity(capacity as usize * SECTOR);
        let mut is_whole = true;
        for id in reads {
            match self.engine.payloads.remove(&id) {
                Some(payload) => content.extend_from_slice(&payload.data),
                None => is_whole = false,
            }
        }
        is_whole.then_some(content)
    }
}
