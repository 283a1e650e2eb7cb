//! A client's request in bytes, from its submission to its answer, and its effect on the model.
//!
//! Where it stands: between the clients (direct ones and those of [`crate::wire`]) and the requests
//! in sectors of [`crate::requests`]. The shipped `engine/request` (`edges.rs`,
//! `write_admission.rs`) decides the steps of a request, which request waits for which, and which
//! are refused at once. This module replaces the runtime's `Volume`: the memory of requests, and a
//! driver for their steps.
//!
//! ```text
//!   ask ──▶ check ──▶ write admission ──▶ fetch ─▶ store │ whole │ flush ─▶ answered ──▶ concluded
//!            denied        waits      (requests in sectors)    by the array   the client knows
//! ```
//!
//! The model notes a change when the request goes to the engine, and its end when the client gets
//! the answer. So a missing step, or an early answer, makes the next read wrong. If a client writes
//! a part of a sector, the sector gets a version of its own. The simulator computes the bytes of
//! that version from the version read and the client's bytes, not from stored bytes.
//!
//! # Invariants
//! - No other request writes a sector that is being patched
//!   [check: a_write_beside_a_patch_is_noticed].
//! - A request that is answered has changed all of its sectors
//!   [check: a_merged_sector_survives_flush_and_power_cut].

mod world;

use braid_engine::request::{
    AdmissionMode, ByteOperation, ByteRequest, Denial, Fault, RequestId, RequestPlan, Ticket,
};

use crate::content::{SECTOR, Version, fill};

const SECTOR_BYTES: u64 = SECTOR as u64;

/// The client that waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallClient {
    Direct,
    /// A connection's client waits for the reply with this cookie.
    Wire {
        connection: usize,
        cookie: u64,
    },
    /// No client waits: the request's connection has ended.
    Gone,
}

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    Denied(Denial),
    Failed(Fault),
}

/// A run of sectors that a request has begun to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: u64,
    sectors: u64,
    began: u64,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: RequestId,
    pub(crate) request: ByteRequest,
    pub(crate) who: CallClient,
    /// The step at which the client submitted the request.
    pub(crate) asked: u64,
    plan: RequestPlan,
    ticket: Option<Ticket>,
    inside: Option<AdmissionMode>,
    pub(crate) payload: Vec<u8>,
    around: Vec<u8>,
    /// Sectors read in order to patch a part of them, with the versions read.
    bases: Vec<(u64, Version)>,
    parts: Vec<Part>,
    /// Sectors that this request patches now. No other request is allowed to change them.
    patching: Option<(u64, u64)>,
}

impl Call {
    pub(crate) fn is_read(&self) -> bool {
        self.request.operation == ByteOperation::Read
    }

    /// The version of the sectors that this request writes.
    fn version(&self) -> Version {
        self.id.0 as Version + 1
    }

    /// The bytes of a sector, counted from its start, that the request covers.
    fn covers(&self, sector: u64) -> std::ops::Range<usize> {
        let (first, begin) = (sector * SECTOR_BYTES, self.request.offset);
        let end = begin + self.request.length;
        let inside = |byte: u64| (byte.clamp(first, first + SECTOR_BYTES) - first) as usize;
        inside(begin)..inside(end)
    }

    /// The sectors that this request must have changed if it succeeds. Sectors that the request
    /// covers in part are included, except for a trim.
    fn promised(&self) -> std::ops::Range<u64> {
        let ByteRequest { operation, offset, length } = self.request;
        let end = offset + length;
        match operation {
            _ if length == 0 => 0..0,
            ByteOperation::Trim { .. } => offset.div_ceil(SECTOR_BYTES)..end / SECTOR_BYTES,
            _ => offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES),
        }
    }
}

