//! An array's incidents since its start: which members went out, when and why, for later queries.
//!
//! Notices and the operator's changes of members fill the record. The record does not say which
//! member has which slot; the array does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_control::model::{Failure, LeftOut, Spread};
use braid_events::event::Subject;
use braid_events::{Change, Kind};

use super::lost_ranges::LostRanges;
use braid_console::output::utc::{now_seconds, rfc3339_utc};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incident {
    pub(crate) member: String,
    pub(crate) since: String,
    pub(crate) cause: String,
    /// The member is out only because a replacement has its slot.
    pub(crate) is_replaced: bool,
    /// The member does not answer; it returns to the array by itself.
    pub(crate) is_away: bool,
}

impl Incident {
    fn now(member: String, cause: String) -> Self {
        let since = rfc3339_utc(now_seconds());
        Self { member, since, cause, is_replaced: false, is_away: false }
    }
}

/// A member's name as an absolute path, which does not depend on the server's working folder.
pub(super) fn absolute(label: &str) -> String {
    braid_member::absolute(std::path::Path::new(label)).display().to_string()
}

#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Incidents>);

#[derive(Debug, Default)]
struct Incidents {
    out: BTreeMap<u16, Incident>,
    slow: BTreeMap<u16, Incident>,
    /// Members that went out and then lost their slot to another member, each with its old slot;
    /// also failed spares, without a slot.
    replaced: Vec<(Option<u16>, Incident)>,
    /// Labels of replacements that are being filled, by the slot of the replaced member.
    filling: BTreeMap<u16, String>,
    /// Label of each slot's last member.
    last_labels: BTreeMap<u16, String>,
    /// Slots whose last member the operator removed, with the removed member.
    gone: BTreeMap<u16, Incident>,
    /// Members that were left out of the take-over and have not been added yet.
    left_out: Vec<LeftOut>,
    failure: Option<Failure>,
    lost: LostRanges,
}

