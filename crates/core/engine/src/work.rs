//! Background work, which no client asked for, and its outcomes.
//!
//! A job gives a shard the work for one band at a time: a stripe unit of every member. The shard
//! orders the work with clients' writes to the same band, begins it when clients leave room, and
//! reports a result. The shard never knows which job requested the work.
//!
//! ```text
//!   job ── Work { id, class, task, start } ──▶ Shard::handle_work
//!   job ◀── Report::Found { id, found } ── the shard, for each run of sectors that is wrong
//!   job ◀── Report::WorkDone { id, outcome } ── the shard, once for each
//! ```

use braid_geometry::{LogicalSector, MemberSector, Slot};

use crate::ids::MemberId;
pub use crate::ids::WorkId;
pub use crate::sectors::SectorSet;

/// One band's worth of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The work's name; the reports about the work return it.
    pub id: WorkId,
    /// The work's priority against clients' requests.
    pub class: Class,
    /// The task to carry out on the band.
    pub task: Task,
    /// The first sector. On levels with parity: in the data area of each member, at or inside a
    /// band (a multiple of [`crate::Shard::block_sectors`]). On levels with copies: of the array.
    pub start: u64,
    /// Number of sectors: at most [`crate::Shard::block_sectors`], inside one band or region.
    pub sectors: u32,
}

/// The priority of background work's requests against clients'. Elevators know both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Requests of this class go when no client's request waits, or when they have waited too long.
    /// No write can begin in a band that is being read. So idle work gives its band up, once, to a
    /// write that waits for the band; then the work takes its turn.
    Idle,
    /// Requests of this class go in their turn.
    BestEffort,
}

/// A task on a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read the band. Report where its parity does not match its data, or its copies differ, and
    /// the wrong member if the algebra names it. Write only unreadable or logged sectors.
    Compare,
    /// Compare as [`Task::Compare`] does, and rewrite from the other members each sector that is
    /// known to be wrong. Sectors that disagree without a known wrong member stay as they are.
    Repair,
    /// Read a sector that no member can supply, because bad-block logs name too much of it, in
    /// spite of the logs. If all members agree, and more than one member confirms the sector,
    /// rewrite unchanged each logged sector that was readable. Write nothing else.
    Retry,
    /// Compare as [`Task::Compare`] does, and rewrite differences. On parity levels the data is
    /// believed, on mirrors the first copy that can be read, as md does beyond the resync offset.
    Resync,
    /// Compute the data of members in recovery from the other members, and write it to the former.
    Recover,
    /// Copy the band from each member with a replacement to that replacement. Compute from the
    /// other members the sectors that a member cannot read.
    Replace,
}

impl Task {
    /// Whether the task compares, and leaves sectors as they are if the wrong member is unknown.
    #[must_use]
    pub const fn checks(self) -> bool {
        matches!(self, Self::Compare | Self::Repair | Self::Retry)
    }

    /// Whether the task computes members' missing data, and continues beyond ranges that it cannot
    /// compute.
    #[must_use]
    pub const fn makes(self) -> bool {
        matches!(self, Self::Resync) || self.fills()
    }

    /// Whether the task fills a member with data.
    #[must_use]
    pub const fn fills(self) -> bool {
        matches!(self, Self::Recover | Self::Replace)
    }
}

/// The outcome of a background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The whole band was read; these sectors of parity differ.
    Compared(Difference),
    /// The readable copies were compared.
    CopiesCompared {
        /// Sectors that differ from the first copy, over all copies.
        differing: u32,
    },
    /// The whole band was read, or computed from the other members; errors were reported
    /// ([`crate::effect::Report::Found`]). Ends a [`Task::Repair`], or a [`Task::Compare`] that
    /// wrote.
    Checked {
        /// Sectors found wrong or in disagreement, over all members.
        differing: u32,
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// The band agrees: it agreed before, or was rewritten.
    Done {
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// A task that fills or resyncs members could not compute some sectors; each member that lacks
    /// them was reported ([`crate::effect::Report::Unmade`]). Sectors that could be computed are
    /// written, but perhaps not all if the task asked for more than one.
    Unmade {
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// The task computed nothing: some sectors were unreadable, or no member holds them.
    Unreadable,
    /// A member that the task needs sits out, and the work would hold up clients of the band. The
    /// job repeats the work later.
    SitsOut,
    /// A member failed a write, which was reported.
    Unwritten,
}

/// Sectors of a stripe unit whose parity does not match the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Sectors where P differs.
    pub p: SectorSet,
    /// Sectors where Q differs; empty on levels without Q.
    pub q: SectorSet,
}

/// A finding about one run of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One member is wrong: the syndromes, or the majority of the copies, name that member.
    Rot {
        /// The member.
        member: MemberId,
        /// The member's slot.
        slot: Slot,
        /// First wrong sector, in the member's data area.
        start: MemberSector,
        /// Number of wrong sectors.
        sectors: u32,
        /// The content of the sectors: data, P or Q.
        kind: RotKind,
        /// The shard's reaction.
        fate: Fate,
    },
    /// Sectors disagree, and the wrong member is unknown. The sectors stay as they are.
    Ambiguous {
        /// First sector, in each member's data area (on levels with copies: in the first copy's).
        start: MemberSector,
        /// Number of sectors.
        sectors: u32,
        /// The first sector of the array, on levels with copies.
        array: Option<LogicalSector>,
        /// The members that may be wrong.
        candidates: Candidates,
    },
    /// A reshape found sectors that no member can give. Bad-block logs name them, and reads of them
    /// fail until they are written.
    Lost {
        /// The first sector of the array.
        array: LogicalSector,
        /// Number of sectors.
        sectors: u64,
    },
}

/// The role of a member's sectors in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotKind {
    /// Data; its first sector is this sector of the array.
    Data(LogicalSector),
    /// P, the sum of the data columns.
    P,
    /// Q, the weighted sum of the data columns.
    Q,
}

/// The shard's reaction to wrong sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No reaction: the task asked for none, or the member failed the write.
    Left,
    /// The sectors were rewritten; a second read could not verify them.
    Unverified,
    /// The sectors were rewritten and read again, and agree with the other members.
    Repaired,
}

/// The greatest number of slots that [`Candidates`] names. In larger arrays a few slots stand out,
/// or any may be wrong.
pub const CANDIDATES_MAX: usize = 16;

/// Slots, of which at least one is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates {
    named: [Slot; CANDIDATES_MAX],
    count: u16,
}

impl Candidates {
    /// Names these slots as candidates, in order.
    #[must_use]
    pub fn new(slots: impl IntoIterator<Item = Slot>) -> Self {
        let mut candidates = Self { named: [Slot(0); CANDIDATES_MAX], count: 0 };
        for slot in slots {
            if let Some(place) = candidates.named.get_mut(usize::from(candidates.count)) {
                *place = slot;
            }
            candidates.count += 1;
        }
        candidates
    }

    /// The number of candidates, which may exceed [`CANDIDATES_MAX`].
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The first candidates, up to [`CANDIDATES_MAX`].
    #[must_use]
    pub fn named(&self) -> &[Slot] {
        &self.named[..usize::from(self.count).min(CANDIDATES_MAX)]
    }
}

impl Difference {
    /// No sector differs.
    pub const NONE: Self = Self { p: SectorSet::EMPTY, q: SectorSet::EMPTY };
}

/// The purpose of a member request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request for a client, or a probe of the member's speed.
    Client,
    /// A read that a write needs first.
    Write,
    /// A request of background work of this class.
    Background(Class),
}
