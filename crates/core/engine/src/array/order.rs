//! The priorities among the array's machines, and the state that each one's table sees of the
//! others.
//!
//! Superblocks, members' caches, jobs and consistency have a table each. A table returns its first
//! row that fits, and that row's turn; the array takes the action with the earliest turn. So
//! [`Turn`] is the policy: first ended work is settled, then a failed member is recorded (I4).
//! Writers come next, then flushes, and last the array turns clean.
//! [check: the_tables_keep_their_promises]
//!
//! Superblocks, caches and bitmaps are three resources. Each has at most one task; tasks of
//! different resources run side by side. One exception: no superblock is written between the last
//! flush and the update that says clean.

use super::consistency::Changing;

/// Whose turn it is, from first to last. In one turn superblocks come before caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// Writes and flushes that have ended count. A stopped array does nothing else.
    Settle,
    /// A loss is recorded; then writers are let in, or the gate closes before a change of logs.
    Admit,
    /// Logs and bitmaps are made and given up; shards get the bits and records that they wait for.
    Change,
    /// Clients' flushes are served, and the gate that has closed turns the array clean.
    Serve,
    /// The last update is written once more.
    Repeat,
    /// Members that err are treated, and slots get the members that they lack.
    Members,
    /// Superblocks tell of what has changed beside losses.
    Tell,
    /// Jobs go on.
    Work,
    /// Bits that no client needs are cleared.
    Sweep,
    /// The gate closes, since no client has written for a while.
    Rest,
    /// The array stops, and nothing else is under way.
    Stop,
}

/// The word of durable superblocks about writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Activity {
    /// No redundancy, so nothing is said.
    NotKept,
    /// No write is under way.
    #[default]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Writes {
    #[default]
    Allowed,
    /// The array was opened for reading.
    ReadOnly,
    /// More members are lost than can be made up for.
    Broken,
}

/// How far the gate is on its way from open to closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Closing {
    /// It is not being closed.
    #[default]
    No,
    /// Shards still have writes under way.
    Draining,
    /// No shard has a write under way, nor begins one.
    Drained,
}

/// The other machines, as a machine's table sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) writes: Writes,
    /// The word of durable superblocks.
    pub(super) on_disk: Activity,
    pub(super) closing: Closing,
    /// Superblocks may be written: no update is under way, nor the flush before they turn clean.
    pub(super) superblocks_free: bool,
    /// No flush is under way.
    pub(super) caches_free: bool,
    /// A member is out, and no durable superblock says so.
    pub(super) unrecorded: bool,
    /// Superblocks are to say of members that they were absent when the array was opened.
    pub(super) to_record_absent: bool,
    /// Superblocks are to say again what they say.
    pub(super) to_say_again: bool,
    /// Superblocks do not tell all that jobs have done.
    pub(super) unsaved: bool,
    /// Nothing keeps superblocks from turning clean when shards have drained.
    pub(super) may_be_clean: bool,
    /// Clients' flushes wait, or are being served.
    pub(super) flushes: bool,
    /// Members have been flushed for clients, and these are not answered.
    pub(super) flush_ended: bool,
    /// Logs are to be made or given up, and no write begins before that.
    pub(super) log_change: Changing,
    /// The journal has room that superblocks do not say is free.
    pub(super) tail_unsaid: bool,
    pub(super) stopping: bool,
    /// The array stops, and nothing is under way.
    pub(super) stops: bool,
}

impl Around {
    pub(super) fn may_write(&self) -> bool {
        self.writes == Writes::Allowed
    }

    /// Superblocks are to tell of a lost member.
    pub(super) fn is_to_record(&self) -> bool {
        self.unrecorded && self.may_write() && self.on_disk != Activity::NotKept
    }
}
