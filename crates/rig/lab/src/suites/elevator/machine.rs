//! What the states before, the seed's fix and the shipped scheduler are given to run on: the operating system's threads.
//!
//! The files beside this one name nothing else of the kind, so that the suite `cores` has them run on a modelled machine.

pub(super) use braid_dispatch as dispatch;
pub(super) use braid_elevator as elevator;
pub(super) use std::sync::{Mutex, MutexGuard, TryLockError, atomic};
pub(super) use std::thread;
pub(super) use std::time::Instant as Moment;

/// What a lock may hold; here, anything.
pub(super) trait Content {}

impl<T> Content for T {}
