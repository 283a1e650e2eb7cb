//! Reads numbers from unvalidated bytes; reads beyond the end return `None`.
/// Little-endian, 2 bytes.
/// Little-endian, 4 bytes.
/// Little-endian, 8 bytes.
/// Big-endian, 2 bytes.
/// Big-endian, 4 bytes.
/// Big-endian, 8 bytes.
/// 16 bytes: a UUID as it is stored.

/// Bytes in a sector.
pub(crate) const SECTOR: usize = 512;

/// All of it is zero.
pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

/// A count within a buffer.
pub(crate) fn small(count: u64) -> usize {
    usize::try_from(count).expect("it is in memory")
}
