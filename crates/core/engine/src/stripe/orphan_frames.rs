//! Frames (the memory of one stripe in the cache) that former members still access.

use std::collections::BTreeMap;

use braid_sim_hooks::{Bug, planted};

use crate::context::PieceKey;

#[derive(Debug, Default)]
pub(super) struct OrphanFrames(BTreeMap<u32, OrphanFrame>);

#[derive(Debug)]
struct OrphanFrame {
    out: u32,
    /// The payloads of the frame's batch: requests at former members may still write from them.
    payloads: Vec<PieceKey>,
}

impl OrphanFrames {
    /// Whether a member that left may still access this frame.
    pub(super) fn has(&self, frame: u32) -> bool {
        if planted(Bug::LeftFrameReused) {
            return false;
        }
        self.0.contains_key(&frame)
    }

    /// Reserves the frame for a request at a member that left. `payloads` returns the payloads of
    /// the frame's batch.
    pub(super) fn hold(&mut self, frame: u32, payloads: impl FnOnce() -> Vec<PieceKey>) {
        let held = self.0.entry(frame);
        held.or_insert_with(|| OrphanFrame { out: 0, payloads: payloads() }).out += 1;
    }

    /// Notes that a former member's request on this stripe's frame has ended. After the last such
    /// request, returns the payloads that the frame's batch of writes kept.
    pub(super) fn let_go(&mut self, frame: u32) -> Option<Vec<PieceKey>> {
        let held = self.0.get_mut(&frame).expect("it is held");
        held.out -= 1;
        let is_last = held.out == 0;
        is_last.then(|| self.0.remove(&frame).expect("just seen").payloads)
    }
}
