//! Parity logs in the simulator, md's PPL and our own: written, torn, and replayed at a start.
//!
//! After an interruption during writes the simulator replays the logs onto the disks as a server
//! does, and a power cut can interrupt the replay. Afterwards parity must be right everywhere.
//!
//! At some starts the server ignores our own logs, as md does, and its writes bypass them. The
//! superblocks that this server writes then lack the stamp that marks these logs as valid.
//!
//! # Invariants
//! - If logs were kept, replay makes an uncleanly stopped array clean, whichever members are
//!   missing [check: random_worlds_hold_and_meet_every_kind_of_fault].

use std::ops::Range;

use braid_assembly::AssembledArray;
use braid_engine::array::{MemberId, ParityLogRecord, parity_log_for};
use braid_engine::cause::{Cause, RequestKind};
use braid_engine::replay::{Devices, Finish, Log, Replay, Setup, run};
use braid_geometry::{ChunkRow, Geometry, LogicalSector, Slot, StripeGeometry};
use braid_ondisk::PplLog;
use braid_parity::kernel;

use crate::chances::Purpose;
use crate::content::{self, SECTOR, Version};
use crate::model::End;
use crate::slot_disks::{SlotDisks, members};
use crate::world::World;

/// Percentage of starts at which the server does not know our own logs. Stories can change it.
pub(crate) const OTHERS_PERCENT: u64 = 8;

struct ParityLogDevices<'a>(SlotDisks<'a>);

impl Devices for ParityLogDevices<'_> {
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool {
        self.0.read(slot, &sectors, bytes)
    }

    fn partial(&self, slot: Slot, entry: u32, sectors: Range<u64>) -> &[u8] {
        let log = log_of(self.0.assembled, slot).expect("its entries are from there");
        let mut entries = log.entries();
        let (_, logged) = entries.find(|(index, _)| *index == entry).expect("it is there");
        &logged.partial[sectors.start as usize * SECTOR..sectors.end as usize * SECTOR]
    }

    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool {
        self.0.write(slot, &sectors, bytes);
        true
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.0.flush(slot);
        true
    }

    fn record_clean(&mut self, _: Slot) -> bool {
        unreachable!("superblocks stay as they are")
    }

    fn void(&mut self, _: Slot) -> bool {
        unreachable!("logs stay as they are")
    }
}

fn log_of(assembled: &AssembledArray, slot: Slot) -> Option<&PplLog> {
    let mut logs = assembled.replay.as_ref()?.logs.iter();
    logs.find(|(of, _)| *of == slot).map(|(_, log)| log)
}

fn setup(assembled: &AssembledArray) -> Option<Setup> {
    let Geometry::Stripe(geometry) = &assembled.geometry else { return None };
    let members = members(assembled);
    let log = |slot| {
        let entries = log_of(assembled, slot)?.entries();
        let entries = entries.map(|(index, logged)| (index, logged.entry)).collect();
        Some(Log { slot, entries })
    };
    let logs = (0..geometry.slots()).map(Slot).filter_map(log).collect();
    Some(Setup { geometry: *geometry, members, logs, finish: Finish::Flushed })
}

/// One sector of a data column, computed from the row's other columns; `None` if `seen` has too few
/// of them.
fn solved<'a>(
    geometry: &StripeGeometry,
    row: ChunkRow,
    index: u16,
    seen: impl Fn(Slot) -> Option<&'a [u8]>,
) -> Option<[u8; SECTOR]> {
    let map = geometry.row_map(row);
    let mut sources = vec![None; usize::from(map.exponents_count())];
    let mut lost = Vec::new();
    for other in 0..map.data_slots() {
        let bytes = seen(map.data_slot(other)).filter(|_| other != index);
        sources[usize::from(map.exponent(other))] = bytes;
        if bytes.is_none() && other != index {
            lost.push(map.exponent(other));
        }
    }
    let (p, q) = (seen(map.p_slot()), map.q_slot().and_then(&seen));
    let (exponent, mut bytes) = (map.exponent(index), [0; SECTOR]);
    match (&lost[..], p, q) {
        ([], Some(p), _) => {
            let others: Vec<&[u8]> = sources.into_iter().flatten().chain([p]).collect();
            kernel().xor(&mut bytes, &others);
        }
        ([], None, Some(q)) => kernel().recover_data_from_q(&sources, q, exponent, &mut bytes),
        ([other], Some(p), Some(q)) => {
            let mut second = [0; SECTOR];
            let lost = (exponent.min(*other), exponent.max(*other));
            let out = (&mut bytes[..], &mut second[..]);
            let out = if exponent < *other { out } else { (out.1, out.0) };
            kernel().recover_two_data(&sources, (p, q), lost, out);
        }
        _ => return None,
    }
    Some(bytes)
}

