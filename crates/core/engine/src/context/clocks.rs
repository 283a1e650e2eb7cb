//! Measures how fast each member serves this shard, and remembers members to avoid for now.
//!
//! Every request to a member is stamped with the time of the turn that submits it. While requests
//! are in flight, the array gets the latency of reads and the age of the requests every
//! [`REPORT_MS`]. The driver may hold writes back, which is not the member's fault. So a write
//! counts only once it is older than the longest hold-back time. The array submits superblock
//! writes and flushes itself, so they are not measured here.
//!
//! A member that sits out gets a small read every [`PROBE_MS`], so that the array notices when the
//! member is well again. This probe reads the member's sectors that were read last, or else its
//! first sectors, into a block of its own. No request waits for a probe; a shard has one probe at a
//! time.
//!
//! While the array does not watch its members, measuring and probing cost nothing.

use std::sync::Arc;

use braid_geometry::{MemberSector, Slot};

use crate::Instant;
use crate::array::ArrayView;
use crate::effect::{MemberOperation, Pace, SlowMembers};
use crate::ids::IoId;

/// Milliseconds between two reports.
const REPORT_MS: u64 = 50;

/// Milliseconds between two probes of a member that sits out.
const PROBE_MS: u64 = 100;

/// The most sectors of a probe: one block on disks with sectors of 4 KiB.
pub(crate) const PROBE_SECTORS: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Stamp {
    since: Instant,
    slot: Slot,
    is_read: bool,
    is_under_way: bool,
}

impl Stamp {
    /// The age of a request in flight, for a write beyond its hold-back time; `None` if none
    /// counts.
    fn age_ns(&self, now: Instant, write_slack_ms: u64) -> Option<u64> {
        let slack_ns = if self.is_read { 0 } else { write_slack_ms.saturating_mul(1_000_000) };
        let age_ns = now.0.saturating_sub(self.since.0).max(1);
        if self.is_under_way { age_ns.checked_sub(slack_ns).filter(|age| *age > 0) } else { None }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Latencies {
    completed: u32,
    sum_ns: u64,
    /// The place and length of the member's last read.
    last_read: Option<(MemberSector, u32)>,
    sits_out: bool,
    is_probed: bool,
    /// Whether the last report named an old request in flight.
    was_old: bool,
}

#[derive(Debug)]
pub(crate) struct Clocks {
    watches: bool,
    /// The stamps of requests in flight; a stamp's index is the lower half of its request's name.
    stamps: Vec<Stamp>,
    members: Vec<Latencies>,
    is_any_out: bool,
    next_report: Option<Instant>,
    next_probe: Option<Instant>,
    slow_members: Arc<SlowMembers>,
}

fn place(id: IoId) -> usize {
    usize::try_from(id.0 & u64::from(u32::MAX)).expect("addresses have 64 bits here")
}

impl Clocks {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            watches: false,
            stamps: Vec::new(),
            members: vec![Latencies::default(); slots],
            is_any_out: false,
            next_report: None,
            next_probe: None,
            slow_members: Arc::default(),
        }
    }

    pub(crate) fn is_any_out(&self) -> bool {
        self.is_any_out
    }

    pub(crate) fn sits_out(&self, slot: Slot) -> bool {
        self.members[usize::from(slot.0)].sits_out
    }

    pub(crate) fn slots_out(&self) -> impl Iterator<Item = Slot> {
        let slots = (0..).map(Slot).zip(&self.members);
        slots.filter(|(_, known)| known.sits_out).map(|(slot, _)| slot)
    }

    pub(crate) fn note_slow_members(
        &mut self,
        now: Instant,
        slow_members: Arc<SlowMembers>,
        view: &ArrayView,
    ) {
        if !slow_members.watches || !self.watches {
            self.stamps.clear();
            self.next_report = None;
            self.members.iter_mut().for_each(|known| (known.completed, known.sum_ns) = (0, 0));
        }
        assert!(
            slow_members.number > self.slow_members.number,
            "decisions on slow members come in order"
        );
        self.watches = slow_members.watches;
        self.slow_members = slow_members;
        self.look(view);
        self.next_probe = self.is_any_out().then(|| now.plus_milliseconds(PROBE_MS));
    }

