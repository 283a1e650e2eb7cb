//! Background work: what no client asked for, and what came of it.
//!
//! A job asks a shard for one band at a time: a stripe unit of every member. The shard orders it with the client's writes
//! of the same band, takes it on when clients leave room, and answers with a result. It never knows which job it was for.
//!
//! ```text
//!   job ── Work { id, class, task, start } ──▶ Shard::handle_work
//!   job ◀── Report::WorkDone { id, outcome } ── the shard, once for each
//! ```

use braid_geometry::MemberSector;

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
    /// Where the band begins in the data area of each member: a multiple of [`crate::Shard::block_sectors`].
    pub start: MemberSector,
}

/// How member requests of background work stand to those of clients. Elevators know both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// They go when no client's request waits, or when they have waited too long. Since a band that is read is not
    /// written, such work gives it up, once, to a write that waits for it, and is then done in its turn.
    Idle,
    /// They go in their turn.
    BestEffort,
}

/// What to do with a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read all of it, and say where its parity is not what its data makes it. Nothing is written.
    Compare,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was read; this is where parity differs.
    Compared(Difference),
    /// Some of it could not be read, or has no member, and so it was not compared.
    Unreadable,
    /// A member that it needs sits out, or began to: held up, the band would hold up clients. To be asked for again later.
    SitsOut,
}

/// Sectors of a stripe unit whose parity is not what the data makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// In P.
    pub p: SectorSet,
    /// In Q; empty on levels without.
    pub q: SectorSet,
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
