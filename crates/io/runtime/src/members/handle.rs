//! One member of a running array: its device, its superblock, its scheduler and its queues.
//!
//! Not here: carrying out operations (the back ends), and the choice of the back end
//! ([`crate::executor`]).
//!
//! The view decides the member's slot and recovery offset; the handle keeps a copy of both from the
//! last view.

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

use super::array_operations::ArrayOperations;
use super::operation::{Item, Operation, PartLists};
use super::rejoining::Rejoining;
use super::ring_admission::RingAdmission;
use super::threads::MemberThreads;
use super::traffic::Traffic;
use crate::alarm::LOOK_INTERVAL;
use crate::sync::atomic::AtomicU64;
use crate::sync::{Arc, Mutex};
use crate::updates::RecordedMember;

/// A flush may take this many times longer than any other request. A flush may cover all data that
/// a page cache holds for a slow disk, or that a shingled disk has to rewrite.
const FLUSH_PATIENCE: u32 = 8;

/// A device that has been a member for this long has not returned to the array lately.
const CALM: Duration = Duration::from_secs(3600);

pub(crate) struct MemberHandle {
    id: MemberId,
    pub(crate) device: Arc<dyn Member>,
    raw: Option<Raw>,
    pub(crate) scheduler: Scheduler<Item>,
    /// The member's queued operations, for the multiplexer ([`crate::turns`]).
    pub(crate) queued: AtomicU64,
    /// Limits the member's operations on rings.
    pub(crate) admission: RingAdmission<Operation>,
    /// The member's operations on rings, except plain transfers, by their tokens. Places are
    /// reused, so that nothing is allocated beyond the largest number ever in flight.
    out: Mutex<Slab<Operation>>,
    /// The handlers that receive the ends of the member's ring operations.
    pub(crate) ports: OnceLock<Ports>,
    pub(crate) threads: MemberThreads,
    pub(crate) array_operations: ArrayOperations,
    /// The progress of the member's return into the array, if the member is away.
    pub(crate) rejoining: Rejoining,
    pub(crate) since: Instant,
    pub(crate) part_lists: PartLists,
    pub(crate) traffic: Traffic,
    data_offset_bytes: u64,
    /// First sector of the data in the old and in the new shape of a reshape, counted from the
    /// lower of the two.
    starts_of_data: [u64; 2],
    /// The member's slot in the last view of the array that still had the member.
    slot: Mutex<Option<u16>>,
    superblock: Mutex<Superblock>,
}

/// The handlers of ended ring operations.
pub(crate) struct Ports {
    /// The handlers of plain transfers, by shard. The token is the transfer's
    /// [`IoId`](braid_engine::effect::IoId).
    pub(crate) of_shards: Vec<Arc<dyn Handler>>,
    /// The handler of all other operations, whose tokens are from [`MemberHandle::note_out`].
    pub(crate) rest: Arc<dyn Handler>,
}

impl MemberHandle {
    pub(crate) fn new(
        id: MemberId,
        device: Box<dyn Member>,
        superblock: Superblock,
        slot: Option<u16>,
        threads_max: usize,
    ) -> Self {
        let identity = device.identity();
        let answered_by = match identity.answered_by {
            // A layer over memory may delay or fail requests, so it counts as a device.
            AnsweredBy::Memory if !is_memory(&*device) => AnsweredBy::Device,
            answered_by => answered_by,
        };
        let (offset_bytes, bytes) = superblock.lasting_bytes();
        device.expect_after_loss(offset_bytes, &bytes);
        let threads_max = device.requests_at_once().unwrap_or(threads_max);
        Self {
            id,
            admission: RingAdmission::new(identity.queue_requests, answered_by),
            scheduler: Scheduler::new(Settings::straight()),
            queued: AtomicU64::new(0),
            out: Mutex::default(),
            ports: OnceLock::new(),
            threads: MemberThreads::new(threads_max),
            array_operations: ArrayOperations::default(),
            rejoining: Rejoining::new(id),
            since: Instant::now(),
            part_lists: PartLists::default(),
            traffic: Traffic::default(),
            raw: device.raw(),
            device: Arc::from(device),
            data_offset_bytes: superblock.lowest_data_sector() * SECTOR_BYTES,
            starts_of_data: superblock.starts_of_data(),
            slot: Mutex::new(slot),
            superblock: Mutex::new(superblock),
        }
    }

