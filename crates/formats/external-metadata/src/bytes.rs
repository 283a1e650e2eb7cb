//! Fields of IMSM and DDF that are not plain numbers.

use braid_byte_reader::le32;

/// A number whose two little-endian halves are in separate places.
pub(crate) fn halves(bytes: &[u8], low: usize, high: usize) -> Option<u64> {
    Some(u64::from(le32(bytes, low)?) | (u64::from(le32(bytes, high)?) << 32))
}

/// The text in a field: up to the first zero byte, trimmed, without unprintable characters.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let seen = bytes.get(..end).unwrap_or(&[]);
    let letters = seen.iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
    letters.map(|byte| char::from(*byte)).collect::<String>().trim().to_owned()
}

/// A DDF GUID of 24 bytes: as text if all bytes are printable, else in hex.
pub(crate) fn guid(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | 0));
    match is_text {
        true => text(bytes),
        false => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
