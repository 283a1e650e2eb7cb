//! The shipped engine in virtual time: one shard, without bytes, behind functions that several
//! suites call.
//!
//! Place in the flow: under the suites that simulate the disks themselves. It takes clients'
//! requests and returns member I/O. Computations on bytes complete at once and cost nothing. It has
//! no disks: the suite reports when a member's request is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_engine::array::ArrayView;
use braid_engine::buffer::Buffer;
use braid_engine::effect::{IoId, MemberIoDone, MemberOperation, Report};
use braid_engine::request::{Operation, Regions, Request, RequestId};
use braid_engine::{CacheConfig, Counters, Instant, Shard, Tuning};
use braid_geometry::{ChunkRow, Geometry, LogicalSector, Role, Slot};

use crate::disk::{ArmPurpose, DiskRequest};

/// A request of the engine to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberRequest {
    pub(crate) slot: usize,
    pub(crate) disk: DiskRequest,
    /// The purpose of the request. A read into a stripe is a pre-read, since no member is missing
    /// here.
    pub(crate) purpose: ArmPurpose,
}

/// The engine's requests to members and answers to clients since the last call.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) member_requests: Vec<MemberRequest>,
    pub(crate) answers: Vec<u64>,
    pub(crate) written_back: Vec<u64>,
    /// Every report to the array.
    pub(crate) reports: Vec<Report>,
}

pub(crate) struct Engine {
    shard: Shard,
    geometry: Geometry,
    regions: Regions,
    /// Number of unanswered pieces, by request.
    unanswered_pieces: BTreeMap<u64, u32>,
    effects: Effects,
    rounds: u64,
}

impl Engine {
    /// The engine of a clean array with all of its members. Settings not given are the defaults.
    pub(crate) fn new(geometry: &Geometry, unit_sectors_max: u32, tuning: Tuning) -> Self {
        let view = Arc::new(ArrayView::consistent(geometry.clone()));
        Self::with_view(view, unit_sectors_max, tuning)
    }

    /// The engine of an array whose machine the suite drives.
    pub(crate) fn with_view(view: Arc<ArrayView>, unit_sectors_max: u32, tuning: Tuning) -> Self {
        let geometry = Geometry::clone(&view.geometry);
        Self {
            shard: Shard::new(CacheConfig::in_memory(unit_sectors_max, tuning), view),
            regions: Regions::new(&geometry, 1),
            geometry,
            unanswered_pieces: BTreeMap::new(),
            effects: Effects::default(),
            rounds: 0,
        }
    }

    /// Takes a client's request, whose range is in sectors of the array.
    pub(crate) fn request(
        &mut self,
        now: u64,
        id: u64,
        operation: Operation,
        (start, sectors): (u64, u64),
    ) {
        let whole = Request { id: RequestId(id), operation, start: LogicalSector(start), sectors };
        for (_, piece) in self.regions.split(&whole) {
            *self.unanswered_pieces.entry(id).or_default() += 1;
            self.shard.handle_piece(Instant(now), piece);
        }
        self.poll(now);
    }

    pub(crate) fn member_done(&mut self, now: u64, id: u64) {
        self.shard.handle_member_io(Instant(now), MemberIoDone { id: IoId(id), result: Ok(()) });
        self.poll(now);
    }

    pub(crate) fn handle_timeout(&mut self, now: u64) {
        self.shard.handle_timeout(Instant(now));
        self.poll(now);
    }

    /// The latest time of the next call to the engine.
    pub(crate) fn timeout(&self) -> Option<u64> {
        self.shard.poll_timeout().map(|at| at.0)
    }

    /// Starts writing all acknowledged data to the members; returns the round's number.
    pub(crate) fn write_back(&mut self, now: u64) -> u64 {
        self.rounds += 1;
        self.shard.handle_write_back(Instant(now), self.rounds);
        self.poll(now);
        self.rounds
    }

    /// Gives the shard an event of the array machine.
    pub(crate) fn handle(&mut self, now: u64, event: impl FnOnce(&mut Shard)) {
        event(&mut self.shard);
        self.poll(now);
    }

    pub(crate) fn take(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn has_answered_all(&self) -> bool {
        self.unanswered_pieces.is_empty()
    }

    /// Sectors that are acknowledged and not yet on the members.
    pub(crate) fn dirty_sectors(&self) -> u64 {
        self.shard.dirty_sectors()
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.shard.counters()
    }

    fn is_parity(&self, slot: Slot, sector: u64) -> bool {
        let Geometry::Stripe(stripe) = &self.geometry else { return false };
        let row = ChunkRow(sector / u64::from(stripe.chunk_sectors()));
        !matches!(stripe.row_map(row).role(slot), Role::Data(_))
    }

    fn poll(&mut self, now: u64) {
        loop {
            while let Some(io) = self.shard.poll_member_io() {
                let disk = DiskRequest {
                    id: io.id.0,
                    sector: io.sector.0,
                    sectors: u64::from(io.sectors),
                    is_write: io.operation.is_write(),
                };
                let purpose = match io.operation {
                    MemberOperation::Read { buffer: Buffer::Block { .. } } => ArmPurpose::PreRead,
                    MemberOperation::Read { .. } => ArmPurpose::Reader,
                    _ if self.is_parity(io.slot, io.sector.0) => ArmPurpose::Parity,
                    _ => ArmPurpose::Data,
                };
                self.effects.member_requests.push(MemberRequest {
                    slot: usize::from(io.slot.0),
                    disk,
                    purpose,
                });
            }
            while let Some(reply) = self.shard.poll_reply() {
                assert!(reply.result.is_ok(), "no member fails here");
                let pieces =
                    self.unanswered_pieces.get_mut(&reply.request.0).expect("it was asked");
                *pieces -= 1;
                if *pieces == 0 {
                    self.unanswered_pieces.remove(&reply.request.0);
                    self.effects.answers.push(reply.request.0);
                }
            }
            while self.shard.poll_release().is_some() {}
            while let Some(report) = self.shard.poll_report() {
                if let Report::WrittenBack { round } = report {
                    self.effects.written_back.push(round);
                }
                self.effects.reports.push(report);
            }
            let Some(computation) = self.shard.poll_computation() else { return };
            self.shard.handle_computation_done(Instant(now), computation);
        }
    }
}
