//! Numbers out of bytes that may be too few: none is read that is not there.

/// So many bytes from a place.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

pub(crate) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_be_bytes)
}

/// The sum that GPT goes by: CRC-32 as Ethernet and zip have it.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _: u32| match sum & 1 {
        1 => (sum >> 1) ^ 0xedb8_8320,
        _ => sum >> 1,
    };
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), step);
    !bytes.iter().fold(u32::MAX, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "the check value of CRC-32/ISO-HDLC");
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        assert_eq!(le32(&[1, 2, 3, 4, 5], 1), Some(0x0504_0302));
        assert_eq!(le32(&[1, 2, 3, 4, 5], 2), None);
        assert_eq!(be64(&[0; 8], usize::MAX), None);
    }
}