impl Health {
    fn incidents(&self) -> MutexGuard<'_, Incidents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, change: &Change) {
        let mut incidents = self.incidents();
        if change.kind == Kind::WriteLost {
            let number = |name| change.number(name).unwrap_or_default();
            let start = number("offset_bytes");
            // Only records the lost range; the reporter describes it to the operator.
            incidents.lost.add(start..start + number("length_bytes"));
            return;
        }
        let Some(Subject { member, slot }) = change.subject.clone() else { return };
        let cause = change.cause.as_ref().map(ToString::to_string).unwrap_or_default();
        match (&change.kind, slot) {
            (Kind::Fail | Kind::FailSpare, Some(slot)) => {
                let incident = Incident::now(member, cause);
                match incidents.filling.remove(&slot) {
                    // The replacement failed: the member to be replaced still has its slot.
                    Some(filling) if filling == incident.member => {
                        incidents.replaced.push((None, incident));
                    }
                    Some(filling) => {
                        incidents.slow.remove(&slot);
                        incidents.last_labels.insert(slot, filling);
                        incidents.replaced.push((Some(slot), incident));
                    }
                    None => {
                        incidents.slow.remove(&slot);
                        incidents.out.insert(slot, incident);
                    }
                }
            }
            (Kind::FailSpare, None) => {
                let incident = Incident::now(member, cause);
                incidents.replaced.push((None, incident));
            }
            (Kind::Broken | Kind::OutOfSpace | Kind::WriteProtected, _) => {
                let out_of_space = change.kind == Kind::OutOfSpace;
                let write_protected = change.kind == Kind::WriteProtected;
                let since = rfc3339_utc(now_seconds());
                let failure = Failure { member, since, out_of_space, write_protected, cause };
                incidents.failure.get_or_insert(failure);
            }
            (Kind::SlowDisk, Some(slot)) => {
                let latency_ms = change.number("latency_ms").unwrap_or_default();
                let cause = format!("it took {latency_ms} ms, and the others much less");
                let incident = Incident::now(member, cause);
                incidents.slow.insert(slot, incident);
            }
            (Kind::DiskAway, Some(slot)) => {
                let cause = "it does not answer".to_owned();
                let incident = Incident { is_away: true, ..Incident::now(member, cause) };
                incidents.slow.remove(&slot);
                incidents.out.insert(slot, incident);
            }
            // Matches every slot: a spare may have taken the returning member's slot meanwhile.
            (Kind::DiskReturned, _) => {
                incidents.out.retain(|_, out| out.member != member);
                incidents.replaced.retain(|(_, out)| out.member != member);
            }
            (Kind::SlowDiskBack, Some(slot)) => {
                incidents.slow.remove(&slot);
            }
            (Kind::SpareActive, Some(slot)) => match change.word("old") {
                None => {
                    incidents.out.remove(&slot);
                }
                Some(old) => {
                    incidents.filling.remove(&slot);
                    incidents.slow.remove(&slot);
                    let (cause, old) = (format!("{member} has its place"), old.to_owned());
                    let old = Incident { is_replaced: true, ..Incident::now(old, cause) };
                    incidents.replaced.push((Some(slot), old));
                    incidents.last_labels.insert(slot, member);
                }
            },
            (Kind::SpareTaken, Some(slot)) => {
                // The member that gets the slot may have been out; it is in the array again.
                incidents.replaced.retain(|(_, out)| out.member != member);
                let out = incidents.out.remove(&slot);
                incidents.replaced.extend(out.map(|out| (Some(slot), out)));
                incidents.gone.remove(&slot);
                incidents.last_labels.insert(slot, member);
            }
            (Kind::ReplaceWanted, Some(slot)) => {
                incidents.replaced.retain(|(_, out)| out.member != member);
                incidents.filling.insert(slot, member);
            }
            _ => {}
        }
    }

    /// The incident by which the slot's last member went out, if it is out.
    pub(crate) fn out(&self, slot: u16) -> Option<Incident> {
        self.incidents().out.get(&slot).cloned()
    }

    /// Notes that the array starts with this member as a replacement for the member in `slot`.
    pub(super) fn note_filling(&self, slot: u16, member: &str) {
        self.incidents().filling.insert(slot, absolute(member));
    }

    /// Notes that the array starts with this member in `slot`.
    pub(super) fn note_seat(&self, slot: u16, member: &str) {
        self.incidents().last_labels.insert(slot, absolute(member));
    }

    /// Notes that the operator removed this member.
    pub(super) fn note_removed(&self, member: &str) {
        let member = absolute(member);
        let mut incidents = self.incidents();
        incidents.replaced.retain(|(_, out)| out.member != member);
        let slot =
            incidents.out.iter().find(|(_, out)| out.member == member).map(|(slot, _)| *slot);
        let Some(slot) = slot else { return };
        incidents.out.remove(&slot);
        incidents.last_labels.remove(&slot);
        let cause = format!("{member} was taken away");
        incidents.gone.insert(slot, Incident::now(member, cause));
    }

    /// The slot's last member, unless it was removed.
    pub(crate) fn seat(&self, slot: u16) -> Option<String> {
        self.incidents().last_labels.get(&slot).cloned()
    }

    /// The slot's last member, if the operator removed it.
    pub(crate) fn gone(&self, slot: u16) -> Option<Incident> {
        self.incidents().gone.get(&slot).cloned()
    }

    /// Members that lost their slot to another member, and failed spares.
    pub(crate) fn replaced(&self) -> Vec<(Option<u16>, Incident)> {
        self.incidents().replaced.clone()
    }

    /// Replaces the list of members that were left out of the take-over.
    pub(super) fn note_left_out(&self, left_out: &[LeftOut]) {
        self.incidents().left_out = left_out.to_vec();
    }

    /// Members that were left out of the take-over and have not been added yet.
    pub(crate) fn left_out(&self) -> Vec<LeftOut> {
        self.incidents().left_out.clone()
    }

    /// Since when the slot's member is slow, and why; `None` if it is not slow.
    pub(crate) fn slow(&self, slot: u16) -> Option<Incident> {
        self.incidents().slow.get(&slot).cloned()
    }

    /// Why the array refuses writes; `None` if it accepts them.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.incidents().failure.clone()
    }

    /// Ranges of writes that the array acknowledged and then lost.
    pub(crate) fn lost(&self) -> Option<Spread> {
        let (ranges, bytes) = self.incidents().lost.sum();
        (bytes > 0).then_some(Spread { ranges: ranges as u64, bytes })
    }
}

#[cfg(test)]
mod tests {
    use braid_events::Moment;
    use braid_events::notice::{Doubt, Mapping, Names};
    use braid_geometry::{LogicalSector, Slot};
    use braid_runtime::{Answer, Cause, MemberId, Notice, RequestKind};

    use super::*;

    /// Passes one notice to `health`; `name` returns the label of a member.
    fn hear(health: &Health, notice: &Notice, name: impl Fn(MemberId) -> &'static str) {
        let member = |member| name(member).to_owned();
        let names = Names { array: "tank", member: &member, doubt: Doubt::Nothing };
        let change = Mapping::default().change(notice, Moment::now(), names);
        health.note(&change.expect("each of these is an event"));
    }

