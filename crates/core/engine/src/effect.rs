//! The effects that a shard asks of its driver, and the driver's answers.

use std::sync::Arc;

use braid_geometry::{LogicalSector, MemberSector, Slot};
use braid_ondisk::{Bits, JournalRow, LoggedEntry};
use braid_sim_hooks::{Bug, spoiled};

use crate::Instant;
use crate::buffer::Buffer;
use crate::cause::{Answer, Cause, RequestKind};
pub use crate::ids::CachedWriteId;
pub use crate::ids::IoId;
use crate::ids::{BitmapId, MemberId, RequestId, WorkId};
use crate::request::{Fault, Operation, Piece};
use crate::work::{Finding, Outcome};

/// An operation on a run of a member's sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberOperation {
    /// Fill `buffer` from the member.
    Read {
        /// Where the bytes go.
        buffer: Buffer,
    },
    /// Write `buffer` to the member.
    Write {
        /// Where the bytes are.
        buffer: Buffer,
        /// Whether they must be on stable storage before the request is done.
        durable: bool,
    },
    /// Make the sectors read as zeroes.
    Zero {
        /// Whether the space may be deallocated.
        may_punch: bool,
        /// Whether the zeroes must be on stable storage before the request is done.
        durable: bool,
    },
}

impl MemberOperation {
    /// The members' operation for the sectors of `piece` from `done` on.
    pub(crate) fn of_piece(piece: &Piece, done: u32) -> Self {
        let offset_sectors = piece.payload_offset_sectors + done;
        let buffer = Buffer::Payload { request: piece.request, offset_sectors };
        match piece.operation {
            Operation::Read => Self::Read { buffer },
            Operation::Write { durable } => {
                let durable = spoiled(Bug::FuaDropped, durable, false);
                Self::Write { buffer, durable }
            }
            Operation::WriteZeroes { may_punch, durable } => Self::Zero { may_punch, durable },
            Operation::Trim => Self::Zero { may_punch: true, durable: false },
        }
    }

    /// Whether this changes the member.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }

    /// The operation as a [`Cause`] names it.
    #[must_use]
    pub fn asked(&self) -> RequestKind {
        match self {
            Self::Read { .. } => RequestKind::Read,
            Self::Write { .. } => RequestKind::Write,
            Self::Zero { .. } => RequestKind::Zero,
        }
    }
}

/// One request to one member. Sectors count from the start of the member's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIo {
    /// Returns in [`MemberIoDone`].
    pub id: IoId,
    /// The member.
    pub member: MemberId,
    /// The slot it occupies.
    pub slot: Slot,
    /// First sector.
    pub sector: MemberSector,
    /// How many; at least one.
    pub sectors: u32,
    /// The operation.
    pub operation: MemberOperation,
}

impl MemberIo {
    /// This request's failure, for an executor. The data area starts at the member's `data_offset`.
    #[must_use]
    pub fn fault(&self, kind: FaultKind, data_offset: u64, answer: Answer) -> MemberFault {
        let Self { member, sectors, operation, .. } = *self;
        let (asked, sector) = (operation.asked(), data_offset + self.sector.0);
        MemberFault { kind, cause: Cause { member, asked, sector, sectors, answer } }
    }
}

/// The result of a [`MemberIo`]. An abandoned read may report any, as its request is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIoDone {
    /// The request.
    pub id: IoId,
    /// Whether the whole run was read or written. A failed read leaves its buffer undefined.
    pub result: Result<(), MemberFault>,
}

/// A failed member request: the machine's class of the failure, and its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFault {
    /// The machine's class of the failure.
    pub kind: FaultKind,
    /// The request, its place, and the member's answer.
    pub cause: Cause,
}

/// The machine's classes of member failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// This range could not be read or written; others may be.
    Media,
    /// The member does not answer any more.
    Gone,
    /// The file system below the member is full; existing data can be read and written.
    NoSpace,
    /// The member is write-protected, as behind a write blocker; its data can be read.
    Protected,
}

impl FaultKind {
    /// Whether the member is healthy: the failure costs the array its writes, and not the member.
    #[must_use]
    pub const fn spares_member(self) -> bool {
        matches!(self, Self::NoSpace | Self::Protected)
    }
}

