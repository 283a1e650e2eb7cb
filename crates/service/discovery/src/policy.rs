//! Consistency policies on the command line: how an array's redundancy becomes consistent after a
//! crash.
//!
//! `create` and the server decide whether an array can have a policy.

/// The smallest region for a bitmap's bit, in bytes; mdadm has the same minimum.
const BITMAP_CHUNK_BYTES_MIN: u32 = 4096;

/// The valid sizes of the region for a bitmap's bit, in words.
pub const BITMAP_CHUNK_WORDS: &str = "it is a power of two, from 4K to 2G";

/// A consistency policy; each variant names the regions to resync after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The whole array.
    Resync,
    /// Regions with a bit in the write-intent bitmap.
    Bitmap,
    /// Regions marked in a lockless bitmap, without those that no client has written.
    Lockless,
    /// Stripes that partial parity logs cover, also with a member missing.
    Ppl,
    /// Stripes that braid's own logs cover, together with a bitmap.
    Log,
    /// Stripes with writes in a write journal, which holds all writes.
    Journal,
}

/// The words for each policy: braid's own first, then the word of mdadm's `--bitmap`.
const POLICIES: [(Policy, &[&str]); 6] = [
    (Policy::Resync, &["resync", "none"]),
    (Policy::Bitmap, &["bitmap", "internal"]),
    (Policy::Lockless, &["llbitmap", "lockless"]),
    (Policy::Ppl, &["ppl"]),
    (Policy::Log, &["log"]),
    (Policy::Journal, &["journal"]),
];

impl Policy {
    /// The policy that this word names.
    pub fn parse(word: &str) -> Option<Self> {
        let found = POLICIES.iter().find(|(_, words)| words.contains(&word));
        found.map(|(policy, _)| *policy)
    }
}

/// Converts `bytes` to the size of a bitmap's bit; `None` if the size is not valid.
pub fn bitmap_chunk(bytes: u64) -> Option<u32> {
    let is_fit = |bytes: &u32| bytes.is_power_of_two() && *bytes >= BITMAP_CHUNK_BYTES_MIN;
    u32::try_from(bytes).ok().filter(is_fit)
}
