//! Numbers out of bytes that may be too few, and LVM's sum.

/// So many bytes from a place.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// The sum of labels, areas and texts: CRC-32 that begins with a number of LVM's own, and is not inverted at the end.
#[must_use]
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    const FIRST: u32 = 0xf597_a6cf;
    let step = |sum: u32, _: u32| match sum & 1 {
        1 => (sum >> 1) ^ 0xedb8_8320,
        _ => sum >> 1,
    };
    bytes.iter().fold(FIRST, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_crc_32_from_another_start() {
        // Of a label that LVM wrote, from its byte 20 on: offset, kind, UUID, size, areas; then zeroes.
        let mut label = vec![0; 512 - 20];
        label[..12].copy_from_slice(b"\x20\0\0\0LVM2 001");
        label[12..44].copy_from_slice(b"hTr3FKqaqS3jt1Hr21bINoH2D7j5m0vh");
        for (at, value) in
            [(47, 0x10), (54, 0x10), (85, 0x10), (93, 0xf0), (94, 0x0f), (116, 2), (120, 1)]
        {
            label[at] = value;
        }
        assert_eq!(sum(&label), 0x319d_649e);
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        assert_eq!(le32(&[1, 2, 3, 4, 5], 1), Some(0x0504_0302));
        assert_eq!(le64(&[0; 8], 1), None);
        assert_eq!(le32(&[0; 8], usize::MAX), None);
    }
}
