//! Values under names that are not used again soon: [`slotmap`] with plain numbers as names.
//!
//! A name holds the value's place and the number of uses of that place, so that an old name never
//! finds a new value. A slab that has reached its greatest size allocates nothing more.

use slotmap::{DefaultKey, Key, KeyData, SlotMap};

#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: SlotMap<DefaultKey, T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: SlotMap::new() }
    }
}

fn key(name: u64) -> DefaultKey {
    let key = KeyData::from_ffi(name);
    // A number that `from_ffi` must change is no name that this slab gave out.
    if key.as_ffi() == name { key.into() } else { DefaultKey::null() }
}

impl<T> Slab<T> {
    /// Stores `value` and returns its name. Names are large: their upper half counts the uses of a
    /// place, from 1.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        self.values.insert(value).data().as_ffi()
    }

    pub(crate) fn get(&self, name: u64) -> Option<&T> {
        self.values.get(key(name))
    }

    pub(crate) fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        self.values.get_mut(key(name))
    }

    pub(crate) fn remove(&mut self, name: u64) -> Option<T> {
        self.values.remove(key(name))
    }

    /// Every value with its name, in arbitrary order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.values.iter_mut().map(|(key, value)| (key.data().as_ffi(), value))
    }

    /// Every value with its name, in arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.values.iter().map(|(key, value)| (key.data().as_ffi(), value))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against an old bug: a name without its upper half was taken for the number of a
    /// stripe.
    #[test]
    fn a_name_is_never_a_small_number() {
        let mut slab = Slab::default();
        for _ in 0..1000 {
            let name = slab.insert(());
            assert!(name > u64::from(u32::MAX));
            assert_eq!(slab.get(name & u64::from(u32::MAX)), None, "nor is it found by one");
            slab.remove(name);
        }
    }

    #[test]
    fn an_old_name_finds_nothing() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        let c = slab.insert('c');
        assert_ne!(c, a);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(b), Some(&mut 'b'));
        assert_eq!(slab.remove(c), Some('c'));
        assert_eq!(slab.remove(c), None);
        assert!(!slab.is_empty());
        assert_eq!(slab.remove(b), Some('b'));
        assert!(slab.is_empty());
    }
}
