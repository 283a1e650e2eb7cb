//! The places of the parity logs, md's or braid's own, of an array that is to be written.

use braid_ondisk::LogPlace;

/// The parity log of a member, for an array that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssembledParityLog {
    /// Its place and kind.
    pub place: LogPlace,
    /// The generation and end sector of its newest record; `None` without records.
    pub newest: Option<(u64, u64)>,
}
