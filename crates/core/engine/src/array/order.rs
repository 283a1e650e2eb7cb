//! The priorities among the array's machines, and the part of the state that all their tables see.
//!
//! Superblocks, members' caches, jobs and consistency have a table each. A table returns the first
//! row that fits, with a turn; the array takes the action with the earliest turn. So [`Turn`] is
//! the policy: first ended work is settled, then a failed member is recorded (I4). Writers come
//! next, then flushes, and last the array turns clean. [check: the_tables_keep_their_promises]
//!
//! Superblocks, caches and bitmaps are three resources. Each resource has at most one task; tasks
//! of different resources run side by side. One exception: no superblock is written between the
//! last flush and the update that says clean.

use super::consistency::LogChangeStage;

/// The turns, from first to last. In the same turn, superblocks come before caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// Note writes and flushes that have ended. A stopped array does nothing else.
    Settle,
    /// Record a loss; then let writers in, or close the gate before a change of logs.
    Admit,
    /// Create and drop logs and bitmaps; give shards the bits and records that they wait for.
    Change,
    /// Serve clients' flushes, and turn the array clean once the gate has closed.
    Serve,
    /// Write the last update of superblocks a second time.
    Repeat,
    /// React to members that err, and give members to slots that lack one.
    Members,
    /// Record changes other than losses in superblocks.
    Tell,
    /// Let jobs continue.
    Work,
    /// Clear bits that no client needs.
    Sweep,
    /// Close the gate, since no client has written for a while.
    Rest,
    /// Stop the array, when it has no other work.
    Stop,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Activity {
    /// The level has no redundancy.
    NotKept,
    #[default]
    Clean,
    /// Writes may be in flight.
    Active,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushPurpose {
    Clients,
    /// The flush before superblocks turn clean, or at the end of an array whose superblocks record
    /// no intent.
    Last,
    /// The flush that makes a job's progress durable.
    Job,
    /// The flush before bits of the bitmap are cleared.
    Bits,
    /// The flush before partial parity logs are overwritten.
    Logs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Writes {
    #[default]
    Allowed,
    ReadOnly,
    /// More members are lost than the level tolerates.
    Broken,
}

/// The gate's progress from open to closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Closing {
    #[default]
    No,
    /// Shards still have writes under way.
    Draining,
    /// No shard has a write under way, nor begins one.
    Drained,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SharedFacts {
    pub(super) writes: Writes,
    pub(super) on_disk: Activity,
    pub(super) closing: Closing,
    /// Superblocks may be written: no update is under way, nor the flush before superblocks turn
    /// clean.
    pub(super) superblocks_free: bool,
    pub(super) caches_free: bool,
    /// A member is out, and no durable superblock records the loss.
    pub(super) unrecorded: bool,
    /// Superblocks must record which members were absent when the array was opened.
    pub(super) to_record_absent: bool,
    /// Superblocks must be written a second time.
    pub(super) to_say_again: bool,
    /// Superblocks do not record all of jobs' progress.
    pub(super) unsaved: bool,
    /// Superblocks may turn clean when shards have drained.
    pub(super) may_be_clean: bool,
    /// Clients' flushes wait, or are being served.
    pub(super) flushes: bool,
    /// Members have been flushed for clients, and these clients have no answer yet.
    pub(super) flush_ended: bool,
    /// Logs are going to change, and no write begins before the change.
    pub(super) log_change: LogChangeStage,
    /// The journal has free room that the tail in superblocks does not record yet.
    pub(super) tail_unsaid: bool,
    pub(super) stopping: bool,
    /// The array stops, and has no other work.
    pub(super) stops: bool,
}

impl SharedFacts {
    pub(super) fn may_write(&self) -> bool {
        self.writes == Writes::Allowed
    }

    /// Superblocks must record a lost member.
    pub(super) fn is_to_record(&self) -> bool {
        self.unrecorded && self.may_write() && self.on_disk != Activity::NotKept
    }
}
