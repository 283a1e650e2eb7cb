//! Time as the driver tells it: nanoseconds since a moment of the driver's choosing.
//!
//! The engine reads no clock. Every `handle_*` that needs the time is given it, and it never goes
//! back; the simulator's time is virtual.

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
