//! The machine under *before*, the seed's fix and *braid*: the operating system's threads.
//!
//! The files beside this one use no others, so that the suite `cores` can run them on a model.

pub(super) use braid_dispatch as dispatch;
pub(super) use braid_elevator as elevator;
pub(super) use std::sync::{Mutex, MutexGuard, TryLockError, atomic};
pub(super) use std::thread;
pub(super) use std::time::Instant as Moment;

/// Any content of a lock.
pub(super) trait Content {}

impl<T> Content for T {}
