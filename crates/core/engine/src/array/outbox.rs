//! The words of the array's machines to the world: effects in order, whether shards are to hear,
//! how much superblocks are to tell.
//!
//! All machines of the array write here, and none reads it: so each does its part without the
//! others' state.

use std::collections::VecDeque;

use super::effect::{ArrayEffect, Notice};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    effects: VecDeque<ArrayEffect>,
    /// The view that shards have is not what is so.
    is_unpublished: bool,
    /// Changes that superblocks are to tell and that no shard waits for, so far: an offset that a
    /// job has moved, a newcomer that has failed.
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

    /// Shards are to get a new view, if `is_news` says so.
    pub(super) fn publish_if(&mut self, is_news: bool) {
        self.is_unpublished |= is_news;
    }

    /// Shards are to get a new view.
    pub(super) fn publish(&mut self) {
        self.is_unpublished = true;
    }

    pub(super) fn is_unpublished(&self) -> bool {
        self.is_unpublished
    }

    /// Shards get what is so.
    pub(super) fn is_published(&mut self) {
        self.is_unpublished = false;
    }

    /// Superblocks are to tell of a change, if `is_news` says so.
    pub(super) fn change_if(&mut self, is_news: bool) {
        self.changes += u64::from(is_news);
    }

    /// Superblocks are to tell of a change.
    pub(super) fn change(&mut self) {
        self.changes += 1;
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}
