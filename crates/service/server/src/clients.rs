//! The text form of the limits on clients: `braid serve` takes it at the start, `braid set` later.
//!
//! Keys of `set` are the options of `serve` without their dashes. Without a setting, memory for
//! payloads follows from the memory left to this process ([`payload_bytes`]); a setting may not
//! exceed that memory.

use std::time::Duration;

use braid_control::model;
use braid_frontend_nbd::{Settings, Tuner, limits};
use braid_ring::Room;

use super::setting_words::SettingWords;
use braid_console::error::CliError;
use braid_console::output::size::{format_size, parse_size};

pub(super) const KEYS: [&str; 3] = ["connections", "payload-memory", "idle-limit"];

const START_KEYS: [&str; 4] = ["connections", "payload-memory", "idle-limit", "progress-limit"];

/// Upper limit of connections: each connection has a share of the memory for payloads.
const CONNECTIONS_MAX: usize = 16 << 10;

/// Upper limit of a deadline in seconds: a week.
const SECONDS_MAX: u64 = 7 * 24 * 3600;

/// Address space for stacks, heaps and rings beside payloads and cache, if it is limited.
const OTHER_ADDRESSES: u64 = 96 << 20;

/// Default memory for payloads: half of the memory that a cache of `cache_bytes` leaves, up to a
/// fixed useful amount.
pub(super) fn payload_bytes(room: &Room, cache_bytes: u64) -> usize {
    let (memory, _) = room.memory;
    let addresses = room.addresses.map_or(u64::MAX, |(left, _)| {
        left.saturating_sub(cache_bytes.max(left / 8)).saturating_sub(OTHER_ADDRESSES)
    });
    let half = memory.saturating_sub(cache_bytes).min(addresses) / 2;
    let half = usize::try_from(half).unwrap_or(usize::MAX);
    half.clamp(limits::PAYLOAD_BYTES_LEAST, limits::PAYLOAD_BYTES_MAX)
}

pub(super) fn settings(
    words: &SettingWords,
    room: &Room,
    cache_bytes: u64,
) -> Result<Settings, CliError> {
    let payload_bytes_max = payload_bytes(room, cache_bytes);
    let mut settings = Settings { payload_bytes_max, ..Settings::default() };
    let set_one =
        |settings: &mut Settings, key: &str, value: &str| set(settings, (key, value), room.least());
    words.apply(&START_KEYS, &mut settings, set_one)?;
    Ok(settings)
}

/// Changes one setting; the error says why its value is invalid. `left` is the free memory, and
/// `limit` the limit that determines it.
fn set(
    settings: &mut Settings,
    (key, value): (&str, &str),
    (left, limit): (u64, braid_ring::Limit),
) -> Result<(), String> {
    let number = |least: u64, most: u64| {
        let number = value.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("it is a number from {least} to {most}"))
    };
    match key {
        "connections" => {
            let count = number(1, CONNECTIONS_MAX as u64)?;
            settings.connections_max = usize::try_from(count).expect("a small number");
        }
        "payload-memory" => {
            let bytes = parse_size(value).map_err(|error| error.to_string())?;
            let least = limits::PAYLOAD_BYTES_LEAST as u64;
            if bytes < least {
                return Err(format!("the minimum is {}", format_size(least)));
            }
            if bytes > left {
                return Err(format!("{limit} leaves {}", format_size(left)));
            }
            settings.payload_bytes_max =
                usize::try_from(bytes).map_err(|error| error.to_string())?;
        }
        "idle-limit" => {
            let seconds = number(0, SECONDS_MAX)?;
            settings.idle_limit = (seconds > 0).then(|| Duration::from_secs(seconds));
        }
        "progress-limit" => {
            settings.progress_deadline = Duration::from_secs(number(1, SECONDS_MAX)?);
        }
        _ => return Err(format!("there is no such setting; there are {}", KEYS.join(", "))),
    }
    Ok(())
}

