//! Names of payload memory: the engine names the bytes, and the driver finds their address.
//!
//! Two kinds of memory exist. A **payload** belongs to a client's request and lives until the
//! request is answered. A **block** belongs to a stripe slot for good: stripe `s` of a shard owns a
//! block of one stripe unit per array slot. Ownership by position means that a block cannot leak,
//! cannot run out half-way through a stripe, and needs no allocator.
//!
//! ```text
//! shard arena:  | s0 slot0 | s0 slot1 | ... | s1 slot0 | ...      one stripe unit each
//! ```
//!
//! # A payload's shadow buffer
//!
//! A read that goes from a member straight into a payload may be *abandoned*: the member has
//! stalled, and the shard computes the range from the other members. The device may still write the
//! range at any later time, so no other request may write it. Hence a request has a *shadow buffer*
//! of the same length, which exists from its first use on. The bytes that another read or a
//! computation supplies instead go into the shadow buffer, at the same offset. Offsets from
//! [`SHADOW_BUFFER`] on name the shadow buffer's sectors.
//!
//! - Only computations and reads submitted after the abandoned read write to the shadow buffer,
//!   never the abandoned read itself [check: a_late_read_changes_no_answer].
//! - Each range of the shadow buffer is used at most once in a request's life: its bytes go into
//!   the answer.
//! - When the request is answered, the shadow buffer has the good bytes of its written ranges, the
//!   client's buffer all other bytes. The client's own buffer stays allocated while a member may
//!   write to it.

use crate::ids::RequestId;

/// One block of a shard's arena; the driver multiplies the index by the stripe unit to find the
/// block's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// An offset in a payload from `SHADOW_BUFFER` on lies in the request's shadow buffer, at the
/// offset minus `SHADOW_BUFFER`.
pub const SHADOW_BUFFER: u32 = 1 << 31;

/// One of the two buffers of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PayloadBuffer {
    /// The client's own buffer.
    Client,
    /// The shadow buffer, for bytes made in place of an abandoned read.
    Shadow,
}

/// Splits an offset of a [`Buffer::Payload`] into the buffer and the offset in that buffer.
#[must_use]
pub fn payload_buffer_of(offset_sectors: u32) -> (PayloadBuffer, u32) {
    match offset_sectors.checked_sub(SHADOW_BUFFER) {
        Some(offset_sectors) => (PayloadBuffer::Shadow, offset_sectors),
        None => (PayloadBuffer::Client, offset_sectors),
    }
}

/// A place in memory where a run of sectors starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Inside a block, `offset_sectors` from its start.
    Block {
        /// The block of the shard's arena.
        block: BlockIndex,
        /// Sectors into the block.
        offset_sectors: u32,
    },
    /// Inside the payload of a client's request, `offset_sectors` from its start.
    Payload {
        /// The payload's request.
        request: RequestId,
        /// Sectors into the payload. From [`SHADOW_BUFFER`] on, the offset lies in the shadow
        /// buffer ([`payload_buffer_of`]).
        offset_sectors: u32,
    },
}

impl Buffer {
    /// The position `sectors` sectors after this one, in the same block or payload.
    #[must_use]
    pub fn plus(self, sectors: u32) -> Self {
        match self {
            Self::Block { block, offset_sectors } => {
                Self::Block { block, offset_sectors: offset_sectors + sectors }
            }
            Self::Payload { request, offset_sectors } => {
                let (payload_buffer, _) = payload_buffer_of(offset_sectors);
                let offset_sectors = offset_sectors + sectors;
                assert_eq!(
                    payload_buffer_of(offset_sectors).0,
                    payload_buffer,
                    "a place further on is in the same memory"
                );
                Self::Payload { request, offset_sectors }
            }
        }
    }
}
