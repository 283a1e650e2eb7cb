//! Models of the hand-overs: this crate's own code under every schedule, or under very many.
//!
//! Where it stands: unit tests that exist under `--cfg loom` or `--cfg shuttle` only; `cargo xtask models` runs both. A
//! model that cannot fail shows nothing, so each has a twin that leaves one line out ([`crate::flaw`]) and must be
//! caught.

#[cfg(loom)]
mod exhaustive;
#[cfg(shuttle)]
mod sampled;