/// Answer to one piece of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceReply {
    /// The piece's request.
    pub request: RequestId,
    /// The result.
    pub result: Result<(), Fault>,
    /// The write goes on after this answer: effects name its payload until
    /// [`crate::Shard::poll_release`] names the request, once for each piece that said so.
    pub keeps_payload: bool,
    /// A read straight into the piece's payload was abandoned: it may write the client's own buffer
    /// until it completes, which is after this answer. The bytes made in its place are in the
    /// shadow buffer ([`crate::buffer`]).
    pub leaves_payload: bool,
    /// The last member failure that hit the piece, if that caused an error.
    pub cause: Option<Cause>,
}

/// A change to the copies of acknowledged writes in a file that outlives the process. The driver
/// carries records out in order, and before replies that it polled later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRecord {
    /// The copy must be durable before the write is acknowledged.
    Put(CachedRun),
    /// The members have the write, or never will: erase its runs.
    Erase(CachedWriteId),
}

/// A run of sectors of an acknowledged write. A later process writes runs back, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRun {
    /// The write; it may have a run for each data column.
    pub id: CachedWriteId,
    /// Grows with each write of the shard. Of two overlapping runs the greater is newer.
    pub order: u64,
    /// First sector of the array.
    pub start: LogicalSector,
    /// How many; at least one.
    pub sectors: u32,
    /// The content written there.
    pub content: CachedContent,
}

/// Sectors of a block of the file that copies go into.
pub const CACHED_BLOCK_SECTORS: u32 = crate::sectors::BLOCK_SECTORS;

/// Blocks that a copy of so many sectors takes. Zeroes have no bytes, and always take one.
pub(crate) const fn cached_blocks(sectors: u32, has_bytes: bool) -> u32 {
    if has_bytes { sectors.div_ceil(CACHED_BLOCK_SECTORS) } else { 1 }
}

impl CachedRun {
    /// Blocks that its copy takes.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        cached_blocks(self.sectors, matches!(self.content, CachedContent::Payload { .. }))
    }
}

/// The content of a cached write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedContent {
    /// Sectors of a client's payload, from this one on.
    Payload {
        /// The request.
        request: RequestId,
        /// The first.
        offset_sectors: u32,
    },
    /// Zeroes.
    Zeroes {
        /// Whether the space may be deallocated.
        may_punch: bool,
    },
}

