//! Small numbers by which machines and drivers name members, shards, bitmaps, requests and work.

/// Name of a member for as long as the array is open. The driver maps it to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

/// Index of one of an array's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u16);

/// Name of a bitmap of an array. A bitmap that is added while the array runs gets a new name and
/// other bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitmapId(pub u64);

/// Name of a client's request, chosen by the driver, unique among the requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// Name of a reshape's own flushes. No driver gives this name to a client's request.
    pub(crate) const RESHAPE: Self = Self(u64::MAX);
}

/// Name of one member request of one shard; reused only after 2^31 other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Name of an acknowledged write of a shard, with a copy outside the process; small, and reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CachedWriteId(pub u32);

/// Name of background work, chosen by its job, unique among the work of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);
