//! Where an array's bytes are: md's levels and layouts as arithmetic, and nothing else.
//!
//! The crate stands below all others but `sim-hooks`. The engine asks it which slot and sector hold
//! a byte; `assembly` asks how many losses an array survives; the CLI asks for md's layout words.
//!
//! The crate does not do I/O, read superblocks, compute parity or know which members are present.
//! It computes the steps of a reshape, and the room between reads and writes ([`ReshapeSteps`]).
//!
//! ```text
//!               Shape  (level, layout, chunk, slots, member sizes: unverified numbers)
//!                 |  Geometry::new validates everything, once
//!     +-----------+-----------------+
//!   Direct      Mirror            Stripe
//!   linear, 0   1, 10             4, 5, 6
//!   one place   several copies    data plus P, or P and Q, per chunk row
//! ```
//!
//! Three kinds of sector must never be confused, so each is a type: [`LogicalSector`] (as clients
//! count), [`MemberSector`] (inside a member's data area) and, in chunks, [`ChunkRow`]. A sector
//! has 512 bytes.
//!
//! Invariants:
//! * forward and inverse maps agree, and no two logical sectors share a member sector
//!   (`tests/direct.rs`, `tests/mirror.rs`, `tests/stripe.rs`: exhaustive on small arrays, sampled
//!   on large);
//! * the maps are md's (`tests/*_tables.rs`: drawings of the first rows of every layout);
//! * a shape that is accepted cannot overflow: capacities stay below [`SECTORS_MAX`]
//!   (`tests/refusals.rs`);
//! * nothing allocates after [`Geometry::new`] (only a direct array's zone list is on the heap).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod data_rows;
mod direct;
mod error;
mod geometry;
mod level;
mod mirror;
mod row;
mod shape;
mod stripe;
mod units;
mod words;

pub use data_rows::{DataRows, ReshapeSteps};
pub use direct::{DirectExtent, DirectGeometry};
pub use error::GeometryError;
pub use geometry::Geometry;
pub use level::{Family, Level};
pub use mirror::MirrorGeometry;
pub use row::{Role, RowMap};
pub use shape::{SECTORS_MAX, SLOTS_MAX, Shape};
pub use stripe::{StripeAddress, StripeGeometry};
pub use units::{ChunkRow, LogicalSector, MemberSector, SECTOR_BYTES, Slot};
pub use words::{default_layout, layout_name, parse_layout};
