//! Maps the engine's notices to events; the mapping is pure.
//!
//! The engine sends each notice once, after its content is durable. The mapping remembers which
//! members are being recovered, because md has its own word for the failure of a member in
//! recovery. Notices that do not interest people become no event.

use std::collections::BTreeSet;

use braid_geometry::SECTOR_BYTES;
use braid_runtime::{
    Candidates, Cause, ErrorReaction, Fate, Finding, JobEnd, JobKind, JobProgress, MemberId,
    Notice, RotKind,
};

use braid_console::output::shell::shell_word;

use crate::event::{Change, Moment, Outcome, Why};
use crate::kind::{Kind, Percent};

/// Names of the array and its members, and the reliability of its redundancy.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    /// The array's name.
    pub array: &'a str,
    /// A member's path, as given to braid.
    pub member: &'a dyn Fn(MemberId) -> String,
    /// The doubt about content that is computed for a lost member.
    pub doubt: Doubt,
}

/// How redundancy may disagree with data in an array that was dirty when it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doubt {
    /// Redundancy agrees with the data.
    #[default]
    Nothing,
    /// Parity may not fit the data.
    Parity,
    /// Copies may differ.
    Copies,
}

/// Maps the notices of one array to events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    recovering: BTreeSet<MemberId>,
}

impl Mapping {
    /// A mapping for an array that starts while these members need recovery.
    #[must_use]
    pub fn new(recovering: impl IntoIterator<Item = MemberId>) -> Self {
        Self { recovering: recovering.into_iter().collect() }
    }

    /// The change that the next notice reports; `None` if it reports no change.
    pub fn change(&mut self, notice: &Notice, time: Moment, names: Names<'_>) -> Option<Change> {
        let mut change = change(notice, names)?;
        match notice {
            Notice::SpareTaken { member, .. } | Notice::Replacing { member, .. } => {
                self.recovering.insert(*member);
            }
            Notice::Recovered { member, .. } | Notice::Replaced { member, .. } => {
                self.recovering.remove(member);
            }
            Notice::MemberOut { member, .. } if self.recovering.remove(member) => {
                change.kind = Kind::FailSpare;
                let what = " failed during its rebuild";
                change.message = change.message.replacen(" failed", what, 1);
                change.advice = Some("its data is served as before".to_owned());
            }
            _ => {}
        }
        Some(Change { time, ..change })
    }
}

