//! A point in time, in UTC, without a time zone database.
//!
//! The Gregorian calendar repeats every 400 years (146,097 days); days are counted from 0000-03-01,
//! so that the leap day is the last day of a year `[check: known_days_come_out]`.

/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: u64 = 719_468;
/// Days in 400 years.
const ERA_DAYS: u64 = 146_097;

/// Converts seconds since 1970 to year, month, day, hour, minute, second.
fn civil(seconds: u64) -> (u64, u64, u64, u64, u64, u64) {
    let (days, rest) = (seconds / 86_400 + DAYS_TO_EPOCH, seconds % 86_400);
    let (era, day_of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let leap_days = day_of_era / 1460 + day_of_era / (ERA_DAYS - 1);
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let (month, carry) =
        if month_from_march < 10 { (month_from_march + 3, 0) } else { (month_from_march - 9, 1) };
    let year = year_of_era + era * 400 + carry;
    (year, month, day, rest / 3600, rest / 60 % 60, rest % 60)
}

/// The time as text for people: `2026-11-20 23:36:03 UTC`.
pub fn format_utc(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(seconds);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The time as text for programs (RFC 3339): `2026-11-20T23:36:03Z`.
pub fn rfc3339_utc(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = civil(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The present time in seconds since 1970; 0 if the clock is set before 1970.
pub fn now_seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |duration| duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::{format_utc, rfc3339_utc};

    #[test]
    fn known_days_come_out() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(format_utc(seconds), text);
        }
        assert_eq!(rfc3339_utc(951_782_399), "2000-02-28T23:59:59Z");
    }

    #[test]
    fn no_number_of_seconds_is_too_large() {
        assert!(format_utc(u64::MAX).ends_with("UTC"));
    }
}
