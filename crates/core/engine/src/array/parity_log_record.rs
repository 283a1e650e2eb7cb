//! The bytes of a write to a member's parity log.

use braid_ondisk::{LogPlace, LoggedEntry, PPL_HEADER_BYTES, PplRecord, Superblock};

/// A record for a member's parity log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityLogRecord {
    /// The place and the kind of the log.
    pub place: LogPlace,
    /// Sectors from the start of the area to the record's header: whole blocks of 4 KiB.
    pub sector: u64,
    /// The record's generation, higher than any in the area; `None` leaves the area without a
    /// record.
    pub generation: Option<u64>,
    /// The number of earlier records that count together with this one; 0 in md's logs.
    pub before: u32,
    /// The entries of the record.
    pub entries: Vec<LoggedEntry>,
    /// The area's old content is useless, but may look like records: the write covers all of it.
    pub is_whole: bool,
    /// The array keeps no log any more: the write only wipes out the head of braid's own log.
    pub is_end: bool,
}

/// The write to a member's partial parity log: the byte offset on the device, and the bytes to
/// write there.
///
/// # Panics
/// If the member has no log: the array checks that before.
#[must_use]
pub fn parity_log_for(superblock: &Superblock, record: &ParityLogRecord) -> (u64, Vec<u8>) {
    let place = record.place;
    let start = superblock.log_start_bytes(place).expect("it has a log");
    let key = superblock.log_key(place);
    if record.is_end {
        return (start + place.used_bytes(), vec![0; superblock.log_tail(place).len()]);
    }
    let record_of =
        |generation| PplRecord::bytes_beside(record.before, generation, &record.entries, &key);
    let mut bytes = record.generation.map(record_of).unwrap_or_default();
    if record.is_whole {
        bytes.resize(usize::try_from(place.used_bytes()).expect("a log is small"), 0);
        bytes.extend_from_slice(&superblock.log_tail(place));
    } else {
        // Devices with large blocks get whole blocks: bytes after the newest record are useless.
        bytes.resize(bytes.len().next_multiple_of(PPL_HEADER_BYTES), 0);
    }
    (start + record.sector * braid_geometry::SECTOR_BYTES, bytes)
}
