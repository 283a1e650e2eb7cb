//! The engine's time from the operating system's monotonic clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_engine::Instant;
use braid_ondisk::Timestamp;

use crate::sync::Moment;

/// A clock whose origin is the moment it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Moment,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: Moment::now() }
    }

    /// Now, in the engine's time.
    pub(crate) fn now(&self) -> Instant {
        let nanoseconds = self.origin.elapsed().as_nanos();
        Instant(u64::try_from(nanoseconds).expect("584 years do not pass"))
    }

    /// How long until `moment`; zero when it has passed.
    pub(crate) fn until(&self, moment: Instant) -> Duration {
        Duration::from_nanos(moment.0.saturating_sub(self.now().0))
    }

    /// `moment` as a time of the operating system; `None` if it is out of that type's range.
    pub(crate) fn at(&self, moment: Instant) -> Option<std::time::Instant> {
        self.origin.checked_add(Duration::from_nanos(moment.0))
    }
}

/// The time of day, for superblocks.
pub(crate) fn time_of_day() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs(), microseconds: since.subsec_micros() }
}
