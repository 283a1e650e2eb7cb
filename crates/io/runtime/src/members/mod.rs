//! The members of an array: each with its device and what stands before it, all of them in one table.
//!
//! Where it stands: below what is shared by an array's threads ([`crate::core`]); it knows no machine and no other part of the
//! runtime. What is done with members is above: the way to a device in [`crate::executor`], coming and going in
//! [`crate::membership`].
//!
//! ```text
//!   handle ──┬── operation        what a member is asked, in the same words for both back ends
//!            ├── ring_admission   how much of it rings may have, and whether anything at all
//!            ├── traffic          what has gone to and from it, counted
//!            └── crew             its own threads, and what waits for them
//! ```
//!
//! The table is read without a lock and replaced as a whole. A thread that replaces it waits until all have let the
//! old one go: from then on every thread sees the new one, and none that saw the old one is on its way to a back end.

pub(crate) mod crew;
pub(crate) mod handle;
pub(crate) mod left;
pub(crate) mod operation;
pub(crate) mod rejoining;
pub(crate) mod ring_admission;
mod table;
pub(crate) mod traffic;

pub(crate) use table::{Members, Table};
