//! The effects that the array asks of its driver, and its notices for operators and monitors.

use std::ops::Range;
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
    /// Give this view of the array to every shard.
    Publish(Arc<ArrayView>),
    /// Write this record to the member's metadata area, durably, and report the end
    /// ([`super::Array::handle_metadata_written`]).
    WriteMetadata {
        /// The member.
        member: MemberId,
        /// The record, whose kind implies its area on the member.
        record: MetadataRecord,
    },
    /// Agree to this update of superblocks, and report the consent
    /// ([`super::Array::handle_consent`]). Before the consent no superblock of the update is
    /// written, and the array does not rely on the update. Sent only if the driver must agree
    /// ([`super::Array::handle_gives_consent`]).
    AskConsent {
        /// The content of the superblocks.
        state: Arc<SuperblockState>,
    },
    /// Record durably which members have superblocks with this event count, and report the end
    /// ([`super::Array::handle_record_kept`]). These superblocks record a member's loss. Sent only
    /// if the driver keeps a record ([`super::Array::handle_keeps_record`]).
    KeepRecord {
        /// The event count.
        events: u64,
    },
    /// Flush this member's volatile cache, and report the end ([`super::Array::handle_flushed`]).
    Flush {
        /// The member.
        member: MemberId,
    },
    /// The member has left the array. Each [`Self::WriteMetadata`] or [`Self::Flush`] in flight at
    /// the member has failed. The driver reports the failure now, and nothing when the request
    /// ends.
    Leave {
        /// The member.
        member: MemberId,
    },
    /// Give this list of slow members to every shard. The list takes effect at once.
    SlowMembers(Arc<SlowMembers>),
    /// Ask every shard when it last wrote.
    QueryActivity,
    /// Ask every shard for the bits of its writes since the last query.
    QueryTouched,
    /// Ask every shard to bring its acknowledged writes to the members.
    WriteBack {
        /// The number of the round.
        round: u64,
    },
    /// Tell this shard that the log entries under this ticket are durable.
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
    /// Move the border of a reshape to this position, and release the requests that the last change
    /// held. Then hold the requests that this change names. Report when all earlier requests have
    /// ended ([`super::Array::handle_border_passed`]).
    Border(BorderChange),
    /// Copy these sectors of the old shape to a safe place, durably, and report the end
    /// ([`super::Array::handle_kept`]). If no member can give some of the sectors, the driver first
    /// asks whether they can be lost ([`super::Array::may_lose`]).
    Keep {
        /// First sector of the array.
        start: u64,
        /// Number of sectors.
        sectors: u64,
    },
    /// Move this piece from the old shape to the new one, and report the end
    /// ([`super::Array::handle_moved`]).
    Move(MovedPiece),
    /// Give this work to a shard, which will report the outcome.
    Work {
        /// The shard.
        shard: ShardIndex,
        /// The work.
        work: Work,
    },
    /// Report this notice to the operator, or to a monitor.
    Notice(Notice),
}

/// A change of the border between the shapes of a reshape. Sectors count from the array's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BorderChange {
    /// The border's position, as superblocks record it: the sectors on one side of it are in the
    /// old shape, on the other side in the new one.
    pub position: u64,
    /// The window that moves next, or that failed midway; and the access that requests have to it.
    pub window: Option<(Range<u64>, WindowAccess)>,
}

/// The treatment of requests for a window of a reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowAccess {
    /// Writes wait; reads go to the old shape.
    WritesWait,
    /// All requests wait, because the window's move overwrites the sectors that it reads.
    AllWait,
    /// All requests fail until the window moves again, because it was overwritten in part.
    Fails,
}

/// A piece of the array that moves from the old shape to the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedPiece {
    /// First sector of the array.
    pub start: u64,
    /// Sectors to read in the old shape and to write in the new one.
    pub moved_sectors: u64,
    /// Sectors after the moved ones, to write as zeroes in the new shape.
    pub zeroed_sectors: u64,
    /// Whether the safe copy ([`ArrayEffect::Keep`]) has the sectors, so that the old shape may be
    /// overwritten.
    pub is_copied: bool,
}

/// The area of a metadata write, outside the member's data. Each area has one write in flight at
/// most.
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

/// The content of a metadata write. The driver makes the bytes, because it has the member's own
/// superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataRecord {
    /// The array's state for the superblock.
    Superblock(Arc<SuperblockState>),
    /// The new bad-block log. The driver first makes earlier writes durable: once a range has left
    /// the log, shards believe the range.
    BadBlocks(Arc<BadLogWrite>),
    /// The new write-intent bitmap.
    Bitmap(Arc<BitmapRecord>),
    /// A record for the partial parity log.
    ParityLog(Arc<ParityLogRecord>),
    /// A part of a record for the write journal: at the ring's end a record may be cut in two.
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

/// The array's reaction to a member that errs again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReaction {
    /// The member stays, until the operator acts or a spare comes.
    Stays,
    /// This spare replaces the member, and is filled while the member serves.
    Replaced(MemberId),
    /// The member is put out, because the level tolerates the loss.
    PutOut,
}

