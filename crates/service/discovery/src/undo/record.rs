//! A record of bytes that a command overwrote: its values, and its file.
//!
//! ```text
//!   braid-undo 1 crc32c=5f3a90c1 length=8912\n  the rest of the file, by its sum and its length
//!   {"time":…,"command":"braid create …",…}\n   the command, devices, and the ranges that follow
//!   …                                           these bytes, one range after the other
//! ```
//!
//! The old bytes are kept without pages of zeroes. The command's writes are kept whole, not as a
//! checksum, for comparison byte by byte and for an explanation of changes.
//!
//! Invariants:
//! - a record is read back unchanged `[check: a_record_is_read_back]`;
//! - a file that was cut, or changed in any byte, is no record
//!   `[check: a_file_that_is_torn_or_edited_is_no_record]`.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_ondisk::Snippet;
use crc32c::crc32c;
use serde_json::{Value, json};

const MAGIC: &str = "braid-undo";
/// Version of the record's format; records of other versions are not read.
const FORMAT: u64 = 1;
/// Page size: a record omits pages of zeroes.
const PAGE_BYTES: usize = 4096;
pub(super) const SECTOR_BYTES: usize = 512;
/// Longest range: the ends of a device have 388 KiB, and `rescue --commit` writes 256 MiB at most.
const RANGE_BYTES_MAX: u64 = 512 << 20;

/// A device that the command wrote to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The device's path, from the root.
    pub path: PathBuf,
    /// The device's persistent names, which survive a renumbering of disks.
    pub names: Vec<PathBuf>,
    /// Whether the command created the device's file; without the file it needs no undo.
    pub is_made: bool,
    /// The kernel's number of the device, for the operator.
    pub number: Option<String>,
    /// The inode of the device's file, for the operator.
    pub inode: Option<u64>,
    /// The device's size.
    pub size_bytes: u64,
    /// The old bytes at the device's two ends and at all writes: separate ranges in order.
    pub before: Vec<Snippet>,
    /// The command's writes, in order; each write lies in one range of `before`.
    pub writes: Vec<Snippet>,
    /// How many of the last writes begin only when all other writes are durable, on every device:
    /// those of superblocks, which declare the other data valid.
    pub last_writes: usize,
}

/// The record of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The time of the command, since 1970.
    pub time: Duration,
    /// The command line of the command.
    pub command: String,
    /// The name of the command's array.
    pub array: String,
    /// Whether the command also zeroed data areas, which no undo restores.
    pub has_zeroed: bool,
    /// The number of the record that the command undid, if the command was an undo.
    pub undoes: Option<u64>,
    /// The command's devices, in the order of the command line.
    pub devices: Vec<Device>,
}

/// Why a file is no valid record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file's head is not that of a record.
    #[error("it does not begin like a record")]
    Head,
    /// A newer braid wrote the record.
    #[error("it is of format {0}, which a newer braid wrote")]
    Format(u64),
    /// The file's length differs from the length in its head.
    #[error("it was cut off or extended")]
    Length,
    /// The file's checksum differs from the checksum in its head.
    #[error("its bytes fail their checksum")]
    Checksum,
    /// A field has an impossible value.
    #[error("its text is not valid")]
    Words,
}

impl Device {
    /// The content of the ranges in `before` once the command's writes are done.
    pub fn after(&self) -> Vec<Snippet> {
        let mut after = self.before.clone();
        self.writes.iter().for_each(|write| put(&mut after, write));
        after
    }

    /// The writes that would restore the device's old bytes.
    pub fn back(&self) -> Vec<Snippet> {
        self.writes.iter().map(|write| cut(&self.before, write)).collect()
    }

    /// Whether this is a name of the device: its path, a persistent name, or the file name of
    /// either.
    pub fn is_called(&self, name: &Path) -> bool {
        let mut names = std::iter::once(&self.path).chain(&self.names);
        names.any(|path| path == name || path.file_name() == Some(name.as_os_str()))
    }

    /// The command's writes in two waves; those of the second wait until the first wave is durable.
    pub fn waves(&self) -> (&[Snippet], &[Snippet]) {
        self.writes.split_at(self.writes.len() - self.last_writes)
    }
}

