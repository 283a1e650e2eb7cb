//! The places of the parity logs, md's or braid's own, of an array that is to be written.

use braid_ondisk::LogPlace;

/// The parity log of a member, for an array that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssembledParityLog {
    /// Its place and kind.
    pub place: LogPlace,
    /// The generation of its newest record, and sectors from the area's start to the record's end;
    /// `None` without records.
    pub newest: Option<(u64, u64)>,
}
