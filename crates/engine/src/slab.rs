//! Values under names that are not used again soon: a vector with a list of its holes.
//!
//! A name is the place and how often the place has been used, so that an old name never finds a new
//! value. Once it has been as full as it gets, nothing is allocated any more.

/// Values by name.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    holes: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    uses: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), holes: Vec::new() }
    }
}

fn place(name: u64) -> usize {
    usize::try_from(name & u64::from(u32::MAX)).expect("addresses have 64 bits here")
}

impl<T> Slab<T> {
    /// Keeps `value`; gives its name.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let hole = self.holes.pop().unwrap_or_else(|| {
            self.entries.push(Entry { uses: 0, value: None });
            u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 values")
        });
        let entry = &mut self.entries[hole as usize];
        // Never 0: a name is never as small as a plain number.
        entry.uses = entry.uses.wrapping_add(1).max(1);
        entry.value = Some(value);
        u64::from(entry.uses) << 32 | u64::from(hole)
    }

    /// The value of that name, if there is one.
    pub(crate) fn get(&self, name: u64) -> Option<&T> {
        let entry = self.entries.get(place(name))?;
        if u64::from(entry.uses) == name >> 32 { entry.value.as_ref() } else { None }
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut(place(name))?;
        if u64::from(entry.uses) == name >> 32 { entry.value.as_mut() } else { None }
    }

    /// Gives the value of that name back, if there is one.
    pub(crate) fn remove(&mut self, name: u64) -> Option<T> {
        let entry = self.entries.get_mut(place(name))?;
        if u64::from(entry.uses) != name >> 32 {
            return None;
        }
        let value = entry.value.take()?;
        self.holes.push(u32::try_from(place(name)).expect("32 bits were taken"));
        Some(value)
    }

    /// Every value with its name, in no order that means anything.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        (0u64..).zip(&mut self.entries).filter_map(|(place, entry)| {
            let name = u64::from(entry.uses) << 32 | place;
            entry.value.as_mut().map(|value| (name, value))
        })
    }

    /// Whether there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.len() == self.holes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name without its upper half was taken for the number of a stripe.
    #[test]
    fn a_name_is_never_a_small_number() {
        let mut slab = Slab::default();
        let first = slab.insert(1);
        slab.remove(first);
        slab.entries[0].uses = u32::MAX;
        assert!(slab.insert(2) > u64::from(u32::MAX));
    }

    #[test]
    fn an_old_name_finds_nothing() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        let c = slab.insert('c');
        assert_eq!(c & 0xFFFF_FFFF, a & 0xFFFF_FFFF, "the hole is used again");
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
