//! The operator creates or drops parity logs while the array runs.
//!
//! # Invariants
//! - A log is written before the first superblock that names a PPL of md, or that calls the own log
//!   valid [check: random_worlds_hold_and_meet_every_kind_of_fault].

use std::collections::BTreeMap;

use braid_engine::array::{LogRefusal, MemberId, SuperblockState};
use braid_ondisk::{LogPlace, PplLog, PplPlace};

use crate::chances::Purpose;
use crate::cut::Kind;
use crate::fault::{Fault, Mishap};
use crate::open;
use crate::world::World;

/// Faults of a cycle are numbered. Numbers from here on are changes of parity logs.
const FIRST_ORDINAL: u64 = 9100;
/// Percentage of runs in which parity logs are created or dropped.
const CHANGES_PERCENT: u64 = 15;

impl World {
    /// Adds changes of parity logs to the plan of a run of about `steps` steps from `now` on. Only
    /// arrays that were created with parity logs have room for them.
    pub(crate) fn plan_log_changes(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::ParityLogs, 3);
        if self.metadata.design.log_sectors == 0 || !random.chance(CHANGES_PERCENT) {
            return;
        }
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + 1 + random.below(3) {
            let step = now + random.below(steps);
            if !self.chances.leaves_out(Kind::Fault, ordinal) {
                let mishap = Mishap::ChangesLogs;
                self.engine.plan.faults.push(Fault { step, disk: 0, mishap, ordinal });
            }
        }
    }

    /// The operator creates parity logs of the kind and size that the array was created with
    /// (`makes`), or drops them.
    pub(crate) fn changes_logs(&mut self, makes: bool) -> Result<(), LogRefusal> {
        let design = self.metadata.design;
        let machines = &self.engine.machines;
        let place = |member: MemberId| {
            let superblock = &machines.members[usize::from(member.0)].superblock;
            let ppl = || {
                let place = superblock.ppl_place_of(design.log_sectors)?;
                Some(LogPlace::Ppl(PplPlace { multiple: design.log_is_ring, ..place }))
            };
            let own = design.own_log(superblock).map(LogPlace::Own);
            let place = if design.log_is_own { own } else { ppl() };
            Some((member, place?))
        };
        let file = machines.array.bitmap_file();
        let targets = match file {
            Some(file) => vec![file],
            None => machines.array.members(),
        };
        let places: Option<BTreeMap<MemberId, LogPlace>> = targets.into_iter().map(place).collect();
        // A bitmap created meanwhile can leave too little room for logs.
        if makes && places.is_none() {
            return Err(LogRefusal::Bitmap);
        }
        let wanted = places.filter(|_| makes);
        let now = self.clock.now;
        let changed = self.engine.machines.array.handle_log_request(now, wanted);
        self.tally.count(if changed.is_ok() { "log-changes" } else { "logs-stay" });
        self.drain_array();
        changed
    }

    /// Checks that the parity log that a new superblock names exists on the disk.
    ///
    /// # Panics
    /// If the log does not exist.
    pub(crate) fn check_log_is_there(&self, member: MemberId, state: &SuperblockState) {
        let side = &self.engine.machines.members[usize::from(member.0)];
        let disk = &self.disks[side.disk];
        let named = state.ppls.iter().find(|(id, _)| *id == member);
        let is_in = self.engine.machines.array.members().contains(&member)
            && !self.engine.machines.array.spares().contains(&member);
        if let Some((_, place)) = named.filter(|_| is_in && side.superblock.intent.ppl.is_none()) {
            let start = side.superblock.log_start_bytes(LogPlace::Ppl(*place));
            let start = usize::try_from(start.expect("it is on the disk")).expect("and in memory");
            let bytes = &disk.seen[start..start + place.used_bytes() as usize];
            let log = PplLog::read(bytes, *place, &side.superblock.uuid_as_stored());
            let is_there = log.is_ok_and(|log| log.newest.is_some());
            assert!(
                is_there,
                "the superblock of disk {} names no log before it is there",
                side.disk
            );
        }
        if state.log_counts.is_some() && is_in {
            let file = self.engine.machines.array.bitmap_file();
            let side = file.map_or(side, |id| &self.engine.machines.members[usize::from(id.0)]);
            let disk = &self.disks[side.disk];
            let own = match file {
                Some(_) => open::given_file(disk).file.ok().and_then(|file| file.own_log),
                None => open::own_log(disk, &side.superblock),
            };
            let is_there = own.is_some_and(|own| own.place.is_ok());
            assert!(is_there, "disk {} lacks a log that counts", side.disk);
        }
    }
}
