//! Lists of stripes, without memory of their own: each stripe holds its neighbours.
//!
//! A stripe is in one list at most; [`super::state::Place`] says in which. Taking one out of the
//! middle costs as little as taking the first.

use super::state::Stripe;

/// No stripe.
const NOBODY: u32 = u32::MAX;

/// A stripe's neighbours in its list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: u32,
    after: u32,
}

impl Links {
    pub(super) const NONE: Self = Self { before: NOBODY, after: NOBODY };
}

/// First and last of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NOBODY, last: NOBODY };

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NOBODY).then_some(self.first)
    }

    pub(super) fn push_back(&mut self, pool: &mut [Stripe], index: u32) {
        pool[index as usize].links = Links { before: self.last, after: NOBODY };
        match self.last {
            NOBODY => self.first = index,
            last => pool[last as usize].links.after = index,
        }
        self.last = index;
    }

    /// Ahead of all others.
    pub(super) fn push_front(&mut self, pool: &mut [Stripe], index: u32) {
        pool[index as usize].links = Links { before: NOBODY, after: self.first };
        match self.first {
            NOBODY => self.last = index,
            first => pool[first as usize].links.before = index,
        }
        self.first = index;
    }

    /// Takes out a stripe that is in this list.
    pub(super) fn remove(&mut self, pool: &mut [Stripe], index: u32) {
        let Links { before, after } =
            std::mem::replace(&mut pool[index as usize].links, Links::NONE);
        match before {
            NOBODY => self.first = after,
            before => pool[before as usize].links.after = after,
        }
        match after {
            NOBODY => self.last = before,
            after => pool[after as usize].links.before = before,
        }
    }
}
