//! The world's lying disks: it tracks which sectors may be wrong because of lies, and checks that
//! an offline check finds these sectors.

use std::collections::BTreeSet;

use braid_assembly::AssembledArray;
use braid_geometry::{ChunkRow, Geometry, LogicalSector, MemberSector, Slot};

use super::{Taint, columns, logical, row, strip};
use crate::checker::redundancy::{self, Areas};
use crate::content::{SECTOR, places};
use crate::disk::Disk;
use crate::lie_overlay::Change;
use crate::model::ANYTHING;
use crate::world::World;

impl World {
    pub(crate) fn hear_of_lies(&mut self, disk: usize) {
        let changes = std::mem::take(&mut self.disks[disk].lies.changes);
        for (sector, change) in changes {
            self.tally.count(match change {
                Change::Tainted => "sectors-tainted",
                Change::Other => "sectors-tainted-again",
                Change::Healed => "sectors-healed",
                Change::Undone => "sectors-untainted-by-power-cut",
                Change::Back => "sectors-tainted-by-power-cut",
            });
            self.taint.changed.insert((disk, sector), self.clock.step);
            self.doubt(disk, sector);
        }
    }

    /// Marks the strip of a sector as doubtful, if the sector is tainted.
    fn doubt(&mut self, disk: usize, sector: u64) {
        let column = self.taint.column(disk, sector);
        let strip = column.and_then(|(slot, sector)| strip(&self.geometry, slot, sector));
        if let Some(strip) = strip.filter(|_| self.disks[disk].lies.honest(sector).is_some()) {
            self.taint.doubtful.insert(strip);
        }
    }

    /// The array wrote these sectors of a disk: finds out whether it wrote wrong bytes.
    pub(crate) fn assess_write(&mut self, disk: usize, (start, sectors): (u64, u64)) {
        if !self.disks[disk].lies.changes.is_empty() {
            self.hear_of_lies(disk);
        }
        if self.taint.is_calm() {
            return;
        }
        for sector in start..start + sectors {
            let Some((slot, place)) = self.taint.column(disk, sector) else { continue };
            let Some(strip) = strip(&self.geometry, slot, place) else { continue };
            let logical = logical(&self.geometry, slot, place);
            let is_polluted = logical.is_some_and(|one| self.taint.polluted.contains(&one));
            if !is_polluted && !self.taint.doubtful.contains(&strip) {
                continue;
            }
            // A read in flight may have returned the old content, or an error.
            self.taint.changed.insert((disk, sector), self.clock.step);
            if let Some(logical) = logical {
                self.assess(logical);
            }
        }
    }

    /// Records whether an array sector is polluted: the array itself wrote wrong bytes to it.
    fn assess(&mut self, logical: u64) {
        let mut is_polluted = false;
        for (slot, place) in places(&self.geometry, logical) {
            let Some(disk) = self.taint.occupants[slot.index()] else {
                is_polluted |= self.taint.polluted.contains(&logical);
                continue;
            };
            let data = self.disks[disk].honest(self.taint.data_offset + place.0);
            let version = self.model.identify(logical, data);
            let held = &self.engine.held;
            let is_held = |write: u64| held.is_held(write);
            let is_right = |one| self.model.may_be_stored(logical, one, &is_held);
            is_polluted |= !version.is_some_and(is_right) && !is_right(ANYTHING);
        }
        if is_polluted && self.taint.polluted.insert(logical) {
            self.tally.count("sectors-polluted");
        } else if !is_polluted && self.taint.polluted.remove(&logical) {
            self.taint.cleansed.insert(logical);
            self.tally.count("sectors-cleansed");
        }
    }

    /// Whether a read of an array sector may have returned wrong bytes, if it began at step
    /// `began`.
    pub(crate) fn may_be_wrong(&self, logical: u64, began: u64) -> bool {
        if self.taint.polluted.contains(&logical) {
            return true;
        }
        places(&self.geometry, logical).into_iter().any(|(slot, place)| {
            let Some(disk) = self.taint.occupants[slot.index()] else {
                return self.is_computed_wrongly(place);
            };
            let at = self.taint.data_offset + place.0;
            let is_own = self.disks[disk].lies.is_tainted(at..at + 1)
                || self.taint.changed_since(disk, at..at + 1, began);
            is_own
                || (!self.is_healthy((slot, disk), place, began) && self.is_computed_wrongly(place))
        })
    }

