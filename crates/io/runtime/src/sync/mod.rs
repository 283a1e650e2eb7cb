//! What this crate's threads share, by `braid-concurrency`'s names; and what only models see.
//!
//! Where it stands: everything in this crate that one thread hands to another goes through these names. [`flaw`] leaves
//! single lines out on purpose, [`witness`] watches shared bytes: nothing in the product; happens-before under loom,
//! overlaps under shuttle.

pub(crate) mod flaw;
pub(crate) mod witness;

#[cfg(not(loom))]
pub(crate) use braid_concurrency::{
    Arc, Condvar, Moment, Mutex, MutexGuard, Weak, atomic, mpsc, sleep, thread,
};
#[cfg(loom)]
pub(crate) use braid_concurrency::{Arc, Mutex, MutexGuard, atomic, thread};
