//! Lists of numbers, in fixed memory: each number's neighbours are stored at the number's index.
//!
//! A number is in at most one list of its [`Links`], and the lists' owner must know in which.
//! Removal from the middle of a list costs as little as from its front.
//!
//! [check: lists_agree_with_deques]

const NONE: u32 = u32::MAX;

/// A number's neighbours in its list.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

/// The neighbours of all numbers below a limit.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

impl Links {
    /// Makes room for all numbers below `limit`.
    pub(super) fn grow(&mut self, limit: usize) {
        if self.0.len() < limit {
            self.0.resize(limit, Link { before: NONE, after: NONE });
        }
    }

    fn link(&mut self, number: u32) -> &mut Link {
        &mut self.0[number as usize]
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn iter(self, links: &Links) -> impl Iterator<Item = u32> {
        let after = |number: &u32| {
            let Link { after, .. } = links.0[*number as usize];
            (after != NONE).then_some(after)
        };
        std::iter::successors(self.first(), after)
    }

    pub(super) fn push_back(&mut self, links: &mut Links, number: u32) {
        assert!(self.first != number && self.last != number, "a number is in a list once");
        *links.link(number) = Link { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = number,
            last => links.link(last).after = number,
        }
        self.last = number;
    }

    pub(super) fn remove(&mut self, links: &mut Links, number: u32) {
        let Link { before, after } = *links.link(number);
        match before {
            NONE => {
                assert_eq!(self.first, number, "it is in this list");
                self.first = after;
            }
            before => {
                let link = links.link(before);
                assert_eq!(link.after, number, "neighbours know each other");
                link.after = after;
            }
        }
        match after {
            NONE => {
                assert_eq!(self.last, number, "it is in this list");
                self.last = before;
            }
            after => {
                let link = links.link(after);
                assert_eq!(link.before, number, "neighbours know each other");
                link.before = before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn lists_agree_with_deques() {
        const NUMBERS: u32 = 9;
        let mut links = Links::default();
        links.grow(NUMBERS as usize);
        let mut lists = [List::EMPTY, List::EMPTY];
        let mut deques: [VecDeque<u32>; 2] = Default::default();
        let mut state = 1_u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = u32::try_from((state >> 33) % u64::from(NUMBERS)).unwrap();
            let choice = usize::try_from((state >> 50) % 2).unwrap();
            match (0..2).find(|list| deques[*list].contains(&number)) {
                Some(list) => {
                    lists[list].remove(&mut links, number);
                    deques[list].retain(|other| *other != number);
                }
                None => {
                    lists[choice].push_back(&mut links, number);
                    deques[choice].push_back(number);
                }
            }
            for list in 0..2 {
                assert!(lists[list].iter(&links).eq(deques[list].iter().copied()));
            }
        }
    }
}
