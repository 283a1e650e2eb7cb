//! What is on a ring, by the token of its operation.
//!
//! Places are reused, so that nothing is allocated once the most that was ever out has been.

use crate::sync::Mutex;

/// Things that have been given away, and come back by their tokens.
#[cfg_attr(shuttle, allow(dead_code))]
pub(crate) struct Places<T>(Mutex<All<T>>);

#[cfg_attr(shuttle, allow(dead_code))]
struct All<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(Mutex::new(All { places: Vec::new(), free: Vec::new() }))
    }
}

#[cfg_attr(shuttle, allow(dead_code))]
impl<T> Places<T> {
    /// Notes one; its token.
    pub(crate) fn add(&self, one: T) -> u64 {
        let mut all = self.0.lock().expect("noting does not panic");
        let All { places, free } = &mut *all;
        let place = free.pop().unwrap_or_else(|| {
            places.push(None);
            places.len() - 1
        });
        places[place] = Some(one);
        place as u64
    }

    /// Takes one out again.
    ///
    /// # Panics
    /// When there is none of this token.
    pub(crate) fn take(&self, token: u64) -> T {
        let mut all = self.0.lock().expect("noting does not panic");
        let place = usize::try_from(token).expect("one of our tokens");
        let one = all.places[place].take().expect("what is out comes back once");
        all.free.push(place);
        one
    }
}
