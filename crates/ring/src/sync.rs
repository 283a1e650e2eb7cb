//! Locks of the operating system, or of a model checker.
//!
//! Only what the inbox needs; all else belongs to one thread.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::Mutex;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::Mutex;

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
