//! Write-intent bitmaps in the simulator: how they are written and torn, and what they promise.
//!
//! Sectors whose bits are clear agree, however the run ended. So the checker of clean arrays looks
//! at those sectors of dirty arrays, too.
//!
//! A lockless bitmap marks regions that no client has written as unwritten. There, members are
//! created with bytes that differ from parity or copies. A client's read of an unwritten region may
//! return anything ([`crate::model`]) until a client has written it. From then on the checker
//! compares the strip with parity again, synced or not.
//!
//! # Invariants
//! - After an unclean stop, copies are equal and parity fits wherever bits are clear
//!   [check: random_worlds_hold_and_meet_every_kind_of_fault].
//! - No member is written before its bit is durable on all members of the array
//!   [check: a_bit_is_durable_before_its_sectors_are_written].

use braid_assembly::{AssembledArray, resync_sectors};
use braid_engine::array::{
    ArrayView, BitmapRecord, BitmapRefusal, MemberId, NewBitmap, bitmap_for,
};
use braid_engine::cause::{Cause, RequestKind};
use braid_geometry::Geometry;
use braid_ondisk::{BitmapSuperblock, Bits, Superblock};
use std::collections::BTreeSet;

use crate::chances::Purpose;
use crate::content::{SECTOR, places};
use crate::create::Design;
use crate::cut::Kind;
use crate::disk::Disk;
use crate::fault::{Fault, Mishap};
use crate::model::{ANYTHING, Model};
use crate::open;
use crate::random::Random;
use crate::world::World;

/// Writes a rebuilt member's bitmap without set bits, as md does. `is_whole`: all members were
/// rebuilt.
pub(crate) fn renew(
    disk: &mut Disk,
    superblock: &Superblock,
    (design, is_whole): (&Design, bool),
    geometry: &Geometry,
) {
    let Some(offset_bytes) = superblock.bitmap_offset_bytes() else { return };
    let design = match design.lockless {
        Some(_) if is_whole => Design { lockless: Some(0), ..*design },
        _ => *design,
    };
    let (head, bits, marks) = design.bitmap(resync_sectors(geometry)).expect("it has a bitmap");
    let events = superblock.state.events;
    let head = BitmapSuperblock { events, events_cleared: events, ..head };
    let area = head.area(&superblock.uuid_as_stored(), &bits, marks.as_ref());
    disk.put(offset_bytes / SECTOR as u64, &area, true);
}

/// The sector that the bitmap counts for an array sector: a sector of each member on levels with
/// parity, the array sector itself on others.
fn strip_of(geometry: &Geometry, sector: u64) -> u64 {
    match geometry {
        Geometry::Stripe(_) => places(geometry, sector)[0].1.0,
        Geometry::Mirror(_) | Geometry::Direct(_) => sector,
    }
}

/// Fills the unwritten regions of a new array with noise, so that its members differ in them.
pub(crate) fn scramble(
    (disks, data_offset): (&mut [Disk], u64),
    (design, geometry): (&Design, &Geometry),
    model: &mut Model,
) {
    let Some((_, _, Some(marks))) = design.bitmap(resync_sectors(geometry)) else { return };
    let unwritten = &marks.unwritten;
    let is_unwritten = |strip: u64| unwritten.has_any(unwritten.of(&(strip..strip + 1)));
    let mut random = Random::new(0x10c_c1e55);
    let mut noise = || -> Vec<u8> { (0..SECTOR).map(|_| random.next() as u8).collect() };
    for sector in
        (0..geometry.capacity_sectors()).filter(|one| is_unwritten(strip_of(geometry, *one)))
    {
        model.settle(sector, ANYTHING);
        if let Geometry::Mirror(_) = geometry {
            for (slot, place) in places(geometry, sector) {
                disks[slot.index()].put(data_offset + place.0, &noise(), true);
            }
        }
    }
    if let Geometry::Stripe(stripe) = geometry {
        for strip in (0..stripe.used_sectors()).filter(|strip| is_unwritten(*strip)) {
            for disk in &mut disks[..usize::from(geometry.slots())] {
                disk.put(data_offset + strip, &noise(), true);
            }
        }
    }
}

/// Sectors with a set bit, at or above the resync offset. `None` if no bitmap is believed, so that
/// all sectors are in doubt.
pub(crate) fn in_doubt(assembled: &AssembledArray) -> Option<BTreeSet<u64>> {
    let bitmap = assembled.bitmap.as_ref().filter(|bitmap| bitmap.is_current)?;
    let sectors = bitmap.bits.iter().flat_map(|bit| bitmap.bits.sectors_of(bit));
    Some(sectors.filter(|sector| *sector >= assembled.resync_offset).collect())
}

/// Faults of a cycle are numbered. Numbers from here on are bitmap changes.
const FIRST_ORDINAL: u64 = 9000;
/// Percentage of runs in which a bitmap is created or dropped.
const CHANGES_PERCENT: u64 = 12;