/// Sorts and merges ranges, so that a binary search among many thousands is possible.
pub fn merged(mut ranges: Vec<Snippet>) -> Vec<Snippet> {
    ranges.sort_by_key(|range| range.offset);
    let mut merged: Vec<Snippet> = Vec::new();
    for range in ranges {
        let end = |range: &Snippet| range.offset + range.bytes.len() as u64;
        match merged.last_mut().filter(|last| range.offset <= end(last)) {
            None => merged.push(range),
            Some(last) => {
                let known = usize::try_from(end(last) - range.offset).expect("it lies in a range");
                last.bytes.extend(range.bytes.get(known..).unwrap_or_default());
            }
        }
    }
    merged
}

/// The index of the range that contains `inner`, and the position of `inner` in this range. Ranges
/// must be merged.
pub(super) fn place(ranges: &[Snippet], inner: &Snippet) -> Option<(usize, Range<usize>)> {
    let index = ranges.partition_point(|range| range.offset <= inner.offset).checked_sub(1)?;
    let start = usize::try_from(inner.offset - ranges[index].offset).ok()?;
    let end = start.checked_add(inner.bytes.len())?;
    (end <= ranges[index].bytes.len()).then_some((index, start..end))
}

/// Overwrites bytes of the range that contains `over`; does nothing if no range contains it.
pub(super) fn put(ranges: &mut [Snippet], over: &Snippet) {
    if let Some((index, place)) = place(ranges, over) {
        ranges[index].bytes[place].copy_from_slice(&over.bytes);
    }
}

/// Runs of sectors in which `new` and `old` differ, with the content of `new`. Both `new` and `old`
/// begin at byte `start` of a device.
pub fn differing(start: u64, new: &[u8], old: &[u8]) -> Vec<Snippet> {
    let mut runs: Vec<Snippet> = Vec::new();
    let mut is_in_run = false;
    for (index, (new, old)) in new.chunks(SECTOR_BYTES).zip(old.chunks(SECTOR_BYTES)).enumerate() {
        match (new == old, runs.last_mut().filter(|_| is_in_run)) {
            (true, _) => {}
            (false, Some(run)) => run.bytes.extend(new),
            (false, None) => {
                let offset = start + (index * SECTOR_BYTES) as u64;
                runs.push(Snippet { offset, bytes: new.to_vec() });
            }
        }
        is_in_run = new != old;
    }
    runs
}

/// The part of `ranges` that has the position and length of `where_is`.
pub(super) fn cut(ranges: &[Snippet], where_is: &Snippet) -> Snippet {
    let (index, place) =
        place(ranges, where_is).expect("what is written lies in a range that was read");
    Snippet { offset: where_is.offset, bytes: ranges[index].bytes[place].to_vec() }
}

pub(super) fn covers(ranges: &[Snippet], inner: &Snippet) -> bool {
    place(ranges, inner).is_some()
}

/// Encodes a record as the content of its file.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    let devices: Vec<Value> =
        record.devices.iter().map(|device| device_json(device, &mut bytes)).collect();
    let head = json!({
        "time": record.time.as_secs(),
        "microseconds": record.time.subsec_micros(),
        "command": record.command,
        "array": record.array,
        "has_zeroed": record.has_zeroed,
        "undoes": record.undoes,
        "devices": devices,
    });
    let mut rest = format!("{head}\n").into_bytes();
    rest.append(&mut bytes);
    let sum = crc32c(&rest);
    let first = format!("{MAGIC} {FORMAT} crc32c={sum:08x} length={}\n", rest.len());
    [first.into_bytes(), rest].concat()
}

fn device_json(device: &Device, bytes: &mut Vec<u8>) -> Value {
    let names: Vec<Value> = device.names.iter().map(|path| path_json(path)).collect();
    let mut range_json = |range: &Snippet| {
        let mut pages = Vec::new();
        for (index, page) in range.bytes.chunks(PAGE_BYTES).enumerate() {
            if page.iter().any(|byte| *byte != 0) {
                pages.push(index);
                bytes.extend(page);
            }
        }
        json!({ "offset_bytes": range.offset, "length_bytes": range.bytes.len(), "pages": pages })
    };
    json!({
        "path": path_json(&device.path),
        "names": names,
        "is_made": device.is_made,
        "number": device.number,
        "inode": device.inode,
        "size_bytes": device.size_bytes,
        "before": device.before.iter().map(&mut range_json).collect::<Vec<_>>(),
        "writes": device.writes.iter().map(&mut range_json).collect::<Vec<_>>(),
        "last_writes": device.last_writes,
    })
}

