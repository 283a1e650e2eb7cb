//! Numbers out of bytes that nobody has validated: beyond the end they are nothing.

/// Little-endian, 2 bytes.
pub(crate) fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|it| u16::from_le_bytes(*it))
}

/// Little-endian, 4 bytes.
pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|it| u32::from_le_bytes(*it))
}

/// Two little-endian halves that do not lie side by side.
pub(crate) fn halves(bytes: &[u8], low: usize, high: usize) -> Option<u64> {
    Some(u64::from(le32(bytes, low)?) | (u64::from(le32(bytes, high)?) << 32))
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

/// The text in a field: up to the first zero byte, without blanks at its ends, what is no letter left out.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let seen = bytes.get(..end).unwrap_or(&[]);
    let letters = seen.iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
    letters.map(|byte| char::from(*byte)).collect::<String>().trim().to_owned()
}

/// 24 bytes of a DDF GUID: text as far as it is text, else in hex.
pub(crate) fn guid(bytes: &[u8]) -> String {
    let is_text = bytes.iter().all(|byte| byte.is_ascii_graphic() || matches!(byte, b' ' | 0));
    match is_text {
        true => text(bytes),
        false => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
