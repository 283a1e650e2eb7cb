//! The effects that a shard asks of its driver, and the driver's answers.

use std::sync::Arc;

use braid_geometry::{LogicalSector, MemberSector, Slot};
use braid_ondisk::{Bits, JournalRow, LoggedEntry};
use braid_sim_hooks::{Bug, spoiled};

use crate::Instant;
use crate::buffer::Buffer;
use crate::cause::{Answer, Asked, Cause};
pub use crate::ids::CachedWriteId;
pub use crate::ids::IoId;
use crate::ids::{BitmapId, MemberId, RequestId, WorkId};
use crate::request::{Fault, Operation, Piece};
use crate::work::{Found, Outcome};

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
        /// Whether the space may be given back.
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
    pub fn asked(&self) -> Asked {
        match self {
            Self::Read { .. } => Asked::Read,
            Self::Write { .. } => Asked::Write,
            Self::Zero { .. } => Asked::Zero,
        }
    }
}

/// One request to one member. Sectors count from the start of the member's data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIo {
    /// Comes back in [`MemberIoDone`].
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
    /// That it failed, for an executor to say. The data area starts at sector `data_offset` of the
    /// member.
    #[must_use]
    pub fn fault(&self, kind: FaultKind, data_offset: u64, answer: Answer) -> MemberFault {
        let Self { member, sectors, operation, .. } = *self;
        let (asked, sector) = (operation.asked(), data_offset + self.sector.0);
        MemberFault { kind, cause: Cause { member, asked, sector, sectors, answer } }
    }
}

/// The result of a [`MemberIo`]. An abandoned read, whose request is over, may report any result;
/// its memory belongs to no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIoDone {
    /// Which one.
    pub id: IoId,
    /// Whether the whole run was read or written. A failed read leaves its buffer undefined.
    pub result: Result<(), MemberFault>,
}

/// That a member request failed: what the machine goes by, and what it passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFault {
    /// The machine's class of the failure.
    pub kind: FaultKind,
    /// The request, its place, and the member's answer.
    pub cause: Cause,
}

/// Why a member request failed, as far as the machine cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// This range could not be read or written; others may be.
    Media,
    /// The member does not answer any more.
    Gone,
    /// The file system below the member is full; what is there already can be read and written.
    NoSpace,
    /// The member may not be written any more, a disk behind a write blocker; what is there can be
    /// read.
    Protected,
}

impl FaultKind {
    /// Whether nothing is wrong with the member: it costs the array its writes, and not the member.
    #[must_use]
    pub const fn spares_member(self) -> bool {
        matches!(self, Self::NoSpace | Self::Protected)
    }
}

/// Answer to one piece of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceReply {
    /// Whose piece.
    pub request: RequestId,
    /// How it went.
    pub result: Result<(), Fault>,
    /// The write goes on after this answer: effects name its payload until
    /// [`crate::Shard::poll_release`] names the request, once for each piece that said so.
    pub keeps_payload: bool,
    /// A read straight into the piece's payload was abandoned: it may write the client's own buffer
    /// until it completes, which is after this answer. The bytes made in its place are in the
    /// shadow buffer ([`crate::buffer`]).
    pub leaves_payload: bool,
    /// The last member failure that hit the piece, if the answer is an error and a member caused
    /// it.
    pub cause: Option<Cause>,
}

/// A change to the copies of acknowledged writes in a file that outlives the process. The driver
/// carries records out in order, and before replies that it polled later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheRecord {
    /// The copy is to be kept before the write is answered.
    Put(CachedRun),
    /// The members have it, or never will: none of its runs is to be kept any more.
    Erase(CachedWriteId),
}

/// A run of sectors of an answered write. A later process writes runs that it finds in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedRun {
    /// The write; it may have a run for each data column.
    pub id: CachedWriteId,
    /// Grows with each write of the shard. Of two runs that overlap the greater is the newer; both
    /// are of one shard.
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

/// Blocks that a copy of so many sectors takes. Zeroes have no bytes, and take one however many
/// they are.
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
        /// Whose.
        request: RequestId,
        /// The first.
        offset_sectors: u32,
    },
    /// Zeroes.
    Zeroes {
        /// Whether the space may be given back.
        may_punch: bool,
    },
}