fn change(notice: &Notice, names: Names<'_>) -> Option<Change> {
    let Names { array, member: label, .. } = names;
    // The failed member's name, the failure, and its cause in words.
    let failed = |member: &MemberId, cause: &Cause| {
        let why = Why::new(cause, &label(cause.member));
        (label(*member), why.to_string(), why)
    };
    let refused = |kind, member: &MemberId, cause: &Cause, what: &str, advice: &str| {
        let (name, words, why) = failed(member, cause);
        let what = what.replace("NAME", &name);
        let message = format!("{what}: writes to {array} are refused from now on: {words}");
        Change::now(kind, message).of(&name, None).because(why).advising(advice)
    };
    Some(match notice {
        Notice::MemberOut { member, slot, cause } => {
            let (name, words, why) = failed(member, cause);
            let message = format!("{name} failed and is out of {array} (slot {}): {words}", slot.0);
            let change = Change::now(Kind::Fail, message).of(&name, Some(slot.0)).because(why);
            change.advising(match names.doubt {
                Doubt::Nothing => {
                    "the others' superblocks say so, and the data is served from them"
                }
                Doubt::Parity => {
                    "the array was dirty when it was started: where its parity is in doubt, reads \
                     of this member's data fail; its next start is refused unless the risk is \
                     accepted"
                }
                Doubt::Copies => {
                    "the data is served from the others; the array was dirty when it was started, \
                     so data read may change now where its copies differ"
                }
            })
        }
        Notice::Away { member, slot } => {
            let name = label(*member);
            let message =
                format!("{name} does not answer, and {array} goes on without it (slot {})", slot.0);
            let change = Change::now(Kind::DiskAway, message).of(&name, Some(slot.0));
            change.advising(
                "it returns by itself after it has answered all its requests; the bitmap records \
                 the writes that it misses",
            )
        }
        Notice::Returned { member, slot, after_ms, .. } => {
            let name = label(*member);
            let message =
                format!("{name} answers again after {after_ms} ms and comes back to {array}");
            let change = Change::now(Kind::DiskReturned, message).of(&name, Some(slot.0));
            change.with("after_ms", *after_ms)
        }
        Notice::JobBegan(progress) => began(progress, array),
        Notice::JobPassed(progress) => passed(progress, array),
        Notice::JobEnded { progress, end } => ended(progress, *end, array),
        Notice::Found(found) => found_words(found, names),
        Notice::SpareTaken { member, slot, kept_sectors } => {
            let name = label(*member);
            let message = match kept_sectors {
                0 => format!("{name}, a spare of {array}, takes slot {} and is recovered", slot.0),
                _ => format!(
                    "{name} is back in slot {} of {array}; the writes that it missed are \
                     recovered",
                    slot.0
                ),
            };
            let change = Change::now(Kind::SpareTaken, message).of(&name, Some(slot.0));
            change.with("kept_sectors", *kept_sectors)
        }
        Notice::Replacing { member, slot, old } => {
            let (name, old) = (label(*member), label(*old));
            let message = format!("{name} is to replace {old} in {array} (slot {})", slot.0);
            let change = Change::now(Kind::ReplaceWanted, message).of(&name, Some(slot.0));
            change.with("old", old.as_str()).advising(format!("{old} is served until then"))
        }
        Notice::Replaced { member, slot, old } => {
            let (name, old) = (label(*member), label(*old));
            let message =
                format!("{name} has replaced {old} and is active in {array} (slot {})", slot.0);
            let change = Change::now(Kind::SpareActive, message).of(&name, Some(slot.0));
            change.with("old", old.as_str()).advising(format!("{old} can be unplugged"))
        }
        Notice::Recovered { member, slot } => {
            let name = label(*member);
            let message = format!("{name} is recovered and active in {array} (slot {})", slot.0);
            Change::now(Kind::SpareActive, message).of(&name, Some(slot.0))
        }
        Notice::Broken { member, cause } => {
            let what = "NAME failed too, more than the level tolerates";
            let advice = "stop, reconnect the members, and look with `braid examine`";
            refused(Kind::Broken, member, cause, what, advice)
        }
        Notice::OutOfSpace { member, cause } => {
            let what = "no space is left below NAME, or its file may not grow";
            let advice =
                "no flushed data is lost; free space, then stop the array and serve it again";
            refused(Kind::OutOfSpace, member, cause, what, advice)
        }
        Notice::WriteProtected { member, cause } => {
            let what = "NAME is write-protected now";
            let advice = "no flushed data is lost; make it writable again, then stop the array \
                          and serve it again";
            refused(Kind::WriteProtected, member, cause, what, advice)
        }
        Notice::JournalLost { member, cause } => {
            let what = "the write journal on NAME failed";
            let advice = "no flushed data is lost; stop the array, and serve it again with the \
                          journal's device, or without it (--without-journal) if that is lost for \
                          good";
            refused(Kind::Broken, member, cause, what, advice).with("lost", "journal")
        }
        Notice::SpareLost { member, cause } => {
            let (name, words, why) = failed(member, cause);
            let message =
                format!("{name}, a spare of {array}, failed and is no longer a spare: {words}");
            Change::now(Kind::FailSpare, message).of(&name, None).because(why)
        }
        Notice::BitmapFileLost { member, cause } => {
            let (name, words, why) = failed(member, cause);
            let message =
                format!("the bitmap file {name} failed: {array} goes on without it: {words}");
            let change = Change::now(Kind::BitmapFileLost, message).of(&name, None).because(why);
            change.advising(format!(
                "after a crash the whole array is resynced; `braid set {} consistency=bitmap` \
                 makes a bitmap on the members",
                shell_word(array)
            ))
        }
        Notice::WriteLost { start, sectors, cause } => {
            let change = lost(array, start.0 * SECTOR_BYTES, sectors * SECTOR_BYTES);
            let change = change.advising(
                "more is unreadable or lost there than the level tolerates; reads of it fail \
                 until it is rewritten, and every flush fails until the array is served again, so \
                 that no client takes it for safe",
            );
            match cause {
                Some(cause) => change.because(Why::new(cause, &label(cause.member))),
                None => change,
            }
        }
        Notice::SitsOut { member, slot, latency_ms, siblings_us } => {
            let name = label(*member);
            let message = format!(
                "{name} is slow (slot {}: {latency_ms} ms, its siblings {siblings_us} us), and \
                 reads avoid it",
                slot.0
            );
            let change = Change::now(Kind::SlowDisk, message).of(&name, Some(slot.0));
            change.with("latency_ms", *latency_ms).with("siblings_us", *siblings_us).advising(
                "reads avoid it until it answers like the others again; writes and flushes still \
                 wait for it",
            )
        }
        Notice::Errs { member, slot, errors, erring } => {
            let name = label(*member);
            let (then, word) = match erring {
                ErrorReaction::Stays => ("it stays in the array".to_owned(), "warned"),
                ErrorReaction::Replaced(spare) => {
                    (format!("{} is to replace it", label(*spare)), "replaced")
                }
                ErrorReaction::PutOut => ("it is removed from its slot".to_owned(), "put-out"),
            };
            let message = format!(
                "{name} errs repeatedly (slot {} of {array}: {errors} read errors lately, all \
                 corrected): {then}",
                slot.0
            );
            let change = Change::now(Kind::ReadErrors, message).of(&name, Some(slot.0));
            let change = change.with("read_errors", u64::from(*errors)).with("then", word);
            match erring {
                ErrorReaction::Stays => change.advising(format!(
                    "`braid spare {} DEVICE` copies it to another disk, which takes its place",
                    shell_word(array)
                )),
                ErrorReaction::Replaced(spare) => change.with("spare", label(*spare).as_str()),
                ErrorReaction::PutOut => change,
            }
        }
        Notice::Back { member, slot, after_ms } => {
            let name = label(*member);
            let message = format!(
                "{name} answers like its siblings again and is read (slot {}, after {after_ms} ms)",
                slot.0
            );
            let change = Change::now(Kind::SlowDiskBack, message).of(&name, Some(slot.0));
            change.with("after_ms", *after_ms)
        }
        Notice::Stopped { clean } => {
            let how = if *clean { "in order" } else { "but its superblocks are not clean" };
            let message = format!("{array} has stopped, {how}");
            Change::now(Kind::ArrayStopped, message).with("in_order", *clean)
        }
        Notice::Recorded { .. } | Notice::ShapeRecorded => return None,
    })
}

