//! The description of an export for a client: name, size, flags, block sizes.
//!
//! Where it stands: `frontend-nbd` fills one [`ExportDescription`] per export when a connection
//! begins; the session answers INFO and GO with the description, and checks every request against
//! it.
//!
//! Invariants
//! - A [`BlockSizes`] that exists obeys the specification's four rules: `tests::block_size_rules`.

use crate::limits::REQUEST_BYTES_MAX;
use crate::wire;

/// Block size constraints, in bytes. Source: `doc/proto.md`, "Block size constraints".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    minimum_bytes: u32,
    preferred_bytes: u32,
    maximum_bytes: u32,
}

/// Why three numbers are not valid block sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockSizesError {
    /// The minimum is not a power of two in `1..=65536`.
    #[error("minimum block size {0} is not a power of two between 1 and 65536")]
    Minimum(u32),
    /// The preferred size is not a power of two, or below 512 or the minimum.
    #[error("preferred block size {0} is not a power of two of at least 512 and the minimum")]
    Preferred(u32),
    /// The maximum is not a multiple of the minimum, below the preferred size, or above 64 MiB.
    #[error(
        "maximum block size {0} is not a multiple of the minimum between the preferred size and 64 MiB"
    )]
    Maximum(u32),
}

impl BlockSizes {
    /// Block sizes for any byte range: 4096 preferred, 64 MiB at most.
    pub const BYTE_GRANULAR: Self =
        Self { minimum_bytes: 1, preferred_bytes: 4096, maximum_bytes: REQUEST_BYTES_MAX };

    /// Checks three sizes, in bytes.
    ///
    /// # Errors
    /// Reports the first size that breaks a rule of the specification or the limit of 64 MiB.
    pub fn new(minimum: u32, preferred: u32, maximum: u32) -> Result<Self, BlockSizesError> {
        if !minimum.is_power_of_two() || minimum > 65_536 {
            return Err(BlockSizesError::Minimum(minimum));
        }
        if !preferred.is_power_of_two() || preferred < minimum.max(512) {
            return Err(BlockSizesError::Preferred(preferred));
        }
        let in_range = (preferred..=REQUEST_BYTES_MAX).contains(&maximum);
        if !in_range || !maximum.is_multiple_of(minimum) {
            return Err(BlockSizesError::Maximum(maximum));
        }
        Ok(Self { minimum_bytes: minimum, preferred_bytes: preferred, maximum_bytes: maximum })
    }

    /// The minimum block size, of which offsets and lengths are multiples.
    #[must_use]
    pub const fn minimum_bytes(self) -> u32 {
        self.minimum_bytes
    }

    /// The preferred block size; requests aligned to it need no read-modify-write.
    #[must_use]
    pub const fn preferred_bytes(self) -> u32 {
        self.preferred_bytes
    }

    /// The maximum block size, which is the longest READ and WRITE.
    #[must_use]
    pub const fn maximum_bytes(self) -> u32 {
        self.maximum_bytes
    }
}

/// One export as a session knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportDescription {
    /// The export's name; the empty name reaches the first export that is not withdrawn.
    pub name: String,
    /// Whether the export was withdrawn, so that no client finds it.
    pub is_withdrawn: bool,
    /// The export's description for people; empty for none.
    pub description: String,
    /// The export's size, in bytes.
    pub size_bytes: u64,
    /// Whether WRITE, TRIM and WRITE_ZEROES are refused.
    pub read_only: bool,
    /// Whether a FLUSH on one connection covers the writes of all connections.
    pub multi_conn: bool,
    /// The export's block size constraints.
    pub block_sizes: BlockSizes,
}

impl ExportDescription {
    /// The export's transmission flags. They include "don't fragment" if replies have `chunks`.
    #[must_use]
    pub fn transmission_flags(&self, chunks: bool) -> u16 {
        let mut flags = wire::TRANSMIT_HAS_FLAGS
            | wire::TRANSMIT_FLUSH
            | wire::TRANSMIT_FUA
            | wire::TRANSMIT_CACHE;
        if self.read_only {
            flags |= wire::TRANSMIT_READ_ONLY;
        } else {
            flags |= wire::TRANSMIT_TRIM | wire::TRANSMIT_WRITE_ZEROES | wire::TRANSMIT_FAST_ZERO;
        }
        if chunks {
            flags |= wire::TRANSMIT_DF;
        }
        if self.multi_conn {
            flags |= wire::TRANSMIT_MULTI_CONN;
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_size_rules() {
        let limit = REQUEST_BYTES_MAX;
        assert_eq!(BlockSizes::new(1, 4096, limit), Ok(BlockSizes::BYTE_GRANULAR));
        assert!(BlockSizes::new(512, 512, 512).is_ok());
        assert!(BlockSizes::new(65_536, 65_536, 131_072).is_ok());
        for minimum in [0, 3, 131_072] {
            assert_eq!(
                BlockSizes::new(minimum, 4096, limit),
                Err(BlockSizesError::Minimum(minimum))
            );
        }
        for (minimum, preferred) in [(1, 0), (1, 256), (4096, 2048), (1, 4097)] {
            assert_eq!(
                BlockSizes::new(minimum, preferred, limit),
                Err(BlockSizesError::Preferred(preferred))
            );
        }
        for maximum in [0, 2048, limit + 1, u32::MAX, 4096 + 256] {
            assert_eq!(BlockSizes::new(512, 4096, maximum), Err(BlockSizesError::Maximum(maximum)));
        }
    }
}
