//! One member: the shipped elevator over a disk in virtual time.

use std::collections::BTreeMap;

use braid_elevator::{Allowed, Class, Elevator, Entry, EntryId, Operation, Place, Settings, Tag};

use super::rule::Allows;
use crate::disk::{Disk, DiskPlan, DiskRequest};

/// Waits by side: readers, then the flusher.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// The longest that a request stood in the elevator.
    pub(super) longest_ns: [u64; 2],
    /// The longest that a side with something in the elevator had nothing dispatched.
    pub(super) held_ns: [u64; 2],
}

/// A member.
pub(super) struct Member {
    elevator: Elevator,
    disk: Disk,
    /// When each entry came.
    came: BTreeMap<u64, u64>,
    /// By number of the disk's request.
    out: BTreeMap<u64, (Tag, usize)>,
    next: u64,
    /// Since when the disk works without a pause on what is charged next.
    charged_until: u64,
    /// Since when each side waits without being dispatched.
    held_since: [Option<u64>; 2],
    pub(super) waits: Waits,
}

/// A flush is not an elevator's; its number tells it from requests.
const FLUSH: u64 = 1 << 63;

impl Member {
    pub(super) fn new(settings: Settings, plan: DiskPlan) -> Self {
        Self {
            elevator: Elevator::new(settings),
            disk: Disk::new(plan),
            came: BTreeMap::new(),
            out: BTreeMap::new(),
            next: 0,
            charged_until: 0,
            held_since: [None; 2],
            waits: Waits::default(),
        }
    }

    /// Takes a request of the engine.
    pub(super) fn insert(&mut self, now: u64, request: DiskRequest, operation: Operation) {
        let entry = Entry {
            id: EntryId(request.id),
            operation,
            class: Class::BestEffort,
            start: request.sector,
            sectors: u32::try_from(request.sectors).expect("short"),
        };
        self.came.insert(request.id, now);
        self.held_since[side(operation)].get_or_insert(now);
        self.elevator.handle_insert(now, entry, Place::Sorted);
    }

    /// What waits here.
    pub(super) fn waits_for(&self) -> Allowed {
        self.elevator.waits()
    }

    /// How many reads and writes are with the disk.
    pub(super) fn out(&self) -> (u32, u32) {
        self.elevator.out()
    }

    /// Gives the disk what may go.
    pub(super) fn dispatch(&mut self, now: u64, turn: &Allows) {
        loop {
            let allowed = turn.at(self.elevator.waits(), self.elevator.out());
            let Some(dispatch) = self.elevator.poll_dispatch(now, allowed) else { return };
            let side = side(dispatch.operation);
            for part in self.elevator.parts(dispatch.tag) {
                let came = self.came.remove(&part.id.0).expect("it came");
                self.waits.longest_ns[side] = self.waits.longest_ns[side].max(now - came);
            }
            if let Some(since) = self.held_since[side].take() {
                self.waits.held_ns[side] = self.waits.held_ns[side].max(now - since);
            }
            let waits = self.elevator.waits();
            if [waits.reads, waits.writes][side] {
                self.held_since[side] = Some(now);
            }
            if self.out.is_empty() {
                self.charged_until = now;
            }
            self.out.insert(self.next, (dispatch.tag, side));
            let is_write = matches!(dispatch.operation, Operation::Write { .. });
            let (sector, sectors) = (dispatch.start, u64::from(dispatch.sectors));
            self.disk.push(now, DiskRequest { id: self.next, sector, sectors, is_write });
            self.next += 1;
        }
    }

    /// Has the disk put everything on its platter.
    pub(super) fn flush(&mut self, now: u64, round: u64) {
        self.disk.flush(now, FLUSH | round);
    }

    /// When something will be done.
    pub(super) fn next(&self) -> Option<u64> {
        self.disk.next()
    }

    /// What is done by `now`: entries and flushes by their numbers; and how long it was busy with what was done, by side.
    pub(super) fn advance(&mut self, now: u64) -> Done {
        let mut ids = Vec::new();
        while self.disk.next().is_some_and(|at| at <= now) {
            self.disk.advance(now, |id| ids.push(id));
        }
        let mut done = Done::default();
        for id in ids {
            if id & FLUSH != 0 {
                done.flushes.push(id & !FLUSH);
                continue;
            }
            let (tag, side) = self.out.remove(&id).expect("it is out");
            done.entries.extend(self.elevator.parts(tag).map(|part| part.id.0));
            self.elevator.handle_done(tag);
            // One thing after another: what was done last took the time since what was done before.
            done.busy_ns[side] += now - self.charged_until;
            done.served[side] = true;
            self.charged_until = now;
        }
        done
    }
}

/// What a member has done.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) entries: Vec<u64>,
    pub(super) flushes: Vec<u64>,
    pub(super) busy_ns: [u64; 2],
    pub(super) served: [bool; 2],
}

/// Readers, then the flusher.
fn side(operation: Operation) -> usize {
    usize::from(operation != Operation::Read)
}
