//! The places of an array's parity logs, md's or braid's own, if the array is to be written.

use braid_ondisk::LogPlace;

/// A member's parity log, if the array is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssembledParityLog {
    /// The log's place and kind.
    pub place: LogPlace,
    /// The generation and end sector of the log's newest record; `None` without records.
    pub newest: Option<(u64, u64)>,
}
