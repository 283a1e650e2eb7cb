//! Flights that are on a ring, by the token of their operation.
//!
//! Places are reused, so that nothing is allocated once the most that was ever out has been.

use crate::lane::Flight;
use crate::sync::Mutex;

/// The flights of one member.
#[derive(Default)]
#[cfg_attr(shuttle, allow(dead_code))]
pub(crate) struct Flights(Mutex<Places>);

#[derive(Default)]
#[cfg_attr(shuttle, allow(dead_code))]
struct Places {
    all: Vec<Option<Flight>>,
    free: Vec<usize>,
}

#[cfg_attr(shuttle, allow(dead_code))]
impl Flights {
    /// Notes one; its token.
    pub(crate) fn add(&self, flight: Flight) -> u64 {
        let mut places = self.0.lock().expect("noting does not panic");
        let Places { all, free } = &mut *places;
        let place = free.pop().unwrap_or_else(|| {
            all.push(None);
            all.len() - 1
        });
        all[place] = Some(flight);
        place as u64
    }

    /// Takes one out again.
    ///
    /// # Panics
    /// When there is none of this token.
    pub(crate) fn take(&self, token: u64) -> Flight {
        let mut places = self.0.lock().expect("noting does not panic");
        let place = usize::try_from(token).expect("one of our tokens");
        let flight = places.all[place].take().expect("a flight ends once");
        places.free.push(place);
        flight
    }
}
