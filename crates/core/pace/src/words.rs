//! Time left, in words: one wording for the command, the status page and the log.
//!
//! The method is on [`RemainingTime`]. The text has at most two units, the larger one first, cut
//! and never rounded up. The time of day is UTC, as everywhere in braid. The text gives it for an
//! end within a day and at least a minute away.
//!
//! ```text
//!   40s left
//!   1h 52m left (done about 17:40 UTC)
//!   3d 04h left
//!   more than 100 days left
//!   stands still
//! ```

use std::fmt;

use crate::progress::RemainingTime;

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

/// A remaining time, and the present time of day, from which the text computes the end.
struct Words {
    remaining: RemainingTime,
    utc_seconds: u64,
}

impl RemainingTime {
    /// The remaining time as text; `utc_seconds` is the present time in seconds since 1970.
    #[must_use]
    pub fn words(self, utc_seconds: u64) -> impl fmt::Display {
        Words { remaining: self, utc_seconds }
    }
}

impl fmt::Display for Words {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemainingTime::Seconds(seconds) = self.remaining else {
            let text = if self.remaining == RemainingTime::Long {
                "more than 100 days left"
            } else {
                "stands still"
            };
            return formatter.write_str(text);
        };
        let (days, hours) = (seconds / DAY, seconds % DAY / HOUR);
        let (minutes, rest) = (seconds % HOUR / MINUTE, seconds % MINUTE);
        match seconds {
            0..MINUTE => write!(formatter, "{rest}s left")?,
            MINUTE..HOUR => write!(formatter, "{minutes}m {rest:02}s left")?,
            HOUR..DAY => write!(formatter, "{hours}h {minutes:02}m left")?,
            _ => write!(formatter, "{days}d {hours:02}h left")?,
        }
        if (MINUTE..DAY).contains(&seconds) {
            let done = self.utc_seconds.saturating_add(seconds) % DAY;
            write!(formatter, " (done about {:02}:{:02} UTC)", done / HOUR, done % HOUR / MINUTE)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_says_when_it_is_done() {
        // 2026-11-20 15:48:00 UTC.
        let now = 1_795_189_680;
        for (left, text) in [
            (RemainingTime::Seconds(0), "0s left"),
            (RemainingTime::Seconds(59), "59s left"),
            (RemainingTime::Seconds(60), "1m 00s left (done about 15:49 UTC)"),
            (RemainingTime::Seconds(119), "1m 59s left (done about 15:49 UTC)"),
            (RemainingTime::Seconds(6720), "1h 52m left (done about 17:40 UTC)"),
            (RemainingTime::Seconds(86_399), "23h 59m left (done about 15:47 UTC)"),
            (RemainingTime::Seconds(86_400), "1d 00h left"),
            (RemainingTime::Seconds(99 * 86_400 + 5 * 3600), "99d 05h left"),
            (RemainingTime::Long, "more than 100 days left"),
            (RemainingTime::Unknown, "stands still"),
        ] {
            assert_eq!(left.words(now).to_string(), text);
        }
        assert!(RemainingTime::Seconds(u64::MAX).words(u64::MAX).to_string().ends_with("left"));
    }
}