fn found_words(found: &Finding, names: Names<'_>) -> Change {
    let Names { array, member: label, .. } = names;
    match *found {
        Finding::Rot { member, slot, start, sectors, kind, fate } => {
            let name = label(member);
            let (offset, length) = (start.0 * SECTOR_BYTES, u64::from(sectors) * SECTOR_BYTES);
            let (what, at) = match kind {
                RotKind::Data(at) => ("data", Some(at.0 * SECTOR_BYTES)),
                RotKind::P => ("p", None),
                RotKind::Q => ("q", None),
            };
            let (kind, done) = match fate {
                Fate::Repaired => (Kind::CorruptionRepaired, "were wrong, and are repaired"),
                Fate::Unverified => (
                    Kind::CorruptionLocated,
                    "were wrong, and could not be verified after the \
                                               repair",
                ),
                Fate::Left => (Kind::CorruptionLocated, "are wrong"),
            };
            let word = match fate {
                Fate::Repaired => "repaired",
                Fate::Unverified => "unverified",
                Fate::Left => "left",
            };
            let message = format!(
                "{length} bytes of {what} at {offset} of the data of {name} (slot {} of {array}) {done}",
                slot.0
            );
            let change = Change::now(kind, message).of(&name, Some(slot.0));
            let change = change.with("what", what).with("fate", word);
            let change = change.with("member_offset_bytes", offset).with("length_bytes", length);
            match at {
                Some(at) => change.with("array_offset_bytes", at),
                None => change,
            }
        }
        Finding::Ambiguous { start, sectors, array: at, candidates } => {
            let (offset, length) = (start.0 * SECTOR_BYTES, u64::from(sectors) * SECTOR_BYTES);
            let slots = slots_words(&candidates);
            let message = format!(
                "{length} bytes at {offset} of the members' data do not agree in {array}, and the \
                 wrong ones are unknown: {slots}"
            );
            let change = Change::now(Kind::CorruptionAmbiguous, message);
            let numbers: Vec<String> =
                candidates.named().iter().map(|slot| slot.0.to_string()).collect();
            let change = change.with("candidates", slots.as_str());
            let change = change.with("candidate_slots", numbers.join(",").as_str());
            let change = change.with("member_offset_bytes", offset).with("length_bytes", length);
            match at {
                Some(at) => change.with("array_offset_bytes", at.0 * SECTOR_BYTES),
                None => change,
            }
        }
        Finding::Lost { array: at, sectors } => {
            let (offset, length) = (at.0 * SECTOR_BYTES, sectors * SECTOR_BYTES);
            let change = Change::now(Kind::SectorsLost, String::new()).advising(
                "bad-block logs list them, and the reshape goes on: reads of them fail until a \
                 client writes them; restore what lies there from a backup",
            );
            let change = change.with("array_offset_bytes", offset).with("length_bytes", length);
            said_again(change.with("ranges", 1), array)
        }
    }
}

