//! The shipped engine as a backend of this suite: one shard, in virtual time, without bytes.

use braid_engine::Tuning;
use braid_engine::request::Operation;
use braid_geometry::Geometry;

use super::backend::{Backend, ClientRequest, Effects};
use super::md::BLOCK_SECTORS;
use crate::disk::ArmPurpose;
use crate::engine::Engine;

/// The engine, and the counts that the suite keeps of it.
pub(super) struct Braid {
    engine: Engine,
    dirty_sectors_max: u64,
    pre_read_sectors: u64,
    /// Rounds of writing back that have begun.
    rounds: u64,
    /// Rounds of writing back that have ended.
    rounds_over: u64,
}

impl Braid {
    /// The engine with as many stripes of the same size as the models have, and with default
    /// settings otherwise.
    pub(super) fn new(geometry: &Geometry, tuning: Tuning) -> Self {
        let unit_sectors_max = u32::try_from(BLOCK_SECTORS).expect("few");
        let engine = Engine::new(geometry, unit_sectors_max, tuning);
        let dirty_sectors_max = u64::from(tuning.dirty_sectors_max);
        Self { engine, dirty_sectors_max, pre_read_sectors: 0, rounds: 0, rounds_over: 0 }
    }
}

impl Backend for Braid {
    fn request(&mut self, now: u64, request: ClientRequest) {
        let durable = false;
        let operation =
            if request.is_write { Operation::Write { durable } } else { Operation::Read };
        let run = (request.start, u64::from(request.sectors));
        self.engine.request(now, request.id, operation, run);
    }

    fn disk_done(&mut self, now: u64, id: u64) {
        self.engine.member_done(now, id);
    }

    fn handle_timeout(&mut self, now: u64) {
        self.engine.handle_timeout(now);
    }

    fn timeout(&self) -> Option<u64> {
        self.engine.timeout()
    }

    fn flush(&mut self, now: u64) {
        self.rounds = self.engine.write_back(now);
    }

    fn take(&mut self) -> Effects {
        let effects = self.engine.take();
        let pre_reads =
            effects.member_requests.iter().filter(|request| request.purpose == ArmPurpose::PreRead);
        self.pre_read_sectors += pre_reads.map(|request| request.disk.sectors).sum::<u64>();
        self.rounds_over += effects.written_back.len() as u64;
        Effects {
            disks: effects
                .member_requests
                .iter()
                .map(|request| (request.slot, request.disk, request.purpose))
                .collect(),
            answers: effects.answers,
        }
    }

    fn backlog_permille(&self) -> u32 {
        let backlog = self.engine.dirty_sectors() * 1000 / self.dirty_sectors_max;
        u32::try_from(backlog.min(1000)).expect("small")
    }

    fn is_idle(&self) -> bool {
        self.engine.has_answered_all() && self.rounds > 0 && self.rounds_over == self.rounds
    }

    fn pre_read_sectors(&self) -> u64 {
        self.pre_read_sectors
    }

    fn counters(&self) -> String {
        crate::frame::named(self.engine.counters())
    }
}
