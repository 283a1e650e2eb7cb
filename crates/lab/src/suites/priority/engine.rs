//! The shipped engine behind the suite's face: one shard, in virtual time, without bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_engine::array::{ArrayView, Gate, MemberId, MemberView};
use braid_engine::buffer::Buffer;
use braid_engine::effect::{IoId, MemberIoDone, MemberOperation, Report};
use braid_engine::request::{Operation, Regions, Request, RequestId};
use braid_engine::{BadBlocks, CacheConfig, Instant, Shard, ShardConfig, Tuning};
use braid_geometry::{Geometry, LogicalSector};

use super::backend::{Backend, ClientRequest, Effects};
use super::md::BLOCK_SECTORS;
use crate::disk::DiskRequest;

/// A shard.
pub(super) struct Braid {
    shard: Shard,
    regions: Regions,
    /// Pieces of each request that are not answered.
    pieces: BTreeMap<u64, u32>,
    effects: Effects,
    pre_read_sectors: u64,
    /// Whether answered writes are on their way to the disks.
    is_flushing: bool,
    rounds: u64,
}

impl Braid {
    /// With as many stripes of the same size as the models have, and otherwise as it is without being asked.
    pub(super) fn new(geometry: &Geometry, tuning: Tuning) -> Self {
        let config = ShardConfig {
            geometry: geometry.clone(),
            cache: CacheConfig {
                unit_sectors_max: u32::try_from(BLOCK_SECTORS).expect("few"),
                stripes_max: tuning.stripes,
                tuning,
            },
        };
        let member = |slot: u16| MemberView {
            id: MemberId(slot),
            recovered_sectors: u64::MAX,
            bad_blocks: Arc::new(BadBlocks::default()),
        };
        let view = ArrayView {
            epoch: 1,
            gate: Gate::Open,
            slots: (0..geometry.slots()).map(|slot| Some(member(slot))).collect(),
            resync_offset: u64::MAX,
            zero_is_fast: false,
        };
        Self {
            shard: Shard::new(config, Arc::new(view)),
            regions: Regions::new(geometry, 1),
            pieces: BTreeMap::new(),
            effects: Effects::default(),
            pre_read_sectors: 0,
            is_flushing: false,
            rounds: 0,
        }
    }

    /// Takes what the shard asks for; work on bytes is done at once, and costs nothing.
    fn poll(&mut self, now: u64) {
        loop {
            while let Some(io) = self.shard.poll_member_io() {
                let (sectors, is_write) = (u64::from(io.sectors), io.operation.is_write());
                if let MemberOperation::Read { buffer: Buffer::Block { .. } } = io.operation {
                    self.pre_read_sectors += sectors;
                }
                let request = DiskRequest { id: io.id.0, sector: io.sector.0, sectors, is_write };
                self.effects.disks.push((usize::from(io.slot.0), request));
            }
            while let Some(reply) = self.shard.poll_reply() {
                assert!(reply.result.is_ok(), "no disk fails here");
                let pieces = self.pieces.get_mut(&reply.request.0).expect("it was asked");
                *pieces -= 1;
                if *pieces == 0 {
                    self.pieces.remove(&reply.request.0);
                    self.effects.answers.push(reply.request.0);
                }
            }
            while self.shard.poll_release().is_some() {}
            while let Some(report) = self.shard.poll_report() {
                self.is_flushing &= !matches!(report, Report::WrittenBack { .. });
            }
            let Some(job) = self.shard.poll_job() else { return };
            self.shard.handle_job_done(Instant(now), job);
        }
    }
}

impl Backend for Braid {
    fn request(&mut self, now: u64, request: ClientRequest) {
        let durable = false;
        let operation =
            if request.is_write { Operation::Write { durable } } else { Operation::Read };
        let whole = Request {
            id: RequestId(request.id),
            operation,
            start: LogicalSector(request.start),
            sectors: u64::from(request.sectors),
        };
        for (_, piece) in self.regions.split(&whole) {
            *self.pieces.entry(request.id).or_default() += 1;
            self.shard.handle_piece(Instant(now), piece);
        }
        self.poll(now);
    }

    fn disk_done(&mut self, now: u64, id: u64) {
        self.shard.handle_member_io(Instant(now), MemberIoDone { id: IoId(id), result: Ok(()) });
        self.poll(now);
    }

    fn handle_timeout(&mut self, now: u64) {
        self.shard.handle_timeout(Instant(now));
        self.poll(now);
    }

    fn timeout(&self) -> Option<u64> {
        self.shard.poll_timeout().map(|at| at.0)
    }

    fn flush(&mut self, now: u64) {
        self.rounds += 1;
        self.is_flushing = true;
        self.shard.handle_write_back(Instant(now), self.rounds);
        self.poll(now);
    }

    fn take(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    fn is_idle(&self) -> bool {
        self.pieces.is_empty() && !self.is_flushing && self.rounds > 0
    }

    fn pre_read_sectors(&self) -> u64 {
        self.pre_read_sectors
    }

    fn counters(&self) -> String {
        crate::frame::named(self.shard.counters())
    }
}
