//! The effects that the array asks of its driver, and its notices for operators and monitors.

use std::sync::Arc;

use braid_geometry::{LogicalSector, Slot};
use braid_ondisk::{JournalPiece, JournalRecord};

use super::bitmap_record::BitmapRecord;
use super::jobs::{JobEnd, JobProgress};
use super::parity_log_record::ParityLogRecord;
use super::update::SuperblockState;
use super::view::ArrayView;
use crate::bad_log::BadLogWrite;
use crate::cause::Cause;
use crate::effect::{LogTicket, SlowMembers};
use crate::ids::{MemberId, RequestId, ShardIndex};
use crate::request::Fault;
use crate::work::{Found, Work};

/// An effect that the array asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayEffect {
    /// Give this view to every shard.
    Publish(Arc<ArrayView>),
    /// Write this beside the member's data, durably, and say when
    /// ([`super::Array::handle_metadata_written`]).
    WriteMetadata {
        /// Whose.
        member: MemberId,
        /// The record, which implies its place.
        record: MetadataRecord,
    },
    /// Write down durably which members have the update of this count, and say when
    /// ([`super::Array::handle_record_kept`]): it tells of a loss. Only where a record is kept
    /// ([`super::Array::handle_keeps_record`]).
    KeepRecord {
        /// The count.
        events: u64,
    },
    /// Flush this member's volatile cache, and say when.
    Flush {
        /// Whose.
        member: MemberId,
    },
    /// The member has left the array. Every [`Self::WriteMetadata`] or [`Self::Flush`] in flight at
    /// it has failed: the driver reports that now, and nothing when the request ends.
    Leave {
        /// Which.
        member: MemberId,
    },
    /// Give this to every shard, which need not wait for what is under way.
    SlowMembers(Arc<SlowMembers>),
    /// Ask every shard for its activity.
    QueryActivity,
    /// Ask every shard under which bits of the bitmap it has written since it was asked last.
    QueryTouched,
    /// Ask every shard to bring what it has answered to the members.
    WriteBack {
        /// Which time this is.
        round: u64,
    },
    /// Tell this shard that what it wanted logged under this name is.
    Logged {
        /// Which shard.
        shard: ShardIndex,
        /// Its name for it.
        ticket: LogTicket,
    },
    /// Answer a client's flush.
    Answer {
        /// Whose.
        request: RequestId,
        /// How it went.
        result: Result<(), Fault>,
    },
    /// Give this to a shard; it will report what came of it.
    Work {
        /// Which.
        shard: ShardIndex,
        /// The work.
        work: Work,
    },
    /// Tell a person, or a monitor.
    Notice(Notice),
}

/// Where something is written beside a member's data. One record for each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataArea {
    /// The superblock.
    Superblock,
    /// The bad-block log.
    BadBlocks,
    /// The write-intent bitmap.
    Bitmap,
    /// The partial parity log.
    ParityLog,
    /// The write journal: all of the data area of its device.
    Journal,
}

/// The content of a metadata write. The driver makes the bytes: it knows the member's own numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRecord {
    /// The array's state for the superblock.
    Superblock(Arc<SuperblockState>),
    /// The new bad-block log. Earlier writes to the member are made durable first: a range that the
    /// log no longer names is believed.
    BadBlocks(Arc<BadLogWrite>),
    /// The new write-intent bitmap.
    Bitmap(Arc<BitmapRecord>),
    /// A record for the partial parity log.
    ParityLog(Arc<ParityLogRecord>),
    /// A piece of a record for the write journal.
    Journal(Arc<JournalRecord>, JournalPiece),
}

impl MetadataRecord {
    /// The area that it is for.
    #[must_use]
    pub const fn area(&self) -> MetadataArea {
        match self {
            Self::Superblock(_) => MetadataArea::Superblock,
            Self::BadBlocks(_) => MetadataArea::BadBlocks,
            Self::Bitmap(_) => MetadataArea::Bitmap,
            Self::ParityLog(_) => MetadataArea::ParityLog,
            Self::Journal(..) => MetadataArea::Journal,
        }
    }
}

/// The reaction to a member that errs again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erring {
    /// Nothing: it stays, until a person or a spare comes.
    Stays,
    /// This spare is to take its place, and is filled while it serves.
    Replaced(MemberId),
    /// It is put out: the others bear it.
    PutOut,
}