/// A path as JSON text; a path that is not UTF-8, as a list of bytes.
fn path_json(path: &Path) -> Value {
    path.to_str().map_or_else(|| json!(path.as_os_str().as_bytes()), |text| json!(text))
}

/// Parses a record's file.
///
/// # Errors
/// The file is no record, or is incomplete.
pub fn decode(file: &[u8]) -> Result<Record, Damage> {
    let end = file.iter().position(|byte| *byte == b'\n').ok_or(Damage::Head)?;
    let (first, rest) = (&file[..end], &file[end + 1..]);
    let first = std::str::from_utf8(first).map_err(|_| Damage::Head)?;
    let words: Vec<&str> = first.split(' ').collect();
    let [MAGIC, format, sum, length] = words[..] else { return Err(Damage::Head) };
    let format: u64 = format.parse().map_err(|_| Damage::Head)?;
    if format != FORMAT {
        return Err(Damage::Format(format));
    }
    let length: Option<usize> =
        length.strip_prefix("length=").and_then(|length| length.parse().ok());
    if length.ok_or(Damage::Head)? != rest.len() {
        return Err(Damage::Length);
    }
    let digits = sum.strip_prefix("crc32c=").ok_or(Damage::Head)?;
    if digits != format!("{:08x}", crc32c(rest)) {
        return Err(Damage::Checksum);
    }
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or(Damage::Words)?;
    let head: Value = serde_json::from_slice(&rest[..end]).map_err(|_| Damage::Words)?;
    let mut bytes = &rest[end + 1..];
    let record = record_of(&head, &mut bytes).ok_or(Damage::Words)?;
    if bytes.is_empty() { Ok(record) } else { Err(Damage::Words) }
}

fn record_of(head: &Value, bytes: &mut &[u8]) -> Option<Record> {
    let part = Duration::from_micros(head["microseconds"].as_u64()?);
    let devices = head["devices"].as_array()?.iter().map(|device| device_of(device, bytes));
    Some(Record {
        time: Duration::from_secs(head["time"].as_u64()?).checked_add(part)?,
        command: head["command"].as_str()?.to_owned(),
        array: head["array"].as_str()?.to_owned(),
        has_zeroed: head["has_zeroed"].as_bool()?,
        undoes: head["undoes"].as_u64(),
        devices: devices.collect::<Option<_>>()?,
    })
}

fn device_of(value: &Value, bytes: &mut &[u8]) -> Option<Device> {
    let mut ranges = |value: &Value| -> Option<Vec<Snippet>> {
        value.as_array()?.iter().map(|range| range_of(range, bytes)).collect()
    };
    let device = Device {
        path: path_of(&value["path"])?,
        names: value["names"].as_array()?.iter().map(path_of).collect::<Option<_>>()?,
        is_made: value["is_made"].as_bool()?,
        number: value["number"].as_str().map(str::to_owned),
        inode: value["inode"].as_u64(),
        size_bytes: value["size_bytes"].as_u64()?,
        // Older versions of braid kept overlapping ranges.
        before: merged(ranges(&value["before"])?),
        writes: ranges(&value["writes"])?,
        // Records of older versions lack this field.
        last_writes: usize::try_from(value["last_writes"].as_u64().unwrap_or(0)).ok()?,
    };
    let is_whole = device.writes.iter().all(|write| covers(&device.before, write))
        && device.last_writes <= device.writes.len();
    is_whole.then_some(device)
}

fn range_of(value: &Value, bytes: &mut &[u8]) -> Option<Snippet> {
    let length = value["length_bytes"].as_u64().filter(|length| *length <= RANGE_BYTES_MAX)?;
    let mut range = vec![0; usize::try_from(length).ok()?];
    for page in value["pages"].as_array()? {
        let start = usize::try_from(page.as_u64()?).ok()?.checked_mul(PAGE_BYTES)?;
        let to = range.get_mut(start..)?;
        let to_length = to.len().min(PAGE_BYTES);
        let (from, rest) = bytes.split_at_checked(to_length)?;
        to[..to_length].copy_from_slice(from);
        *bytes = rest;
    }
    let offset = value["offset_bytes"].as_u64()?;
    offset.checked_add(length)?;
    Some(Snippet { offset, bytes: range })
}