    /// Follows a view in which members, or their slots, have changed. The latencies of a slot
    /// without a member are kept: requests of its former member may be in flight.
    pub(crate) fn look(&mut self, view: &ArrayView) {
        let slots = self.members.len().max(view.slots.len());
        self.members.resize(slots, Latencies::default());
        let sitting_out = &self.slow_members.sitting_out;
        for (slot, known) in (0..).map(Slot).zip(&mut self.members) {
            let member = view.member(slot).map(|member| member.id);
            known.sits_out = member.is_some_and(|member| sitting_out.contains(&member));
        }
        self.is_any_out = self.members.iter().any(|known| known.sits_out);
    }

    pub(crate) fn begins(
        &mut self,
        now: Instant,
        (id, slot): (IoId, Slot),
        (sector, sectors): (MemberSector, u32),
        operation: &MemberOperation,
    ) {
        // Zeroing may take any time, so its duration does not show that the member is slow.
        if !self.watches || matches!(operation, MemberOperation::Zero { .. }) {
            return;
        }
        let is_read = matches!(operation, MemberOperation::Read { .. });
        if is_read {
            self.note_place(slot, sector, sectors);
        }
        let unused = Stamp { since: now, slot, is_read, is_under_way: false };
        if self.stamps.len() <= place(id) {
            self.stamps.resize(place(id) + 1, unused);
        }
        assert!(!self.stamps[place(id)].is_under_way, "a name is of one request at a time");
        self.stamps[place(id)] = Stamp { is_under_way: true, ..unused };
        self.next_report.get_or_insert(now.plus_milliseconds(REPORT_MS));
    }

    /// Notes the place of a client's read, for a probe.
    pub(crate) fn note_place(&mut self, slot: Slot, sector: MemberSector, sectors: u32) {
        let known = &mut self.members[usize::from(slot.0)];
        known.last_read = Some((sector, sectors.min(PROBE_SECTORS)));
    }

    pub(crate) fn ends(&mut self, now: Instant, id: IoId) {
        let Some(stamp) = self.stamps.get_mut(place(id)) else { return };
        if std::mem::replace(&mut stamp.is_under_way, false) && stamp.is_read {
            let known = &mut self.members[usize::from(stamp.slot.0)];
            known.completed += 1;
            known.sum_ns += now.0.saturating_sub(stamp.since.0);
        }
    }

