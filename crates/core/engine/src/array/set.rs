//! A small ordered set that keeps its memory: a flush must not allocate each time.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set<T>(Vec<T>);

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Set<T> {
    pub(super) fn insert(&mut self, one: T) {
        if let Err(place) = self.0.binary_search(&one) {
            self.0.insert(place, one);
        }
    }

    /// Removes `one`; true if the set contained it.
    pub(super) fn remove(&mut self, one: &T) -> bool {
        let found = self.0.binary_search(one);
        found.is_ok_and(|place| {
            self.0.remove(place);
            true
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }
}

impl<T: Ord> Extend<T> for Set<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, ones: I) {
        ones.into_iter().for_each(|one| self.insert(one));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_it_once_and_in_order() {
        let mut set = Set::default();
        set.extend([3, 1, 2, 3, 1]);
        assert_eq!(set.iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(set.remove(&2) && !set.remove(&2) && !set.is_empty());
        assert_eq!(set.iter().copied().collect::<Vec<_>>(), [1, 3]);
        assert!(set.remove(&1) && set.remove(&3) && set.is_empty());
    }
}
