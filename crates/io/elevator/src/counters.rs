//! The counters of an elevator.

/// Counts since the elevator was made; none is ever reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Inserted entries.
    pub inserted: u64,
    /// Vectors given to the member.
    pub dispatched: u64,
    /// Entries that were merged at the end of another entry.
    pub merged_back: u64,
    /// Entries that were merged at the start of another entry.
    pub merged_front: u64,
    /// Pairs of groups that became one because an entry filled the gap between them.
    pub joined: u64,
    /// Batches begun.
    pub batches: u64,
    /// Batches that began with an entry past its expiry time.
    pub expired: u64,
    /// Batches of writes begun because enough batches of reads had passed the writes over.
    pub starved: u64,
    /// Entries dispatched first because they had waited longer than `aging_ns`.
    pub aged: u64,
}
