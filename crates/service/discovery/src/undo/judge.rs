//! Whether overwritten bytes may be put back: decided from the devices' present content alone.
//!
//! ```text
//!   each device: its two ends, and the written ranges ─▶ Content   all ─▶ decide ─▶ Verdict
//! ```
//!
//! A kill, a full file system or a power cut can end a write at any sector. So each sector is
//! judged by itself: a known sector has its old content, or the content of one of the writes.
//!
//! The compared ranges contain every superblock. A start of the array for writing first updates the
//! superblocks, with another event count and time. So while every sector is known, the data areas
//! are unwritten. RAID-0 and linear arrays do not update superblocks, so the operator has to
//! confirm that their data areas are unwritten.
//!
//! Callers open, read and write the devices.

use std::ops::Range;

use braid_geometry::Level;
use braid_ondisk::{Snippet, Superblock, format_uuid, probe};

use super::record::{Device, SECTOR_BYTES, place, put};
use braid_console::output::utc::format_utc;

/// The present content of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The device has the content that all of the command's writes leave.
    Written,
    /// The device has some of the command's writes: the command stopped, or its undo did.
    Partly,
    /// The device has the content from before the command.
    Before,
    /// The device has content of another origin.
    Changed,
}

/// The decision about an undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The old bytes may be put back.
    PutBack,
    /// The old bytes are back already.
    IsBack,
    /// Some device was changed by other writes since the command.
    Changed,
    /// The array that the old superblocks describe was zeroed.
    Zeroed,
}

/// Judges all devices together.
pub fn decide(has_zeroed: bool, contents: &[Content]) -> Verdict {
    let has = |content| contents.contains(&content);
    let is_written = has(Content::Written) || has(Content::Partly);
    match (has(Content::Changed), is_written, has_zeroed) {
        (true, _, _) => Verdict::Changed,
        (false, false, _) => Verdict::IsBack,
        (false, true, true) => Verdict::Zeroed,
        (false, true, false) => Verdict::PutBack,
    }
}

/// Whether the command or its undo stopped halfway, without other writes to the devices.
pub fn is_between(contents: &[Content]) -> bool {
    let has = |content| contents.contains(&content);
    let is_mixed = has(Content::Partly) || (has(Content::Before) && has(Content::Written));
    is_mixed && !has(Content::Changed)
}

/// The content of a device; `now` are the present bytes of the ranges in `before`.
pub fn content(device: &Device, now: &[Snippet]) -> Content {
    let before = &device.before;
    let same_place = |(one, other): (&Snippet, &Snippet)| {
        (one.offset, one.bytes.len()) == (other.offset, other.bytes.len())
    };
    if before.len() != now.len() || !before.iter().zip(now).all(same_place) {
        return Content::Changed;
    }
    let mut stands = before.clone();
    let mut known: Vec<Vec<bool>> = before
        .iter()
        .zip(now)
        .map(|(before, now)| {
            let whole = 0..before.bytes.len();
            sectors(before, whole)
                .map(|(_, part)| before.bytes[part.clone()] == now.bytes[part])
                .collect()
        })
        .collect();
    for write in &device.writes {
        put(&mut stands, write);
        let Some((index, within)) = place(&stands, write) else { continue };
        for (sector, part) in sectors(&stands[index], within) {
            known[index][sector] |= stands[index].bytes[part.clone()] == now[index].bytes[part];
        }
    }
    let is_known = known.iter().flatten().all(|is_known| *is_known);
    match (before == now, stands == now, is_known) {
        (true, _, _) => Content::Before,
        (false, true, _) => Content::Written,
        (false, false, true) => Content::Partly,
        (false, false, false) => Content::Changed,
    }
}

/// The device's sectors in a part of a range: each with its number and its bytes in the range.
fn sectors(range: &Snippet, part: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let length = range.bytes.len();
    // A range may begin within a sector, if a file's length is no multiple of the sector size.
    let skew = usize::try_from(range.offset % SECTOR_BYTES as u64).expect("less than a sector");
    let first = (part.start + skew) / SECTOR_BYTES;
    let end = (part.end + skew).div_ceil(SECTOR_BYTES);
    (first..end).map(move |sector| {
        let start = (sector * SECTOR_BYTES).saturating_sub(skew);
        (sector, start..((sector + 1) * SECTOR_BYTES - skew).min(length))
    })
}

/// Whether the command left this device as a member of a RAID-0 or linear array, whose writes
/// update no superblock.
pub fn is_mute(device: &Device) -> bool {
    let found = probe(device.size_bytes, &device.after());
    found.newest().is_some_and(|found| matches!(found.array.level, Level::Raid0 | Level::Linear))
}