    #[test]
    fn what_happened_is_kept_with_its_cause_and_what_is_over_is_not() {
        let health = Health::default();
        let (member, slot) = (MemberId(2), Slot(2));
        let cause = Cause {
            member,
            asked: RequestKind::Write,
            sector: 8,
            sectors: 8,
            answer: Answer::Os(5),
        };
        let note = |notice: Notice| hear(&health, &notice, |_| "/dev/sdc");
        note(Notice::SitsOut { member, slot, latency_ms: 900, siblings_us: 100 });
        assert!(health.slow(2).is_some_and(|slow| slow.cause.contains("900 ms")));
        note(Notice::Back { member, slot, after_ms: 5 });
        assert_eq!(health.slow(2), None);
        note(Notice::SitsOut { member, slot, latency_ms: 900, siblings_us: 100 });
        note(Notice::MemberOut { member, slot, cause });
        let out = health.out(2).expect("it went out");
        assert_eq!((out.member.as_str(), health.slow(2), health.out(1)), ("/dev/sdc", None, None));
        assert!(out.cause.contains("write of 8 sectors at sector 8"), "{out:?}");
        assert_eq!(health.failure(), None);
        note(Notice::Broken { member, cause });
        note(Notice::OutOfSpace { member, cause });
        assert!(health.failure().is_some_and(|first| !first.out_of_space), "the first one counts");
        assert_eq!(health.lost(), None);
        note(Notice::WriteLost { start: LogicalSector(8), sectors: 8, cause: None });
        assert_eq!(health.lost(), Some(Spread { ranges: 1, bytes: 4096 }));
    }

    #[test]
    fn a_member_that_was_replaced_is_kept_until_it_is_there_again() {
        let health = Health::default();
        let note = |notice: Notice| {
            let name = |member: MemberId| if member.0 == 2 { "/dev/sdc" } else { "/dev/sdh" };
            hear(&health, &notice, name);
        };
        let (member, slot) = (MemberId(2), Slot(2));
        let cause = Cause {
            member,
            asked: RequestKind::Look,
            sector: 0,
            sectors: 0,
            answer: Answer::Vanished,
        };
        note(Notice::MemberOut { member, slot, cause });
        note(Notice::SpareTaken { member: MemberId(7), slot, kept_sectors: 0 });
        let replaced = health.replaced();
        assert_eq!(
            (replaced.len(), replaced[0].0, &*replaced[0].1.member),
            (1, Some(2), "/dev/sdc")
        );
        note(Notice::Recovered { member: MemberId(7), slot });
        assert_eq!((health.replaced().len(), health.out(2)), (1, None), "it can be unplugged");
        note(Notice::SpareTaken { member, slot: Slot(1), kept_sectors: 0 });
        assert_eq!(health.replaced(), []);
    }

    #[test]
    fn what_a_person_takes_away_is_no_failure_any_more() {
        let health = Health::default();
        let note = |notice: Notice| {
            let name = |member: MemberId| match member.0 {
                2 => "/dev/sdc",
                7 => "/dev/sdh",
                _ => "/dev/sdi",
            };
            hear(&health, &notice, name);
        };
        let (member, slot) = (MemberId(2), Slot(2));
        health.note_seat(2, "/dev/sdc");
        note(Notice::MemberOut { member, slot, cause: Cause::person(member) });
        assert_eq!((health.out(2).is_some(), health.gone(2)), (true, None));
        health.note_removed("/dev/sdc");
        assert_eq!((health.out(2), health.seat(2)), (None, None));
        assert!(health.gone(2).is_some_and(|gone| gone.cause.contains("/dev/sdc")));
        note(Notice::SpareTaken { member: MemberId(7), slot, kept_sectors: 0 });
        assert_eq!((health.gone(2), health.seat(2).as_deref()), (None, Some("/dev/sdh")));
        // After these notices, `replaced` holds a replaced member and a failed spare.
        note(Notice::MemberOut { member: MemberId(7), slot, cause: Cause::person(MemberId(7)) });
        note(Notice::SpareTaken { member, slot, kept_sectors: 0 });
        let spare = MemberId(8);
        note(Notice::SpareLost { member: spare, cause: Cause::person(spare) });
        let slots = |health: &Health| -> Vec<Option<u16>> {
            health.replaced().into_iter().map(|(slot, _)| slot).collect()
        };
        assert_eq!(slots(&health), [Some(2), None]);
        health.note_removed("/dev/sdh");
        assert_eq!(slots(&health), [None]);
        health.note_removed("/dev/sdi");
        assert_eq!(slots(&health), []);
    }
}
