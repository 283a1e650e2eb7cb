//! Schedule of an array's checks: a pure function of the setting, the last end, and the given time.
//!
//! ```text
//!   next check = the later of: when that was set · when the last check was over    + check-every
//! ```
//!
//! A check that a lost member or a stop interrupts is not over: it stays due, and begins again as
//! soon as possible. A check that an operator ended is over: the next check comes at its usual
//! time.
//!
//! Invariants
//! - A clock that is wrong for a while delays a check by at most one interval
//!   `[check: a_clock_that_was_wrong_delays_no_check_for_long]`.

/// Shortest and longest allowed interval between two checks, in seconds.
const EVERY_SECONDS: std::ops::RangeInclusive<u64> = 3600..=10 * 365 * 86_400;

/// Units of the interval's text form, in seconds, the largest first.
const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];

/// When the next check is due: an interval, and the time from which it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Seconds between two checks; `None` if checks need a request.
    pub(crate) every_seconds: Option<u64>,
    /// The time from which the interval counts, in seconds since 1970.
    pub(crate) counted_from: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Never,
    At(u64),
    Since(u64),
}

impl Schedule {
    pub(crate) const KEY: &str = "check-every";

    /// When the next check is due, given the current time.
    pub(crate) fn due(&mut self, now_seconds: u64) -> Due {
        // If the noted time is in the future, the clock was ahead when the time was noted.
        self.counted_from = self.counted_from.min(now_seconds);
        let Some(every_seconds) = self.every_seconds else { return Due::Never };
        let at = self.counted_from.saturating_add(every_seconds);
        if at <= now_seconds { Due::Since(at) } else { Due::At(at) }
    }

    /// Sets the interval between checks. It counts from the same time as the interval before, or
    /// from now if checks were off.
    #[must_use]
    pub(crate) fn set(self, every_seconds: Option<u64>, now_seconds: u64) -> Self {
        let was_on = self.every_seconds.is_some();
        let counted_from = if was_on { self.counted_from } else { now_seconds };
        Self { every_seconds, counted_from }
    }

    pub(crate) fn note_over(&mut self, now_seconds: u64) {
        self.counted_from = now_seconds;
    }

    /// The interval in words, such as `30d` or `off`.
    pub(crate) fn words(every_seconds: Option<u64>) -> String {
        let Some(seconds) = every_seconds else { return "off".to_owned() };
        let fits = |unit: &&(u64, &str)| seconds.is_multiple_of(unit.0);
        let (unit_seconds, unit) = UNITS.iter().find(fits).expect("seconds fit");
        format!("{}{unit}", seconds / unit_seconds)
    }

    /// Parses the interval between checks.
    ///
    /// # Errors
    /// The text is no time, or is out of range; the error gives the range.
    pub(crate) fn parse(text: &str) -> Result<Option<u64>, String> {
        if text == "off" {
            return Ok(None);
        }
        let seconds = humantime::parse_duration(text).ok().map(|every| every.as_secs());
        let seconds = seconds.filter(|seconds| EVERY_SECONDS.contains(seconds));
        let why = "it is 'off', or a time from 1h to 3650d, such as 30d";
        seconds.map(Some).ok_or_else(|| why.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const START: u64 = 1_795_362_480;

    fn monthly() -> Schedule {
        Schedule::default().set(Some(30 * DAY), START)
    }

    #[test]
    fn a_check_is_due_when_the_time_has_passed_and_again_when_one_was_over() {
        let mut schedule = monthly();
        let first = START + 30 * DAY;
        assert_eq!(schedule.due(START), Due::At(first));
        assert_eq!(schedule.due(first - 1), Due::At(first));
        assert_eq!(schedule.due(first), Due::Since(first));
        // A check that is due but cannot begin for a day stays due.
        assert_eq!(schedule.due(first + DAY), Due::Since(first));
        schedule.note_over(first + DAY);
        assert_eq!(schedule.due(first + DAY), Due::At(first + 31 * DAY));
        assert_eq!(Schedule::default().due(u64::MAX), Due::Never);
    }

    #[test]
    fn what_is_set_anew_counts_from_the_last_check_and_what_is_turned_on_from_then() {
        let mut weekly = monthly().set(Some(7 * DAY), START + 8 * DAY);
        assert_eq!(weekly.due(START + 8 * DAY), Due::Since(START + 7 * DAY));
        let off = weekly.set(None, START + 9 * DAY);
        let mut on = off.set(Some(7 * DAY), START + 100 * DAY);
        assert_eq!(on.due(START + 100 * DAY), Due::At(START + 107 * DAY));
    }

    #[test]
    fn a_clock_that_was_wrong_delays_no_check_for_long() {
        let mut schedule = monthly();
        schedule.note_over(START + 9000 * DAY);
        assert_eq!(schedule.due(START), Due::At(START + 30 * DAY));
        assert_eq!(schedule.due(START + 30 * DAY), Due::Since(START + 30 * DAY));
        // The last possible time causes no overflow.
        schedule.note_over(u64::MAX);
        assert_eq!(schedule.due(u64::MAX), Due::Since(u64::MAX));
    }

    #[test]
    fn words_are_taken_as_they_are_shown() {
        for (text, seconds) in
            [("off", None), ("30d", Some(30 * DAY)), ("36h", Some(36 * 3600)), ("1h", Some(3600))]
        {
            assert_eq!(Schedule::parse(text), Ok(seconds));
            assert_eq!(Schedule::words(seconds), text);
        }
        assert_eq!(Schedule::parse("1week 1day"), Ok(Some(8 * DAY)));
        assert_eq!(Schedule::words(Some(3601)), "3601s");
        for text in ["", "30", "0d", "59m", "4000d", "-1d", "soon", "99999999999999999999d"] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }
}