    /// Returns the member's device, which no operation may use any more.
    pub(crate) fn into_device(self) -> Arc<dyn Member> {
        self.device
    }

    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.device.identity().path
    }

    /// The member's slot, or the last slot that it had.
    pub(crate) fn slot(&self) -> Option<u16> {
        *self.slot.lock().expect("noting does not panic")
    }

    /// Whether this handle represents a bitmap file instead of a member. A bitmap file's superblock
    /// is a stand-in.
    pub(crate) fn is_bitmap_file(&self) -> bool {
        self.superblock.lock().expect("writing does not panic").is_of_bitmap_file()
    }

    pub(crate) fn note_view(&self, slot: u16) {
        *self.slot.lock().expect("noting does not panic") = Some(slot);
    }

    /// Whether the device is rotational, if it reports that.
    pub(crate) fn rotational(&self) -> Option<bool> {
        self.device.identity().rotational
    }

    /// Whether the member's requests reach a rotational device. A device that reports nothing does
    /// not count. With the page cache the kernel decides when requests reach the device, so
    /// ordering them here would only delay copies of memory.
    pub(crate) fn turns(&self) -> bool {
        self.rotational() == Some(true) && self.device.is_direct()
    }

    /// Notes that the array begins or ends to read around the member. A file system on a slow disk
    /// may block the caller while it looks up where a file's bytes are. A device only queues
    /// requests, so only files are affected.
    pub(crate) fn set_sits_out(&self, sits_out: bool) {
        if self.device.identity().kind == MemberKind::File {
            self.admission.set_sits_out(sits_out);
        }
    }

    /// [`Member::hole_at`] for a range of the data area, in sectors. A hole that covers only a part
    /// of a sector does not count.
    pub(crate) fn hole_at(&self, start: MemberSector, sectors: u64) -> (bool, u64) {
        let offset_bytes = self.data_offset_bytes + start.0 * SECTOR_BYTES;
        let (is_hole, bytes) = self.device.hole_at(offset_bytes, sectors * SECTOR_BYTES);
        match bytes / SECTOR_BYTES {
            0 => (false, 1),
            whole => (is_hole, whole.min(sectors)),
        }
    }

    /// First sector of the data in the old or the new shape of a reshape, counted from the lower of
    /// the two.
    pub(crate) fn start_of_data(&self, is_after: bool) -> u64 {
        self.starts_of_data[usize::from(is_after)]
    }

    pub(crate) fn leave_to_threads(&self, operation: Operation) {
        self.threads.push(operation, self.admission.is_suspect());
    }

    pub(crate) fn man_if_needed(&self) {
        self.threads.man_if_needed(self.admission.is_suspect());
    }

    pub(crate) fn is_unanswered(&self) -> bool {
        self.admission.is_busy() || self.threads.is_looking()
    }

    /// Milliseconds since the member's last operation ended, counted in looks. `None` if an
    /// operation ended recently or none is in flight. A flush may take much longer than other
    /// operations, so time with only flushes in flight counts less.
    pub(crate) fn silent_ms(&self) -> Option<u64> {
        let (silent_looks, silent_flush_looks) = self.admission.silent_looks();
        let looks = silent_looks.max(silent_flush_looks / FLUSH_PATIENCE);
        let silent = LOOK_INTERVAL * looks;
        (looks > 0).then(|| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX))
    }

    /// Checks whether the member has ended an operation since the last check.
    pub(crate) fn look(&self) {
        self.admission.look(self.array_operations.flushes());
    }

    /// Number of times that the device has returned lately, counting a return now.
    pub(crate) fn returns_lately(&self) -> u32 {
        let is_lately = self.since.elapsed() < CALM;
        if is_lately { self.rejoining.returns() + 1 } else { 0 }
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_unanswered() && !self.admission.has_kept() && self.threads.is_idle()
    }

    /// Stores an operation that goes to a ring; returns its token.
    pub(crate) fn note_out(&self, operation: Operation) -> u64 {
        self.out.lock().expect("noting does not panic").insert(operation) as u64
    }

    /// Removes and returns an operation that a ring has ended.
    pub(crate) fn take_back(&self, token: u64) -> Operation {
        let place = usize::try_from(token).expect("one of our tokens");
        self.out.lock().expect("noting does not panic").remove(place)
    }

    /// The device's open file, if it has one.
    pub(crate) fn raw(&self) -> Option<&Raw> {
        self.raw.as_ref()
    }

    /// Whether programs find the device by a path, so that it can vanish.
    pub(crate) fn has_place(&self) -> bool {
        self.device.identity().kind != MemberKind::Memory
    }

    /// The range of an operation on the device: offset and length in bytes.
    pub(crate) fn range(&self, io: &MemberIo) -> (u64, u64) {
        let offset_bytes = self.data_offset_bytes + io.sector.0 * SECTOR_BYTES;
        (offset_bytes, u64::from(io.sectors) * SECTOR_BYTES)
    }

    /// The member's superblock, as last written or being written.
    pub(crate) fn superblock(&self) -> Superblock {
        self.superblock.lock().expect("writing does not panic").clone()
    }

    /// Sets the write-mostly flag of the device with this number in the member's superblock.
    pub(crate) fn set_write_mostly(&self, number: u32, is_it: bool) {
        let mut superblock = self.superblock.lock().expect("writing does not panic");
        superblock.set_write_mostly(number, is_it);
    }

    /// Counts a corrected read error; the next write of the superblock records the count.
    pub(crate) fn count_corrected_read(&self) {
        self.superblock.lock().expect("writing does not panic").count_corrected_read();
    }

    /// The member's entry in a record of the array.
    pub(crate) fn recorded_member(&self, slot: u16) -> RecordedMember {
        let superblock = self.superblock.lock().expect("writing does not panic");
        RecordedMember { slot, number: superblock.device.number, uuid: superblock.device.uuid }
    }

    /// A durable write of the superblock for `state`; at most one is in flight. Panics if the
    /// superblock cannot express the shape; the array rules that out.
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

    /// A durable write of the member's bitmap; at most one is in flight. Panics if the member has
    /// no bitmap; the array rules that out.
    pub(crate) fn next_bitmap(&self, record: &BitmapRecord) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let (offset_bytes, bytes) = bitmap_for(&superblock, record);
        Operation::Metadata { area: MetadataArea::Bitmap, bytes, offset_bytes }
    }

    /// A durable write of a record of the partial parity log; at most one is in flight. Panics if
    /// the member keeps no such log; the array rules that out.
    pub(crate) fn next_parity_log(&self, record: &ParityLogRecord) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let (offset_bytes, bytes) = parity_log_for(&superblock, record);
        Operation::Metadata { area: MetadataArea::ParityLog, bytes, offset_bytes }
    }

    /// A durable write of a part of a journal record; at most one is in flight. Panics if the
    /// member is not the journal's device; the array rules that out.
    pub(crate) fn next_journal(&self, record: &JournalRecord, piece: JournalPiece) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let (offset_bytes, bytes) = superblock.journal_bytes(record, piece);
        Operation::Metadata { area: MetadataArea::Journal, bytes, offset_bytes }
    }

    /// A durable write of the bad-block log, or of a part of it. All earlier writes to the member
    /// must be durable first, and only one may be in flight. Panics if the member keeps no such
    /// log, or the log has no room; the array rules that out.
    pub(crate) fn next_bad_blocks(&self, write: &BadLogWrite) -> Operation {
        let superblock = self.superblock.lock().expect("writing does not panic");
        let start_sector = self.data_offset_bytes / SECTOR_BYTES;
        let (offset_bytes, bytes) = bad_block_log_for(&superblock, start_sector, write);
        Operation::Metadata { area: MetadataArea::BadBlocks, bytes, offset_bytes }
    }
}

/// Whether operations on a device never wait. In models they may wait even on memory, so that
/// models explore more schedules.
pub(crate) fn is_memory(device: &dyn Member) -> bool {
    device.is_memory() && !cfg!(shuttle)
}
