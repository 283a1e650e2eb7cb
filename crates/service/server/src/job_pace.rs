//! The text form of the settings for how jobs yield to clients: `braid serve` takes it at the
//! start, `braid set` later.

use braid_control::model::{SettingValue, Settings};
use braid_runtime::GovernorSettings;

use braid_console::output::size::parse_size;

pub(super) const KEYS: [&str; 3] = ["job-latency-factor", "job-floor", "job-ceiling"];

/// Upper limit of the latency factor, in thousandths; the word `any` means no limit.
const FACTOR_MAX_PERMILLE: u32 = 1_000_000;

/// Upper limit of bytes per second: more than any member transfers.
const BYTES_MAX: u64 = 1 << 40;

pub(super) fn set(settings: &mut GovernorSettings, key: &str, value: &str) -> Result<(), String> {
    let size = || match parse_size(value) {
        Ok(bytes) if bytes > BYTES_MAX => Err("it is 1T at most".to_owned()),
        size => size.map_err(|error| error.to_string()),
    };
    match (key, value) {
        ("job-latency-factor", "any") => {
            settings.latency_factor_permille = GovernorSettings::ANY_LATENCY;
        }
        ("job-latency-factor", _) => settings.latency_factor_permille = permille(value)?,
        ("job-floor", _) => settings.floor_bytes_per_second = size()?,
        ("job-ceiling", "none") => settings.ceiling_bytes_per_second = u64::MAX,
        ("job-ceiling", _) => settings.ceiling_bytes_per_second = size()?,
        _ => return Err(format!("there is no such setting; there are {}", KEYS.join(", "))),
    }
    Ok(())
}

/// Parses a number with at most three decimals; returns thousandths.
fn permille(value: &str) -> Result<u32, String> {
    let why = "it is 'any', or a number from 1 to 1000 with at most three digits behind the point";
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let is_number = |digits: &str, most: usize| {
        (1..=most).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    if !is_number(whole, 4) || !is_number(fraction, 3) {
        return Err(why.to_owned());
    }
    let permille = format!("{whole}{fraction:0<3}").parse().map_err(|_| why)?;
    (1000..=FACTOR_MAX_PERMILLE).contains(&permille).then_some(permille).ok_or(why.to_owned())
}

pub(super) fn to_settings(settings: &GovernorSettings) -> Settings {
    let [factor, floor, ceiling] = KEYS.map(str::to_owned);
    let permille = settings.latency_factor_permille;
    let factor_words = match (permille / 1000, permille % 1000) {
        _ if !settings.minds_clients() => "any".into(),
        (whole, 0) => SettingValue::from(u64::from(whole)),
        (whole, rest) => format!("{whole}.{rest:03}").trim_end_matches('0').into(),
    };
    let ceiling_words = match settings.ceiling_bytes_per_second {
        u64::MAX => "none".into(),
        bytes => SettingValue::from(bytes),
    };
    Settings::from([
        (factor, factor_words),
        (floor, settings.floor_bytes_per_second.into()),
        (ceiling, ceiling_words),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_taken_as_it_is_shown_or_refused_with_a_reason() {
        let mut settings = GovernorSettings::default();
        for (key, value, shown) in [
            ("job-latency-factor", "3", "3"),
            ("job-latency-factor", "1.5", "1.5"),
            ("job-latency-factor", "1.025", "1.025"),
            ("job-latency-factor", "1000", "1000"),
            ("job-latency-factor", "any", "any"),
            ("job-floor", "0B", "0"),
            ("job-floor", "20M", "20971520"),
            ("job-ceiling", "1G", "1073741824"),
            ("job-ceiling", "none", "none"),
        ] {
            set(&mut settings, key, value).unwrap();
            assert_eq!(to_settings(&settings)[key].to_string(), shown, "{key}={value}");
        }
        let before = settings;
        for (key, value) in [
            ("job-latency-factor", "0.9"),
            ("job-latency-factor", "1000.001"),
            ("job-latency-factor", "1.0001"),
            ("job-latency-factor", "1."),
            ("job-latency-factor", ".5"),
            ("job-latency-factor", "+2"),
            ("job-floor", "none"),
            ("job-ceiling", "fast"),
            ("job-ceiling", "2T"),
            ("colour", "red"),
        ] {
            assert!(!set(&mut settings, key, value).unwrap_err().is_empty(), "{key}={value}");
        }
        assert_eq!(settings, before, "what is refused changes nothing");
    }
}