/// Something a person or a monitor wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A member failed and is out of the array; the survivors' superblocks say so, unless the
    /// array is open for reading only.
    MemberOut {
        /// Which.
        member: MemberId,
        /// The slot it had.
        slot: Slot,
        /// How it failed.
        cause: Cause,
    },
    /// A member has not answered for so long that the array goes on without it, until it does. The
    /// survivors' superblocks say so.
    Away {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
    },
    /// A member that was away has answered all that it was asked, and comes back.
    Returned {
        /// Its name from now on.
        member: MemberId,
        /// The slot that it had.
        slot: Slot,
        /// Its name until now.
        old: MemberId,
        /// Milliseconds that it was away.
        after_ms: u64,
    },
    /// More members failed than the level can make up for; writes are refused from now on.
    Broken {
        /// The member whose failure was one too many.
        member: MemberId,
        /// How it failed.
        cause: Cause,
    },
    /// The write journal's device failed: no further write could be logged, so writes are refused.
    /// All acknowledged writes are on the members.
    JournalLost {
        /// The journal's device.
        member: MemberId,
        /// How it failed.
        cause: Cause,
    },
    /// The bitmap file cannot be written any more: the array goes on without it, and whatever
    /// counted on it is brought in sync as a whole after a crash.
    BitmapFileLost {
        /// The file, by its name as a member.
        member: MemberId,
        /// How it failed.
        cause: Cause,
    },
    /// A write that had been answered could not be carried out, nor could it be answered with an
    /// error any more. Every flush fails from now on, and these sectors cannot be read until they
    /// are written again. One notice for each run of sectors.
    WriteLost {
        /// First sector of the array that was lost.
        start: LogicalSector,
        /// How many; at least one.
        sectors: u64,
        /// The last member failure before that, if the write was involved in it.
        cause: Option<Cause>,
    },
    /// The file system below a member is full. Nothing is wrong with the member, so it stays; but
    /// a write was left half done, so writes are refused until the array is started again.
    OutOfSpace {
        /// The member that could not grow.
        member: MemberId,
        /// The write that failed.
        cause: Cause,
    },
    /// A member became write-protected, and holds all its data. It stays; but a write was left half
    /// done, so writes are refused until the array is started again.
    WriteProtected {
        /// Which.
        member: MemberId,
        /// The write that it refused.
        cause: Cause,
    },
    /// A spare failed, or a member that no superblock yet names in its slot: it leaves. It held no
    /// data of the array.
    SpareLost {
        /// Which.
        member: MemberId,
        /// How it failed.
        cause: Cause,
    },
    /// A member has become much slower than its siblings: it is read around for now, and written.
    SitsOut {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// Milliseconds that its requests take, or that the oldest has been under way.
        latency_ms: u64,
        /// Microseconds that its siblings take: the median; 0 if nothing was asked of them.
        siblings_us: u64,
    },
    /// A member that sat out is read again.
    Back {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// Milliseconds that it sat out.
        after_ms: u64,
    },
    /// A member has had more read errors lately than the limit allows. All were corrected: the
    /// others had what it could not read.
    Errs {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// How many; what is older than an hour counts half for each hour.
        errors: u32,
        /// The reaction.
        erring: Erring,
    },
    /// A job has begun.
    JobBegan(JobProgress),
    /// A job has passed another fifth of its way; one that passes several at once says so once.
    JobPassed(JobProgress),
    /// A job is no more.
    JobEnded {
        /// How far it was.
        progress: JobProgress,
        /// How it ended.
        end: JobEnd,
    },
    /// A check or a repair has found something that is wrong: one notice for each run of sectors,
    /// up to a limit for each job; [`JobProgress`] counts all.
    Found(Found),
    /// A spare has taken a slot that had no member; superblocks say so, and it is to be recovered.
    SpareTaken {
        /// Which.
        member: MemberId,
        /// The slot.
        slot: Slot,
        /// Sectors of its data area that it holds from before, by the bitmap: they are not
        /// recovered.
        kept_sectors: u64,
    },
    /// A spare is to take the place of a member that is still there; superblocks say so, and it is
    /// to be filled.
    Replacing {
        /// Which.
        member: MemberId,
        /// The slot.
        slot: Slot,
        /// The member that is in it.
        old: MemberId,
    },
    /// A member has been replaced: the other holds all that it should, and has its place;
    /// superblocks say so.
    Replaced {
        /// Which is in the slot now.
        member: MemberId,
        /// The slot.
        slot: Slot,
        /// Which was, and is out.
        old: MemberId,
    },
    /// A member has been recovered: it holds all that it should, and superblocks say so.
    Recovered {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
    },
    /// The superblocks of all members that are in the array say so, durably; the driver knows with
    /// which time. Of no interest to a person.
    Recorded {
        /// The count.
        events: u64,
    },
    /// The array has stopped.
    Stopped {
        /// Its superblocks are clean, and nothing that was answered was lost.
        clean: bool,
    },
}