/// Describes how the device has changed since the command.
pub fn why(device: &Device, now: &[Snippet]) -> String {
    let look = |ranges: &[Snippet]| probe(device.size_bytes, ranges).newest().cloned();
    let (was, is) = (look(&device.after()), look(now));
    let Some(is) = is else {
        return match was {
            Some(_) => "the superblock that the command left is no longer on it".to_owned(),
            None => "it holds other bytes than the command wrote".to_owned(),
        };
    };
    let name = array_name(&is);
    match was {
        Some(was) if was.array.uuid != is.array.uuid => member_now(&name),
        None => member_now(&name),
        Some(was)
            if (was.state.events, was.state.update_time)
                != (is.state.events, is.state.update_time) =>
        {
            format!(
                "{name} was started since, and may have been written: its superblock counts {} \
                 events and is of {}; after the command it counted {} and was of {}",
                is.state.events,
                format_utc(is.state.update_time.seconds),
                was.state.events,
                format_utc(was.state.update_time.seconds),
            )
        }
        Some(_) => "bytes beside the superblock have changed".to_owned(),
    }
}

fn member_now(array: &str) -> String {
    format!("it is a member of {array} now, which may have written to it")
}

fn array_name(superblock: &Superblock) -> String {
    let array = &superblock.array;
    match array.name.as_str() {
        "" => format_uuid(&array.uuid),
        name => format!("{name} ({})", format_uuid(&array.uuid)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::merged;
    use super::super::record::tests::device;
    use super::*;

    #[test]
    fn every_set_of_devices_has_its_verdict() {
        use Content::{Before, Changed, Partly, Written};
        for (contents, plain, zeroed, between) in [
            (&[Written][..], Verdict::PutBack, Verdict::Zeroed, false),
            (&[Partly], Verdict::PutBack, Verdict::Zeroed, true),
            (&[Before], Verdict::IsBack, Verdict::IsBack, false),
            (&[Changed], Verdict::Changed, Verdict::Changed, false),
            (&[Written, Before], Verdict::PutBack, Verdict::Zeroed, true),
            (&[Written, Partly], Verdict::PutBack, Verdict::Zeroed, true),
            (&[Before, Partly], Verdict::PutBack, Verdict::Zeroed, true),
            (&[Written, Changed], Verdict::Changed, Verdict::Changed, false),
            (&[Partly, Changed], Verdict::Changed, Verdict::Changed, false),
            (&[Before, Changed], Verdict::Changed, Verdict::Changed, false),
            (&[Written, Before, Changed], Verdict::Changed, Verdict::Changed, false),
        ] {
            let verdicts = (decide(false, contents), decide(true, contents));
            assert_eq!(
                (verdicts, is_between(contents)),
                ((plain, zeroed), between),
                "{contents:?}"
            );
        }
    }

    #[test]
    fn one_byte_anywhere_is_a_change() {
        let one = device("a");
        assert_eq!(content(&one, &one.before), Content::Before);
        assert_eq!(content(&one, &one.after()), Content::Written);
        for range in 0..2 {
            for at in 0..one.before[range].bytes.len() {
                for from in [&one.before, &one.after()] {
                    let mut now = from.clone();
                    now[range].bytes[at] ^= 1;
                    assert_eq!(content(&one, &now), Content::Changed, "byte {at} of range {range}");
                }
            }
        }
        assert_eq!(content(&one, &one.before[..1]), Content::Changed);
    }

    /// Regression: a write cut short by a full file system was taken for another program's.
    #[test]
    fn a_write_that_ended_at_any_sector_is_known() {
        let mut one = device("a");
        // The last write crosses the end of the range read at the device's start.
        one.writes = vec![
            Snippet { offset: 1024, bytes: vec![9; 3072] },
            Snippet { offset: 7680, bytes: vec![8; 1024] },
        ];
        one.before.push(Snippet { offset: 7680, bytes: vec![0; 1024] });
        one.before = merged(one.before);
        let sectors = |write: &Snippet| {
            let (offset, bytes) = (write.offset, write.bytes.clone());
            let one = |(at, bytes): (u64, &[u8])| Snippet {
                offset: offset + at * 512,
                bytes: bytes.to_vec(),
            };
            (0..).zip(bytes.chunks(512)).map(one).collect::<Vec<_>>()
        };
        let all: Vec<Snippet> = one.writes.iter().flat_map(sectors).collect();
        assert_eq!(content(&one, &one.after()), Content::Written);
        // Any subset of the sectors may have been written, since a disk reorders writes.
        for which in 0_u32..1 << all.len() {
            let mut now = one.before.clone();
            all.iter()
                .enumerate()
                .filter(|(at, _)| which & 1 << at != 0)
                .for_each(|(_, sector)| put(&mut now, sector));
            let wanted = match which {
                0 => Content::Before,
                _ if which == (1 << all.len()) - 1 => Content::Written,
                _ => Content::Partly,
            };
            assert_eq!(content(&one, &now), wanted, "{which:b}");
        }
    }

    /// A command wiped sectors and then wrote a superblock to the same sectors. Between the two
    /// writes the sectors have neither their old nor their final content.
    #[test]
    fn a_sector_between_two_writes_of_it_is_known() {
        let mut one = device("a");
        one.before[0].bytes[4096..4608].fill(3);
        let mut now = one.before.clone();
        put(&mut now, &one.writes[0]);
        assert_eq!(content(&one, &now), Content::Partly);
    }
}