    /// Whether the bytes computed for a column may be wrong. Only levels with parity compute bytes.
    fn is_computed_wrongly(&self, place: MemberSector) -> bool {
        matches!(self.geometry, Geometry::Stripe(_)) && self.taint.doubtful.contains(&place.0)
    }

    /// Whether a read certainly took a column from its disk. The engine may compute the column
    /// instead: it computes a whole range of a chunk for one bad sector, and reads around a disk
    /// that sits out.
    fn is_healthy(&self, (slot, disk): (Slot, usize), place: MemberSector, began: u64) -> bool {
        let Geometry::Stripe(stripe) = &self.geometry else { return true };
        let start = self.taint.data_offset + stripe.row_start(stripe.row_of(place)).0;
        let chunk = start..start + u64::from(stripe.chunk_sectors());
        let one = &self.disks[disk];
        let is_viewed = |side: &crate::open::ShardSide| side.view.member(slot).is_some();
        !one.ills.gone
            && !self.engine.slow.were_out.contains(&disk)
            && one.bad.range(chunk.clone()).next().is_none()
            && !self.taint.changed_since(disk, chunk, began)
            && self.engine.machines.shards.iter().all(is_viewed)
    }

    /// Whether a value of this array sector may come from a lie. Reads of such values pin nothing.
    pub(crate) fn is_doubtful(&self, logical: u64) -> bool {
        self.taint.polluted.contains(&logical)
            || places(&self.geometry, logical).into_iter().any(|(slot, place)| {
                let strip = strip(&self.geometry, slot, place.0);
                strip.is_some_and(|strip| self.taint.doubtful.contains(&strip))
            })
    }

    /// Whether a disk's superblock differs from the last one written to it.
    pub(crate) fn is_superblock_tainted(&self, disk: usize) -> bool {
        self.disks[disk].lies.is_tainted(self.taint.superblock.clone())
    }

    /// Records that clients write these array sectors, so that a lying disk can lose the writes.
    pub(crate) fn rows_are_asked(&mut self, (start, sectors): (u64, u64)) {
        let rows = rows_of(&self.geometry, (start, sectors));
        self.taint.asked.iter_mut().for_each(|asked| asked.extend(rows.iter().copied()));
    }

    /// A disk has flushed in truth. From now on it can lose only writes that are in flight or held.
    pub(crate) fn flushed_in_truth(&mut self, disk: usize) {
        let flights = self.engine.clients.flights.values();
        let writes = flights.filter(|flight| flight.request.operation.is_write());
        let ranges = writes.map(|flight| (flight.request.start.0, flight.request.sectors));
        let ranges = ranges.chain(self.engine.held.ranges().map(|(_, range)| range));
        self.taint.asked[disk] = ranges.flat_map(|range| rows_of(&self.geometry, range)).collect();
    }

    /// After a power cut: checks that a disk lost only writes since its last true flush.
    pub(crate) fn check_confined(&self, disk: usize) {
        let changes = self.disks[disk].lies.changes.iter();
        for (sector, _) in changes.filter(|(_, change)| *change == Change::Tainted) {
            let Some((slot, place)) = self.taint.column(disk, *sector) else { continue };
            let Some(strip) = strip(&self.geometry, slot, place) else { continue };
            let is_asked = self.taint.asked[disk].contains(&row(&self.geometry, strip));
            assert!(is_asked, "disk {disk} lost sector {sector}, which no client had written");
        }
    }

    /// The array is about to start: updates which sectors may be wrong, and tests the offline
    /// check.
    pub(crate) fn take_stock(&mut self, assembled: &AssembledArray, presented: &[usize]) {
        if !self.taint.may_lie && self.taint.is_calm() {
            return;
        }
        let occupants = assembled.slots.iter();
        let occupants = occupants.map(|slot| slot.as_ref().map(|one| presented[one.member]));
        self.taint.occupants = occupants.collect();
        for disk in 0..self.disks.len() {
            self.hear_of_lies(disk);
        }
        self.taint.changed.clear();
        for disk in self.taint.occupants.clone().into_iter().flatten() {
            let tainted: Vec<u64> = self.disks[disk].lies.tainted().collect();
            tainted.into_iter().for_each(|sector| self.doubt(disk, sector));
        }
        if self.taint.is_calm() {
            return;
        }
        let mut logicals = self.taint.polluted.clone();
        logicals.extend(&self.taint.cleansed);
        for strip in &self.taint.doubtful {
            for (slot, place) in columns(&self.geometry, *strip) {
                logicals.extend(logical(&self.geometry, slot, place.0));
            }
        }
        logicals.into_iter().for_each(|logical| self.assess(logical));
        // A power cut may still undo writes that are in a cache.
        let is_stable = !self.disks.iter().any(Disk::has_unflushed);
        self.check_offline(is_stable);
        if is_stable {
            // Sectors of an absent disk stay in `cleansed`, because the disk may return with its
            // old content.
            let Self { taint, geometry, .. } = self;
            let Taint { cleansed, occupants, .. } = taint;
            let is_away = |(slot, _): (Slot, MemberSector)| occupants[slot.index()].is_none();
            cleansed.retain(|logical| places(geometry, *logical).into_iter().any(is_away));
        }
    }

