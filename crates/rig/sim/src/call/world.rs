//! The world's requests in bytes: it takes the steps of each, and reports changes to the model.

use braid_engine::request::{
    AdmissionMode, ByteOperation, ByteRequest, Denial, Fault, Next, Operation, Patch, RequestId,
    RequestLimits, RequestPlan, Step, check,
};

use super::{Call, CallClient, CallError, Part, SECTOR_BYTES, written};
use crate::content::{SECTOR, fill};
use crate::memory::Payload;
use crate::model::End;
use crate::requests::FlushFor;
use crate::world::World;

impl World {
    /// A client without a connection submits a request.
    pub(crate) fn ask(&mut self, operation: ByteOperation, offset: u64, length: u64) -> RequestId {
        self.tally.requests += 1;
        let id = self.name();
        let payload = match operation {
            ByteOperation::Write { .. } => written(id, offset, length),
            _ => Vec::new(),
        };
        let asked = self.clock.step;
        let request = ByteRequest { operation, offset, length };
        self.begin_call((id, request), payload, (asked, CallClient::Direct));
        id
    }

    /// A client's request arrives; a write brings its bytes in `payload`.
    pub(crate) fn begin_call(
        &mut self,
        (id, request): (RequestId, ByteRequest),
        mut payload: Vec<u8>,
        (asked, who): (u64, CallClient),
    ) {
        let word = match request.operation {
            ByteOperation::Read => "call-read",
            ByteOperation::Write { durable: false } => "call-write",
            ByteOperation::Write { durable: true } => "call-fua",
            ByteOperation::WriteZeroes { .. } => "call-zero",
            ByteOperation::Trim { .. } => "call-trim",
        };
        self.note(word, [id.0, request.offset, request.length]);
        let side = &self.engine.machines.shards[0];
        let zero_is_fast = side.view.zero_is_fast;
        let size_bytes = self.geometry.capacity_sectors() * SECTOR as u64;
        let geometry = &self.geometry;
        let limits = RequestLimits { geometry, size_bytes, read_only: false, zero_is_fast };
        let denial = check(&request, limits);
        if request.operation == ByteOperation::Read && denial.is_ok() {
            payload.resize(request.length as usize, 0x77);
        }
        let plan = RequestPlan::new(&request);
        let mode = plan.mode();
        let call = Call {
            id,
            request,
            who,
            asked,
            plan,
            ticket: None,
            inside: None,
            payload,
            around: Vec::new(),
            bases: Vec::new(),
            parts: Vec::new(),
            patching: None,
        };
        if let Err(denial) = denial {
            return self.hand_back(call, Err(CallError::Denied(denial)));
        }
        self.engine.clients.calls.insert(id, call);
        let Some(mode) = mode else { return self.go_on(id, Ok(())) };
        if mode == AdmissionMode::Exclusive {
            self.tally.count("unaligned-change");
        }
        let ticket = self.engine.clients.admission.enter(mode);
        let is_admitted = self.engine.clients.admission.is_admitted(ticket);
        let call = self.engine.clients.calls.get_mut(&id).expect("just put there");
        (call.ticket, call.inside) = ((!is_admitted).then_some(ticket), Some(mode));
        if is_admitted {
            self.go_on(id, Ok(()));
        } else {
            self.tally.count("write-admission-waits");
            self.engine.clients.waiting.push_back(id);
        }
    }

    fn leave(&mut self, id: RequestId) {
        let clients = &mut self.engine.clients;
        let call = clients.calls.get_mut(&id).expect("a request under way");
        let Some(mode) = call.inside.take() else { return };
        if !clients.admission.leave(mode) {
            return;
        }
        while let Some(next) = self.engine.clients.waiting.front().copied() {
            let clients = &mut self.engine.clients;
            let call = clients.calls.get_mut(&next).expect("it waits");
            if !call.ticket.is_none_or(|ticket| clients.admission.is_admitted(ticket)) {
                break;
            }
            call.ticket = None;
            clients.waiting.pop_front();
            self.go_on(next, Ok(()));
        }
    }