fn path_of(value: &Value) -> Option<PathBuf> {
    if let Some(text) = value.as_str() {
        return Some(text.into());
    }
    let byte = |value: &Value| u8::try_from(value.as_u64()?).ok();
    let bytes: Vec<u8> = value.as_array()?.iter().map(byte).collect::<Option<_>>()?;
    Some(OsString::from_vec(bytes).into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A device of 1 MiB with one written sector, whose ends of 8 KiB and 4 KiB are saved.
    pub(in crate::undo) fn device(name: &str) -> Device {
        let mut first = vec![0; 8192];
        first[4096..4608].fill(7);
        Device {
            path: format!("/dev/{name}").into(),
            names: vec![format!("/dev/disk/by-id/{name}").into()],
            is_made: false,
            number: Some("8:16".to_owned()),
            inode: Some(77),
            size_bytes: 1 << 20,
            before: vec![
                Snippet { offset: 0, bytes: first },
                Snippet { offset: (1 << 20) - 4100, bytes: vec![3; 4100] },
            ],
            writes: vec![
                Snippet { offset: 4096, bytes: vec![0; 512] },
                Snippet { offset: 4096, bytes: vec![9; 256] },
            ],
            last_writes: 1,
        }
    }

    fn record() -> Record {
        let odd = PathBuf::from(OsString::from_vec(vec![b'/', 0xff, b'a']));
        Record {
            time: Duration::new(1_800_000_000, 5000),
            command: "braid create tank".to_owned(),
            array: "tank".to_owned(),
            has_zeroed: false,
            undoes: Some(16),
            devices: vec![device("a"), Device { path: odd, ..device("b") }],
        }
    }

    #[test]
    fn a_record_is_read_back() {
        let file = encode(&record());
        assert_eq!(decode(&file), Ok(record()));
        assert!(file.len() < 30_000, "pages of zeroes are left out: {}", file.len());
    }

    #[test]
    fn a_file_that_is_torn_or_edited_is_no_record() {
        let file = encode(&record());
        for length in 0..file.len() {
            assert!(decode(&file[..length]).is_err(), "cut to {length}");
        }
        let mut file = file;
        for at in 0..file.len() {
            for bit in [1, 0x80] {
                file[at] ^= bit;
                assert!(decode(&file).is_err(), "byte {at} of {}", file.len());
                file[at] ^= bit;
            }
        }
        file.push(0);
        assert_eq!(decode(&file), Err(Damage::Length));
        let newer = String::from_utf8_lossy(&encode(&record())).replace("undo 1 ", "undo 2 ");
        assert_eq!(decode(newer.as_bytes()), Err(Damage::Format(2)));
    }

    /// JSON with a right checksum and impossible values.
    #[test]
    fn words_that_make_no_sense_are_refused() {
        let good = encode(&record());
        let end = good.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        let text = String::from_utf8_lossy(&good[end..]).into_owned();
        let line = text.lines().next().expect("a line");
        for (from, to) in [
            ("\"offset_bytes\":4096", "\"offset_bytes\":8192"),
            ("\"length_bytes\":256", "\"length_bytes\":18446744073709551615"),
            ("\"length_bytes\":256", "\"length_bytes\":257"),
            ("\"pages\":[1]", "\"pages\":[18446744073709551615]"),
            ("\"pages\":[1]", "\"pages\":[0,1]"),
            ("\"last_writes\":1", "\"last_writes\":3"),
            ("\"time\":1800000000", "\"time\":-1"),
            ("\"devices\":", "\"members\":"),
        ] {
            assert!(line.contains(from), "{from}: {line}");
            let mut rest = line.replace(from, to).into_bytes();
            rest.extend(&good[end + line.len()..]);
            let first = format!("{MAGIC} 1 crc32c={:08x} length={}\n", crc32c(&rest), rest.len());
            assert_eq!(decode(&[first.into_bytes(), rest].concat()), Err(Damage::Words), "{to}");
        }
    }

    #[test]
    fn what_is_written_later_is_what_stands_there() {
        let one = device("a");
        let after = one.after();
        assert_eq!(after[0].bytes[4096..4352], [9; 256]);
        assert_eq!(after[0].bytes[4352..4608], [0; 256]);
        assert_eq!(after[1], one.before[1]);
        let mut back = after;
        one.back().iter().for_each(|range| put(&mut back, range));
        assert_eq!(back, one.before);
    }
}
