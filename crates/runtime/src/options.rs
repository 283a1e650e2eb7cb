//! How an array is to be run.

/// Settings of a [`crate::Volume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Refuse writes; nothing is written to any member, superblocks included.
    pub read_only: bool,
    /// Shards of the array; at least 1.
    pub shards: u16,
    /// Bytes of stripe memory per shard (levels 4, 5, 6): bounds how many stripes are in work.
    pub stripe_memory_bytes: usize,
    /// Threads that wait for each member; at least 1.
    pub threads_per_member: usize,
    /// Milliseconds without a write after which the superblocks turn clean (md's `safe_mode_delay`).
    pub clean_delay_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            shards: 4,
            stripe_memory_bytes: 16 << 20,
            threads_per_member: 4,
            // md's own default is 201 ms.
            clean_delay_ms: 200,
        }
    }
}
