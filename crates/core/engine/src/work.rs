//! Background work: what no client asked for, and what came of it.
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
    /// Comes back with the outcome.
    pub id: WorkId,
    /// How its member requests stand to those of clients.
    pub class: Class,
    /// What to do.
    pub task: Task,
    /// The first sector. On levels with parity it is one of the data area of each member: where a
    /// band begins, a multiple of [`crate::Shard::block_sectors`], or inside of one. On levels with
    /// copies it is one of the array.
    pub start: u64,
    /// How many: [`crate::Shard::block_sectors`] on levels with parity, or fewer inside of one
    /// band; on levels with copies as many, or fewer, all of one region.
    pub sectors: u32,
}

/// How member requests of background work stand to those of clients. Elevators know both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// They go when no client's request waits, or when they have waited too long. Since a band that
    /// is read is not written, such work gives it up, once, to a write that waits for it, and is
    /// then done in its turn.
    Idle,
    /// They go in their turn.
    BestEffort,
}

/// What to do with a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read all of it, and say where its parity is not what its data makes it, or its copies
    /// differ, and which member is wrong, as far as that can be known. Nothing is written but what
    /// could not be read, or what a bad-block log names.
    Compare,
    /// The same, and write again what is known to be wrong, from the others. What is not known is
    /// left as it is.
    Repair,
    /// One sector that nobody can give, since bad-block logs name too much of it: read it in spite
    /// of them, and compare. Where all agrees, and more than one says so, what was named and could
    /// be read is written again as it is. Nothing else is written.
    Retry,
    /// The same as [`Task::Compare`], and write what differs: data is believed, or the first copy
    /// that can be read, as md does beyond the resync offset.
    Resync,
    /// Make what members that are being recovered are to hold of it from the others, and write it
    /// to them.
    Recover,
    /// Copy all of it from members that have a replacement to that; what they cannot read is made
    /// from the others.
    Replace,
}

impl Task {
    /// It compares, and leaves what is not known as it is.
    #[must_use]
    pub const fn checks(self) -> bool {
        matches!(self, Self::Compare | Self::Repair | Self::Retry)
    }

    /// It makes what members lack, and goes on beyond what it cannot make.
    #[must_use]
    pub const fn makes(self) -> bool {
        matches!(self, Self::Resync) || self.fills()
    }

    /// It fills a member that does not hold all yet.
    #[must_use]
    pub const fn fills(self) -> bool {
        matches!(self, Self::Recover | Self::Replace)
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was read; this is where parity differs.
    Compared(Difference),
    /// The copies that can be read were.
    CopiesCompared {
        /// Sectors that are not what the first copy says, over all copies.
        differing: u32,
    },
    /// All of it was read, or made of the others where it could not be; what is wrong was reported
    /// ([`crate::effect::Report::Found`]). Of a [`Task::Repair`], and of a [`Task::Compare`] that
    /// has written something.
    Checked {
        /// Sectors that were found to be wrong, or not to agree, over all members.
        differing: u32,
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// It is as it should be: it was, or it has been written.
    Done {
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// Of a task that fills members, or levels them: some of it could not be made, as was reported
    /// for each member that lacks it ([`crate::effect::Report::Unmade`]). What could has been
    /// written, though not all that could if more than a sector was asked for.
    Unmade {
        /// Sectors that were written, over all members.
        written: u32,
    },
    /// Some of it could not be read, or has no member, and so nothing was made of it.
    Unreadable,
    /// A member that it needs sits out, or began to: held up, the band would hold up clients. To be
    /// asked for again later.
    SitsOut,
    /// A member did not take what it was to be written. It has been reported.
    Unwritten,
}

/// Sectors of a stripe unit whose parity is not what the data makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// In P.
    pub p: SectorSet,
    /// In Q; empty on levels without.
    pub q: SectorSet,
}

/// What one run of sectors was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// One member holds what the others say it should not: the syndromes, or most copies, name it.
    Rot {
        /// Which.
        member: MemberId,
        /// Its slot.
        slot: Slot,
        /// First sector, of the member's data area.
        start: MemberSector,
        /// How many.
        sectors: u32,
        /// What they are.
        kind: RotKind,
        /// What was done about it.
        fate: Fate,
    },
    /// Something is wrong here, and what cannot be known. It is left as it is.
    Ambiguous {
        /// First sector, of the data area of each member (of the first copy, on levels with
        /// copies).
        start: MemberSector,
        /// How many.
        sectors: u32,
        /// The first sector of the array, where the sectors are one run of it: copies.
        array: Option<LogicalSector>,
        /// Who may be wrong.
        candidates: Candidates,
    },
}

/// What sectors of a member are in their array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotKind {
    /// Data, which begins at this sector of the array.
    Data(LogicalSector),
    /// The sum.
    P,
    /// The weighted sum.
    Q,
}

/// What was done about sectors that are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing: it was not asked for, or their member did not take it.
    Left,
    /// They were written again; that they are right now could not be seen.
    Unverified,
    /// They were written again, read again, and agree with the others.
    Repaired,
}

/// So many slots are named. Most arrays have no more; of larger ones a few stand out, or any may be
/// wrong.
pub const CANDIDATES_MAX: usize = 16;

/// Slots of which some are wrong.
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

/// Why a member is asked for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a client, or to see how fast the member is.
    Client,
    /// To read what a write must know first.
    Write,
    /// For background work of this class.
    Background(Class),
}
