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
use crate::work::{Finding, Work};

/// An effect that the array asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayEffect {
    /// Give this view to every shard.
    Publish(Arc<ArrayView>),
    /// Write this beside the member's data, durably, and report the end
    /// ([`super::Array::handle_metadata_written`]).
    WriteMetadata {
        /// The member.
        member: MemberId,
        /// The record, which implies its place.
        record: MetadataRecord,
    },
    /// Record durably which members have the update of this count, and report the end
    /// ([`super::Array::handle_record_kept`]): it records a loss. Only if the driver keeps a record
    /// ([`super::Array::handle_keeps_record`]).
    KeepRecord {
        /// The count.
        events: u64,
    },
    /// Flush this member's volatile cache, and report the end.
    Flush {
        /// The member.
        member: MemberId,
    },
    /// The member has left the array. Every [`Self::WriteMetadata`] or [`Self::Flush`] in flight at
    /// it has failed: the driver reports that now, and nothing when the request ends.
    Leave {
        /// The member.
        member: MemberId,
    },
    /// Give this to every shard; it takes effect at once.
    SlowMembers(Arc<SlowMembers>),
    /// Ask every shard for its activity.
    QueryActivity,
    /// Ask every shard for the bits under which it has written since the last query.
    QueryTouched,
    /// Ask every shard to bring its acknowledged writes to the members.
    WriteBack {
        /// The round.
        round: u64,
    },
    /// Tell this shard that the entries under this ticket are durable.
    Logged {
        /// The shard.
        shard: ShardIndex,
        /// The ticket.
        ticket: LogTicket,
    },
    /// Answer a client's flush.
    Answer {
        /// The request.
        request: RequestId,
        /// The result.
        result: Result<(), Fault>,
    },
    /// Give this to a shard; it will report the outcome.
    Work {
        /// The shard.
        shard: ShardIndex,
        /// The work.
        work: Work,
    },
    /// Tell the operator, or a monitor.
    Notice(Notice),
}

/// The area of a metadata write beside a member's data. One write for each at a time.
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
    /// The new bad-block log. Earlier writes are made durable first: a range that leaves the log is
    /// believed.
    BadBlocks(Arc<BadLogWrite>),
    /// The new write-intent bitmap.
    Bitmap(Arc<BitmapRecord>),
    /// A record for the partial parity log.
    ParityLog(Arc<ParityLogRecord>),
    /// A piece of a record for the write journal.
    Journal(Arc<JournalRecord>, JournalPiece),
}

impl MetadataRecord {
    /// The record's area.
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
pub enum ErrorReaction {
    /// It stays, until the operator acts or a spare comes.
    Stays,
    /// This spare replaces it, and is filled while it serves.
    Replaced(MemberId),
    /// It is put out: the others bear it.
    PutOut,
}

/// News for the operator or a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A member failed and is out; the survivors' superblocks say so, unless opened read-only.
    MemberOut {
        /// The member.
        member: MemberId,
        /// The slot it had.
        slot: Slot,
        /// The cause.
        cause: Cause,
    },
    /// A member is silent, and the array goes on without it for now. Superblocks record that.
    Away {
        /// The member.
        member: MemberId,
        /// Its slot.
        slot: Slot,
    },
    /// A member that was away has answered all its requests, and comes back.
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
    /// More members failed than the level bears; writes are refused from now on.
    Broken {
        /// The member whose failure was one too many.
        member: MemberId,
        /// The cause.
        cause: Cause,
    },
    /// The write journal's device failed: no further write could be logged, so writes are refused.
    /// All acknowledged writes are on the members.
    JournalLost {
        /// The journal's device.
        member: MemberId,
        /// The cause.
        cause: Cause,
    },
    /// The bitmap file failed a write: the array goes on without it. A crash means a whole resync.
    BitmapFileLost {
        /// The file, by its name as a member.
        member: MemberId,
        /// The cause.
        cause: Cause,
    },
    /// An acknowledged write could not be carried out. Every flush fails from now on, and these
    /// sectors cannot be read until they are written again. One notice for each run of sectors.
    WriteLost {
        /// First sector of the array that was lost.
        start: LogicalSector,
        /// How many; at least one.
        sectors: u64,
        /// The last member failure before that, if the write was involved in it.
        cause: Option<Cause>,
    },
    /// The file system below a member is full. The member is healthy, so it stays; but a write was
    /// left half done, so writes are refused until the array is started again.
    OutOfSpace {
        /// The member that could not grow.
        member: MemberId,
        /// The write that failed.
        cause: Cause,
    },
    /// A member became write-protected, and holds all its data. It stays; but a write was left half
    /// done, so writes are refused until the array is started again.
    WriteProtected {
        /// The member.
        member: MemberId,
        /// The write that it refused.
        cause: Cause,
    },
    /// A spare failed, or a member without data whose slot no superblock names yet: it leaves.
    SpareLost {
        /// The member.
        member: MemberId,
        /// The cause.
        cause: Cause,
    },
    /// A member has become much slower than its siblings: reads avoid it for now, writes go on.
    SitsOut {
        /// The member.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// Milliseconds of its requests, or of its oldest request in flight.
        latency_ms: u64,
        /// The median of its siblings in microseconds; 0 if they had no requests.
        siblings_us: u64,
    },
    /// A member that sat out is read again.
    Back {
        /// The member.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// Milliseconds that it sat out.
        after_ms: u64,
    },
    /// A member has had more read errors lately than the limit allows. All were corrected.
    Errs {
        /// The member.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// Its errors; the count halves for each hour that passes.
        errors: u32,
        /// The reaction.
        erring: ErrorReaction,
    },
    /// A job has begun.
    JobBegan(JobProgress),
    /// A job has passed another fifth of its way; if it passes several at once, one notice.
    JobPassed(JobProgress),
    /// A job has ended.
    JobEnded {
        /// Its progress.
        progress: JobProgress,
        /// How it ended.
        end: JobEnd,
    },
    /// A check or a repair has found wrong sectors: one notice each run; [`JobProgress`] counts
    /// all.
    Found(Finding),
    /// A spare has taken a slot without a member; superblocks record it, and its recovery follows.
    SpareTaken {
        /// The member.
        member: MemberId,
        /// The slot.
        slot: Slot,
        /// Sectors that it holds from before, by the bitmap: they need no recovery.
        kept_sectors: u64,
    },
    /// A spare replaces a present member; superblocks record it, and it is going to be filled.
    Replacing {
        /// The replacement.
        member: MemberId,
        /// The slot.
        slot: Slot,
        /// The slot's member.
        old: MemberId,
    },
    /// A member has been replaced by an up-to-date one; superblocks record it.
    Replaced {
        /// The member in the slot now.
        member: MemberId,
        /// The slot.
        slot: Slot,
        /// The member before, which is out.
        old: MemberId,
    },
    /// A member has been recovered: it is up to date, and superblocks record it.
    Recovered {
        /// The member.
        member: MemberId,
        /// Its slot.
        slot: Slot,
    },
    /// The superblocks of all members record this event count, durably; the driver knows their
    /// time. Of no interest to the operator.
    Recorded {
        /// The count.
        events: u64,
    },
    /// The array has stopped.
    Stopped {
        /// Its superblocks are clean, and no acknowledged write was lost.
        clean: bool,
    },
}
