//! The text form of the time limits for silent members: `braid serve` takes it at the start, `braid
//! set` later.

use braid_control::model::Settings;
use braid_runtime::Patience;

pub(super) const KEYS: [&str; 2] = ["away-after-ms", "away-spare-after-ms"];

/// The word for no time limit: the array never treats a silent member as away.
const NEVER: &str = "never";

/// Smallest allowed limit, in milliseconds. The array looks at members twice a second, so a smaller
/// limit would mean nothing.
const LEAST_MS: u64 = 1000;

const MOST_MS: u64 = 86_400_000;

pub(super) fn set(settings: &mut Patience, key: &str, value: &str) -> Result<(), String> {
    let number = |least: u64, or: &str| {
        let number = value.parse().ok().filter(|number| (least..=MOST_MS).contains(number));
        number
            .ok_or_else(|| format!("it is a number of milliseconds from {least} to {MOST_MS}{or}"))
    };
    match (key, value) {
        ("away-after-ms", NEVER) => settings.silence_ms = None,
        ("away-after-ms", _) => settings.silence_ms = Some(number(LEAST_MS, ", or 'never'")?),
        ("away-spare-after-ms", _) => settings.spare_after_ms = number(0, "")?,
        _ => return Err(format!("there is no such setting; there are {}", KEYS.join(", "))),
    }
    Ok(())
}

pub(super) fn to_settings(settings: &Patience) -> Settings {
    let [after, spare_after] = KEYS.map(str::to_owned);
    Settings::from([
        (after, settings.silence_ms.map_or_else(|| NEVER.into(), Into::into)),
        (spare_after, settings.spare_after_ms.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_taken_or_refused_with_a_reason() {
        let mut settings = Patience::default();
        for (key, value) in [("away-after-ms", "1000"), ("away-spare-after-ms", "0")] {
            set(&mut settings, key, value).unwrap();
        }
        assert_eq!(settings, Patience { silence_ms: Some(1000), spare_after_ms: 0 });
        set(&mut settings, "away-after-ms", "never").unwrap();
        let expected = Patience { silence_ms: None, spare_after_ms: 0 };
        for (key, value) in [
            ("away-after-ms", "999"),
            ("away-after-ms", "soon"),
            ("away-spare-after-ms", "never"),
            ("away-spare-after-ms", "86400001"),
            ("colour", "red"),
        ] {
            assert!(!set(&mut settings, key, value).unwrap_err().is_empty(), "{key}={value}");
        }
        assert_eq!(settings, expected, "what is refused changes nothing");
    }
}
