//! One owner of an array at a time, agreed on by a store (`serve --store`).
//!
//! ```text
//!   take_over: watch the record ─▶ swap ─▶ claim members ─▶ give up the others ─▶ wait ─▶ Owned
//!   Owned ─▶ the array is opened and served as any other
//!              ├─ keeper: threads around the tenure: beats, losses, returns, the release
//!              └─ lease_gate: requests are answered while the lease lasts
//! ```
//!
//! The rules are in `braid-ownership`, which the simulator drives; the store is `braid-store`. If
//! the tenure ends in any way but by a release, the process ends at once, and answers no client.

mod ending;
mod keeper;
mod lease_gate;
mod rules;
mod swap;
mod take_over;

pub(super) use keeper::{Keeper, OwnedArray};
pub(super) use lease_gate::GatedDisk;
pub use rules::has_host_letters;
pub(super) use rules::{
    check_heir, check_member, no_bitmap, no_change_of_shape, no_write_back, other_arrays_member,
};
pub(super) use take_over::take_over;
