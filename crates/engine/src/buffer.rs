//! Names of payload memory: the engine says *which* bytes, the driver knows where they are.
//!
//! Two kinds of memory exist. A **payload** belongs to a client's request and lives until the
//! request is answered. A **block** belongs to a stripe slot for good: stripe `s` of a shard owns
//! two blocks of one stripe unit per array slot, its *old* half (what members hold) and its *new*
//! half (what is to be written). Ownership by position means that a block cannot leak, cannot run
//! out half-way through a stripe, and needs no allocator.
//!
//! ```text
//! shard arena:  | s0 slot0 old | s0 slot0 new | s0 slot1 old | ... | s1 slot0 old | ...
//!                 one stripe unit each
//! ```

use crate::request::RequestId;

/// Which of a column's two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    /// What the member holds, as read or reconstructed (later, in place, the delta or new parity).
    Old,
    /// What the column shall hold.
    New,
}

/// One block of a shard's arena; the driver multiplies it by the stripe unit to find the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// A place in memory where a run of sectors starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Inside a block, `offset_sectors` from its start.
    Block {
        /// Which block of the shard's arena.
        block: BlockIndex,
        /// Sectors into the block.
        offset_sectors: u32,
    },
    /// Inside the payload of a client's request, `offset_sectors` from its start.
    Payload {
        /// Whose payload.
        request: RequestId,
        /// Sectors into the payload.
        offset_sectors: u32,
    },
}

impl Buffer {
    /// The place `sectors` further on in the same memory.
    #[must_use]
    pub fn plus(self, sectors: u32) -> Self {
        match self {
            Self::Block { block, offset_sectors } => {
                Self::Block { block, offset_sectors: offset_sectors + sectors }
            }
            Self::Payload { request, offset_sectors } => {
                Self::Payload { request, offset_sectors: offset_sectors + sectors }
            }
        }
    }
}
