//! The list of overlays that belong together: a file next to the overlays, `overlay.list`.
//!
//! ```text
//!   braid-overlay-list 1 crc32c=5f3a90c1 length=212\n  checksum and length of the rest of the file
//!   {"members":[{"name":…,"id":…,"sequence":…,"is_made":…},…]}
//! ```
//!
//! The list is written before the first overlay is made, and again once all overlays exist, before
//! any write to them. Each time an array is served over them, the list records how often each
//! overlay was saved. So an older copy of an overlay is detected.
//!
//! Invariant: a file that was cut, or changed in any byte, is refused
//! `[check: a_list_that_is_torn_or_edited_is_no_list]`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use braid_member::layer::overlay::OverlayId;
use crc32c::crc32c;
use serde_json::{Value, json};

use braid_console::state::write_whole;

const MAGIC: &str = "braid-overlay-list 1";
/// No list of overlays is longer: 1920 members, of some 120 bytes each.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) id: OverlayId,
    /// The least number of times that the overlay was saved.
    pub(super) sequence: u64,
    /// Whether the overlay's files exist. Before they do, no overlay of the list took a write.
    pub(super) is_made: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OverlayList {
    Nothing,
    Damaged,
    Entries(Vec<Entry>),
}

pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("overlay.list")
}

pub(super) fn new_id() -> OverlayId {
    *uuid::Uuid::new_v4().as_bytes()
}

/// Reads the list of overlays in a folder.
///
/// # Errors
/// The list exists, and cannot be read.
pub(super) fn read(folder: &Path) -> io::Result<OverlayList> {
    let mut text = Vec::new();
    match File::open(path(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(OverlayList::Nothing),
        file => file?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?,
    };
    Ok(decode(&text).map_or(OverlayList::Damaged, OverlayList::Entries))
}

/// Replaces the list of overlays durably.
///
/// # Errors
/// The list cannot be written.
pub(super) fn write(folder: &Path, entries: &[Entry]) -> io::Result<()> {
    write_whole(&path(folder), &encode(entries))
}

fn encode(entries: &[Entry]) -> String {
    let entry = |entry: &Entry| {
        json!({
            "name": entry.name,
            "id": format!("{:032x}", u128::from_be_bytes(entry.id)),
            "sequence": entry.sequence,
            "is_made": entry.is_made,
        })
    };
    let rest = format!("{}\n", json!({ "members": entries.iter().map(entry).collect::<Vec<_>>() }));
    format!("{MAGIC} crc32c={:08x} length={}\n{rest}", crc32c(rest.as_bytes()), rest.len())
}

fn decode(text: &[u8]) -> Option<Vec<Entry>> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, rest) = text.split_once('\n')?;
    let head: Value = serde_json::from_str(rest).ok()?;
    let entry = |entry: &Value| {
        let id = entry["id"].as_str()?;
        Some(Entry {
            name: entry["name"].as_str()?.to_owned(),
            id: u128::from_str_radix(id, 16).ok()?.to_be_bytes(),
            sequence: entry["sequence"].as_u64()?,
            is_made: entry["is_made"].as_bool()?,
        })
    };
    let entries: Vec<Entry> =
        head["members"].as_array()?.iter().map(entry).collect::<Option<_>>()?;
    // The text of a list is accepted only if its entries encode to the same text.
    (encode(&entries) == text).then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_torn_or_edited_is_no_list() {
        let entry = |name: &str, is_made| Entry {
            name: name.to_owned(),
            id: [7; 16],
            sequence: 3,
            is_made,
        };
        let entries = vec![entry("0011223344556677", true), entry("array-0011223344556677", false)];
        let sound = encode(&entries).into_bytes();
        assert_eq!(decode(&sound), Some(entries));
        for length in 0..sound.len() {
            assert_eq!(decode(&sound[..length]), None, "cut to {length}");
        }
        for at in 0..sound.len() {
            for bit in [1, 0x20, 0x80] {
                let mut bytes = sound.clone();
                bytes[at] ^= bit;
                assert_eq!(decode(&bytes), None, "byte {at}");
            }
        }
    }
}