/// A shard's report to the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A write waits for the gate.
    WantWrite,
    /// The gate is closed by this view, and writes that began before wait for some that wait for it
    /// to open.
    HeldUp {
        /// Its epoch.
        epoch: u64,
    },
    /// A write waits for bits of the bitmap.
    WantBits {
        /// Of which.
        bitmap: BitmapId,
        /// The first.
        from: u64,
        /// Behind the last.
        to: u64,
    },
    /// Answer to [`crate::Shard::handle_touched_query`]: writes began under these bits since it was
    /// asked last.
    Touched {
        /// Of which bitmap.
        bitmap: BitmapId,
        /// Which.
        bits: Arc<Bits>,
    },
    /// A client has given up sectors of the array, and nothing was written to them since. Of a
    /// lockless bitmap, for which the marks of which nothing else is left become unwritten.
    Trimmed {
        /// Of which bitmap.
        bitmap: BitmapId,
        /// The first.
        start: LogicalSector,
        /// How many.
        sectors: u32,
    },
    /// A client writes where the array was told that sectors are given up.
    WrittenAgain {
        /// Of which bitmap.
        bitmap: BitmapId,
        /// The first mark.
        from: u64,
        /// Behind the last.
        to: u64,
    },
    /// Bits were taken back ([`crate::array::IntentView::revocation`]), and nothing is under way
    /// any more that began before.
    Drained {
        /// Of which bitmap.
        bitmap: BitmapId,
        /// For which time.
        revocation: u64,
    },
    /// Before a write of a band, the members with its parity must have these entries in their
    /// parity logs.
    WantLog {
        /// The shard's name for it, until [`Report::LogOver`].
        ticket: LogTicket,
        /// For the slot of the parity that each names: what is being written, and the partial
        /// parities; checksums are left to who writes them.
        entries: Vec<LoggedEntry>,
    },
    /// The same of an array with a write journal: it is to have these blocks first.
    WantJournal {
        /// The shard's name for it, until [`Report::LogOver`].
        ticket: LogTicket,
        /// Blocks of data and all parity of their rows.
        rows: Vec<JournalRow>,
    },
    /// The log entries under this ticket are no longer needed: the writes are on the members, in
    /// their caches at least, or will never happen.
    LogOver {
        /// Which.
        ticket: LogTicket,
    },
    /// A member failed a write; the shard holds the answer until a view says what became of it.
    MemberFailed {
        /// How, and which.
        cause: Cause,
    },
    /// A member with which nothing is wrong did not take a write, which is left half done:
    /// [`FaultKind::spares_member`].
    NotTaken {
        /// At what, and which.
        fault: MemberFault,
    },
    /// Writes have reached this member since the last [`Report::WrittenBack`]; said right before
    /// the next.
    MemberWritten {
        /// Which.
        member: MemberId,
    },
    /// A range of a member has been written, of which the view says that some is not to be
    /// believed.
    BadBlocksWritten {
        /// Which.
        member: MemberId,
        /// First sector that was written.
        start: MemberSector,
        /// How many.
        sectors: u32,
    },
    /// The shard rewrote unreadable or distrusted sectors from the other members, and the member
    /// failed that write. No data is newly lost; the member's log must name the sectors.
    Unmended {
        /// How, and which.
        cause: Cause,
        /// First sector, of the member's data area.
        start: MemberSector,
        /// How many.
        sectors: u32,
    },
    /// The shard rewrote unreadable sectors from the other members, and the member took the write.
    Mended {
        /// Which.
        member: MemberId,
    },
    /// A client reads what a member that is being recovered does not hold yet: it has to be made
    /// from the others.
    Lacking {
        /// First sector of it, of the member.
        start: MemberSector,
    },
    /// Answer to [`crate::Shard::handle_write_back`]: what had been answered then is on the
    /// members.
    WrittenBack {
        /// The round that was asked for.
        round: u64,
    },
    /// A write that had been answered could not be carried out: no flush may say that it was, and
    /// what was written there reads as an error until it is written again. One report for each run
    /// of sectors.
    WriteLost {
        /// First sector of the array that was lost.
        start: LogicalSector,
        /// How many; at least one.
        sectors: u64,
        /// The last failure at a member that befell the batch, if there was one.
        cause: Option<Cause>,
    },
    /// The view with this epoch rules; see [`crate::Shard::handle_view`] for when that is said.
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
    /// Background work has found something that is wrong: before its result, once for each run of
    /// sectors.
    Found {
        /// Which.
        id: WorkId,
        /// The finding.
        found: Found,
    },
    /// Background work cannot make a range that a member lacks: before its result, once for each.
    /// Of a [`crate::work::Task::Resync`] it is what cannot be made to agree: parity, or every
    /// copy.
    Unmade {
        /// Which.
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
        /// Which.
        id: WorkId,
        /// The outcome.
        outcome: Outcome,
    },
    /// How fast a member was in the last moments; only while the array watches ([`SlowMembers`]).
    Pace {
        /// Which.
        member: MemberId,
        /// The measured pace.
        pace: Pace,
    },
}

/// A shard's name for what it wants logged: unique until it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTicket(pub u32);

/// How fast a member served one shard, from one report to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Reads that ended.
    pub completed: u32,
    /// Nanoseconds that they took, on average.
    pub mean_ns: u64,
    /// Nanoseconds that the oldest read that has not ended has been under way, or a write beyond
    /// what holds writes back; 0 if there is none.
    pub oldest_ns: u64,
}

/// Which members sit out because they are slow, and whether shards measure them; see
/// [`crate::Shard::handle_slow_members`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowMembers {
    /// Grows with each.
    pub number: u64,
    /// Whether members' pace is measured and reported.
    pub watches: bool,
    /// [`crate::SitOut::write_slack_ms`].
    pub write_slack_ms: u64,
    /// Members that are read around where that can be done: they sit out. They take every write.
    pub sitting_out: Vec<MemberId>,
}
