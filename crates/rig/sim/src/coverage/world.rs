//! The states that the world visits: an action or fault, in the array's state at that moment.

use super::{ArrayAction, name};
use crate::world::World;

impl World {
    /// Notes an action in the array's current state.
    pub(crate) fn visit(&mut self, action: ArrayAction) {
        self.visit_fault(action.name());
    }

    /// Notes a disk's fault in the array's current state.
    pub(crate) fn visit_fault(&mut self, what: &str) {
        let view = &self.engine.machines.shards[0].view;
        let missing = view.slots.iter().filter(|slot| slot.is_none()).count();
        let is_dirty = view.resync_offset != u64::MAX;
        let name = name(self.geometry.level(), missing, is_dirty, self.engine.phase, what);
        *self.tally.states.entry(name).or_default() += 1;
    }
}