/// `slots 1, 3`; if not all slots are known, their number.
fn slots_words(candidates: &Candidates) -> String {
    let named = candidates.named();
    if usize::from(candidates.count()) > named.len() {
        return format!("{} slots", candidates.count());
    }
    let numbers: Vec<String> = named.iter().map(|slot| slot.0.to_string()).collect();
    format!("slots {}", numbers.join(", "))
}

/// The event kinds for a job's begin and end, and the job's name in a sentence.
const fn kinds(kind: JobKind) -> (Kind, Kind, &'static str) {
    match kind {
        JobKind::Resync => (Kind::ResyncStarted, Kind::ResyncFinished, "resync"),
        JobKind::Recovery => (Kind::RebuildStarted, Kind::RebuildFinished, "recovery"),
        JobKind::Replace => (Kind::RebuildStarted, Kind::RebuildFinished, "replacement"),
        JobKind::Check => (Kind::CheckStarted, Kind::CheckFinished, "check"),
        JobKind::Repair => (Kind::CheckStarted, Kind::CheckFinished, "repair"),
        JobKind::Reshape => (Kind::RebuildStarted, Kind::RebuildFinished, "reshape"),
    }
}

/// The change for a job that begins or continues.
fn began(progress: &JobProgress, array: &str) -> Change {
    let (kind, _, name) = kinds(progress.kind);
    let message = match progress.from {
        0 => format!("the {name} of {array} has begun"),
        from => format!("the {name} of {array} goes on at sector {from} of {}", progress.end),
    };
    let what = match progress.kind {
        JobKind::Resync => {
            "it was not stopped cleanly, or is new: its redundancy is recomputed from its data"
        }
        JobKind::Recovery => "a member lacks data: it is recovered from the others",
        JobKind::Replace => "a member is copied to its replacement",
        JobKind::Check => "all of it is read and compared",
        JobKind::Repair => "all of it is read and compared, and known wrong sectors are rewritten",
        JobKind::Reshape => "its data moves to another shape, while it serves",
    };
    let change = Change::now(kind, message)
        .advising(what)
        .with("job", name)
        .with("from_sectors", progress.from)
        .with("total_sectors", progress.end)
        .with("paused", progress.paused);
    said_to_repair(change, progress.kind)
}

/// The change for a job that has passed another part of its range.
fn passed(progress: &JobProgress, array: &str) -> Change {
    let (.., name) = kinds(progress.kind);
    let percent = u128::from(progress.done) * 100 / u128::from(progress.end.max(1));
    // Rounds down to steps of twenty, as md's monitor does.
    let percent = u8::try_from(percent.min(100)).expect("no more than a hundred") / 20 * 20;
    let message = format!("the {name} of {array} is past {percent} %");
    let kind = Kind::Rebuild(Percent::new(percent).expect("no more than a hundred"));
    let change = Change::now(kind, message).with("job", name);
    change.with("done_sectors", progress.done).with("total_sectors", progress.end)
}

/// Adds to the event of a check whether the check repairs.
fn said_to_repair(change: Change, kind: JobKind) -> Change {
    if kind.is_check() { change.with("repair", kind == JobKind::Repair) } else { change }
}

