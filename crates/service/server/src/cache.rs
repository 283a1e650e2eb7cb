//! The text form of the stripe cache's settings: `braid serve` takes it at the start, `braid set`
//! later.
//!
//! Keys of `set` are the options of `serve` without their dashes, so both share one list of keys.

use std::ops::RangeInclusive;

use braid_control::model::Settings;
use braid_geometry::Geometry;
use braid_ring::{Limit, Room};
use braid_runtime::{Cache, CacheMode};

use super::setting_words::SettingWords;
use braid_console::error::CliError;
use braid_console::output::size::{format_size, parse_size};

pub(crate) const LIVE_KEYS: [&str; 5] =
    ["cache", "cache-size", "bypass-threshold", "dirty-limit", "dirty-age"];

pub(super) const START_KEYS: [&str; 6] =
    ["cache", "cache-size", "stripe-unit", "bypass-threshold", "dirty-limit", "dirty-age"];

/// Smallest and largest stripe unit, in bytes.
const UNIT_BYTES: std::ops::RangeInclusive<u64> = 4096..=65536;

pub(super) struct Bounds {
    /// Cache sizes, in bytes, that the array can use.
    pub(super) range: RangeInclusive<u64>,
    /// Free memory in bytes, and the limit that determines it.
    pub(super) left: (u64, Limit),
}

/// Checks whether a memory setting is possible; the error names the allowed bound. `key` names the
/// changed setting.
pub(super) fn check(cache: &Cache, key: &str, bounds: &Bounds) -> Result<(), String> {
    let (left, limit) = &bounds.left;
    let words = |bytes: u64| format_size(bytes);
    match key {
        "cache-size" if cache.memory_bytes < *bounds.range.start() => {
            let least = words(*bounds.range.start());
            Err(format!("this array needs at least {least}"))
        }
        "cache-size" if cache.memory_bytes > (*bounds.range.end()).min(*left) => {
            if *bounds.range.end() < *left {
                let most = words(*bounds.range.end());
                return Err(format!("this array can use at most {most}"));
            }
            Err(format!("{} are available ({limit})", words(*left)))
        }
        "dirty-limit" if cache.dirty_bytes_max > *left => {
            Err(format!("{} are available ({limit})", words(*left)))
        }
        _ => Ok(()),
    }
}

/// Whether this machine has the cache memory that the settings in `words` request.
pub(super) fn check_words(
    words: &SettingWords,
    cache: &Cache,
    geometry: &Geometry,
    shards: u16,
) -> Result<(), CliError> {
    let range = cache.memory_range(geometry, shards);
    let bounds = Bounds { range, left: Room::now().least() };
    words.check(&["cache-size", "dirty-limit"], |key| check(cache, key, &bounds))
}

pub(super) fn set(cache: &mut Cache, key: &str, value: &str) -> Result<(), String> {
    let size = || parse_size(value).map_err(|error| error.to_string());
    match key {
        "cache" => {
            cache.mode = match value {
                "writeback" => CacheMode::WriteBack,
                "writethrough" => CacheMode::WriteThrough,
                _ => return Err("it is 'writeback' or 'writethrough'".to_owned()),
            };
        }
        "cache-size" => cache.memory_bytes = size()?,
        "stripe-unit" => {
            let bytes = size()?;
            if !bytes.is_power_of_two() || !UNIT_BYTES.contains(&bytes) {
                return Err("it is 4K, 8K, 16K, 32K or 64K".to_owned());
            }
            cache.unit_bytes = u32::try_from(bytes).expect("64K at most");
        }
        "bypass-threshold" => {
            cache.bypass_threshold =
                value.parse().map_err(|_| "it is a number, 0 or more".to_owned())?;
        }
        "dirty-limit" => cache.dirty_bytes_max = size()?,
        "dirty-age" => {
            let age = value.parse().ok().filter(|age| *age <= 3_600_000);
            cache.age_max_ms = age.ok_or(
                "it is a number of milliseconds, at most an hour \
                                          (3600000)",
            )?;
        }
        _ => return Err(format!("there is no such setting; there are {}", LIVE_KEYS.join(", "))),
    }
    Ok(())
}

pub(super) fn to_settings(cache: &Cache) -> Settings {
    let mode = match cache.mode {
        CacheMode::WriteBack => "writeback",
        CacheMode::WriteThrough => "writethrough",
    };
    Settings::from([
        ("cache".to_owned(), mode.into()),
        ("cache-size".to_owned(), cache.memory_bytes.into()),
        ("stripe-unit".to_owned(), u64::from(cache.unit_bytes).into()),
        ("bypass-threshold".to_owned(), u64::from(cache.bypass_threshold).into()),
        ("dirty-limit".to_owned(), cache.dirty_bytes_max.into()),
        ("dirty-age".to_owned(), cache.age_max_ms.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_had_or_used_is_refused_with_what_can() {
        let with = |memory_bytes, dirty_bytes_max| Cache {
            memory_bytes,
            dirty_bytes_max,
            ..Cache::default()
        };
        let left = |bytes| Bounds { range: 1 << 20..=1 << 40, left: (bytes, Limit::Machine) };
        let refused = |cache: Cache, key, left_bytes| {
            check(&cache, key, &left(left_bytes)).err().unwrap_or_default()
        };
        assert_eq!(refused(with(1 << 30, 0), "cache-size", 1 << 30), "");
        assert_eq!(refused(with(1 << 20, 0), "cache-size", 1 << 30), "");
        assert!(refused(with((1 << 20) - 1, 0), "cache-size", 1 << 30).contains("at least 1 MiB"));
        let most = refused(with(1 << 31, 0), "cache-size", 1 << 30);
        assert_eq!(most, "1 GiB are available (available memory)");
        assert!(refused(with(1 << 41, 0), "cache-size", 1 << 42).contains("at most 1 TiB"));
        assert!(refused(with(0, 1 << 31), "dirty-limit", 1 << 30).contains("1 GiB"));
        assert_eq!(refused(with(0, 1 << 31), "dirty-age", 1 << 30), "");
    }

    #[test]
    fn each_setting_is_taken_or_refused_with_a_reason() {
        let mut cache = Cache::default();
        for (key, value) in [
            ("cache", "writethrough"),
            ("cache-size", "16M"),
            ("stripe-unit", "4K"),
            ("bypass-threshold", "0"),
            ("dirty-limit", "1M"),
            ("dirty-age", "20"),
        ] {
            set(&mut cache, key, value).unwrap();
        }
        let expected = Cache {
            mode: CacheMode::WriteThrough,
            memory_bytes: 16 << 20,
            unit_bytes: 4096,
            bypass_threshold: 0,
            dirty_bytes_max: 1 << 20,
            age_max_ms: 20,
        };
        assert_eq!(cache, expected);
        for (key, value) in [
            ("cache", "none"),
            ("cache-size", "16"),
            ("cache-size", "-1M"),
            ("stripe-unit", "5K"),
            ("stripe-unit", "1M"),
            ("bypass-threshold", "-1"),
            ("dirty-age", "99999999999"),
            ("dirty-age", ""),
            ("colour", "red"),
        ] {
            assert!(!set(&mut cache, key, value).unwrap_err().is_empty(), "{key}={value}");
        }
        assert_eq!(cache, expected, "what is refused changes nothing");
    }
}
