//! Reads numbers from bytes of a disk that are not validated yet. Each reader takes an offset in
//! bytes, and returns `None` if the bytes end before the number does.
//!
//! The parsers of foreign formats share these readers: partition tables, file systems, LVM, IMSM,
//! DDF. md's own superblocks are structures of `braid-ondisk`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

macro_rules! readers {
    ($($name:ident, $number:ty, $from:ident;)*) => {$(
        #[doc = concat!("A `", stringify!($number), "` by `", stringify!($from), "`.")]
        #[must_use]
        pub fn $name(bytes: &[u8], at: usize) -> Option<$number> {
            array(bytes, at).map(<$number>::$from)
        }
    )*};
}

readers! {
    le16, u16, from_le_bytes;
    le32, u32, from_le_bytes;
    le64, u64, from_le_bytes;
    be16, u16, from_be_bytes;
    be32, u32, from_be_bytes;
    be64, u64, from_be_bytes;
}

/// The `N` bytes from offset `at`: a UUID, a magic, a name.
#[must_use]
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// CRC-32 as in Ethernet, zip and GPT (CRC-32/ISO-HDLC).
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC-32 from another start value, without the inversion at both ends: the checksum of LVM, and
/// mdadm's checksum of DDF.
#[must_use]
pub fn raw_crc32<'a>(start: u32, parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut sum = crc32fast::Hasher::new_with_initial(!start);
    parts.into_iter().for_each(|part| sum.update(part));
    !sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_end_are_not_read() {
        assert_eq!(le32(&[1, 2, 3, 4, 5], 1), Some(0x0504_0302));
        assert_eq!(be16(&[1, 2, 3], 1), Some(0x0203));
        assert_eq!(le32(&[1, 2, 3, 4, 5], 2), None);
        assert_eq!(le64(&[0; 8], 1), None);
        assert_eq!(be64(&[0; 8], usize::MAX), None);
        assert_eq!(array(b"abc", 1), Some(*b"bc"));
    }

    #[test]
    fn sums_are_the_published_check_values() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "CRC-32/ISO-HDLC");
        assert_eq!(crc32(b""), 0);
        assert_eq!(!raw_crc32(u32::MAX, [&b"1234"[..], b"56789"]), 0xcbf4_3926);
        assert_eq!(!raw_crc32(0x0, [&b"123456789"[..]]), !0x2dfd_2d88, "CRC-32/JAMCRC from zero");
    }
}
