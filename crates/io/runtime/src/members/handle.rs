//! One member of a running array: its device, its superblock, and what stands before it.
//!
//! What it does not do: carry anything out (the back ends), or decide where that is done ([`crate::executor`]).
//!
//! Which slot it has, and how far it is recovered, are the view's; what is kept here is what the last view said.

use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use braid_dispatch::{Scheduler, Settings};
use braid_engine::BadLogWrite;
use braid_engine::array::{
    BitmapRecord, MemberId, MetadataArea, ParityLogRecord, SuperblockState, apply_to,
    bad_block_log_for, bitmap_for, parity_log_for,
};
use braid_engine::effect::MemberIo;
use braid_geometry::{MemberSector, SECTOR_BYTES};
use braid_member::{AnsweredBy, Member, MemberKind, Raw};
use braid_ondisk::{JournalPiece, JournalRecord, Superblock, Timestamp};
use braid_ring::Handler;
use slab::Slab;

use super::crew::Crew;
use super::left::ForArray;
use super::operation::{Item, Operation, PartLists};
use super::rejoining::Rejoining;
use super::ring_admission::RingAdmission;
use super::traffic::Traffic;
use crate::alarm::LOOK_INTERVAL;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Arc, Mutex};
use crate::updates::RecordedMember;

/// How many times as long as anything else a flush may take: what a page cache holds of a slow
/// disk, or a disk that shingles.
const FLUSH_PATIENCE: u32 = 8;

/// A member that has been one for so long has not come and gone lately.
const CALM: Duration = Duration::from_secs(3600);

/// See the module.
pub(crate) struct MemberHandle {
    id: MemberId,
    pub(crate) device: Box<dyn Member>,
    raw: Option<Raw>,
    /// What stands before it.
    pub(crate) scheduler: Scheduler<Item>,
    /// What is queued there, for the multiplexer ([`crate::turns`]).
    pub(crate) queued: AtomicU64,
    /// How much of it is for rings.
    pub(crate) admission: RingAdmission<Operation>,
    /// What it has there, but for plain transfers, by the tokens of their operations. Places are used again, so that nothing
    /// is allocated once the most that was ever out has been.
    out: Mutex<Slab<Operation>>,
    /// Where the ends of that come.
    pub(crate) ports: OnceLock<Ports>,
    /// Its threads.
    pub(crate) crew: Crew,
    /// What it was asked for the array as a whole.
    pub(crate) for_array: ForArray,
    /// How it comes back, if it goes away.
    pub(crate) rejoining: Rejoining,
    /// When it became a member.
    pub(crate) since: Instant,
    pub(crate) part_lists: PartLists,
    /// What went to and from it.
    pub(crate) traffic: Traffic,
    data_offset_bytes: u64,
    place: Mutex<Place>,
    superblock: Mutex<Superblock>,
}

/// Where operations that a ring was given end.
pub(crate) struct Ports {
    /// Plain transfers, by shard: the token is their [`IoId`](braid_engine::effect::IoId).
    pub(crate) of_shards: Vec<Arc<dyn Handler>>,
    /// All else: the token is that of its place ([`MemberHandle::note_out`]).
    pub(crate) rest: Arc<dyn Handler>,
}

/// What the last view with the member in it said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The slot that it occupies.
    pub(crate) slot: Option<u16>,
}

impl MemberHandle {
    pub(crate) fn new(
        id: MemberId,
        device: Box<dyn Member>,
        superblock: Superblock,
        place: Place,
        threads_max: usize,
    ) -> Self {
        let identity = device.identity();
        let answered_by = match identity.answered_by {
            // A layer may do with it as it likes.
            AnsweredBy::Memory if !is_memory(&*device) => AnsweredBy::Device,
            answered_by => answered_by,
        };
        Self {
            id,
            admission: RingAdmission::new(identity.queue_requests, answered_by),
            scheduler: Scheduler::new(Settings::straight()),
            queued: AtomicU64::new(0),
            out: Mutex::default(),
            ports: OnceLock::new(),
            crew: Crew::new(threads_max),
            for_array: ForArray::default(),
            rejoining: Rejoining::new(id),
            since: Instant::now(),
            part_lists: PartLists::default(),
            traffic: Traffic::default(),
            raw: device.raw(),
            device,
            data_offset_bytes: superblock.device.data_offset_sectors * SECTOR_BYTES,
            place: Mutex::new(place),
            superblock: Mutex::new(superblock),
        }
    }