    /// The request's previous step ended with `result`: takes the next step, or answers the
    /// request.
    pub(crate) fn go_on(&mut self, id: RequestId, mut result: Result<(), Fault>) {
        loop {
            let call = self.engine.clients.calls.get_mut(&id).expect("a request under way");
            match call.plan.next(result) {
                Next::Answer(result) => {
                    self.leave(id);
                    let call = self.engine.clients.calls.remove(&id).expect("it was there");
                    return self.hand_back(call, result.map_err(CallError::Failed));
                }
                Next::Step(Step::Take { patch }) => {
                    call.payload.copy_from_slice(&call.around[patch.middle()]);
                    result = Ok(());
                }
                Next::Step(step) => return self.take_step(id, step),
            }
        }
    }

    fn take_step(&mut self, id: RequestId, step: Step) {
        match step {
            Step::Whole { operation, start, sectors } => {
                self.take_whole(id, operation, (start.0, sectors));
            }
            Step::Fetch { patch, start, sectors } => {
                let call = self.engine.clients.calls.get_mut(&id).expect("a request under way");
                call.around.resize(patch.sectors as usize * SECTOR, 0xEE);
                if !call.is_read() {
                    self.begin_patch(id, patch);
                }
                let data = vec![0x77; sectors as usize * SECTOR];
                let payload = Some(Payload::new(data, true));
                self.start_flight(Operation::Read, (start.0, sectors), payload, Some(id));
            }
            Step::Store { patch, durable } => self.take_store(id, patch, durable),
            Step::Flush => {
                self.leave(id);
                self.start_flush(self.clock.step, FlushFor::Call(id));
            }
            Step::Take { .. } => unreachable!("taken at once"),
        }
    }

    fn take_whole(&mut self, id: RequestId, operation: Operation, range: (u64, u64)) {
        let began = self.clock.step;
        let call = self.engine.clients.calls.get_mut(&id).expect("a request under way");
        let payload = match operation {
            Operation::Read | Operation::Write { .. } => {
                let data = std::mem::take(&mut call.payload);
                Some(Payload::new(data, operation == Operation::Read))
            }
            Operation::WriteZeroes { .. } | Operation::Trim => None,
        };
        let version = if payload.is_some() { call.version() } else { 0 };
        if operation.is_write() {
            call.parts.push(Part { start: range.0, sectors: range.1, began });
            self.model.begin(range, id.0, version);
        }
        self.start_flight(operation, range, payload, Some(id));
    }

    /// Takes the step that stores a patch: lays the client's bytes over the fetched sectors, begins
    /// the new versions in the model, and submits the write.
    fn take_store(&mut self, id: RequestId, patch: Patch, durable: bool) {
        self.begin_patch(id, patch);
        let began = self.clock.step;
        let call = self.engine.clients.calls.get_mut(&id).expect("a request under way");
        call.around.resize(patch.sectors as usize * SECTOR, 0xEE);
        let is_write = matches!(call.request.operation, ByteOperation::Write { .. });
        if is_write {
            call.around[patch.middle()].copy_from_slice(&call.payload);
        } else {
            call.around[patch.middle()].fill(0);
        }
        let data = std::mem::take(&mut call.around);
        let bases = std::mem::take(&mut call.bases);
        call.parts.push(Part { start: patch.start.0, sectors: patch.sectors, began });
        let mut merged = 0;
        for sector in patch.start.0..patch.start.0 + patch.sectors {
            let covered = call.covers(sector);
            let version = call.version();
            if covered == (0..SECTOR) {
                assert!(is_write, "whole sectors are zeroed, not patched");
                self.model.begin((sector, 1), id.0, version);
                continue;
            }
            let base = bases.iter().find(|(base, _)| *base == sector);
            let (_, base) = *base.expect("an edge is read before it is patched");
            let mut bytes = [0; SECTOR];
            let mut new = [0; SECTOR];
            self.model.bytes_of(sector, base, &mut bytes);
            fill(if is_write { version } else { 0 }, sector, &mut new);
            bytes[covered.clone()].copy_from_slice(&new[covered]);
            self.model.begin_merged(sector, id.0, version, &bytes);
            merged += 1;
        }
        *self.tally.counts.entry("merged-sector").or_default() += merged;
        let payload = Some(Payload::new(data, false));
        let range = (patch.start.0, patch.sectors);
        self.start_flight(Operation::Write { durable }, range, payload, Some(id));
    }

