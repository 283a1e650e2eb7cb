//! Small helpers over bytes of a member.

pub(crate) const SECTOR: usize = 512;

pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|piece| piece.iter().fold(0, |all, byte| all | byte) == 0)
}

/// A count of bytes in memory, as `usize`.
pub(crate) fn small(count: u64) -> usize {
    usize::try_from(count).expect("it is in memory")
}