impl World {
    /// Sectors whose redundancy need not agree, by the marks of a lockless bitmap: unwritten
    /// regions, and unsynced regions where no client has written.
    pub(crate) fn not_promised(&self, assembled: &AssembledArray) -> BTreeSet<u64> {
        let Some(marks) = assembled.bitmap.as_ref().and_then(|one| one.marks.as_ref()) else {
            return BTreeSet::new();
        };
        let strips = |bits: &Bits| -> BTreeSet<u64> {
            bits.iter().flat_map(|bit| bits.sectors_of(bit)).collect()
        };
        let mut left_out = strips(&marks.unsynced);
        let geometry = &self.geometry;
        for sector in 0..geometry.capacity_sectors() {
            if !self.model.may_be_anything(sector) {
                left_out.remove(&strip_of(geometry, sector));
            }
        }
        left_out.extend(strips(&marks.unwritten));
        left_out
    }

    /// Checks that the bitmap of every member in the shards' views has each open bit set.
    ///
    /// # Panics
    /// If a member lacks a bit.
    pub(crate) fn check_open_bits(&self, view: &ArrayView) {
        let Some(intent) = &view.intent else { return };
        let array = &self.engine.machines.array;
        if array.bitmap().is_none() || !array.is_bitmap_settled() {
            return; // The bitmap was removed, or is being removed.
        }
        let members = view.slots.iter().flatten();
        let members = members.flat_map(|one| [Some(one.id), one.replacement]).flatten();
        let file = array.bitmap_file();
        for id in members.filter(|_| file.is_none()).chain(file) {
            let side = &self.engine.machines.members[usize::from(id.0)];
            let disk = &self.disks[side.disk];
            let found = open::bitmap(disk, &side.superblock).and_then(Result::ok);
            let marks = found.as_ref().and_then(|bitmap| bitmap.marks.clone());
            if let Some((marks, _)) = marks {
                let unsynced = intent.unsynced.as_ref();
                let is_unsynced = |bit: &u64| unsynced.is_some_and(|bits| bits.is_set(*bit));
                let mut open = intent.open.iter().filter(is_unsynced);
                let lacking = open.find(|bit| !marks.unsynced.is_set(*bit));
                assert_eq!(lacking, None, "I3: disk {} does not say unsynced", side.disk);
            }
            let bits = found.map(|bitmap| bitmap.bits);
            let mut open = intent.open.iter();
            let has = |bit: u64| bits.as_ref().is_some_and(|bits| bits.is_set(bit));
            let lacking = open.find(|bit| !has(*bit));
            assert_eq!(lacking, None, "I3: a bit is open that disk {} lacks", side.disk);
        }
    }

    /// Whether the running server keeps the bitmap up to date, so that bits reach disks before
    /// superblocks do.
    pub(crate) fn is_keeping_bits(&self) -> bool {
        let array = &self.engine.machines.array;
        // The engine stops writing a bitmap file that is being dropped.
        let is_kept_up = array.bitmap_file().is_none() || array.is_bitmap_settled();
        array.bitmap().is_some() && is_kept_up
    }

    /// Superblocks are about to be written. If the server keeps no bitmap, the bits on disk are
    /// outdated from then on.
    pub(crate) fn bits_may_be_left_behind(&mut self) {
        if !self.is_keeping_bits() {
            self.keeps_bits.clear();
        }
    }

    /// Plans bitmap changes (created or dropped) for a run of about `steps` steps from `now` on.
    pub(crate) fn plan_bitmap(&mut self, (now, steps): (u64, u64)) {
        let mut random = self.chances.of(Purpose::Bitmaps, 3);
        let bit_sectors = self.metadata.design.bit_sectors;
        if bit_sectors == 0 || !random.chance(CHANGES_PERCENT) {
            return;
        }
        for ordinal in FIRST_ORDINAL..FIRST_ORDINAL + 1 + random.below(3) {
            let step = now + random.below(steps);
            let made = random.chance(60).then(|| bit_sectors << random.below(3));
            let mishap = Mishap::ChangesBitmap(made);
            if !self.chances.leaves_out(Kind::Fault, ordinal) {
                self.engine.plan.faults.push(Fault { step, disk: 0, mishap, ordinal });
            }
        }
    }

