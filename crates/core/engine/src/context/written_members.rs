//! The members that writes have reached since the last report: the next flush must include them.
//!
//! A write is noted by slot, which costs next to nothing. At a new view, the notes are turned into
//! members: a slot may have another member then, and the number of slots may differ
//! `[check: members_are_told_of_whatever_becomes_of_their_slots]`.

use braid_geometry::Slot;
use braid_sim_hooks::{Bug, planted};

use crate::array::ArrayView;
use crate::ids::MemberId;

#[derive(Debug)]
pub(super) struct WrittenMembers {
    /// Whether a write has reached the member in each slot of the current view.
    slots: Vec<bool>,
    /// Members noted under earlier views.
    members: Vec<MemberId>,
}

impl WrittenMembers {
    pub(super) fn new(view: &ArrayView) -> Self {
        Self { slots: vec![false; view.slots.len()], members: Vec::new() }
    }

    /// Notes that a write has reached the member in `slot`, and its replacement.
    pub(super) fn note(&mut self, slot: Slot) {
        self.slots[usize::from(slot.0)] = true;
    }

    pub(super) fn is_any(&self) -> bool {
        self.slots.contains(&true) || !self.members.is_empty()
    }

    /// Called when a new view of the array is in force: the notes so far refer to the slots of the
    /// view before.
    pub(super) fn turn(&mut self, before: &ArrayView, view: &ArrayView) {
        self.name_members(before);
        self.slots.resize(view.slots.len(), false);
    }

    /// Removes and returns the noted members, each once.
    pub(super) fn take(&mut self, view: &ArrayView) -> impl Iterator<Item = MemberId> {
        self.name_members(view);
        self.members.drain(..)
    }

    fn name_members(&mut self, view: &ArrayView) {
        assert_eq!(self.slots.len(), view.slots.len(), "writes are noted by this view's slots");
        for (slot, is_written) in (0..).map(Slot).zip(&mut self.slots) {
            let was_written = std::mem::take(is_written);
            if planted(Bug::FlushSetForgets) && slot.0 == 0 || !was_written {
                continue;
            }
            let known = view.member(slot);
            let replacement = known.and_then(|member| member.replacement);
            for member in known.map(|member| member.id).into_iter().chain(replacement) {
                if !self.members.contains(&member) {
                    self.members.push(member);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::MemberView;
    use braid_geometry::{Geometry, Level, Shape};

    fn view(members: &[Option<u16>]) -> ArrayView {
        let slots = u16::try_from(members.len()).expect("a few");
        let member_sectors = vec![1024; members.len()];
        let shape =
            Shape { level: Level::Raid1, layout: 0, chunk_sectors: 0, slots, member_sectors };
        let known = |number: &u16| MemberView::new(MemberId(*number), u64::MAX);
        ArrayView {
            slots: members.iter().map(|number| number.as_ref().map(known)).collect(),
            ..ArrayView::consistent(Geometry::new(&shape).expect("a plain shape"))
        }
    }

    /// Slots are those of the view in force. So notes made under an older view must not be looked
    /// up in a newer one.
    #[test]
    fn members_are_told_of_whatever_becomes_of_their_slots() {
        let (two, three) = (view(&[Some(5), Some(6)]), view(&[Some(8), None, Some(7)]));
        let told = |written: &mut WrittenMembers, view| {
            written.take(view).map(|id| id.0).collect::<Vec<_>>()
        };
        let mut written = WrittenMembers::new(&two);
        written.note(Slot(1));
        written.turn(&two, &three);
        assert!(written.is_any());
        (0..3).for_each(|slot| written.note(Slot(slot)));
        assert_eq!(told(&mut written, &three), [6, 8, 7]);
        assert!(!written.is_any() && told(&mut written, &three).is_empty());
        written.note(Slot(2));
        written.turn(&three, &two);
        assert_eq!(told(&mut written, &two), [7]);
    }
}
