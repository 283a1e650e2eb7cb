//! Totals of a run's events: values for metrics that the array itself does not keep.
//!
//! Pure: an event changes the standing, and nothing else does.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, Moment};
use crate::kind::Kind;

/// The totals of the events since the array was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether more members are lost than the level tolerates.
    pub is_broken: bool,
    /// Whether the storage below a member is full.
    pub is_out_of_space: bool,
    /// Whether the array has stopped.
    pub has_stopped: bool,
    /// Members that have failed since the start and were not removed or replaced, by name, with
    /// their former slots.
    pub failed: BTreeMap<String, Option<u16>>,
    /// Members that reads avoid, by name.
    pub slow: BTreeSet<String>,
    /// Acknowledged bytes that are lost.
    pub lost_bytes: u64,
    /// The last complete check.
    pub checked: Option<CompletedCheck>,
    /// Numbers of events by kind.
    pub events: BTreeMap<Kind, u64>,
}

/// A complete check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletedCheck {
    /// The time when the check ended.
    pub time: Moment,
    /// The check's counters, by name.
    pub counts: BTreeMap<String, u64>,
}

impl Standing {
    /// Adds an event to the totals.
    pub fn take(&mut self, event: &Event) {
        let change = &event.change;
        *self.events.entry(change.kind.clone()).or_default() += 1;
        let member = || change.subject.as_ref().map(|subject| subject.member.clone());
        match &change.kind {
            Kind::Fail | Kind::FailSpare => {
                let subject = change.subject.as_ref();
                self.failed.extend(subject.map(|one| (one.member.clone(), one.slot)));
                self.slow.retain(|slow| Some(slow) != member().as_ref());
            }
            Kind::SpareActive | Kind::DiskRemoved | Kind::DiskAdded => {
                self.failed.retain(|failed, _| Some(failed) != member().as_ref());
            }
            Kind::SlowDisk => self.slow.extend(member()),
            Kind::SlowDiskBack => self.slow.retain(|slow| Some(slow) != member().as_ref()),
            Kind::Broken | Kind::WriteProtected => self.is_broken = true,
            Kind::OutOfSpace => self.is_out_of_space = true,
            Kind::ArrayStopped => self.has_stopped = true,
            Kind::WriteLost => {
                self.lost_bytes += change.number("length_bytes").unwrap_or_default();
            }
            Kind::CheckFinished => {
                let completed = change.result.as_ref();
                let completed =
                    completed.filter(|result| result.outcome == crate::event::Outcome::Completed);
                if let Some(result) = completed {
                    let counts = result.counts.clone();
                    self.checked = Some(CompletedCheck { time: change.time, counts });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Change, Outcome};
    use crate::samples::identity;

    #[test]
    fn a_run_is_folded_event_by_event() {
        let mut standing = Standing::default();
        let mut take = |change: Change| {
            standing.take(&Event::new(1, &identity(), change));
            standing.clone()
        };
        let of = |kind: Kind, member: &str| Change::now(kind, "").of(member, Some(1));
        assert!(take(of(Kind::SlowDisk, "a")).slow.contains("a"));
        take(of(Kind::SlowDisk, "b"));
        let now = take(of(Kind::Fail, "a"));
        assert_eq!(
            (now.slow.len(), now.failed.contains_key("a")),
            (1, true),
            "a slow one that failed is failed"
        );
        assert!(take(of(Kind::SlowDiskBack, "b")).slow.is_empty());
        assert!(take(of(Kind::DiskRemoved, "a")).failed.is_empty());
        take(Change::now(Kind::WriteLost, "").with("length_bytes", 512));
        assert_eq!(
            take(Change::now(Kind::WriteLost, "").with("length_bytes", 1024)).lost_bytes,
            1536
        );
        let aborted =
            Change::now(Kind::CheckFinished, "").ended(Outcome::Aborted, &[("ambiguous", 1)]);
        assert_eq!(take(aborted).checked, None, "half a check says nothing of the rest");
        let ended =
            Change::now(Kind::CheckFinished, "").ended(Outcome::Completed, &[("ambiguous", 2)]);
        assert_eq!(take(ended).checked.expect("it is").counts["ambiguous"], 2);
        let now = take(Change::now(Kind::Broken, ""));
        assert!(now.is_broken && !now.is_out_of_space && !now.has_stopped);
        assert_eq!(now.events[&Kind::WriteLost], 2);
    }
}
