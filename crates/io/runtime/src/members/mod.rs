//! The members of an array: a handle with device and queues for each member, in one table.
//!
//! Place in the flow: below the core that an array's threads share ([`crate::core`]). This layer
//! knows no machine and no other part of the runtime. Layers above use the members:
//! [`crate::executor`] is the way to a device, [`crate::membership`] adds and removes members.
//! ```text
//!   handle ──┬── operation        an operation of a member, in the same terms for both back ends
//!            ├── ring_admission   how many operations rings may have, and whether any at all
//!            ├── traffic          the counts of transfers to and from the member
//!            └── threads          the member's own threads, and the operations that wait for them
//! ```
//! The table is read without a lock and replaced as a whole. A thread that replaces it waits until
//! every reader has dropped the old table. From then on every thread sees the new table, and no
//! thread that saw the old one is on its way to a back end.

pub(crate) mod array_operations;
pub(crate) mod handle;
pub(crate) mod operation;
pub(crate) mod rejoining;
pub(crate) mod ring_admission;
mod table;
pub(crate) mod threads;
pub(crate) mod traffic;

pub(crate) use table::{Members, Table};
