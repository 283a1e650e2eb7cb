//! The limit of the arms: an array that knows all future requests, and writes at the best time.
//!
//! ```text
//!   all that clients read in a phase has been read
//!     ──▶ all blocks that rows must read which are not written whole ─┐
//!         ──▶ all blocks that are written, and parity                ─┤──▶ each disk, in one sweep
//!   a client writes ──▶ answered at once        a client reads ──▶ its disk
//! ```
//!
//! No order of stripes reads less. A row with one or two of three blocks written reads two or one
//! blocks, once, whichever clients write them, and when. Each disk sweeps once over its reads and
//! once over its writes, and leaves no reader's file for a write. An array that learns of a write
//! only from a client's request does no better if arms are busy. One sweep for reads and writes
//! together would save a little. With few readers arms are idle, and this array is no bound.

use std::collections::BTreeMap;

use braid_geometry::{ChunkRow, LogicalSector, Slot, StripeGeometry};

use super::backend::{Backend, ClientRequest, Effects};
use super::md::BLOCK_SECTORS;
use super::traffic::Traffic;
use super::world::{Client, Stream};
use crate::disk::ArmPurpose;

/// Maximum sectors of a request to a disk: half a mebibyte.
const RUN_SECTORS_MAX: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    slot: u16,
    sector: u64,
    sectors: u64,
    is_parity: bool,
}

/// The requests to disks that the future writes of a phase need.
#[derive(Debug, Default)]
struct Plan {
    reads: u64,
    pre_reads: Vec<Run>,
    /// The runs to write once all pre-reads are done.
    writes: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    PreRead,
    Write,
    Read(u64),
}

pub(super) struct Clairvoyant {
    geometry: StripeGeometry,
    /// The plans of later phases.
    plans: std::vec::IntoIter<Plan>,
    /// The plan of the running phase.
    plan: Plan,
    /// Whether the phase has no more client requests, so that the next request begins another
    /// phase.
    is_flushed: bool,
    pre_reads_out: usize,
    traffic: Traffic<Owner>,
    writes: u64,
}

impl Clairvoyant {
    pub(super) fn new(geometry: StripeGeometry, phases: &[Vec<Stream>]) -> Self {
        let plans: Vec<Plan> = phases.iter().map(|streams| Plan::of(&geometry, streams)).collect();
        Self {
            geometry,
            plans: plans.into_iter(),
            plan: Plan::default(),
            is_flushed: true,
            pre_reads_out: 0,
            traffic: Traffic::new(),
            writes: 0,
        }
    }

    /// Issues the phase's next requests to disks: pre-reads after all clients' reads, then writes.
    fn go_on(&mut self) {
        if self.plan.reads > 0 {
            return;
        }
        for run in std::mem::take(&mut self.plan.pre_reads) {
            self.pre_reads_out += 1;
            self.traffic.ask(
                Owner::PreRead,
                run.slot,
                (run.sector, run.sectors),
                ArmPurpose::PreRead,
            );
        }
        if self.pre_reads_out > 0 {
            return;
        }
        for run in std::mem::take(&mut self.plan.writes) {
            self.writes += 1;
            let purpose = if run.is_parity { ArmPurpose::Parity } else { ArmPurpose::Data };
            self.traffic.ask(Owner::Write, run.slot, (run.sector, run.sectors), purpose);
        }
    }
}

impl Plan {
    fn of(geometry: &StripeGeometry, streams: &[Stream]) -> Self {
        let rows = written(geometry, streams);
        let all = geometry.data_slots();
        let (mut pre_reads, mut writes) = (Vec::new(), Vec::new());
        for ((row, offset), touched) in rows {
            let map = geometry.row_map(row);
            let at = |slot: Slot, is_parity| Run {
                slot: slot.0,
                sector: geometry.row_start(row).0 + offset,
                sectors: BLOCK_SECTORS,
                is_parity,
            };
            let is_touched = |index: &u16| touched & (1 << index) != 0;
            let data = |index: u16| at(map.data_slot(index), false);
            let (new, old): (Vec<u16>, Vec<u16>) = (0..all).partition(is_touched);
            let parity = at(map.p_slot(), true);
            writes.extend(new.iter().copied().map(data).chain([parity]));
            // Reads the columns that are not written, or the written columns and parity, whichever
            // are fewer.
            if old.len() <= new.len() + 1 {
                pre_reads.extend(old.into_iter().map(data));
            } else {
                pre_reads.extend(new.into_iter().map(data).chain([parity]));
            }
        }
        let (pre_reads, writes) = (joined(pre_reads), joined(writes));
        let reads = streams.iter().filter(|stream| !stream.is_write);
        let reads = reads.map(|stream| stream.requests).sum();
        Self { reads, pre_reads, writes }
    }
}

