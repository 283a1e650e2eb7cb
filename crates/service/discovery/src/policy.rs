//! What keeps redundancy right over a crash, as a person asks for it: for an array that is made, and for one that runs.
//!
//! Whether an array can have it is for those who know the array: `create` and the server.

/// mdadm takes no less either.
const BITMAP_CHUNK_BYTES_MIN: u32 = 4096;

/// What a bit of a bitmap may stand for.
pub const BITMAP_CHUNK_WORDS: &str = "it is a power of two, from 4K to 2G";

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// All of it is brought in sync again.
    Resync,
    /// What a bitmap names is.
    Bitmap,
    /// What a lockless bitmap names is, and nothing that no client has written.
    Lockless,
    /// What partial parity logs name is, also with a member missing.
    Ppl,
    /// The same with our own logs, and a bitmap beside them.
    Log,
    /// The same with a write journal, which has all that is written.
    Journal,
}

/// Their words; the second is what mdadm's `--bitmap` takes.
const POLICIES: [(Policy, &[&str]); 6] = [
    (Policy::Resync, &["resync", "none"]),
    (Policy::Bitmap, &["bitmap", "internal"]),
    (Policy::Lockless, &["llbitmap", "lockless"]),
    (Policy::Ppl, &["ppl"]),
    (Policy::Log, &["log"]),
    (Policy::Journal, &["journal"]),
];

impl Policy {
    /// By its word.
    pub fn parse(word: &str) -> Option<Self> {
        let found = POLICIES.iter().find(|(_, words)| words.contains(&word));
        found.map(|(policy, _)| *policy)
    }
}

/// Bytes that a bit of a bitmap can stand for.
pub fn bitmap_chunk(bytes: u64) -> Option<u32> {
    let is_fit = |bytes: &u32| bytes.is_power_of_two() && *bytes >= BITMAP_CHUNK_BYTES_MIN;
    u32::try_from(bytes).ok().filter(is_fit)
}
