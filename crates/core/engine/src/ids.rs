//! Names: small numbers that machines and drivers call things by.

/// Name of a member for as long as the array is open; the driver knows which device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u16);

/// Which of an array's shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u16);

/// Which bitmap of an array: one that is made while it runs is another than the one before, and
/// bits of the two are not alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitmapId(pub u64);

/// Name of a client's request, chosen by the driver, unique among those in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Name of one member request of one shard; not reused before 2^31 others had its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Name of an answered write of one shard of which a copy is kept outside the process; small, and
/// used again once the copy is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CachedWriteId(pub u32);

/// Name of background work, chosen by the job that asks for it, unique among what one shard has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(pub u64);