/// A shard's report to the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A write waits for the gate.
    WantWrite,
    /// This view closed the gate, and earlier writes wait for others that wait for it to open.
    HeldUp {
        /// Its epoch.
        epoch: u64,
    },
    /// A write waits for bits of the bitmap.
    WantBits {
        /// The bitmap.
        bitmap: BitmapId,
        /// The first.
        from: u64,
        /// Behind the last.
        to: u64,
    },
    /// Answer to [`crate::Shard::handle_touched_query`]: bits of writes since the last query.
    Touched {
        /// The bitmap.
        bitmap: BitmapId,
        /// The bits.
        bits: Arc<Bits>,
    },
    /// A client has trimmed sectors of the array, without a write to them since. Sent for a
    /// lockless bitmap: fully trimmed marks become unwritten.
    Trimmed {
        /// The bitmap.
        bitmap: BitmapId,
        /// The first.
        start: LogicalSector,
        /// How many.
        sectors: u32,
    },
    /// A client writes to sectors that were reported as trimmed.
    WrittenAgain {
        /// The bitmap.
        bitmap: BitmapId,
        /// The first mark.
        from: u64,
        /// Behind the last.
        to: u64,
    },
    /// All writes before a revocation ([`crate::array::IntentView::revocation`]) have ended.
    Drained {
        /// The bitmap.
        bitmap: BitmapId,
        /// The revocation.
        revocation: u64,
    },
    /// Before a write of a band, its parity's members must have these entries in their parity logs.
    WantLog {
        /// The shard's name for it, until [`Report::LogOver`].
        ticket: LogTicket,
        /// By parity slot, the new data's place and the partial parities; the writer adds
        /// checksums.
        entries: Vec<LoggedEntry>,
    },
    /// The same for a write journal: it must have these blocks first.
    WantJournal {
        /// The shard's name for it, until [`Report::LogOver`].
        ticket: LogTicket,
        /// Blocks of data and all parity of their rows.
        rows: Vec<JournalRow>,
    },
    /// The log entries under this ticket are no longer needed: the writes are on the members, in
    /// their caches at least, or will never happen.
    LogOver {
        /// The ticket.
        ticket: LogTicket,
    },
    /// A member failed a write; the shard holds the answer until a view decides about the member.
    MemberFailed {
        /// The failure, and the member.
        cause: Cause,
    },
    /// A healthy member failed a write, which is left half done: [`FaultKind::spares_member`].
    NotTaken {
        /// The failure, and the member.
        fault: MemberFault,
    },
    /// Writes have reached this member since the last [`Report::WrittenBack`]; sent before the
    /// next.
    MemberWritten {
        /// The member.
        member: MemberId,
    },
    /// A shard has written a range of a member that has bad blocks by the view.
    BadBlocksWritten {
        /// The member.
        member: MemberId,
        /// First sector of the write.
        start: MemberSector,
        /// How many.
        sectors: u32,
    },
    /// The shard rewrote unreadable or distrusted sectors from the other members, and the member
    /// failed that write. No data is newly lost; the member's log must name the sectors.
    Unmended {
        /// The failure, and the member.
        cause: Cause,
        /// First sector, of the member's data area.
        start: MemberSector,
        /// How many.
        sectors: u32,
    },
    /// The shard rewrote unreadable sectors from the other members, and the member took the write.
    Mended {
        /// The member.
        member: MemberId,
    },
    /// A client reads a range that a member in recovery lacks: it has to be made from the others.
    Lacking {
        /// First sector of it, of the member.
        start: MemberSector,
    },
    /// Answer to [`crate::Shard::handle_write_back`]: all writes acknowledged by then are on
    /// members.
    WrittenBack {
        /// The round of the query.
        round: u64,
    },
    /// An acknowledged write could not be carried out. Flushes fail from now on, and its sectors
    /// read as an error until they are written again. One report for each run of sectors.
    WriteLost {
        /// First sector of the array that was lost.
        start: LogicalSector,
        /// How many; at least one.
        sectors: u64,
        /// The last member failure that hit the batch.
        cause: Option<Cause>,
    },
    /// The view with this epoch rules; [`crate::Shard::handle_view`] has the condition.
    ViewInForce {
        /// Its epoch.
        epoch: u64,
    },
    /// Answer to [`crate::Shard::handle_activity_query`].
    Activity {
        /// When the shard last had a write in flight.
        last_write: Instant,
        /// Whether it has one now.
        writing: bool,
    },
    /// Background work has found wrong sectors: before its result, once for each run.
    Found {
        /// The work.
        id: WorkId,
        /// The finding.
        found: Finding,
    },
    /// Background work cannot make a range that a member lacks: before its result, once for each
    /// range. A [`crate::work::Task::Resync`] cannot make it agree, in parity or in every copy.
    Unmade {
        /// The work.
        id: WorkId,
        /// The member that lacks it.
        member: MemberId,
        /// First sector, of the member's data area.
        start: MemberSector,
        /// How many.
        sectors: u32,
    },
    /// Background work is done, or cannot be; once for each [`crate::Shard::handle_work`].
    WorkDone {
        /// The work.
        id: WorkId,
        /// The outcome.
        outcome: Outcome,
    },
    /// A member's recent speed; only while the array watches ([`SlowMembers`]).
    Pace {
        /// The member.
        member: MemberId,
        /// The measured pace.
        pace: Pace,
    },
}

/// A shard's name for entries that it wants logged: unique until they are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTicket(pub u32);

/// A member's speed for one shard, from one report to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Reads that ended.
    pub completed: u32,
    /// Nanoseconds that they took, on average.
    pub mean_ns: u64,
    /// Nanoseconds of the oldest read in flight, or of a write beyond its hold-back time; else 0.
    pub oldest_ns: u64,
}

/// The members that sit out because they are slow, and whether shards measure them; see
/// [`crate::Shard::handle_slow_members`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowMembers {
    /// Grows with each.
    pub number: u64,
    /// Whether members' pace is measured and reported.
    pub watches: bool,
    /// [`crate::SitOut::write_slack_ms`].
    pub write_slack_ms: u64,
    /// Members that sit out: reads avoid them where possible. They take every write.
    pub sitting_out: Vec<MemberId>,
}
