//! Models of the hand-overs: this crate's own code under every schedule, or under very many.
//!
//! Place in the flow: unit tests that exist under `--cfg loom` or `--cfg shuttle` only; `cargo
//! xtask models` runs both. Each model prints its name and the number of schedules it explored.
//! Real threads and real time are in `tests/`.
//!
//! A model that cannot fail shows nothing, so each has a twin that leaves one line out
//! ([`crate::sync::flaw`]) and must be caught.

#[cfg(shuttle)]
mod array;
#[cfg(loom)]
mod exhaustive;
#[cfg(shuttle)]
mod volume;
#[cfg(shuttle)]
mod waits;
