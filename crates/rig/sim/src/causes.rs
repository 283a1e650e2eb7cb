//! Causes: each reported failure matches a failure that a disk was made to have.
//!
//! Where it stands: disks fail in [`crate::world`] and [`crate::restart`]. Both note each failure
//! here, and pass its number to the engine in the place of an operating system's error number. So
//! the simulator can tell failures apart. A notice or answer names a cause, which must match the
//! disk, operation and sectors of the failure with that number. Members leave only for failures
//! that demand it.

mod world;

use braid_engine::cause::RequestKind;
use braid_engine::effect::FaultKind;

/// An operation that a disk failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    disk: usize,
    asked: RequestKind,
    start: u64,
    sectors: u64,
    kind: FaultKind,
}

/// All failures of one run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures(Vec<Failure>);
