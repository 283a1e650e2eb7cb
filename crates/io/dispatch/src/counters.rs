//! Counters of a scheduler. The dispatcher counts under ownership. Under policy `none` nothing is
//! shared, so nothing is counted.

/// Sizes of drained batches: 1, 2 to 3, 4 to 7, and so on; the last size covers all larger batches.
pub const DRAINED_SIZES: usize = 10;

/// Counts since the scheduler was made; none is ever reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counters of the scheduler's elevator: insertions, dispatches, merges, batches, expiries.
    pub elevator: braid_elevator::Counters,
    /// Batches drained from the insertion lists.
    pub drained_batches: u64,
    /// Insertions and completions in the drained batches.
    pub drained: u64,
    /// Drained batches by number of events, in powers of two.
    pub drained_sizes: [u64; DRAINED_SIZES],
    /// Batches of dispatches handed to the device.
    pub dispatched_batches: u64,
    /// Number of times that a thread became dispatcher and found work.
    pub ownerships: u64,
    /// Number of times that a thread found another dispatcher and did not become dispatcher.
    pub owner_misses: u64,
    /// Reads that wait in the scheduler now.
    pub waiting_reads: u64,
    /// Other entries that wait in the scheduler now.
    pub waiting_writes: u64,
    /// Vectors at the device now: the tags in use.
    pub out: u64,
}

impl Counters {
    pub(crate) fn drained(&mut self, events: usize) {
        self.drained_batches += 1;
        self.drained += events as u64;
        let size = events.max(1).ilog2() as usize;
        self.drained_sizes[size.min(DRAINED_SIZES - 1)] += 1;
    }
}