    /// A step of request `id`, in whole sectors, is answered.
    pub(crate) fn step_answered(
        &mut self,
        id: RequestId,
        (operation, start, sectors): (Operation, u64, u64),
        began: u64,
        (data, result): (Option<Vec<u8>>, Result<(), Fault>),
    ) {
        let call = self.engine.clients.calls.get_mut(&id).expect("a request under way");
        let is_fetch = operation == Operation::Read && !(call.is_read() && call.around.is_empty());
        let is_store = operation != Operation::Read && call.patching.is_some();
        if is_store || result.is_err() {
            call.patching = None;
        }
        if let Some(data) = data.filter(|_| !is_store) {
            if !is_fetch {
                call.payload = data;
            } else if result.is_ok() {
                self.fetched(id, (start, sectors), began, &data);
            }
        }
        self.go_on(id, result);
    }

    /// The sectors that a request covers in part were read.
    fn fetched(&mut self, id: RequestId, range: (u64, u64), began: u64, data: &[u8]) {
        let trust = self.trust_now();
        let call = self.engine.clients.calls.get_mut(&id).expect("a request under way");
        let first = if call.is_read() { call.asked } else { began };
        let times = (first, self.clock.step);
        self.model.check_read(range, data, times, trust);
        let around = call.patching.map_or(call.request.offset / SECTOR_BYTES, |patch| patch.0);
        let place = (range.0 - around) as usize * SECTOR;
        call.around[place..place + data.len()].copy_from_slice(data);
        if call.patching.is_some() {
            for (sector, data) in (range.0..).zip(data.chunks_exact(SECTOR)) {
                let version = self.model.name_of(sector, data);
                call.bases.push((sector, version));
            }
        }
    }

    /// Request `id` begins to patch sectors. No other request may change them from now on; checks
    /// that none is changing them already.
    fn begin_patch(&mut self, id: RequestId, patch: Patch) {
        let range = (patch.start.0, patch.sectors);
        self.check_nobody_patches(Some(id), range);
        let changing = |flight: &crate::requests::Flight| {
            let other = (flight.request.start.0, flight.request.sectors);
            flight.request.operation.is_write() && overlap(range, other)
        };
        let beside = self.engine.clients.flights.values().any(changing);
        assert!(!beside, "a sector is patched while another write to it is under way");
        let call = self.engine.clients.calls.get_mut(&id).expect("a request under way");
        call.patching = Some(range);
    }

    /// Checks that no request except `id` is patching one of these sectors.
    pub(crate) fn check_nobody_patches(&self, id: Option<RequestId>, range: (u64, u64)) {
        let mut others = self.engine.clients.calls.values().filter(|call| Some(call.id) != id);
        let beside = others.any(|call| call.patching.is_some_and(|other| overlap(range, other)));
        assert!(!beside, "a write begins while a sector of it is being patched");
    }

    /// The array has answered a request: passes the answer to the client.
    fn hand_back(&mut self, call: Call, result: Result<(), CallError>) {
        match call.who {
            CallClient::Direct => {
                self.note("call-ends", [call.id.0, u64::from(result.is_ok()), 0]);
                self.conclude(&call, result);
            }
            CallClient::Wire { connection, cookie } => self.reply(connection, cookie, call, result),
            CallClient::Gone => self.end_parts(&call, End::Unsure),
        }
    }