fn ended(progress: &JobProgress, end: JobEnd, array: &str) -> Change {
    let (_, kind, name) = kinds(progress.kind);
    let (outcome, word, how) = match end {
        JobEnd::Completed => (Outcome::Completed, "completed", "is over"),
        // The position of an interrupted check is not stored: the next check begins at the start.
        JobEnd::Interrupted if progress.kind.is_check() => {
            (Outcome::Aborted, "interrupted", "was interrupted before it was complete")
        }
        JobEnd::Interrupted => {
            (Outcome::Aborted, "interrupted", "stops for now, and continues there later")
        }
        JobEnd::TargetLost => {
            (Outcome::Aborted, "target-lost", "has ended: the member it rebuilt is lost")
        }
        JobEnd::Unreadable if progress.kind == JobKind::Reshape => (
            Outcome::Aborted,
            "unreadable",
            "cannot go on: a sector is unreadable, and cannot be recorded as bad, as a member has no \
             bad-block log or no room in it, parity is in doubt, or there are too many",
        ),
        JobEnd::Unreadable => {
            (Outcome::Aborted, "unreadable", "cannot go on: too much is unreadable")
        }
        JobEnd::Unwritten => {
            (Outcome::Aborted, "unwritten", "cannot go on: no space is left below a member")
        }
    };
    let JobProgress { done, end: total, differing, written, located, repaired, ambiguous, .. } =
        *progress;
    let place = match outcome {
        Outcome::Completed => String::new(),
        Outcome::Aborted => format!(", at sector {done} of {total}"),
    };
    let found = match (progress.kind, differing) {
        (JobKind::Check, 1..) => format!("; {differing} sectors do not agree with the others"),
        (JobKind::Recovery | JobKind::Replace, _) if progress.unmade > 0 => {
            format!("; {} sectors could not be recovered, and are recorded as bad", progress.unmade)
        }
        (JobKind::Reshape, _) if progress.unmade > 0 => {
            format!("; {} sectors were on no member, and are recorded as bad", progress.unmade)
        }
        (JobKind::Repair, 1..) => {
            format!("; of {located} sectors that are known to be wrong {repaired} are repaired")
        }
        (JobKind::Check | JobKind::Repair, _) if progress.named > 0 => {
            format!("; bad-block logs still list {} sectors", progress.named)
        }
        _ => String::new(),
    };
    let counts = [
        ("ambiguous", ambiguous),
        ("differing_sectors", differing),
        ("done_sectors", done),
        ("located", located),
        ("named_sectors", progress.named),
        ("repaired", repaired),
        ("total_sectors", total),
        ("unmade_sectors", progress.unmade),
        ("written_sectors", written),
    ];
    let message = format!("the {name} of {array} {how}{place}{found}");
    let change = said_to_repair(
        Change::now(kind, message).with("job", name).with("end", word),
        progress.kind,
    );
    if progress.kind.is_check() {
        return change.ended(outcome, &counts);
    }
    let counts: Vec<(&str, u64)> =
        counts.into_iter().filter(|(name, _)| name.ends_with("_sectors")).collect();
    change.ended(outcome, &counts)
}

/// The event that reports one range of acknowledged writes as lost.
fn lost(array: &str, offset_bytes: u64, length_bytes: u64) -> Change {
    let change = Change::now(Kind::WriteLost, String::new());
    let change = change.with("offset_bytes", offset_bytes).with("length_bytes", length_bytes);
    said_again(change.with("ranges", 1), array)
}

/// Writes the message about lost ranges anew, with the total of all these ranges.
fn said_again(mut change: Change, array: &str) -> Change {
    let number = |name| change.number(name).unwrap_or_default();
    let (ranges, bytes) = (number("ranges"), number("length_bytes"));
    if change.kind == Kind::SectorsLost {
        let (sectors, offset) = (bytes / SECTOR_BYTES, number("array_offset_bytes"));
        let first = if ranges == 1 { "" } else { "the first " };
        change.message = format!(
            "{sectors} sectors of {array} are lost, {first}at {offset}: no member held them"
        );
        return change;
    }
    let offset = number("offset_bytes");
    change.message = match ranges {
        1 => format!("{bytes} bytes at {offset} of {array} were acknowledged and are lost"),
        _ => format!(
            "{bytes} bytes in {ranges} ranges of {array}, the first at {offset}, were \
             acknowledged and are lost"
        ),
    };
    change
}

