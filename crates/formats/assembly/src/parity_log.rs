//! Where an array that is to be written keeps a parity log, md's or our own.

use braid_ondisk::LogPlace;

/// The parity log of a member, for an array that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssembledParityLog {
    /// Where it is, and of which kind.
    pub place: LogPlace,
    /// The generation of its newest record, and sectors from the area's start to the record's end;
    /// `None` without records.
    pub newest: Option<(u64, u64)>,
}
