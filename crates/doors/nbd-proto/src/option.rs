//! The data of INFO, GO, LIST_META_CONTEXT and SET_META_CONTEXT; other options are not parsed here.
//!
//! Where it stands: [`crate::server`] parses options with this module, [`crate::client`] builds
//! them with it. The module borrows from the message and allocates nothing; it reads a list of
//! queries one by one, and never collects the list.
//!
//! ```text
//!  INFO, GO            name length u32 · name · count u16 · count × info u16
//!  *_META_CONTEXT      name length u32 · name · count u32 · count × (length u32 · query)
//! ```
//!
//! Invariants
//! - A message parses only if its parts fill it exactly: `tests::every_wrong_length_is_malformed`.

use crate::collect::Cursor;
use crate::limits::NAME_BYTES_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionDataError {
    /// The lengths and counts in the message do not fill it exactly.
    Malformed,
    NameTooLong,
}

/// Data of the options INFO and GO.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InfoData<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) wants_name: bool,
    pub(crate) wants_description: bool,
    pub(crate) wants_block_size: bool,
}

impl<'a> InfoData<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, OptionDataError> {
        let mut cursor = Cursor::new(bytes);
        let name = cursor.counted_bytes().ok_or(OptionDataError::Malformed)?;
        let count = cursor.u16().ok_or(OptionDataError::Malformed)?;
        let mut data = Self { name, ..Self::default() };
        for _ in 0..count {
            match cursor.u16().ok_or(OptionDataError::Malformed)? {
                crate::wire::INFO_NAME => data.wants_name = true,
                crate::wire::INFO_DESCRIPTION => data.wants_description = true,
                crate::wire::INFO_BLOCK_SIZE => data.wants_block_size = true,
                _ => {}
            }
        }
        if !cursor.is_empty() {
            return Err(OptionDataError::Malformed);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(OptionDataError::NameTooLong);
        }
        Ok(data)
    }

    pub(crate) fn encode(name: &str, infos: &[u16]) -> Vec<u8> {
        let mut bytes = encode_counted(name);
        let count = u16::try_from(infos.len()).expect("a handful of info items");
        bytes.extend_from_slice(&count.to_be_bytes());
        for info in infos {
            bytes.extend_from_slice(&info.to_be_bytes());
        }
        bytes
    }
}

/// Data of the options LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContextData<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) query_count: u32,
    queries: Cursor<'a>,
}

impl<'a> ContextData<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, OptionDataError> {
        let mut cursor = Cursor::new(bytes);
        let name = cursor.counted_bytes().ok_or(OptionDataError::Malformed)?;
        let query_count = cursor.u32().ok_or(OptionDataError::Malformed)?;
        let data = Self { name, query_count, queries: cursor };
        let mut too_long = name.len() > NAME_BYTES_MAX;
        for _ in 0..query_count {
            let query = cursor.counted_bytes().ok_or(OptionDataError::Malformed)?;
            too_long |= query.len() > NAME_BYTES_MAX;
        }
        if !cursor.is_empty() {
            return Err(OptionDataError::Malformed);
        }
        if too_long { Err(OptionDataError::NameTooLong) } else { Ok(data) }
    }

    pub(crate) fn any_query(&self, matches: impl Fn(&[u8]) -> bool) -> bool {
        let mut cursor = self.queries;
        std::iter::from_fn(|| cursor.counted_bytes()).any(matches)
    }

    pub(crate) fn encode(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut bytes = encode_counted(name);
        let count = u32::try_from(queries.len()).expect("a handful of queries");
        bytes.extend_from_slice(&count.to_be_bytes());
        for query in queries {
            bytes.extend_from_slice(&encode_counted(query));
        }
        bytes
    }
}

fn encode_counted(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("a string of our own fits u32");
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_length_is_malformed() {
        let info = InfoData::encode("array", &[3, 1, 77]);
        let context = ContextData::encode("array", &["base:allocation", "x-y:z"]);
        assert!(InfoData::parse(&info).is_ok_and(|data| data.wants_name && data.wants_block_size));
        assert!(ContextData::parse(&context).is_ok_and(|data| data.any_query(|q| q == b"x-y:z")));
        for cut in 0..info.len() {
            assert_eq!(InfoData::parse(&info[..cut]), Err(OptionDataError::Malformed), "cut {cut}");
        }
        for cut in 0..context.len() {
            assert!(ContextData::parse(&context[..cut]).is_err(), "cut {cut}");
        }
        let longer: Vec<u8> = info.iter().copied().chain([0]).collect();
        assert_eq!(InfoData::parse(&longer), Err(OptionDataError::Malformed));
        let longer: Vec<u8> = context.iter().copied().chain([0]).collect();
        assert!(ContextData::parse(&longer).is_err());
    }

    #[test]
    fn names_end_at_4096_bytes() {
        let fits = "n".repeat(NAME_BYTES_MAX);
        let over = "n".repeat(NAME_BYTES_MAX + 1);
        assert!(InfoData::parse(&InfoData::encode(&fits, &[])).is_ok());
        assert_eq!(
            InfoData::parse(&InfoData::encode(&over, &[])),
            Err(OptionDataError::NameTooLong)
        );
        assert!(ContextData::parse(&ContextData::encode("", &[&fits])).is_ok());
        assert!(ContextData::parse(&ContextData::encode("", &[&over])).is_err());
        assert!(ContextData::parse(&ContextData::encode(&over, &[])).is_err());
    }
}