/// Merges `next` into `last` if both are lost writes, or both lost sectors: an array may lose
/// thousands of ranges at once, which become one event. Otherwise returns `next`.
pub(crate) fn merge(last: &mut Change, next: Change, array: &str) -> Option<Change> {
    let merges = matches!(last.kind, Kind::WriteLost | Kind::SectorsLost);
    if !merges || last.kind != next.kind {
        return Some(next);
    }
    let sum = |name: &str| {
        let [one, other] = [&*last, &next].map(|change| change.number(name).unwrap_or_default());
        one.saturating_add(other)
    };
    let (ranges, bytes) = (sum("ranges"), sum("length_bytes"));
    let merged = last.clone().with("ranges", ranges).with("length_bytes", bytes);
    *last = said_again(merged, array);
    None
}

#[cfg(test)]
mod tests {
    use braid_geometry::Slot;

    use super::*;
    use crate::samples::{cause, notices};

    fn names<'a>(member: &'a dyn Fn(MemberId) -> String) -> Names<'a> {
        Names { array: "tank", member, doubt: Doubt::Nothing }
    }

    #[test]
    fn each_notice_is_its_event() {
        let label = |member: MemberId| format!("/dev/m{}", member.0);
        let time = Moment::from_unix(std::time::Duration::from_secs(7));
        let mut mapping = Mapping::default();
        let found: Vec<(String, Option<u16>, Option<String>)> = notices()
            .iter()
            .filter_map(|notice| mapping.change(notice, time, names(&label)))
            .inspect(|change| {
                assert_eq!(change.time, time);
                assert!(change.message.contains("tank") || change.subject.is_some(), "{change:?}");
            })
            .map(|change| {
                let slot = change.subject.as_ref().and_then(|subject| subject.slot);
                (change.kind.to_string(), slot, change.subject.map(|subject| subject.member))
            })
            .collect();
        let m1 = || Some("/dev/m1".to_owned());
        let expected = [
            ("Fail", Some(2), m1()),
            ("Broken", None, m1()),
            ("OutOfSpace", None, m1()),
            ("WriteProtected", None, m1()),
            ("FailSpare", None, m1()),
            ("Broken", None, m1()),
            ("BitmapFileLost", None, m1()),
            ("WriteLost", None, None),
            ("WriteLost", None, None),
            ("SlowDisk", Some(2), m1()),
            ("SlowDiskBack", Some(2), m1()),
            ("DiskAway", Some(2), m1()),
            ("DiskReturned", Some(2), Some("/dev/m5".to_owned())),
            ("ReadErrors", Some(2), m1()),
            ("SpareTaken", Some(2), m1()),
            ("RebuildStarted", None, None),
            ("Rebuild40", None, None),
            ("RebuildFinished", None, None),
            ("SpareActive", Some(2), m1()),
            ("ResyncStarted", None, None),
            ("ResyncFinished", None, None),
            ("CheckStarted", None, None),
            ("CorruptionLocated", Some(2), m1()),
            ("CorruptionAmbiguous", None, None),
            ("CheckFinished", None, None),
            ("CheckStarted", None, None),
            ("CorruptionRepaired", Some(2), m1()),
            ("CheckFinished", None, None),
            ("SectorsLost", None, None),
            ("ArrayStopped", None, None),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(kind, slot, member)| (kind.to_owned(), slot, member))
            .collect();
        assert_eq!(found, expected, "Recorded is none");
    }

    #[test]
    fn a_failure_is_told_with_what_failed() {
        let label = |member: MemberId| format!("/dev/m{}", member.0);
        let failed = change(&notices()[0], names(&label)).expect("an event");
        let why = failed.cause.expect("a cause");
        assert_eq!(why, Why::new(&cause(), "/dev/m1"));
        assert_eq!(
            (why.operation.as_str(), why.sector, why.sectors),
            ("write", Some(123_456), Some(8))
        );
        assert_eq!((why.answer.as_str(), why.os_error), ("os-error", Some(5)));
        assert!(failed.message.ends_with("sector 123456 failed: Input/output error (os error 5)"));
    }

    #[test]
    fn a_member_that_fails_while_it_is_recovered_is_mds_fail_spare() {
        let label = |member: MemberId| format!("/dev/m{}", member.0);
        let (member, slot) = (MemberId(1), Slot(2));
        let out = Notice::MemberOut { member, slot, cause: cause() };
        let taken = Notice::SpareTaken { member, slot, kept_sectors: 0 };
        let recovered = Notice::Recovered { member, slot };
        let kinds = |mut mapping: Mapping, notices: &[Notice]| -> Vec<Kind> {
            let mut change = |notice| mapping.change(notice, Moment::now(), names(&label));
            notices.iter().map(|notice| change(notice).expect("an event").kind).collect()
        };
        let kept = Mapping::new([MemberId(0), member]);
        assert_eq!(kinds(kept.clone(), &[out, out]), [Kind::FailSpare, Kind::Fail]);
        assert_eq!(kinds(kept, &[recovered, out]), [Kind::SpareActive, Kind::Fail]);
        let none = Mapping::default();
        assert_eq!(kinds(none, &[taken, out]), [Kind::SpareTaken, Kind::FailSpare]);
    }

    #[test]
    fn the_end_of_a_job_says_how_and_what_it_counted() {
        let progress = JobProgress {
            kind: JobKind::Check,
            from: 8,
            done: 80,
            end: 96,
            differing: 3,
            written: 0,
            located: 2,
            repaired: 0,
            ambiguous: 1,
            unmade: 0,
            named: 0,
            retries: false,
            paused: false,
        };
        let over = |kind, end| ended(&JobProgress { kind, ..progress }, end, "tank");
        for (end, word) in [
            (JobEnd::Completed, "completed"),
            (JobEnd::Interrupted, "interrupted"),
            (JobEnd::TargetLost, "target-lost"),
            (JobEnd::Unreadable, "unreadable"),
            (JobEnd::Unwritten, "unwritten"),
        ] {
            let change = over(JobKind::Recovery, end);
            let result = change.result.expect("a result");
            assert_eq!(result.outcome == Outcome::Completed, end == JobEnd::Completed);
            let counted = ["done_sectors", "total_sectors", "written_sectors", "differing_sectors"];
            assert_eq!(counted.map(|name| result.counts[name]), [80, 96, 0, 3]);
            assert_eq!(change.details["end"], word.into());
        }
        let check = over(JobKind::Check, JobEnd::Completed);
        assert_eq!(
            check.message,
            "the check of tank is over; 3 sectors do not agree with the others"
        );
        assert_eq!(check.result.expect("a result").counts["located"], 2);
        // Regression: the event promised that an interrupted check continues where it was.
        for kind in [JobKind::Check, JobKind::Repair] {
            assert!(!over(kind, JobEnd::Interrupted).message.contains("continues"));
        }
        assert!(over(JobKind::Recovery, JobEnd::Interrupted).message.contains("continues there"));
        let repair = over(JobKind::Repair, JobEnd::Completed);
        assert!(repair.message.starts_with("the repair of tank is over"), "{}", repair.message);
        assert_eq!(repair.details["repair"], true.into());
        let begun = began(&progress, "tank");
        assert_eq!((begun.number("from_sectors"), begun.kind), (Some(8), Kind::CheckStarted));
        assert!(begun.message.ends_with("goes on at sector 8 of 96"), "{}", begun.message);
    }

    #[test]
    fn a_flood_of_lost_writes_is_one_event() {
        let mut last = lost("tank", 4096, 512);
        for number in 1..1000_u64 {
            assert!(merge(&mut last, lost("tank", number * 65_536, 1024), "tank").is_none());
        }
        assert_eq!(last.number("ranges"), Some(1000));
        assert_eq!(last.number("length_bytes"), Some(512 + 999 * 1024));
        assert_eq!(last.number("offset_bytes"), Some(4096));
        assert!(last.message.contains("1000 ranges of tank"), "{}", last.message);
        let other = Change::now(Kind::Fail, "");
        assert_eq!(merge(&mut last, other.clone(), "tank"), Some(other));
    }
}
