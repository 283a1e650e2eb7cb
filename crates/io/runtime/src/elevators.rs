//! Carries the settings of scheduling ([`crate::scheduling`]) to the members, and releases a
//! member's held requests when their time slice comes.
//!
//! Place in the flow: above the loop, which drives the requests that schedulers release.

use braid_dispatch::Policy;
use braid_engine::array::MemberId;

use crate::core::{AbortOnPanic, Core};
use crate::events::{ArrayEvent, Machine};
use crate::executor::submitter::Submitter;
use crate::scheduling::Scheduling;
use crate::sync::Arc;

impl Core {
    /// Changes the scheduling settings and applies them to all members.
    pub(crate) fn schedule(self: &Arc<Self>, change: impl FnOnce(&mut Scheduling)) {
        let _guard = AbortOnPanic::new();
        let mut chosen = self.scheduling.lock().expect("setting does not panic");
        change(&mut chosen);
        let members = self.members.load();
        let one_turns = members.iter().any(|member| member.turns());
        // The lock is held until every member has the settings. So after two changes at once, all
        // members have the later settings.
        let mut turns = chosen.settings_of_turns(one_turns, self.turns.answers_early());
        let each = members.iter().map(|member| (member.slot(), member.turns()));
        let sorting = chosen.sorting(each, turns.is_on);
        turns.is_on &= !sorting.is_empty();
        self.turns.set(turns);
        // On members that seek, a write that begins before its flush costs a seek of its own.
        // Spares, journals and bitmap files have no slot, and get no such write.
        let seeks = members.iter().filter(|member| member.slot().is_some()).any(|member| {
            let settings = chosen.settings_of(member.slot(), member.turns(), turns.is_on);
            settings.policy == Policy::Deadline
        });
        let mut notified = self.tune(|tuning| tuning.expects_flushes = !seeks);
        for member in members.iter() {
            let submitter = Submitter::new(self, member);
            member
                .scheduler
                .set(&submitter, chosen.settings_of(member.slot(), member.turns(), turns.is_on));
            // The new settings may release held requests.
            member.scheduler.dispatch_held(&submitter);
            notified.extend(submitter.into_notified());
        }
        drop(members);
        let settings = *self.sit_out.lock().expect("setting does not panic");
        let settings = chosen.sit_out(settings, &sorting, turns.is_on);
        self.array.push(ArrayEvent::SitOut(settings));
        drop(chosen);
        self.drive(Machine::Array);
        notified.into_iter().for_each(|machine| self.drive(machine));
    }

    /// Applies the settings again, since another setting has changed.
    pub(crate) fn schedule_again(self: &Arc<Self>) {
        self.schedule(|_| {});
    }

    /// Called when the time slice for which a member held requests has ended.
    pub(crate) fn dispatch_held(self: &Arc<Self>, member: MemberId) {
        let _guard = AbortOnPanic::new();
        let members = self.members.load();
        let Some(member) = members.get(member) else { return };
        let submitter = Submitter::new(self, member);
        member.scheduler.dispatch_held(&submitter);
        self.drive_notified(submitter.into_notified(), None);
    }
}
