//! The primitives of this crate's threads, from `braid-concurrency`; and two helpers for models.
//!
//! Place in the flow: every hand-over between threads of this crate uses these names. [`flaw`]
//! leaves single lines out on purpose. [`witness`] watches shared bytes: happens-before under loom,
//! overlaps under shuttle, nothing in the product.

pub(crate) mod flaw;
pub(crate) mod witness;

#[cfg(not(loom))]
pub(crate) use braid_concurrency::{
    Arc, Condvar, Moment, Mutex, MutexGuard, Weak, atomic, mpsc, sleep, thread,
};
#[cfg(loom)]
pub(crate) use braid_concurrency::{Arc, Mutex, MutexGuard, atomic, thread};
