//! The machine on which *before*, the seed's fix and *braid* run: the operating system's threads.
//!
//! The other files of this suite use threads and locks only through this module, so that the suite
//! `cores` can run them on a model.

pub(super) use braid_dispatch as dispatch;
pub(super) use braid_elevator as elevator;
pub(super) use std::sync::{Mutex, MutexGuard, TryLockError, atomic};
pub(super) use std::thread;
pub(super) use std::time::Instant as Moment;

/// The content of a lock; any type will do.
pub(super) trait Content {}

impl<T> Content for T {}