/// News for the operator or a monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A member failed and is out. The survivors' superblocks record it, unless the array was
    /// opened read-only.
    MemberOut {
        /// The member.
        member: MemberId,
        /// The slot that the member had.
        slot: Slot,
        /// The cause of the failure.
        cause: Cause,
    },
    /// A member is silent, and the array works without it for now. Superblocks record the member's
    /// absence.
    Away {
        /// The member.
        member: MemberId,
        /// The member's slot.
        slot: Slot,
    },
    /// A member that was away has answered all its requests, and joins the array again.
    Returned {
        /// The member's name from now on.
        member: MemberId,
        /// The slot that the member had.
        slot: Slot,
        /// The member's name until now.
        old: MemberId,
        /// Milliseconds that the member was away.
        after_ms: u64,
    },
    /// More members failed than the level tolerates; the array refuses writes from now on.
    Broken {
        /// The member whose failure was one too many.
        member: MemberId,
        /// The cause of the failure.
        cause: Cause,
    },
    /// The write journal's device failed. The array refuses writes, because it could log no further
    /// write. All acknowledged writes are on the members.
    JournalLost {
        /// The journal's device.
        member: MemberId,
        /// The cause of the failure.
        cause: Cause,
    },
    /// A write to the bitmap file failed: the array works on without the file. After a crash, all
    /// of the array is resynced.
    BitmapFileLost {
        /// The file, by its name as a member.
        member: MemberId,
        /// The cause of the failure.
        cause: Cause,
    },
    /// An acknowledged write could not be carried out. Every flush fails from now on. Reads of the
    /// lost sectors fail until a client writes them again. One notice for each run of sectors.
    WriteLost {
        /// First sector of the array that was lost.
        start: LogicalSector,
        /// Number of sectors, at least one.
        sectors: u64,
        /// The last member failure before the loss, if the write was involved in that failure.
        cause: Option<Cause>,
    },
    /// The file system below a member is full. The member is healthy, so it stays. But one of its
    /// writes is half done, so the array refuses writes until it is started again.
    OutOfSpace {
        /// The member that could not grow.
        member: MemberId,
        /// The write that failed.
        cause: Cause,
    },
    /// A member became write-protected, and holds all its data. The member stays. But one of its
    /// writes is half done, so the array refuses writes until it is started again.
    WriteProtected {
        /// The member.
        member: MemberId,
        /// The write that the member refused.
        cause: Cause,
    },
    /// A spare failed, or a member without data whose slot no superblock names yet: the device
    /// leaves.
    SpareLost {
        /// The member.
        member: MemberId,
        /// The cause of the failure.
        cause: Cause,
    },
    /// A member has become much slower than its siblings: reads avoid it for now, writes do not.
    SitsOut {
        /// The member.
        member: MemberId,
        /// The member's slot.
        slot: Slot,
        /// Mean latency of the member's reads in milliseconds, or the age of its oldest request in
        /// flight.
        latency_ms: u64,
        /// The median latency of the member's siblings in microseconds; 0 if they had no requests.
        siblings_us: u64,
    },
    /// A member no longer sits out: reads use the member again.
    Back {
        /// The member.
        member: MemberId,
        /// The member's slot.
        slot: Slot,
        /// Milliseconds that the member sat out.
        after_ms: u64,
    },
    /// A member has had more read errors lately than the limit allows. All errors were corrected.
    Errs {
        /// The member.
        member: MemberId,
        /// The member's slot.
        slot: Slot,
        /// The member's read errors; the count halves for each hour that passes.
        errors: u32,
        /// The array's reaction.
        erring: ErrorReaction,
    },
    /// A job has begun.
    JobBegan(JobProgress),
    /// A job has passed another fifth of its range. A job that passes several fifths at once gets
    /// one notice.
    JobPassed(JobProgress),
    /// A job has ended.
    JobEnded {
        /// The job's progress.
        progress: JobProgress,
        /// How the job ended.
        end: JobEnd,
    },
    /// A check or a repair has found wrong sectors: one notice for each run of sectors.
    /// [`JobProgress`] counts all sectors.
    Found(Finding),
    /// A spare has taken a slot without a member. Superblocks record that, and the spare's recovery
    /// follows.
    SpareTaken {
        /// The member.
        member: MemberId,
        /// The slot that the spare has taken.
        slot: Slot,
        /// Sectors that the device still holds from its former membership, by the bitmap: they need
        /// no recovery.
        kept_sectors: u64,
    },
    /// A spare replaces a present member. Superblocks record that, and the spare is going to be
    /// filled.
    Replacing {
        /// The replacement.
        member: MemberId,
        /// The slot of both members.
        slot: Slot,
        /// The slot's member.
        old: MemberId,
    },
    /// An up-to-date replacement has taken a member's slot; superblocks record that.
    Replaced {
        /// The member that is in the slot now.
        member: MemberId,
        /// The slot of both members.
        slot: Slot,
        /// The slot's former member, which is out.
        old: MemberId,
    },
    /// A member has been recovered and is up to date; superblocks record that.
    Recovered {
        /// The member.
        member: MemberId,
        /// The member's slot.
        slot: Slot,
    },
    /// The superblocks of all members record the change of shape
    /// ([`super::Array::handle_shape_change`]). The driver must now open the array anew.
    ShapeRecorded,
    /// The superblocks of all members record this event count durably. The driver knows the time in
    /// those superblocks. Of no interest to the operator.
    Recorded {
        /// The event count.
        events: u64,
    },
    /// The array has stopped.
    Stopped {
        /// The array's superblocks are clean, and no acknowledged write was lost.
        clean: bool,
    },
}
