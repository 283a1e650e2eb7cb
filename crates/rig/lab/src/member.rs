//! One member: the shipped elevator over a disk in virtual time.

use std::collections::BTreeMap;

use braid_elevator::{
    BusyTime, Class, Directions, Elevator, Entry, EntryId, Operation, QueuePosition, Settings, Tag,
};

use crate::disk::{Account, ArmPurpose, Disk, DiskPlan, DiskRequest};

/// Longest waits of each side: readers, then the flusher.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Longest time that a request spent in the elevator.
    pub(crate) longest_ns: [u64; 2],
    /// Longest time for which a side with waiting entries had no dispatch.
    pub(crate) held_ns: [u64; 2],
}

#[derive(Clone, Copy, Debug)]
struct SentRequest {
    tag: Tag,
    side: usize,
    sent: u64,
    is_write: bool,
}

pub(crate) struct Member {
    elevator: Elevator,
    disk: Disk,
    /// Arrival time and owner of each entry, by the entry's number.
    came: BTreeMap<u64, (u64, ArmPurpose)>,
    /// Requests at the disk, by the disk's number for them.
    out: BTreeMap<u64, SentRequest>,
    next: u64,
    busy: BusyTime,
    /// When the flush in flight began; `None` if none is in flight.
    flush_sent: Option<u64>,
    /// Vectors written since the last flush.
    unflushed: u32,
    /// Since when each side has had waiting entries and no dispatch.
    held_since: [Option<u64>; 2],
    pub(crate) waits: Waits,
}

/// The bit that marks a number as the number of a flush. The elevator does not see flushes.
const FLUSH: u64 = 1 << 63;

impl Member {
    pub(crate) fn new(settings: Settings, plan: DiskPlan) -> Self {
        Self {
            elevator: Elevator::new(settings),
            disk: Disk::new(plan),
            came: BTreeMap::new(),
            out: BTreeMap::new(),
            next: 0,
            busy: BusyTime::default(),
            flush_sent: None,
            unflushed: 0,
            held_since: [None; 2],
            waits: Waits::default(),
        }
    }

    pub(crate) fn insert(
        &mut self,
        now: u64,
        (request, purpose): (DiskRequest, ArmPurpose),
        operation: Operation,
    ) {
        let entry = Entry {
            id: EntryId(request.id),
            operation,
            class: Class::BestEffort,
            start: request.sector,
            sectors: u32::try_from(request.sectors).expect("short"),
        };
        self.came.insert(request.id, (now, purpose));
        self.held_since[side(operation)].get_or_insert(now);
        self.elevator.handle_insert(now, entry, QueuePosition::Sorted);
    }

    pub(crate) fn waits_for(&self) -> Directions {
        self.elevator.waits()
    }

    /// Reads and writes that are not done. A flush counts as all writes since the previous flush.
    pub(crate) fn queued(&self) -> (u32, u32) {
        let ((reads, writes), out) = (self.elevator.waiting(), self.elevator.out());
        let few = |count| u32::try_from(count).expect("few");
        let flushed = if self.flush_sent.is_some() { self.unflushed.max(1) } else { 0 };
        (few(reads) + out.0, few(writes) + out.1 + flushed)
    }

    /// Gives the disk the entries that `allowed` permits, given the kinds that wait and the number
    /// in flight of each.
    pub(crate) fn dispatch(
        &mut self,
        now: u64,
        allowed: impl Fn(Directions, (u32, u32)) -> Directions,
    ) {
        loop {
            let allowed = allowed(self.elevator.waits(), self.elevator.out());
            let Some(dispatch) = self.elevator.poll_dispatch(now, allowed) else { return };
            let side = side(dispatch.operation);
            let mut first = None;
            for part in self.elevator.parts(dispatch.tag) {
                let (came, purpose) = self.came.remove(&part.id.0).expect("it came");
                first.get_or_insert(purpose);
                self.waits.longest_ns[side] = self.waits.longest_ns[side].max(now - came);
            }
            if let Some(since) = self.held_since[side].take() {
                self.waits.held_ns[side] = self.waits.held_ns[side].max(now - since);
            }
            let waits = self.elevator.waits();
            if [waits.reads, waits.writes][side] {
                self.held_since[side] = Some(now);
            }
            self.busy.handle_sent(now);
            let is_write = dispatch.operation.is_write();
            self.out
                .insert(self.next, SentRequest { tag: dispatch.tag, side, sent: now, is_write });
            let (sector, sectors) = (dispatch.start, u64::from(dispatch.sectors));
            let request = DiskRequest { id: self.next, sector, sectors, is_write };
            self.disk.push_for(now, request, first.expect("a dispatch has parts"));
            self.next += 1;
        }
    }

    /// Starts a flush of the disk's cache.
    pub(crate) fn flush(&mut self, now: u64, round: u64) {
        assert!(self.flush_sent.is_none(), "one flush at a time");
        self.busy.handle_sent(now);
        self.flush_sent = Some(now);
        self.disk.flush(now, FLUSH | round);
    }

    pub(crate) fn account(&self) -> Account {
        self.disk.account()
    }

    /// Whether no request is left, and the disk's cache is on its platter.
    pub(crate) fn is_idle(&self) -> bool {
        self.elevator.is_empty() && self.disk.is_idle()
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.disk.next()
    }

    /// Returns the entries and flushes that are done by `now`, by number, and the busy time of each
    /// side.
    pub(crate) fn advance(&mut self, now: u64) -> Completions {
        let mut ids = Vec::new();
        while self.disk.next().is_some_and(|at| at <= now) {
            self.disk.advance(now, |id| ids.push(id));
        }
        let mut done = Completions::default();
        for id in ids {
            if id & FLUSH != 0 {
                done.flushes.push(id & !FLUSH);
                self.unflushed = 0;
                let sent = self.flush_sent.take().expect("it is out");
                done.busy_ns[FLUSHER] += self.busy.handle_done(now, sent);
                done.served[FLUSHER] = true;
                continue;
            }
            let SentRequest { tag, side, sent, is_write } =
                self.out.remove(&id).expect("it is out");
            done.entries.extend(self.elevator.parts(tag).map(|part| part.id.0));
            self.elevator.handle_done(tag);
            self.unflushed += u32::from(is_write);
            done.busy_ns[side] += self.busy.handle_done(now, sent);
            done.served[side] = true;
        }
        done
    }
}

#[derive(Debug, Default)]
pub(crate) struct Completions {
    pub(crate) entries: Vec<u64>,
    pub(crate) flushes: Vec<u64>,
    pub(crate) busy_ns: [u64; 2],
    pub(crate) served: [bool; 2],
}

/// The flusher's index in pairs that begin with the readers.
const FLUSHER: usize = 1;

fn side(operation: Operation) -> usize {
    usize::from(operation != Operation::Read)
}
