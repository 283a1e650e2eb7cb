//! Time as the driver passes it: nanoseconds since a moment of the driver's choosing.
//!
//! The engine reads no clock. The driver passes the time to every `handle_*` that needs it, and
//! that time never goes back. The simulator's time is virtual.

/// Nanoseconds since the driver's origin. Never goes back between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// This moment plus `milliseconds`.
    #[must_use]
    pub fn plus_milliseconds(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds.saturating_mul(1_000_000)))
    }
}