/// The rows of blocks that clients write, each with a bit for each written data column.
fn written(geometry: &StripeGeometry, streams: &[Stream]) -> BTreeMap<(ChunkRow, u64), u64> {
    let mut rows = BTreeMap::new();
    for (seed, stream) in (1..).zip(streams).filter(|(_, stream)| stream.is_write) {
        let mut client = Client::new(seed, stream);
        for id in 0..stream.requests {
            let ClientRequest { start, sectors, .. } = client.ask(id, 0);
            let blocks = start / BLOCK_SECTORS..(start + u64::from(sectors)) / BLOCK_SECTORS;
            for block in blocks {
                let sector = block * BLOCK_SECTORS;
                let address = geometry.locate(LogicalSector(sector));
                let place = (address.row, u64::from(address.offset_sectors));
                *rows.entry(place).or_default() |= 1_u64 << address.data_index;
            }
        }
    }
    rows
}

/// The sectors of `runs`, sorted for each disk and joined into the fewest possible runs.
fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable();
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last)
                if (last.slot, last.sector + last.sectors) == (run.slot, run.sector)
                    && last.is_parity == run.is_parity
                    && last.sectors < RUN_SECTORS_MAX =>
            {
                last.sectors += run.sectors;
            }
            _ => joined.push(run),
        }
    }
    joined
}

impl Backend for Clairvoyant {
    fn request(&mut self, _: u64, request: ClientRequest) {
        if std::mem::take(&mut self.is_flushed) {
            self.plan = self.plans.next().expect("each phase is known");
            self.go_on();
        }
        if request.is_write {
            self.traffic.answer(request.id);
        } else {
            self.traffic.read(&self.geometry, request, Owner::Read);
        }
    }

    fn disk_done(&mut self, _: u64, id: u64) {
        match self.traffic.disk_done(id) {
            Owner::Write => {}
            Owner::PreRead => self.pre_reads_out -= 1,
            Owner::Read(client) => self.plan.reads -= u64::from(self.traffic.part_done(client)),
        }
        self.go_on();
    }

    fn handle_timeout(&mut self, _: u64) {}

    fn timeout(&self) -> Option<u64> {
        None
    }

    fn flush(&mut self, _: u64) {
        self.is_flushed = true;
    }

    fn take(&mut self) -> Effects {
        self.traffic.take()
    }

    fn backlog_permille(&self) -> u32 {
        0
    }

    fn is_idle(&self) -> bool {
        self.is_flushed && self.traffic.is_quiet()
    }

    fn pre_read_sectors(&self) -> u64 {
        self.traffic.pre_read_sectors
    }

    fn counters(&self) -> String {
        format!("runs written: {}", self.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{geometry, mix, tiobench};
    use super::*;

    #[test]
    fn what_is_written_is_written_once_and_read_for_no_more_than_once() {
        let (geometry, stripe) = geometry();
        let phases = tiobench(geometry.capacity_sectors(), 4 << 20);
        for streams in phases.into_iter().chain([mix(geometry.capacity_sectors(), 4 << 20)]) {
            let rows = written(&stripe, &streams);
            let plan = Plan::of(&stripe, &streams);
            let sectors = |runs: &[Run]| runs.iter().map(|run| run.sectors).sum::<u64>();
            let touched = |bits: &u64| u64::from(bits.count_ones());
            let blocks: u64 = rows.values().map(|bits| touched(bits) + 1).sum();
            assert_eq!(sectors(&plan.writes), blocks * BLOCK_SECTORS);
            // With three data columns: if one is written, two blocks are read; if two are, one; if
            // three are, none.
            let needed: u64 = rows.values().map(|bits| 3 - touched(bits)).sum();
            assert_eq!(sectors(&plan.pre_reads), needed * BLOCK_SECTORS);
            for runs in [&plan.writes, &plan.pre_reads] {
                let ends = |run: &Run| (run.slot, run.sector + run.sectors);
                let apart =
                    runs.windows(2).all(|two| ends(&two[0]) <= (two[1].slot, two[1].sector));
                assert!(apart, "in the order of each disk, and none twice");
            }
        }
    }
}
