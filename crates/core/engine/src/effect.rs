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
        /// The memory that gets the member's bytes.
        buffer: Buffer,
    },
    /// Write `buffer` to the member.
    Write {
        /// The memory with the bytes to write.
        buffer: Buffer,
        /// Whether the written bytes must be on stable storage before the request is done.
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
    /// The operation that a member gets for the sectors of `piece`, from sector `done` of the piece
    /// on.
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

    /// Whether this operation changes the member.
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
    /// The request's name; [`MemberIoDone`] returns it.
    pub id: IoId,
    /// The member.
    pub member: MemberId,
    /// The slot that the member occupies.
    pub slot: Slot,
    /// First sector.
    pub sector: MemberSector,
    /// Number of sectors, at least one.
    pub sectors: u32,
    /// The operation.
    pub operation: MemberOperation,
}

impl MemberIo {
    /// Makes this request's failure, for an executor. `data_offset` is the start of the member's
    /// data area.
    #[must_use]
    pub fn fault(&self, kind: FaultKind, data_offset: u64, answer: Answer) -> MemberFault {
        let Self { member, sectors, operation, .. } = *self;
        let (asked, sector) = (operation.asked(), data_offset + self.sector.0);
        MemberFault { kind, cause: Cause { member, asked, sector, sectors, answer } }
    }
}

/// The result of a [`MemberIo`]. For an abandoned read any result is allowed: no client waits for
/// it.
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
    /// The member could not read or write this range; other ranges may work.
    Media,
    /// The member does not answer any more.
    Gone,
    /// The file system below the member is full. The member still reads, and overwrites existing
    /// data.
    NoSpace,
    /// The member is write-protected, as behind a write blocker. The member still reads.
    Protected,
}

impl FaultKind {
    /// Whether the member is healthy in spite of this failure: then the array keeps the member, and
    /// refuses writes.
    #[must_use]
    pub const fn spares_member(self) -> bool {
        matches!(self, Self::NoSpace | Self::Protected)
    }
}

/// The answer to one piece of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceReply {
    /// The piece's request.
    pub request: RequestId,
    /// The result.
    pub result: Result<(), Fault>,
    /// The write goes on after this answer. Effects name the request's payload until
    /// [`crate::Shard::poll_release`] names the request, once for each piece with this flag.
    pub keeps_payload: bool,
    /// The shard abandoned a read into the piece's payload. That read completes after this answer,
    /// and may write the client's own buffer until then. The answer's bytes are in the shadow
    /// buffer ([`crate::buffer`]).
    pub leaves_payload: bool,
    /// The last member failure that hit the piece, if that failure caused an error.
    pub cause: Option<Cause>,
}

/// A change to the copies of acknowledged writes, in a file that outlives the process. The driver
/// carries the records out in order, before any reply that it polls later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRecord {
    /// Store a copy of this run. It must be durable before the write is acknowledged.
    Put(CachedRun),
    /// Erase the write's runs: the members have the write, or never will.
    Erase(CachedWriteId),
}

/// A run of sectors of an acknowledged write. A later process writes the runs back in the order of
/// [`Self::order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRun {
    /// The name of the write, which may have one run for each data column.
    pub id: CachedWriteId,
    /// Grows with each write of the shard. Of two overlapping runs, the run with the greater order
    /// is newer.
    pub order: u64,
    /// First sector of the array.
    pub start: LogicalSector,
    /// Number of sectors, at least one.
    pub sectors: u32,
    /// The content of the run.
    pub content: CachedContent,
}

/// Sectors of a block of the file that holds the copies of acknowledged writes.
pub const CACHED_BLOCK_SECTORS: u32 = crate::sectors::BLOCK_SECTORS;

/// Blocks of the file that a copy of `sectors` sectors takes. A copy of zeroes stores no bytes, and
/// always takes one block.
pub(crate) const fn cached_blocks(sectors: u32, has_bytes: bool) -> u32 {
    if has_bytes { sectors.div_ceil(CACHED_BLOCK_SECTORS) } else { 1 }
}

impl CachedRun {
    /// Blocks of the file that the run's copy takes.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        cached_blocks(self.sectors, matches!(self.content, CachedContent::Payload { .. }))
    }
}