    /// A client got the answer to a request: checks the answer, and reports it to the model.
    pub(crate) fn conclude(&mut self, call: &Call, result: Result<(), CallError>) {
        let expected = self.denial_of(&call.request);
        match (result, expected) {
            (Err(CallError::Denied(denial)), expected) => {
                assert_eq!(Some(denial), expected, "{:?} was denied", call.request);
                self.tally.count("call-denied");
            }
            (_, Some(denial)) => panic!("{:?} was not denied: {denial:?}", call.request),
            (Err(CallError::Failed(fault)), None) => {
                let allowed = self.engine.trust.errors_allowed;
                assert!(allowed, "{:?} failed within tolerance: {fault}", call.request);
                self.end_parts(call, End::Unsure);
            }
            (Ok(()), None) => self.conclude_well(call),
        }
    }

    fn conclude_well(&mut self, call: &Call) {
        let durable = match call.request.operation {
            ByteOperation::Read => return self.check_bytes(call),
            ByteOperation::Write { durable } | ByteOperation::WriteZeroes { durable, .. } => {
                durable
            }
            ByteOperation::Trim { .. } => {
                self.check_complete(call);
                return self.end_parts(call, End::Unsure);
            }
        };
        self.check_complete(call);
        self.end_parts(call, End::Done { durable });
    }

    fn check_complete(&self, call: &Call) {
        let mut parts = call.parts.clone();
        parts.sort_by_key(|part| part.start);
        let promised = call.promised();
        let mut next = promised.start;
        for part in &parts {
            assert_eq!(part.start, next, "{:?} changed {parts:?}", call.request);
            next += part.sectors;
        }
        assert!(next >= promised.end || promised.is_empty(), "{:?}: {parts:?}", call.request);
        assert!(next <= promised.end || parts.is_empty(), "{:?}: {parts:?}", call.request);
    }

    pub(crate) fn end_parts(&mut self, call: &Call, end: End) {
        let now = self.clock.step;
        for part in &call.parts {
            self.end_write((part.start, part.sectors), call.id.0, (part.began, now), end);
        }
    }

    /// Checks each byte of a read against the model.
    fn check_bytes(&mut self, call: &Call) {
        let (mut at, times) = (0, (call.asked, self.clock.step));
        assert_eq!(call.payload.len() as u64, call.request.length, "bytes are missing");
        for sector in call.promised() {
            let covered = call.covers(sector);
            let data = &call.payload[at..at + covered.len()];
            at += covered.len();
            if covered == (0..SECTOR) && !self.taint.is_calm() {
                self.check_read_among_lies(sector, data, times);
            } else if covered == (0..SECTOR) {
                let trust = self.trust_now();
                self.model.check_read((sector, 1), data, times, trust);
            } else {
                self.model.check_part(sector, covered, data, call.asked);
                self.tally.count("part-of-a-sector-read");
            }
            self.tally.sectors_checked += 1;
        }
    }

    fn denial_of(&self, request: &ByteRequest) -> Option<Denial> {
        let size = self.geometry.capacity_sectors() * SECTOR_BYTES;
        if request.length > size || request.offset > size - request.length {
            return Some(Denial::OutOfRange);
        }
        let ByteOperation::WriteZeroes { fast: true, .. } = request.operation else { return None };
        let unit = match &self.geometry {
            braid_geometry::Geometry::Stripe(stripe) => {
                u64::from(stripe.data_slots()) * u64::from(stripe.chunk_sectors())
            }
            _ => 1,
        } * SECTOR_BYTES;
        let is_whole = request.offset.is_multiple_of(unit) && request.length.is_multiple_of(unit);
        let is_fast = self.engine.machines.shards[0].view.zero_is_fast && is_whole;
        (!is_fast).then_some(Denial::NotFast)
    }
}

fn overlap((start, sectors): (u64, u64), (other, others): (u64, u64)) -> bool {
    start < other + others && other < start + sectors
}
