//! Whether what a command overwrote may be put back: from what is on the devices now, and from nothing else.
//!
//! ```text
//!   each device: its two ends, and what was written ─▶ Content      all of them ─▶ decide ─▶ Verdict
//! ```
//!
//! Every superblock lies in what is compared, and an array that is started to be written says so in its superblocks first, with another
//! count of events and another time. So while every byte is what the command left, nobody has written to the data areas.
//!
//! What it does not do: open, read or write devices.

use braid_ondisk::{Snippet, Superblock, format_uuid, probe};

use super::record::{Device, cut, put};
use crate::output::utc::format_utc;

/// What is on a device now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// What the command wrote, or, after an undo that was interrupted, in part what was there before.
    Written,
    /// What was there before the command.
    Before,
    /// Neither.
    Changed,
}

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The old bytes may be put back.
    PutBack,
    /// They are back.
    IsBack,
    /// Some device has changed since.
    Changed,
    /// What they describe is gone.
    Zeroed,
}

/// All devices together.
pub(crate) fn decide(has_zeroed: bool, contents: &[Content]) -> Verdict {
    let has = |content| contents.contains(&content);
    match (has(Content::Changed), has(Content::Written), has_zeroed) {
        (true, _, _) => Verdict::Changed,
        (false, false, _) => Verdict::IsBack,
        (false, true, true) => Verdict::Zeroed,
        (false, true, false) => Verdict::PutBack,
    }
}

/// What is on one device, of which `now` was read where `before` was.
pub(crate) fn content(device: &Device, now: &[Snippet]) -> Content {
    let (before, after) = (&device.before, device.after());
    let same_place = |(one, other): (&Snippet, &Snippet)| {
        (one.offset, one.bytes.len()) == (other.offset, other.bytes.len())
    };
    if before.len() != now.len() || !before.iter().zip(now).all(same_place) {
        return Content::Changed;
    }
    let is = |ranges: &[Snippet], write: &Snippet| cut(now, write) == cut(ranges, write);
    let rest = |ranges: &[Snippet]| {
        let mut rest = ranges.to_vec();
        for write in &device.writes {
            let nothing = Snippet { offset: write.offset, bytes: vec![0; write.bytes.len()] };
            put(&mut rest, &nothing);
        }
        rest
    };
    let is_before = device.writes.iter().all(|write| is(before, write));
    let is_either = device.writes.iter().all(|write| is(before, write) || is(&after, write));
    match (rest(now) == rest(before), is_before, is_either) {
        (true, true, _) => Content::Before,
        (true, false, true) => Content::Written,
        _ => Content::Changed,
    }
}

/// In words, what has changed on a device since the command.
pub(crate) fn why(device: &Device, now: &[Snippet]) -> String {
    let look = |ranges: &[Snippet]| probe(device.size_bytes, ranges).newest().cloned();
    let (was, is) = (look(&device.after()), look(now));
    let Some(is) = is else {
        return match was {
            Some(_) => "the superblock that the command left is not on it any more".to_owned(),
            None => "there is something else on it than what the command left".to_owned(),
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
                "{name} was started since, and may have been written: its superblock counts {} events and is of {}; when \
                 the command had written it, it counted {} and was of {}",
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
    use super::super::record::tests::device;
    use super::*;

    #[test]
    fn every_set_of_devices_has_its_verdict() {
        use Content::{Before, Changed, Written};
        for (contents, plain, zeroed) in [
            (&[Written][..], Verdict::PutBack, Verdict::Zeroed),
            (&[Before], Verdict::IsBack, Verdict::IsBack),
            (&[Changed], Verdict::Changed, Verdict::Changed),
            (&[Written, Before], Verdict::PutBack, Verdict::Zeroed),
            (&[Written, Changed], Verdict::Changed, Verdict::Changed),
            (&[Before, Changed], Verdict::Changed, Verdict::Changed),
            (&[Written, Before, Changed], Verdict::Changed, Verdict::Changed),
        ] {
            assert_eq!((decide(false, contents), decide(true, contents)), (plain, zeroed));
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

    /// A device of two superblocks, of which an undo that was killed put one back.
    #[test]
    fn what_is_in_part_back_can_be_put_back_wholly() {
        let mut one = device("a");
        one.writes = vec![
            Snippet { offset: 4096, bytes: vec![9; 512] },
            Snippet { offset: (1 << 20) - 512, bytes: vec![8; 512] },
        ];
        let mut now = one.after();
        put(&mut now, &one.back()[0]);
        assert_eq!(content(&one, &now), Content::Written);
        put(&mut now, &one.back()[1]);
        assert_eq!(content(&one, &now), Content::Before);
    }
}