/// The content of a cached write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedContent {
    /// Sectors of a client's payload, from `offset_sectors` on.
    Payload {
        /// The payload's request.
        request: RequestId,
        /// First sector, in the payload.
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
    /// The view with this epoch closed the gate, and some earlier writes cannot end before the gate
    /// opens: they wait for writes that have not begun.
    HeldUp {
        /// The view's epoch.
        epoch: u64,
    },
    /// A write waits for bits of the bitmap.
    WantBits {
        /// The bitmap.
        bitmap: BitmapId,
        /// First awaited bit.
        from: u64,
        /// The bit after the last awaited one.
        to: u64,
    },
    /// Answer to [`crate::Shard::handle_touched_query`]: the bits of all writes since the last
    /// query.
    Touched {
        /// The bitmap.
        bitmap: BitmapId,
        /// The bits of those writes.
        bits: Arc<Bits>,
    },
    /// A client has trimmed sectors of the array, and no write to them followed. Sent for a
    /// lockless bitmap, where fully trimmed marks become unwritten.
    Trimmed {
        /// The bitmap.
        bitmap: BitmapId,
        /// First trimmed sector.
        start: LogicalSector,
        /// Number of trimmed sectors.
        sectors: u32,
    },
    /// A client writes to sectors that the shard has reported as trimmed.
    WrittenAgain {
        /// The bitmap.
        bitmap: BitmapId,
        /// First mark of the written sectors.
        from: u64,
        /// The mark after the last one of the written sectors.
        to: u64,
    },
    /// All writes before a revocation ([`crate::array::IntentView::revocation`]) have ended.
    Drained {
        /// The bitmap.
        bitmap: BitmapId,
        /// The revocation.
        revocation: u64,
    },
    /// Before the shard writes a band, the members with its parity must have these entries in their
    /// parity logs.
    WantLog {
        /// The shard's name for the entries, until [`Report::LogOver`].
        ticket: LogTicket,
        /// For each parity slot, the place of the new data and the partial parities. The log's
        /// writer adds checksums.
        entries: Vec<LoggedEntry>,
    },
    /// Before the shard writes a band, the write journal must hold these blocks.
    WantJournal {
        /// The shard's name for the blocks, until [`Report::LogOver`].
        ticket: LogTicket,
        /// The blocks of new data, and all parity of their rows.
        rows: Vec<JournalRow>,
    },
    /// The log entries under this ticket are no longer needed: the writes have reached the members,
    /// or at least their caches, or will never happen.
    LogOver {
        /// The ticket.
        ticket: LogTicket,
    },
    /// A member failed a write. The shard holds back the answer to the client until a view decides
    /// about the member.
    MemberFailed {
        /// The failure, which names the member.
        cause: Cause,
    },
    /// A healthy member failed a write ([`FaultKind::spares_member`]), and the write is half done.
    NotTaken {
        /// The failure, which names the member.
        fault: MemberFault,
    },
    /// Writes have reached this member since the last [`Report::WrittenBack`]. The shard sends this
    /// before the next `WrittenBack`.
    MemberWritten {
        /// The member.
        member: MemberId,
    },
    /// The shard has written a range of a member, and the view names bad blocks of that member.
    BadBlocksWritten {
        /// The member.
        member: MemberId,
        /// First sector of the write.
        start: MemberSector,
        /// Number of sectors.
        sectors: u32,
    },
    /// The shard rewrote unreadable or distrusted sectors from the other members, and the member
    /// failed that write. No data is newly lost; the member's log must name the sectors.
    Unmended {
        /// The failure, which names the member.
        cause: Cause,
        /// First of the rewritten sectors, in the member's data area.
        start: MemberSector,
        /// Number of sectors.
        sectors: u32,
    },
    /// The shard rewrote a member's unreadable sectors from the other members, and that write
    /// succeeded.
    Mended {
        /// The member.
        member: MemberId,
    },
    /// A client reads a range that a member in recovery lacks, so the shard computes it from the
    /// other members.
    Lacking {
        /// First sector of the range, on the member.
        start: MemberSector,
    },
    /// Answer to [`crate::Shard::handle_write_back`]: the members have all writes that were
    /// acknowledged when the query came.
    WrittenBack {
        /// The round that the query named.
        round: u64,
    },
    /// An acknowledged write could not be carried out. Flushes fail from now on. Reads of the lost
    /// sectors fail until a client writes them again. One report for each run of sectors.
    WriteLost {
        /// First sector of the array that was lost.
        start: LogicalSector,
        /// Number of sectors, at least one.
        sectors: u64,
        /// The last member failure that hit the batch.
        cause: Option<Cause>,
    },
    /// The view with this epoch is in force; [`crate::Shard::handle_view`] has the condition.
    ViewInForce {
        /// The view's epoch.
        epoch: u64,
    },
    /// Answer to [`crate::Shard::handle_activity_query`].
    Activity {
        /// When the shard last had a write in flight.
        last_write: Instant,
        /// Whether the shard has a write in flight now.
        writing: bool,
    },
    /// Background work has found wrong sectors: one report for each run, before
    /// [`Report::WorkDone`].
    Found {
        /// The work.
        id: WorkId,
        /// The finding.
        found: Finding,
    },
    /// Background work cannot compute a range that a member lacks: one report for each range,
    /// before [`Report::WorkDone`]. A [`crate::work::Task::Resync`] reports a range whose parity or
    /// copies it cannot make agree.
    Unmade {
        /// The work.
        id: WorkId,
        /// The member that lacks the range.
        member: MemberId,
        /// First sector of the range, in the member's data area.
        start: MemberSector,
        /// Number of sectors.
        sectors: u32,
    },
    /// Background work is done, or impossible. One report for each [`crate::Shard::handle_work`].
    WorkDone {
        /// The work.
        id: WorkId,
        /// The outcome.
        outcome: Outcome,
    },
    /// A member's recent speed, reported only while the array watches members ([`SlowMembers`]).
    Pace {
        /// The member.
        member: MemberId,
        /// The measured pace.
        pace: Pace,
    },
}

/// A shard's name for entries that it wants logged, unique until [`Report::LogOver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTicket(pub u32);

/// A member's speed for one shard, from one report to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Reads that completed.
    pub completed: u32,
    /// Mean duration of the completed reads, in nanoseconds.
    pub mean_ns: u64,
    /// Age of the oldest read in flight in nanoseconds, or of the oldest write beyond its hold-back
    /// time; 0 if there is none.
    pub oldest_ns: u64,
}

/// The members that sit out because they are slow, and whether shards measure them; see
/// [`crate::Shard::handle_slow_members`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowMembers {
    /// Grows with each new value of this type that the array sends.
    pub number: u64,
    /// Whether members' pace is measured and reported.
    pub watches: bool,
    /// The hold-back time of a write ([`crate::SitOut::write_slack_ms`]).
    pub write_slack_ms: u64,
    /// Members that sit out: reads avoid them where possible. They take every write.
    pub sitting_out: Vec<MemberId>,
}
