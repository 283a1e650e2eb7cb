//! Reshape: an array that changes its shape while it serves.
//!
//! ```text
//!   array sectors   [ new shape ....... | window | old shape ............ ]
//!   shards          those of the new shape       those of the old shape
//! ```
//!
//! During a reshape an array has two geometries, and shards for each. [`Border`] decides which
//! requests may begin, [`crate::request::Regions`] which shard serves a sector, [`ReshapePlan`] how
//! many sectors may move at once. The array's machine ([`crate::array`], `reshape`) has the order:
//! hold the window's writers, flush, move, flush, record the position, release. The driver moves
//! sectors as a client would: it reads them from the old shape's shards, and writes them to those
//! of the new shape. So shards handle reads of lost members, parity and losses as they do for a
//! client.
//!
//! A reshape begins and ends only when the array is opened anew: superblocks then record the
//! changed shape.

mod border;
mod direct_change;
mod plan;
mod unreadable;
mod wish;

pub use border::{Border, BorderTicket};
pub use direct_change::superblocks_of_change;
pub use plan::{ReshapeFault, ReshapePlan, ReshapeWindow};
pub use unreadable::{UnreadableSearch, fill_lost};
pub use wish::{
    RAID4_OF_RAID0, ShapeLimits, ShapeMember, ShapeProposal, ShapeWish, WishError, propose,
};

pub use crate::lost_content::lost_sector;
