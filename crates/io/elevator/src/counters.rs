//! The counters of an elevator.

/// Counts since the elevator was made; none is ever reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Inserted entries.
    pub inserted: u64,
    /// Vectors given to the member.
    pub dispatched: u64,
    /// Entries that joined the end of another.
    pub merged_back: u64,
    /// Entries that joined the start of another.
    pub merged_front: u64,
    /// Groups that joined because an entry filled the gap between them.
    pub joined: u64,
    /// Batches begun.
    pub batches: u64,
    /// Batches that began with an entry past its expiry.
    pub expired: u64,
    /// Batches of writes begun because writes had been passed over often enough.
    pub starved: u64,
    /// Entries that went first because they had aged.
    pub aged: u64,
}