    /// Drops the stamp of a request whose duration does not count for the slot's member.
    pub(crate) fn forget(&mut self, id: IoId) {
        if let Some(stamp) = self.stamps.get_mut(place(id)) {
            stamp.is_under_way = false;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.next_report.into_iter().chain(self.next_probe).min()
    }

    /// Reports each slot's pace, if [`REPORT_MS`] have passed.
    pub(crate) fn report(&mut self, now: Instant, mut tell: impl FnMut(Slot, Pace)) {
        if self.next_report.is_none_or(|due| now < due) {
            return;
        }
        let (mut is_any, slack_ms) = (false, self.slow_members.write_slack_ms);
        self.forgive_pause(now);
        for (slot, known) in (0..).map(Slot).zip(&mut self.members) {
            let own = self.stamps.iter().filter(|stamp| stamp.slot == slot);
            is_any |= own.clone().any(|stamp| stamp.is_under_way);
            let oldest = own.filter_map(|stamp| stamp.age_ns(now, slack_ms)).max();
            let (completed, sum_ns) = (known.completed, known.sum_ns);
            (known.completed, known.sum_ns) = (0, 0);
            // Once no request is old any more, one more report follows, so that the array drops the
            // age that it got last.
            let was_old = std::mem::replace(&mut known.was_old, oldest.is_some());
            if completed > 0 || was_old || oldest.is_some() {
                let mean_ns = sum_ns / u64::from(completed.max(1));
                tell(slot, Pace { completed, mean_ns, oldest_ns: oldest.unwrap_or(0) });
            }
        }
        self.next_report = is_any.then(|| now.plus_milliseconds(REPORT_MS));
    }

    /// Leaves out time in which the shard did not run, because the process was stopped or the
    /// machine slept.
    fn forgive_pause(&mut self, now: Instant) {
        let late_ns = self.next_report.map_or(0, |due| now.0.saturating_sub(due.0));
        if late_ns <= REPORT_MS * 1_000_000 {
            return;
        }
        for stamp in self.stamps.iter_mut().filter(|stamp| stamp.is_under_way) {
            stamp.since = Instant(stamp.since.0.saturating_add(late_ns).min(now.0));
        }
    }

    /// The probes that are due now, with slots and places.
    pub(crate) fn probes(&mut self, now: Instant) -> Vec<(Slot, MemberSector, u32)> {
        if self.next_probe.is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.next_probe = self.is_any_out().then(|| now.plus_milliseconds(PROBE_MS));
        let mut probes = Vec::new();
        for (slot, known) in (0..).map(Slot).zip(&mut self.members) {
            if known.sits_out && !known.is_probed {
                known.is_probed = true;
                let (sector, sectors) = known.last_read.unwrap_or((MemberSector(0), PROBE_SECTORS));
                probes.push((slot, sector, sectors));
            }
        }
        probes
    }

    /// Notes that a slot's probe has ended, or was not possible.
    pub(crate) fn probed(&mut self, slot: Slot) {
        let known = &mut self.members[usize::from(slot.0)];
        assert!(known.is_probed, "a probe ends once");
        known.is_probed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: MemberOperation = MemberOperation::Read {
        buffer: crate::buffer::Buffer::Block {
            block: crate::buffer::BlockIndex(0),
            offset_sectors: 0,
        },
    };

    /// The age of a request in flight is reported, and no latency is reported twice.
    #[test]
    fn age_and_mean_are_told() {
        let mut clocks = Clocks::new(2);
        clocks.watches = true;
        let at = |ms: u64| Instant(ms * 1_000_000);
        let place = (MemberSector(0), 1);
        clocks.begins(at(0), (IoId(1 << 32), Slot(0)), place, &READ);
        clocks.begins(at(10), (IoId(1 << 32 | 1), Slot(1)), place, &READ);
        clocks.ends(at(20), IoId(1 << 32 | 1));
        let told = |clocks: &mut Clocks, now| {
            let mut told = Vec::new();
            clocks.report(now, |slot, pace| told.push((slot.0, pace)));
            told
        };
        assert_eq!(told(&mut clocks, at(49)), []);
        let ms = 1_000_000;
        let old = |ms| Pace { completed: 0, mean_ns: 0, oldest_ns: ms };
        let ended = |mean_ns| Pace { completed: 1, mean_ns, oldest_ns: 0 };
        assert_eq!(told(&mut clocks, at(50)), [(0, old(50 * ms)), (1, ended(10 * ms))]);
        assert_eq!(told(&mut clocks, at(100)), [(0, old(100 * ms))]);
        clocks.ends(at(120), IoId(1 << 32));
        assert_eq!(told(&mut clocks, at(150)), [(0, ended(120 * ms))]);
        assert_eq!(clocks.poll_timeout(), None, "nothing is under way");
    }

    /// Guards against an old bug: after the process had been stopped for two seconds, each member
    /// seemed two seconds slow.
    #[test]
    fn a_pause_of_our_own_ages_no_request() {
        let mut clocks = Clocks::new(1);
        clocks.watches = true;
        let at = |ms: u64| Instant(ms * 1_000_000);
        clocks.begins(at(0), (IoId(1 << 32), Slot(0)), (MemberSector(0), 1), &READ);
        let mut told = Vec::new();
        clocks.report(at(2050), |_, pace| told.push(pace.oldest_ns / 1_000_000));
        clocks.report(at(2100), |_, pace| told.push(pace.oldest_ns / 1_000_000));
        assert_eq!(told, [50, 100]);
    }

    /// A report of age 0 follows the end of an old write, even if no read has ended.
    #[test]
    fn an_old_write_that_ends_is_taken_back() {
        let mut clocks = Clocks::new(1);
        clocks.watches = true;
        let at = |ms: u64| Instant(ms * 1_000_000);
        let write = MemberOperation::Write {
            buffer: crate::buffer::Buffer::Block {
                block: crate::buffer::BlockIndex(0),
                offset_sectors: 0,
            },
            durable: false,
        };
        clocks.begins(at(0), (IoId(1 << 32), Slot(0)), (MemberSector(0), 1), &write);
        let mut told = Vec::new();
        clocks.report(at(50), |_, pace| told.push(pace.oldest_ns / 1_000_000));
        clocks.ends(at(60), IoId(1 << 32));
        clocks.report(at(100), |_, pace| told.push(pace.oldest_ns / 1_000_000));
        assert_eq!(told, [50, 0]);
    }
}
