//! Reads one text of a group: the group as it was at the time of writing.

use crate::SECTOR_BYTES;
use crate::fault::Fault;
use crate::text::{Entry, Section, parse};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupMetadata {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) sequence: u64,
    pub(crate) extent_bytes: u64,
    pub(crate) section: Section,
}

impl GroupMetadata {
    pub(crate) fn of(text: &[u8]) -> Result<Self, Fault> {
        const NONSENSE: Fault = Fault::Nonsense("what its metadata says of the group");
        let mut all = parse(text)?;
        let is_group = |section: &Section| {
            section.section("physical_volumes").is_some() && section.text("id").is_some()
        };
        let name =
            all.sections().find(|(_, section)| is_group(section)).map(|(name, _)| name.to_owned());
        let name = name.ok_or(NONSENSE)?;
        let place = all.entries.iter().position(|(key, _)| *key == name).ok_or(NONSENSE)?;
        let (name, Entry::Section(section)) = all.entries.swap_remove(place) else {
            return Err(NONSENSE);
        };
        let extent_bytes =
            section.number("extent_size").and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
        Ok(Self {
            name,
            uuid: section.text("id").ok_or(NONSENSE)?.to_owned(),
            sequence: section.number("seqno").ok_or(NONSENSE)?,
            extent_bytes: extent_bytes.filter(|bytes| *bytes > 0).ok_or(NONSENSE)?,
            section,
        })
    }
}
