//! Causes: what is said to have failed is what a disk was made to fail at.
//!
//! Where it stands: disks fail in [`crate::world`] and [`crate::restart`], which note each failure here and tell the engine of
//! it by its number, as if that were the error number of an operating system: no failure can stand for another. The notices
//! and answers that come out name one, and it must be that of the disk, the operation and the sectors that it came from; and
//! a member goes out only by what a member must not survive.

mod world;

use braid_engine::cause::Asked;
use braid_engine::effect::FaultKind;

/// Something that a disk failed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    disk: usize,
    asked: Asked,
    start: u64,
    sectors: u64,
    kind: FaultKind,
}

/// All of one run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures(Vec<Failure>);
