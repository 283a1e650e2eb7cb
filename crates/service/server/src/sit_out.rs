//! The text form of the setting for when to read around a slow member: `braid serve` takes it at
//! the start, `braid set` later.

use braid_control::model::Settings;
use braid_runtime::SitOut;

pub(super) const KEYS: [&str; 3] = ["sit-out", "sit-out-factor", "sit-out-min-ms"];

pub(super) fn set(settings: &mut SitOut, key: &str, value: &str) -> Result<(), String> {
    let number = |least: u64, most: u64| {
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("it is a number from {least} to {most}"))
    };
    match (key, value) {
        ("sit-out", "on") => settings.is_on = true,
        ("sit-out", "off") => settings.is_on = false,
        ("sit-out", _) => return Err("it is 'on' or 'off'".to_owned()),
        ("sit-out-factor", _) => {
            settings.factor = u32::try_from(number(2, 1000)?).expect("at most a thousand");
        }
        ("sit-out-min-ms", _) => settings.min_ms = number(1, 3_600_000)?,
        _ => return Err(format!("there is no such setting; there are {}", KEYS.join(", "))),
    }
    Ok(())
}

pub(super) fn to_settings(settings: &SitOut) -> Settings {
    let [is_on, factor, min_ms] = KEYS.map(str::to_owned);
    Settings::from([
        (is_on, if settings.is_on { "on" } else { "off" }.into()),
        (factor, u64::from(settings.factor).into()),
        (min_ms, settings.min_ms.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_taken_or_refused_with_a_reason() {
        let mut settings = SitOut::default();
        for (key, value) in [("sit-out", "off"), ("sit-out-factor", "3"), ("sit-out-min-ms", "20")]
        {
            set(&mut settings, key, value).unwrap();
        }
        let expected = SitOut { is_on: false, factor: 3, min_ms: 20, ..SitOut::default() };
        assert_eq!(settings, expected);
        for (key, value) in [
            ("sit-out", "maybe"),
            ("sit-out-factor", "1"),
            ("sit-out-factor", "x"),
            ("sit-out-min-ms", "0"),
            ("sit-out-min-ms", "99999999"),
            ("colour", "red"),
        ] {
            assert!(!set(&mut settings, key, value).unwrap_err().is_empty(), "{key}={value}");
        }
        assert_eq!(settings, expected, "what is refused changes nothing");
    }
}
