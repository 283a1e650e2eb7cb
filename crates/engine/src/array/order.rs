//! The written order among the array's machines, and what the table of each sees of the others.
//!
//! Superblocks, members' caches, consistency and jobs have a table each, which gives its first row
//! that fits, and whose turn that row is. The array does what has the earliest [`Turn`]. So this
//! enumeration is the policy: what has ended is settled, a failed member is recorded before
//! anything else (I4), then writers are let in, then flushes are served, then the array turns
//! clean. [check: the_table_keeps_its_promises]

/// Whose turn it is, from first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// Logs and bitmaps are made and given up; bits are opened, and records written, that shards
    /// wait for.
    Change,
    /// Bits that no client needs are cleared.
    Sweep,
    /// The array stops, and nothing else is under way.
    Stop,
}

/// What durable superblocks say about writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// No redundancy, so nothing is said.
    NotKept,
    /// No write is under way.
    Clean,
    /// Writes may be under way.
    Active,
}

/// Why members are being flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPurpose {
    /// For clients that asked.
    Clients,
    /// Before the superblocks turn clean, or as the last thing of an array that keeps no intent.
    Last,
    /// So that what a job has done counts.
    Job,
    /// Before bits of the bitmap are cleared.
    Bits,
    /// Before partial parity logs are written over.
    Logs,
}

/// Whether writes may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    Allowed,
    /// The array was opened for reading.
    ReadOnly,
    /// More members are lost than can be made up for.
    Broken,
}

/// How far the gate is on its way from open to closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// It is not being closed.
    No,
    /// Shards still have writes under way.
    Draining,
    /// No shard has a write under way, nor begins one.
    Drained,
}

/// What a machine's table sees of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) writes: Writes,
    /// What durable superblocks say.
    pub(super) on_disk: Activity,
    /// Superblocks may be written: no update is under way, nor the flush before they turn clean.
    pub(super) superblocks_free: bool,
    /// No flush is under way.
    pub(super) caches_free: bool,
    /// The array stops, and nothing is under way.
    pub(super) stops: bool,
}
