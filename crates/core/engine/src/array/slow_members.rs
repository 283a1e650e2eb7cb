//! The array's reaction to slow members: which may sit out, and the notices to shards and driver.

use std::sync::Arc;

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, Mark, planted, reached, spoiled};

use super::effect::{ArrayEffect, Notice};
use super::fixed::Setup;
use super::machine::Array;
use super::roster::Roster;
use super::sitting_out::{MS, SitOutChange, SittingOut};
use crate::Instant;
use crate::effect::{Pace, SlowMembers};
use crate::ids::{MemberId, ShardIndex};
use crate::tuning::SitOut;

impl Array {
    /// Sets when members sit out. Before the first call, no member sits out.
    pub fn handle_sit_out(&mut self, now: Instant, settings: SitOut) {
        self.sitting_out.settings = settings;
        if !settings.is_on {
            let out: Vec<MemberId> = self.sitting_out.out().collect();
            for member in out {
                self.comes_back(now, member);
            }
            self.sitting_out.members.clear();
        }
        self.publish_slow_members();
        self.step(now);
    }

    /// The current settings for slow members.
    #[must_use]
    pub fn sit_out(&self) -> SitOut {
        self.sitting_out.settings
    }

    /// Members that sit out now.
    #[must_use]
    pub fn sitting_out(&self) -> Vec<MemberId> {
        self.sitting_out.out().collect()
    }

    /// Nanoseconds that members have sat out so far, summed over all members.
    #[must_use]
    pub fn sat_out_ns(&self, now: Instant) -> u64 {
        let out = self.sitting_out.members.values().filter_map(|watched| watched.out.as_ref());
        let present: u64 = out.map(|out| now.0.saturating_sub(out.since.0)).sum();
        self.sitting_out.past_ns + present
    }

    fn comes_back(&mut self, now: Instant, member: MemberId) {
        let watched = self.sitting_out.members.get_mut(&member);
        let Some(out) = watched.and_then(|watched| watched.out.take()) else { return };
        let after_ns = now.0.saturating_sub(out.since.0);
        self.sitting_out.past_ns += after_ns;
        if let Some(slot) = self.roster.slot_of(member) {
            let after_ms = after_ns / MS;
            self.out.notice(Notice::Back { member, slot, after_ms });
        }
    }

    /// Takes a shard's measurement of a member.
    pub(super) fn note_pace(
        &mut self,
        now: Instant,
        shard: ShardIndex,
        measured: (MemberId, Pace),
    ) {
        let (member, pace) = measured;
        let Some(slot) = self.roster.slot_of(member) else { return };
        if !self.sitting_out.settings.is_on {
            return;
        }
        let (setup, roster) = (&self.setup, &self.roster);
        let may_go = |known: &SittingOut| may_sit_out(setup, roster, known, member);
        match self.sitting_out.note_pace(now, (shard, member, pace), may_go) {
            None => {}
            Some(SitOutChange::Out { latency_ns, siblings_ns }) => {
                reached(Mark::SitsOut);
                let can_go_on = survives(&self.setup, &self.roster, |slot| self.sits_out_in(slot));
                let can_go_on = spoiled(Bug::SitOutUnbounded, can_go_on, true);
                assert!(can_go_on, "no more sit out than the level can do without");
                let (latency_ms, siblings_us) = (latency_ns / MS, siblings_ns / 1000);
                let notice = Notice::SitsOut { member, slot, latency_ms, siblings_us };
                self.out.notice(notice);
                self.publish_slow_members();
            }
            Some(SitOutChange::Back { after_ns }) => {
                reached(Mark::ComesBack);
                let notice = Notice::Back { member, slot, after_ms: after_ns / MS };
                self.out.notice(notice);
                self.publish_slow_members();
            }
        }
    }

    /// Forgets a member that has left. If too many members sit out now, none does any longer.
    pub(super) fn forget_pace(&mut self, member: MemberId) {
        let was_out = self.sitting_out.is_out(member);
        self.sitting_out.members.remove(&member);
        let (setup, roster) = (&self.setup, &self.roster);
        let is_too_many = !survives(setup, roster, |slot| self.sits_out_in(slot));
        if is_too_many {
            for member in self.sitting_out() {
                self.comes_back(self.sitting_out.heard, member);
            }
        }
        if was_out || is_too_many {
            self.publish_slow_members();
        }
    }

    fn sits_out_in(&self, slot: Slot) -> bool {
        let member = self.roster.slots[usize::from(slot.0)].as_ref();
        member.is_some_and(|member| self.sitting_out.is_out(member.id))
    }

    fn publish_slow_members(&mut self) {
        self.sitting_out.number += 1;
        let slow_members = SlowMembers {
            number: self.sitting_out.number,
            watches: self.sitting_out.settings.is_on,
            write_slack_ms: self.sitting_out.settings.write_slack_ms,
            sitting_out: self.sitting_out.out().collect(),
        };
        self.out.push(ArrayEffect::SlowMembers(Arc::new(slow_members)));
    }
}

fn survives(setup: &Setup, roster: &Roster, is_away: impl Fn(Slot) -> bool) -> bool {
    setup.survives(&|slot| roster.is_lost_to_shards(slot) || is_away(slot))
}

/// Whether the level can do without `member` and the members that are missing or sit out.
fn may_sit_out(setup: &Setup, roster: &Roster, known: &SittingOut, member: MemberId) -> bool {
    if planted(Bug::SitOutUnbounded) {
        return true;
    }
    let is_away = |slot: Slot| {
        let id = roster.slots[usize::from(slot.0)].as_ref().map(|member| member.id);
        id == Some(member) || id.is_some_and(|id| known.is_out(id))
    };
    survives(setup, roster, is_away)
}