impl World {
    /// Replays the parity logs before anything else, as a server does. False if the array does not
    /// start after the replay: power was cut, or a sector could not be read.
    ///
    /// # Panics
    /// If logs name places that the array does not have.
    pub(crate) fn replay(&mut self, assembled: &mut AssembledArray, presented: &[usize]) -> bool {
        if assembled.replay.is_none() {
            return true;
        }
        let Some(setup) = setup(assembled) else { return true };
        let entries: usize = setup.logs.iter().map(|log| log.entries.len()).sum();
        self.was_replayed = true;
        self.tally.count("replayed");
        self.tally.count_many("replayed-entries", entries as u64);
        self.note("replay", [entries as u64, u64::from(assembled.degraded), 0]);
        let is_cut = self.chances.openings.chance(15);
        let powered = if is_cut { self.chances.openings.below(12) } else { u64::MAX };
        let machine = Replay::new(setup).expect("logs tell of what the array has");
        let data_offset = self.taint.data_offset;
        let disks = &mut self.disks[..];
        let slot_disks =
            SlotDisks { disks, assembled, presented, data_offset, powered, is_cut: false };
        let mut on_disks = ParityLogDevices(slot_disks);
        let report = run(machine, &mut on_disks).expect("disks take what is replayed");
        // Sectors that were in flight read as their members have them. Until superblocks record the
        // missing members, a next start that lacks other members can compute other bytes.
        self.is_unsettled |= assembled.degraded > 0;
        if on_disks.0.is_cut {
            self.tally.count("power-cut-in-replay");
            self.lose_power();
            return false;
        }
        report
            .unsettled
            .iter()
            .cloned()
            .flatten()
            .for_each(|sector| self.is_anything(sector, assembled, presented));
        if !report.unread.is_empty() {
            self.tally.count("replay-lacks-a-sector");
            if assembled.degraded > 0 {
                // A server refuses to start a degraded array if the replay cannot read a sector.
                // The operator then copies the disk to a sound one.
                presented.iter().for_each(|disk| self.disks[*disk].bad.clear());
                return false;
            }
        }
        assembled.note_replayed(report.unread.is_empty());
        true
    }

    /// Draws whether the next server does not know our own logs, as md does not. That server
    /// resyncs the whole array, and the logs are no longer valid.
    pub(crate) fn may_ignore_own_logs(&mut self, assembled: &mut AssembledArray) -> bool {
        // A dirty and degraded array needs the logs. Until the resync ends, a sector in flight can
        // read as old, or as new without its member. Only stories handle that.
        let is_story = self.others_percent == 100;
        let needs_them = assembled.dirty && (assembled.degraded > 0 || !is_story);
        let may = self.metadata.design.log_is_own && !needs_them;
        let percent = self.others_percent;
        let ignores = may && self.chances.of(Purpose::ParityLogs, 2).chance(percent);
        if ignores {
            self.tally.count("own-logs-ignored");
            assembled.replay = None;
        }
        ignores
    }

    /// A sector was in flight and its member is missing. The stripe's parity may lack writes of
    /// other columns, so the model allows the computed bytes, unless no write of this sector was in
    /// flight.
    fn is_anything(&mut self, sector: u64, assembled: &AssembledArray, presented: &[usize]) {
        let Geometry::Stripe(geometry) = &assembled.geometry else { return };
        let address = geometry.locate(LogicalSector(sector));
        let at = geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
        let place = content::bytes(self.taint.data_offset + at, 1);
        // An unreadable sector counts as seen, because it can be readable later.
        let seen = |slot: Slot| {
            let one = assembled.slots[slot.index()].as_ref()?;
            let is_bad = one.bad_sectors().iter().any(|bad| bad.contains(&at));
            let holds = at < one.recovered_until && !is_bad;
            holds.then(|| &self.disks[presented[one.member]].seen[place.clone()])
        };
        let Some(bytes) = solved(geometry, address.row, address.data_index, seen) else { return };
        if !self.model.is_unsure(sector) {
            return;
        }
        self.tally.count("unsettled-sectors");
        self.is_unsettled = true;
        if self.model.identify(sector, &bytes).is_none() {
            let write = self.next_request.0;
            self.next_request.0 += 1;
            self.model.begin_merged(sector, write, write as Version, &bytes);
            self.model.end((sector, 1), write, (self.clock.step, self.clock.step), End::Unsure);
        }
    }

    pub(crate) fn write_parity_log(
        &mut self,
        member: MemberId,
        record: &ParityLogRecord,
    ) -> Result<(), Cause> {
        self.tally.count("parity-log-written");
        let area = self.new_parity_log(member, record);
        let generation = record.generation.unwrap_or(0);
        let words = [area.0 as u64, generation, record.entries.len() as u64];
        let fails = self.disks[area.0].ills.superblocks_fail;
        let asked = (RequestKind::ParityLog, fails);
        self.write_area(member, &area, asked, (["parity-log", "parity-log-fails"], words))
    }

    pub(crate) fn tear_parity_log(&mut self, member: MemberId, record: &ParityLogRecord) {
        let (index, start, data) = self.new_parity_log(member, record);
        self.disks[index].tear((start, &data), &mut self.chances.disks);
    }

    fn new_parity_log(&self, member: MemberId, record: &ParityLogRecord) -> (usize, u64, Vec<u8>) {
        let side = &self.engine.machines.members[usize::from(member.0)];
        let (offset_bytes, data) = parity_log_for(&side.superblock, record);
        (side.disk, offset_bytes / SECTOR as u64, data)
    }
}