/// The bytes that request `id` writes. Bytes of a partly covered sector are cut from the content
/// that this request would give the whole sector.
pub(crate) fn written(id: RequestId, offset: u64, length: u64) -> Vec<u8> {
    let (first, end) = (offset / SECTOR_BYTES, (offset + length).div_ceil(SECTOR_BYTES));
    let mut sectors = vec![0; (end - first) as usize * SECTOR];
    for (sector, out) in (first..).zip(sectors.chunks_exact_mut(SECTOR)) {
        fill(id.0 as Version + 1, sector, out);
    }
    let skip = (offset - first * SECTOR_BYTES) as usize;
    sectors.truncate(skip + length as usize);
    sectors.drain(..skip);
    sectors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chances::Chances;
    use crate::create::smallest;
    use crate::cut::Cut;
    use crate::trace::Trace;
    use crate::world::World;
    use braid_engine::request::Operation;

    const WRITE: ByteOperation = ByteOperation::Write { durable: false };

    fn world(seed: u64) -> World {
        World::create(&smallest(), Chances::new(seed, Cut::default()), Trace::new(false))
    }

    /// Cuts the power of all disks, assembles the array, and reads all of it.
    fn cut_and_read(world: &mut World) -> Vec<u8> {
        let mut random = world.chances.disks.clone();
        for disk in &mut world.disks {
            disk.lose_power(&mut random);
        }
        world.model.lose_power(true);
        let all: Vec<usize> = (0..world.disks.len()).collect();
        assert!(world.open(&all, false).is_ok(), "no disk had a fault");
        world.read_all().expect("all of it can be read")
    }

    #[test]
    fn a_merged_sector_survives_flush_and_power_cut() {
        for seed in 0..20 {
            let mut world = world(seed);
            let id = world.ask(ByteOperation::Write { durable: true }, 700, 1000);
            world.settle();
            let content = cut_and_read(&mut world);
            assert_eq!(content[700..1700], written(id, 700, 1000), "seed {seed}");
            let mut first = [0; SECTOR];
            fill(crate::content::FIRST, 1, &mut first);
            assert_eq!(content[SECTOR..700], first[..700 - SECTOR], "the rest is kept");
            let other = world.ask(WRITE, 100, 650);
            world.settle();
            world.flush();
            world.settle();
            let content = cut_and_read(&mut world);
            assert_eq!(content[100..750], written(other, 100, 650), "seed {seed}");
            assert_eq!(content[750..1700], written(id, 700, 1000)[50..], "seed {seed}");
            assert_eq!(world.tally.of("merged-sector"), 4);
        }
    }

    #[test]
    #[should_panic(expected = "while a sector of it is being patched")]
    fn a_write_beside_a_patch_is_noticed() {
        let mut world = world(1);
        world.ask(WRITE, 100, 50);
        world.issue(Operation::Write { durable: false }, 0, 1);
    }

    #[test]
    fn aligned_writes_wait_for_a_patch_and_patches_for_them() {
        let mut world = world(2);
        let sector = SECTOR_BYTES;
        let ids = [(0, 2 * sector), (100, 50), (0, sector), (sector, 7), (0, 3 * sector)]
            .map(|(offset, length)| world.ask(WRITE, offset, length));
        assert_eq!(world.engine.clients.waiting, ids[1..].to_vec(), "first come, first served");
        world.settle();
        assert!(world.engine.clients.waiting.is_empty());
        let content = world.read_all().expect("it can be read");
        assert_eq!(content[..3 * SECTOR], written(ids[4], 0, 3 * sector));
    }

    #[test]
    #[should_panic(expected = "reads as nothing that was ever written there")]
    fn a_patch_that_loses_its_neighbours_is_noticed() {
        let mut world = world(3);
        let id = world.ask(WRITE, 100, 50);
        while world.engine.clients.calls.get(&id).is_some_and(|call| call.parts.is_empty()) {
            world.step(false);
        }
        for payload in world.engine.payloads.values_mut().filter(|one| !one.may_change) {
            payload.data[..100].fill(0);
        }
        world.settle();
        world.read_all();
    }
}
