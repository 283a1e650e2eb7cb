//! Numbers out of bytes that nobody has validated: beyond the end they are nothing.

/// Little-endian, 2 bytes.
pub(crate) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|it| u16::from_le_bytes(*it))
}

/// Little-endian, 4 bytes.
pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|it| u32::from_le_bytes(*it))
}

/// Little-endian, 8 bytes.
pub(crate) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|it| u64::from_le_bytes(*it))
}

/// Big-endian, 2 bytes.
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|it| u16::from_be_bytes(*it))
}

/// Big-endian, 4 bytes.
pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|it| u32::from_be_bytes(*it))
}

/// Big-endian, 8 bytes.
pub(crate) fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|it| u64::from_be_bytes(*it))
}

/// 16 bytes: a UUID as it is stored.
pub(crate) fn uuid(bytes: &[u8], at: usize) -> Option<[u8; 16]> {
    bytes.get(at..)?.first_chunk().copied()
}

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