    /// The operator creates a bitmap with `bit_sectors` sectors for each bit; `None` drops it.
    pub(crate) fn changes_bitmap(&mut self, bit_sectors: Option<u32>) -> Result<(), BitmapRefusal> {
        let machines = &mut self.engine.machines;
        let superblocks = machines.members.iter().map(|member| &member.superblock);
        let newest = superblocks.max_by_key(|superblock| superblock.state.events);
        let names = newest.is_some_and(|one| one.intent.bitmap_offset_sectors.is_some());
        let is_there = machines.array.bitmap().is_some();
        // Superblocks name a bitmap that this server does not keep. Such a server creates no bitmap
        // either.
        if machines.array.is_bitmap_settled() && names && !is_there {
            return Err(BitmapRefusal::Busy);
        }
        let sectors = resync_sectors(&self.geometry);
        let head = |each: u32| BitmapSuperblock::new(sectors, each * SECTOR as u32, 8);
        // If the array has a bitmap file, the new bitmap goes into that file.
        let disk = self.metadata.design.file_disk();
        let place = disk.and_then(|disk| machines.members.iter().rposition(|one| one.disk == disk));
        let file = place.map(|place| MemberId(place as u16));
        let wanted = bit_sectors.map(|each| NewBitmap { head: head(each), file });
        let changed = machines.array.handle_bitmap_request(self.clock.now, wanted);
        self.tally.count(if changed.is_ok() { "bitmap-changes" } else { "bitmap-stays" });
        self.drain_array();
        changed
    }

    /// Checks that assembly believes the bitmap if the last server kept it on a disk in the array.
    ///
    /// # Panics
    /// If assembly ignores a bitmap that was kept.
    pub(crate) fn check_bits_are_current(
        &mut self,
        assembled: &AssembledArray,
        presented: &[usize],
    ) {
        let is_current = assembled.bitmap.as_ref().is_none_or(|bitmap| bitmap.is_current);
        let mut seated = assembled.slots.iter().flatten().map(|one| presented[one.member]);
        let are_kept = seated.any(|disk| self.keeps_bits.contains(&disk));
        assert!(is_current || !are_kept, "assembly ignores bits that were kept up to date");
        self.tally.count_many("bits-out-of-date", u64::from(!is_current));
    }

    /// Draws whether the next server keeps no bitmaps. Its first write outdates the bits.
    pub(crate) fn forgets_bitmap(&mut self, assembled: &AssembledArray) -> bool {
        let events = assembled.newest.state.events;
        // If the bitmap's event count is ahead, the first update of a server without bitmaps could
        // reach that count, and the next start would believe stale bits.
        let bitmap = assembled.bitmap.as_ref();
        let is_level = bitmap.is_some_and(|one| one.superblock.events <= events);
        // A server without lockless bitmaps does not run an array whose parity is partial.
        let marks = bitmap.and_then(|one| one.marks.as_ref());
        let is_made = marks.is_none_or(|one| one.unwritten.is_empty() && one.unsynced.is_empty());
        let is_level = is_level && is_made;
        // A dirty and degraded array needs its bitmap, and an array with a bitmap file needs a
        // server that names the file.
        let is_in_file = assembled.bitmap_file.is_some();
        let needs_it = assembled.dirty && assembled.degraded > 0 || is_in_file;
        let forgets = is_level && !needs_it && self.chances.of(Purpose::Bitmaps, 2).chance(8);
        self.tally.count_many("bitmap-not-kept", u64::from(forgets));
        forgets
    }

    /// The engine writes a member's bitmap. No lie hits a bitmap, because braid promises nothing if
    /// a disk lies about its bitmap.
    pub(crate) fn write_bitmap(
        &mut self,
        member: MemberId,
        record: &BitmapRecord,
    ) -> Result<(), Cause> {
        self.tally.count("bitmap-written");
        self.check_unwritten(record);
        let area = self.new_bitmap(member, record);
        let words = [area.0 as u64, record.head.events, record.bits.set_count()];
        let fails = self.disks[area.0].ills.superblocks_fail;
        self.write_area(
            member,
            &area,
            (RequestKind::Bitmap, fails),
            (["bitmap", "bitmap-fails"], words),
        )
    }

    pub(crate) fn tear_bitmap(&mut self, member: MemberId, record: &BitmapRecord) {
        self.check_unwritten(record);
        let (index, start, data) = self.new_bitmap(member, record);
        self.disks[index].tear((start, &data), &mut self.chances.disks);
    }

    /// The bitmap calls these sectors unwritten, so no client may need them. From now on reads of
    /// them may return anything.
    fn check_unwritten(&mut self, record: &BitmapRecord) {
        let Some(marks) = &record.marks else { return };
        let unwritten = &marks.unwritten;
        for sector in 0..self.geometry.capacity_sectors() {
            let strip = strip_of(&self.geometry, sector);
            if unwritten.has_any(unwritten.of(&(strip..strip + 1))) {
                self.model.is_unwritten(sector);
            }
        }
    }

    fn new_bitmap(&self, member: MemberId, record: &BitmapRecord) -> (usize, u64, Vec<u8>) {
        let side = &self.engine.machines.members[usize::from(member.0)];
        let (offset_bytes, data) = bitmap_for(&side.superblock, record);
        (side.disk, offset_bytes / SECTOR as u64, data)
    }
}
