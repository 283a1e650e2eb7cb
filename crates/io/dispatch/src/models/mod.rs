//! Models of the hand-overs: this crate's own code under every schedule, or under very many.
//!
//! They are unit tests that exist only under `--cfg loom` or `--cfg shuttle`; `cargo xtask models`
//! runs both. A model that cannot fail proves nothing, so each has a twin that leaves one line out
//! ([`crate::flaw`]) and must be caught.

#[cfg(loom)]
mod exhaustive;
#[cfg(shuttle)]
mod sampled;
