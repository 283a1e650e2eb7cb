//! The outbox of the array's machines: effects in order, whether shards need a new view, and how
//! many changes superblocks must record.
//!
//! All machines of the array write here, and none reads. So no machine needs another one's state.

use std::collections::VecDeque;

use super::effect::{ArrayEffect, Notice};

#[derive(Debug, Default)]
pub(super) struct Outbox {
    effects: VecDeque<ArrayEffect>,
    /// Whether the shards' view is out of date.
    is_unpublished: bool,
    /// Number of changes for superblocks to record that no shard waits for: a job's offset, a
    /// failed newcomer.
    changes: u64,
}

impl Outbox {
    pub(super) fn push(&mut self, effect: ArrayEffect) {
        self.effects.push_back(effect);
    }

    pub(super) fn extend(&mut self, effects: impl IntoIterator<Item = ArrayEffect>) {
        self.effects.extend(effects);
    }

    pub(super) fn pop(&mut self) -> Option<ArrayEffect> {
        self.effects.pop_front()
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.push(ArrayEffect::Notice(notice));
    }

    /// Asks for a new view if `is_news`.
    pub(super) fn publish_if(&mut self, is_news: bool) {
        self.is_unpublished |= is_news;
    }

    pub(super) fn publish(&mut self) {
        self.is_unpublished = true;
    }

    pub(super) fn is_unpublished(&self) -> bool {
        self.is_unpublished
    }

    pub(super) fn is_published(&mut self) {
        self.is_unpublished = false;
    }

    pub(super) fn change_if(&mut self, is_news: bool) {
        self.changes += u64::from(is_news);
    }

    pub(super) fn change(&mut self) {
        self.changes += 1;
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}