/// Changes one setting in a copy of the server's current settings; [`apply`] puts it into effect.
pub(super) fn set_live(settings: &mut Settings, key: &str, value: &str) -> Result<(), String> {
    let (left, limit) = Room::now().least();
    // Payloads have memory already, so add it to the free memory.
    set(settings, (key, value), (left.saturating_add(settings.payload_bytes_max as u64), limit))
}

pub(super) fn apply(tuner: &Tuner, settings: &Settings) {
    let now = tuner.settings();
    if settings.connections_max != now.connections_max {
        super::descriptors::raise(settings.connections_max);
        tuner.set_connections_max(settings.connections_max);
    }
    if settings.payload_bytes_max != now.payload_bytes_max {
        tuner.set_payload_bytes_max(settings.payload_bytes_max);
    }
    if settings.idle_limit != now.idle_limit {
        tuner.set_idle_limit(settings.idle_limit);
    }
}

pub(super) fn to_settings(settings: &Settings) -> model::Settings {
    let [connections, memory, idle] = KEYS.map(str::to_owned);
    model::Settings::from([
        (connections, (settings.connections_max as u64).into()),
        (memory, (settings.payload_bytes_max as u64).into()),
        (idle, settings.idle_limit.map_or(0, |limit| limit.as_secs()).into()),
        ("progress-limit".to_owned(), settings.progress_deadline.as_secs().into()),
    ])
}

/// Limits in use by clients now, and counts of cut or refused clients.
pub(super) fn state(tuner: &Tuner) -> model::Clients {
    let counts = tuner.counts();
    model::Clients {
        connections: counts.connections,
        payload_bytes: counts.bytes_in_flight,
        waiting_for_memory: counts.waiting_for_memory,
        request_bytes_max: tuner.request_bytes_max() as u64,
        requests: counts.requests,
        bytes_read: counts.bytes_read,
        bytes_written: counts.bytes_written,
        refused: counts.refused,
        stalled: counts.cut.stalled,
        idled: counts.cut.idled,
    }
}

#[cfg(test)]
mod tests {
    use braid_ring::Limit;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn each_setting_is_taken_or_refused_with_a_reason() {
        let mut settings = Settings::default();
        let left = (512 * MIB, Limit::ControlGroup);
        for setting in [
            ("connections", "7"),
            ("payload-memory", "16M"),
            ("idle-limit", "300"),
            ("progress-limit", "5"),
        ] {
            set(&mut settings, setting, left).unwrap();
        }
        let expected = Settings {
            connections_max: 7,
            payload_bytes_max: 16 << 20,
            idle_limit: Some(Duration::from_secs(300)),
            progress_deadline: Duration::from_secs(5),
            ..Settings::default()
        };
        assert_eq!(settings, expected);
        for setting in [
            ("connections", "0"),
            ("connections", "99999"),
            ("payload-memory", "1M"),
            ("payload-memory", "17"),
            ("payload-memory", "100T"),
            ("idle-limit", "-1"),
            ("progress-limit", "0"),
            ("colour", "red"),
        ] {
            assert!(!set(&mut settings, setting, left).unwrap_err().is_empty(), "{setting:?}");
        }
        let why = set(&mut settings, ("payload-memory", "1G"), left).unwrap_err();
        assert_eq!(why, "the control group's limit leaves 512 MiB");
        assert_eq!(settings, expected, "what is refused changes nothing");
        set(&mut settings, ("idle-limit", "0"), left).unwrap();
        assert_eq!(settings.idle_limit, None);
    }

    #[test]
    fn memory_is_chosen_from_what_is_left() {
        let room = |memory: u64, addresses: Option<u64>| Room {
            memory: (memory, Limit::Machine),
            addresses: addresses.map(|bytes| (bytes, Limit::Addresses)),
        };
        let chosen = |room: &Room| payload_bytes(room, 64 * MIB) as u64 / MIB;
        assert_eq!(chosen(&room(20_000 * MIB, None)), 192);
        assert_eq!(chosen(&room(384 * MIB, None)), 160);
        assert_eq!(chosen(&room(20_000 * MIB, Some(480 * MIB))), 160);
        assert_eq!(chosen(&room(0, Some(0))), 4, "as little as there can be");
    }
}
