//! Background work, which no client asked for, and its outcomes.
//!
//! A job asks a shard for one band at a time: a stripe unit of every member. The shard orders it
//! with the client's writes of the same band, takes it on when clients leave room, and answers with
//! a result. It never knows which job it was for.
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
    /// Returns with the outcome.
    pub id: WorkId,
    /// Its priority against clients' requests.
    pub class: Class,
    /// The task.
    pub task: Task,
    /// The first sector. On levels with parity: in the data area of each member, at or inside a
    /// band (a multiple of [`crate::Shard::block_sectors`]). On levels with copies: of the array.
    pub start: u64,
    /// How many: at most [`crate::Shard::block_sectors`], inside one band or region.
    pub sectors: u32,
}

/// The priority of background work's requests against clients'. Elevators know both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Idle requests go when no client's request waits, or when they have waited too long. A band
    /// that is read is not written: so such work gives the band up, once, to a write that waits for
    /// it, and then takes its turn.
    Idle,
    /// They go in their turn.
    BestEffort,
}

/// A task on a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read the band. Report where its parity does not match its data, or its copies differ, and
    /// the wrong member if the algebra names it. Write only unreadable or logged sectors.
    Compare,
    /// [`Task::Compare`], and rewrite sectors known to be wrong from the others. Unknown ones stay.
    Repair,
    /// Read one sector that no member can give, because bad-block logs name too much of it, in
    /// spite of the logs. If all agree, and more than one member confirms it, rewrite as it is each
    /// logged sector that was readable. Write nothing else.
    Retry,
    /// [`Task::Compare`], and rewrite differences: data is believed, or the first copy that can be
    /// read, as md does beyond the resync offset.
    Resync,
    /// Make the data of members in recovery from the others, and write it to them.
    Recover,
    /// Copy the band from members that have a replacement to their replacement. Make sectors that a
    /// member cannot read from the others.
    Replace,
}

impl Task {
    /// Whether it compares, and leaves unknown sectors as they are.
    #[must_use]
    pub const fn checks(self) -> bool {
        matches!(self, Self::Compare | Self::Repair | Self::Retry)
    }

    /// Whether it makes members' missing data, and goes on beyond ranges that it cannot make.
    #[must_use]
    pub const fn makes(self) -> bool {
        matches!(self, Self::Resync) || self.fills()
    }

    /// Whether it fills a member.
    #[must_use]
    pub const fn fills(self) -> bool {
        matches!(self, Self::Recover | Self::Replace)
    }
}

/// The outcome of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was read; parity differs here.
    Compared(Difference),
    /// The readable copies were compared.
    CopiesCompared {
        /// Sectors that differ from the first copy, over all copies.
        differing: u32,
    },
    /// All of it was read, or made from the others; errors were reported
    /// ([`crate::effect::Report::Found`]). Ends a [`Task::Repair`], or a [`Task::Compare`] with
    /// writes.
    Checked {
        /// Sectors found wrong or in disagreement, over all members.
        differing: u32,
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// It agrees: it did, or it was rewritten.
    Done {
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// A task that fills or levels members could not make some sectors; each lacking member was
    /// reported ([`crate::effect::Report::Unmade`]). Sectors that could be made are written, but
    /// perhaps not all if the task asked for more than one.
    Unmade {
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// The task made nothing: some sectors were unreadable, or have no member.
    Unreadable,
    /// A needed member sits out: the band would hold up clients. The job repeats it later.
    SitsOut,
    /// A member failed a write, which was reported.
    Unwritten,
}

/// Sectors of a stripe unit whose parity does not match the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// In P.
    pub p: SectorSet,
    /// In Q; empty on levels without.
    pub q: SectorSet,
}

/// A finding about one run of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One member is wrong: the syndromes, or most copies, name it.
    Rot {
        /// The member.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// First sector, of the member's data area.
        start: MemberSector,
        /// How many.
        sectors: u32,
        /// The kind of the sectors.
        kind: RotKind,
        /// The shard's reaction.
        fate: Fate,
    },
    /// Sectors are wrong, in an unknown place. They stay as they are.
    Ambiguous {
        /// First sector, of each member's data area (on levels with copies: the first copy's).
        start: MemberSector,
        /// How many.
        sectors: u32,
        /// The first sector of the array, on levels with copies.
        array: Option<LogicalSector>,
        /// The members that may be wrong.
        candidates: Candidates,
    },
}

/// The role of a member's sectors in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotKind {
    /// Data, from this sector of the array on.
    Data(LogicalSector),
    /// The sum.
    P,
    /// The weighted sum.
    Q,
}

/// The shard's reaction to wrong sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// None: the task asked for none, or the member failed the write.
    Left,
    /// They were rewritten; a second read could not verify them.
    Unverified,
    /// They were rewritten, read again, and agree with the others.
    Repaired,
}

/// The most slots named. In larger arrays a few stand out, or any may be wrong.
pub const CANDIDATES_MAX: usize = 16;

/// Slots some of which are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates {
    named: [Slot; CANDIDATES_MAX],
    count: u16,
}

impl Candidates {
    /// These, in order.
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

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The first of them, up to [`CANDIDATES_MAX`].
    #[must_use]
    pub fn named(&self) -> &[Slot] {
        &self.named[..usize::from(self.count).min(CANDIDATES_MAX)]
    }
}

impl Difference {
    /// None at all.
    pub const NONE: Self = Self { p: SectorSet::EMPTY, q: SectorSet::EMPTY };
}

/// The purpose of a member request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a client, or to probe the member's speed.
    Client,
    /// A read that a write needs first.
    Write,
    /// For background work of this class.
    Background(Class),
}