    /// Checks that an offline check reports every strip with a single tainted column. Strips whose
    /// columns are whole, untainted and agree are no longer doubtful.
    fn check_offline(&mut self, is_stable: bool) {
        let slots: Vec<Option<(usize, u64)>> = self
            .taint
            .occupants
            .iter()
            .map(|slot| slot.map(|disk| (disk, self.taint.data_offset)))
            .collect();
        let seen = Areas {
            disks: &self.disks,
            slots: slots.clone(),
            promised: Vec::new(),
            logged: Vec::new(),
            is_honest: false,
        };
        let honest = Areas {
            disks: &self.disks,
            slots: slots.clone(),
            promised: Vec::new(),
            logged: Vec::new(),
            is_honest: true,
        };
        let mut believed = Vec::new();
        let (mut alone, mut found) = (0, 0);
        for strip in &self.taint.doubtful {
            let columns = columns(&self.geometry, *strip);
            let places = columns.iter().filter_map(|(slot, place)| {
                slots[slot.index()].map(|(disk, offset)| (disk, offset + place.0))
            });
            let is_tainted =
                |(disk, at): &(usize, u64)| self.disks[*disk].lies.is_tainted(*at..*at + 1);
            let tainted = places.clone().filter(is_tainted).count();
            let agrees = redundancy::agrees(&self.geometry, &seen, *strip);
            if tainted == 1 && redundancy::agrees(&self.geometry, &honest, *strip) == Some(true) {
                alone += 1;
                found += u64::from(agrees == Some(false));
            }
            let is_direct = matches!(self.geometry, Geometry::Direct(_));
            let is_whole = places.count() == columns.len() && (is_direct || agrees == Some(true));
            if is_stable && tainted == 0 && is_whole {
                believed.push(*strip);
            }
        }
        assert_eq!(found, alone, "the offline check missed tainted sectors that are alone");
        self.tally.count_many("tainted-alone", alone);
        self.tally.count_many("tainted-found", found);
        believed.iter().for_each(|strip| {
            self.taint.doubtful.remove(strip);
        });
    }

    /// A rebuild has written everything. `content` is the array's content from now on, right or
    /// wrong.
    pub(crate) fn agree_on(&mut self, content: &[u8]) {
        for (sector, data) in (0..).zip(content.chunks_exact(SECTOR)) {
            if self.model.may_read(sector, ANYTHING, u64::MAX) {
                continue;
            }
            let version = self.model.identify(sector, data);
            match version.filter(|version| self.model.may_read(sector, *version, u64::MAX)) {
                Some(version) => {
                    self.model.settle(sector, version);
                    self.taint.polluted.remove(&sector);
                    self.taint.cleansed.remove(&sector);
                }
                None => {
                    // A rebuild makes redundancy of wrongly read bytes as well, because md cannot
                    // notice them.
                    assert!(self.may_be_wrong(sector, 0), "sector {sector} was rebuilt wrongly");
                    self.taint.polluted.insert(sector);
                    self.tally.count("sectors-rebuilt-wrong");
                }
            }
        }
        self.taint.doubtful.clear();
        self.taint.forget_asked();
    }
}

fn rows_of(geometry: &Geometry, (start, sectors): (u64, u64)) -> BTreeSet<u64> {
    let sectors = start..start + sectors;
    match geometry {
        Geometry::Stripe(stripe) => {
            let row = |sector| stripe.locate(LogicalSector(sector)).row;
            sectors.map(row).map(|ChunkRow(row)| row).collect()
        }
        _ => sectors.collect(),
    }
}
