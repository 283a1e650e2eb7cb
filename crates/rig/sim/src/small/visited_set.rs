//! A set of hashes that were seen already.
//!
//! Open addressing, half full at most. The set never lists its elements, so their order cannot
//! matter.

pub(super) struct VisitedSet {
    /// A table of hashes; 0 marks a free place.
    slots: Vec<u64>,
    count: usize,
}

impl VisitedSet {
    pub(super) fn new() -> Self {
        Self { slots: vec![0; 1 << 10], count: 0 }
    }

    /// Inserts the hash; false if the set has it.
    pub(super) fn insert(&mut self, hash: u64) -> bool {
        if self.count * 2 >= self.slots.len() {
            let larger = vec![0; self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, larger);
            old.into_iter().filter(|hash| *hash != 0).for_each(|hash| {
                self.put(hash);
            });
        }
        let is_new = self.put(hash.max(1));
        self.count += usize::from(is_new);
        is_new
    }

    fn put(&mut self, hash: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != 0 {
            if self.slots[at] == hash {
                return false;
            }
            at = (at + 1) & mask;
        }
        self.slots[at] = hash;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;

    #[test]
    fn what_was_put_in_is_there_and_nothing_else() {
        let mut seen = VisitedSet::new();
        assert!((0..5000).all(|number| seen.insert(mix(number))));
        assert!((0..5000).all(|number| !seen.insert(mix(number))));
        assert!((5000..9000).all(|number| seen.insert(mix(number))));
    }
}
