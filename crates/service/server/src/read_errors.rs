//! The text form of the limit of a member's read errors: `braid serve` takes it at the start,
//! `braid set` later.

use braid_control::model::Settings;
use braid_runtime::{OnReadErrors, ReadErrorLimit};

pub(super) const KEYS: [&str; 2] = ["read-errors-max", "on-read-errors"];

const MOST: u32 = 1_000_000;

pub(super) fn set(limit: &mut ReadErrorLimit, key: &str, value: &str) -> Result<(), String> {
    match (key, value) {
        ("read-errors-max", "off") => limit.most = None,
        ("read-errors-max", _) => {
            let most = value.parse().ok().filter(|most| (1..=MOST).contains(most));
            let most = most.ok_or_else(|| format!("it is a number from 1 to {MOST}, or 'off'"))?;
            limit.most = Some(most);
        }
        ("on-read-errors", "warn") => limit.then = OnReadErrors::Warn,
        ("on-read-errors", "replace") => limit.then = OnReadErrors::Replace,
        ("on-read-errors", "fail") => limit.then = OnReadErrors::Fail,
        ("on-read-errors", _) => return Err("it is 'warn', 'replace' or 'fail'".to_owned()),
        _ => return Err(format!("there is no such setting; there are {}", KEYS.join(", "))),
    }
    Ok(())
}

pub(super) fn to_settings(limit: &ReadErrorLimit) -> Settings {
    let [most, then] = KEYS.map(str::to_owned);
    let word = match limit.then {
        OnReadErrors::Warn => "warn",
        OnReadErrors::Replace => "replace",
        OnReadErrors::Fail => "fail",
    };
    let count = limit.most.map_or_else(|| "off".into(), |most| u64::from(most).into());
    Settings::from([(most, count), (then, word.into())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_taken_or_refused_with_a_reason() {
        let mut limit = ReadErrorLimit::default();
        assert_eq!((limit.most, limit.then), (Some(20), OnReadErrors::Replace));
        for (key, value) in [
            ("read-errors-max", "0"),
            ("read-errors-max", "many"),
            ("on-read-errors", "off"),
            ("colour", "red"),
        ] {
            assert!(!set(&mut limit, key, value).unwrap_err().is_empty(), "{key}={value}");
        }
        assert_eq!(limit, ReadErrorLimit::default(), "what is refused changes nothing");
        for (then, word) in [
            (OnReadErrors::Warn, "warn"),
            (OnReadErrors::Replace, "replace"),
            (OnReadErrors::Fail, "fail"),
        ] {
            set(&mut limit, "on-read-errors", word).unwrap();
            set(&mut limit, "read-errors-max", "3").unwrap();
            assert_eq!(limit, ReadErrorLimit { most: Some(3), then });
            assert_eq!(to_settings(&limit)["on-read-errors"], word.into());
        }
        set(&mut limit, "read-errors-max", "off").unwrap();
        assert_eq!(limit.most, None);
    }
}