    /// Its device, when nothing has to do with it any more.
    pub(crate) fn into_device(self) -> Box<dyn Member> {
        self.device
    }

    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    /// What it is, for people: its path as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.device.identity().path
    }

    /// The slot that it occupies, or did last.
    pub(crate) fn slot(&self) -> Option<u16> {
        self.place().slot
    }

    /// Whether it is a bitmap file, and no member of the array: it has what stands for a superblock.
    pub(crate) fn is_bitmap_file(&self) -> bool {
        self.superblock.lock().expect("writing does not panic").is_of_bitmap_file()
    }

    fn place(&self) -> Place {
        *self.place.lock().expect("noting does not panic")
    }

    /// Notes what a view says of it.
    pub(crate) fn note_view(&self, slot: u16) {
        let place = Place { slot: Some(slot) };
        *self.place.lock().expect("noting does not panic") = place;
    }

    /// Whether the device turns, if it says so.
    pub(crate) fn rotational(&self) -> Option<bool> {
        self.device.identity().rotational
    }

    /// Whether what is asked reaches a device that turns. One that says nothing does not turn; and behind the page cache
    /// the kernel decides what reaches the device when, so that an order here would only hold back copies of memory.
    pub(crate) fn turns(&self) -> bool {
        self.rotational() == Some(true) && self.device.is_direct()
    }

    /// The array reads around the member from now on, or does not any more. A file system on a disk that is slow may keep
    /// the thread that asks while it looks up where a file's bytes are; a device only takes what is asked, and as much at once as ever.
    pub(crate) fn set_sits_out(&self, sits_out: bool) {
        if self.device.identity().kind == MemberKind::File {
            self.admission.set_sits_out(sits_out);
        }
    }

    /// [`Member::hole_at`] of a range of the data area; in sectors, of which one that is only part of a hole is none.
    pub(crate) fn hole_at(&self, start: MemberSector, sectors: u64) -> (bool, u64) {
        let offset_bytes = self.data_offset_bytes + start.0 * SECTOR_BYTES;
        let (is_hole, bytes) = self.device.hole_at(offset_bytes, sectors * SECTOR_BYTES);
        match bytes / SECTOR_BYTES {
            0 => (false, 1),
            whole => (is_hole, whole.min(sectors)),
        }
    }

    /// Leaves an operation for its threads.
    pub(crate) fn leave_to_threads(&self, operation: Operation) {
        self.crew.push(operation, self.admission.is_suspect());
    }

    /// Has a thread started if there is work for it and none to do it.
    pub(crate) fn man_if_needed(&self) {
        self.crew.man_if_needed(self.admission.is_suspect());
    }

    /// Whether it has been asked for something that has not ended.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.admission.is_busy() || self.crew.is_looking()
    }

    /// Milliseconds for which nothing has ended that it was asked, by the looks at it; none if
    /// something has, or nothing was asked. A flush alone may take much longer than anything else,
    /// and counts so much less.
    pub(crate) fn silent_ms(&self) -> Option<u64> {
        let (silent_looks, silent_flush_looks) = self.admission.silent_looks();
        let looks = silent_looks.max(silent_flush_looks / FLUSH_PATIENCE);
        let silent = LOOK_INTERVAL * looks;
        (looks > 0).then(|| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX))
    }

    /// Looks whether anything has ended since the last look.
    pub(crate) fn look(&self) {
        self.admission.look(self.for_array.flushes());
    }

    /// How often its device has come back lately, if it does so once more now.
    pub(crate) fn returns_lately(&self) -> u32 {
        let is_lately = self.since.elapsed() < CALM;
        if is_lately { self.rejoining.returns() + 1 } else { 0 }
    }

    /// Whether nothing waits for it, and nothing is out.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_unanswered() && !self.admission.has_kept() && self.crew.is_idle()
    }

    /// Notes what goes to a ring; the token of its operation there.
    pub(crate) fn note_out(&self, operation: Operation) -> u64 {
        self.out.lock().expect("noting does not panic").insert(operation) as u64
    }

    /// What has come back from there.
    pub(crate) fn take_back(&self, token: u64) -> Operation {
        let place = usize::try_from(token).expect("one of our tokens");
        self.out.lock().expect("noting does not panic").remove(place)
    }

    /// The device's open file, if it has one.
    pub(crate) fn raw(&self) -> Option<&Raw> {
        self.raw.as_ref()
    }

    /// Whether it has a place where a program may find it, and where it may vanish from.
    pub(crate) fn has_place(&self) -> bool {
        self.device.identity().kind != MemberKind::Memory
    }

    /// Where on the device an operation's bytes are, and how many.
    pub(crate) fn range(&self, io: &MemberIo) -> (u64, u64) {
        let offset_bytes = self.data_offset_bytes + io.sector.0 * SECTOR_BYTES;
        (offset_bytes, u64::from(io.sectors) * SECTOR_BYTES)
    }

    /// Its superblock, as it was written last or is being written.
    pub(crate) fn superblock(&self) -> Superblock {
        self.superblock.lock().expect("writing does not panic").clone()
    }

    /// From now on its superblock says of the device of this number whether it is read only where no other copy is.
    pub(crate) fn set_write_mostly(&self, number: u32, is_it: bool) {
        let mut superblock = self.superblock.lock().expect("writing does not panic");
        superblock.set_write_mostly(number, is_it);
    }

    /// A read error of it was corrected: its superblock says so when it is written next.
    pub(crate) fn count_corrected_read(&self) {
        self.superblock.lock().expect("writing does not panic").count_corrected_read();
    }

    /// What it is in the array, for a record of it.
    pub(crate) fn recorded_member(&self, slot: u16) -> RecordedMember {
        let superblock = self.superblock.lock().expect("writing does not panic");
        RecordedMember { slot, number: superblock.device.number, uuid: superblock.device.uuid }
    }

    /// The superblock that tells of `state`. To be written durably, one at a time.
    ///
    /// # Panics
    /// It cannot say the shape: the array tried that before.
    pub(crate) fn next_superblock(&self, state: &SuperblockState, time: Timestamp) -> Operation {
        let mut superblock = self.superblock.lock().expect("writing does not panic");
        let applied = apply_to(&mut superblock, self.id, self.device.size_bytes(), state, time);
        applied.expect("a shape is tried before it is said");
        Operation::Metadata {
            area: MetadataArea::Superblock,
            bytes: superblock.to_bytes(),
            offset_bytes: superblock.offset_bytes(),
        }
    }

    /// What is to be written of its bitmap. To be written durably, one at a time.
    ///
    /// # Panics
    /// The member has no bitmap: the array knows better.
    pub(crate) fn next_bitmap(&self, record: &BitmapRecord) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let (offset_bytes, bytes) = bitmap_for(&superblock, record);
        Operation::Metadata { area: MetadataArea::Bitmap, bytes, offset_bytes }
    }

    /// A record of the partial parity log. To be written durably, one at a time.
    ///
    /// # Panics
    /// The member keeps no such log: the array knows better.
    pub(crate) fn next_parity_log(&self, record: &ParityLogRecord) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let (offset_bytes, bytes) = parity_log_for(&superblock, record);
        Operation::Metadata { area: MetadataArea::ParityLog, bytes, offset_bytes }
    }

    /// A piece of a record of the write journal. To be written durably, one at a time.
    ///
    /// # Panics
    /// It is not the journal's device: the array knows better.
    pub(crate) fn next_journal(&self, record: &JournalRecord, piece: JournalPiece) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let (offset_bytes, bytes) = superblock.journal_bytes(record, piece);
        Operation::Metadata { area: MetadataArea::Journal, bytes, offset_bytes }
    }

    /// A piece of the bad-block log, or all of it. To be written durably, when all that was written to the
    /// member before is durable; one at a time.
    ///
    /// # Panics
    /// The member keeps no such log, or it has no room: the array knows better.
    pub(crate) fn next_bad_blocks(&self, write: &BadLogWrite) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let (offset_bytes, bytes) = bad_block_log_for(&superblock, write);
        Operation::Metadata { area: MetadataArea::BadBlocks, bytes, offset_bytes }
    }
}

/// Whether carrying something out at a device never waits. In models it may, so that there are more schedules.
pub(crate) fn is_memory(device: &dyn Member) -> bool {
    device.is_memory() && !cfg!(shuttle)
}
