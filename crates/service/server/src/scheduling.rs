//! The text form of the settings of elevators and multiplexer: `braid serve` takes it at the start,
//! `braid set` later. Also the answer to `braid elevators`.
//!
//! Keys of `set` are the options of `serve` without their dashes. The key `elevator:SLOT` sets the
//! elevator of one slot; the key `elevator` sets that of all slots and removes such exceptions.

use braid_control::model::{ElevatorRow, Elevators, SettingValue, Settings, SliceRow, VERSION};
use braid_runtime::{Elevator, ElevatorState, Multiplex, Policy, Scheduling, Volume};

pub(super) const KEYS: [&str; 9] = [
    "elevator",
    "multiplexer",
    "multiplexer-period",
    "multiplexer-share",
    "read-expiry",
    "write-expiry",
    "writes-starved",
    "batch",
    "depth",
];

pub(super) fn is_key(key: &str) -> bool {
    KEYS.contains(&key) || key.starts_with("elevator:")
}

/// Upper limit of an expiry or a period, in milliseconds.
const MS_MAX: u64 = 600_000;

const NS_IN_MS: u64 = 1_000_000;

pub(super) fn set(scheduling: &mut Scheduling, key: &str, value: &str) -> Result<(), String> {
    let tuning = &mut scheduling.tuning;
    match key {
        "elevator" => {
            scheduling.elevator = elevator(value)?;
            scheduling.exceptions.clear();
        }
        "multiplexer" => {
            scheduling.multiplex = match value {
                "auto" => Multiplex::Auto,
                "on" => Multiplex::On,
                "off" => Multiplex::Off,
                _ => return Err("it is 'auto', 'on' or 'off'".to_owned()),
            };
        }
        "multiplexer-period" => {
            let ms = number(value, 1..=10_000).ok_or(
                "it is a number of milliseconds from 1 to \
                                                      10000",
            )?;
            scheduling.turns.period_ns = ms * NS_IN_MS;
        }
        "multiplexer-share" => {
            let why = "it is two percentages such as 10-70, of which the second is at most 99";
            let (least, most) = value.split_once('-').ok_or(why)?;
            let most = number(most, 0..=99).ok_or(why)?;
            let least = number(least, 0..=most).ok_or(why)?;
            let permille = |share: u64| u32::try_from(10 * share).expect("a percentage");
            scheduling.turns.share_min_permille = permille(least);
            scheduling.turns.share_max_permille = permille(most);
        }
        "read-expiry" => tuning.read_expiry_ns = milliseconds(value)?,
        "write-expiry" => tuning.write_expiry_ns = milliseconds(value)?,
        "writes-starved" => tuning.writes_starved = count(value, 0)?,
        "batch" => tuning.batch = count(value, 1)?,
        "depth" => tuning.depth = count(value, 1)?,
        _ => {
            let slot = key.strip_prefix("elevator:").and_then(|slot| slot.parse().ok());
            let slot = slot.ok_or("it is elevator:SLOT, with the number of a slot")?;
            scheduling.exceptions.insert(slot, elevator(value)?);
        }
    }
    Ok(())
}

/// Checks that each `elevator:SLOT` setting names a slot with a member. The error has the setting's
/// key and the reason.
pub(super) fn check_slots(
    scheduling: &Scheduling,
    volume: &Volume,
) -> Result<(), (String, String)> {
    let known: Vec<u16> = volume.elevators().iter().filter_map(|one| one.slot).collect();
    match scheduling.exceptions.keys().find(|slot| !known.contains(slot)) {
        Some(slot) => {
            Err((format!("elevator:{slot}"), format!("there is no member in slot {slot}")))
        }
        None => Ok(()),
    }
}

fn elevator(value: &str) -> Result<Elevator, String> {
    match value {
        "auto" => Ok(Elevator::Auto),
        "deadline" => Ok(Elevator::Deadline),
        "none" => Ok(Elevator::None),
        _ => Err("it is 'auto', 'deadline' or 'none'".to_owned()),
    }
}

fn number(value: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    value.parse().ok().filter(|number| range.contains(number))
}

/// Parses milliseconds; returns nanoseconds, or `None` for `auto`.
fn milliseconds(value: &str) -> Result<Option<u64>, String> {
    if value == "auto" {
        return Ok(None);
    }
    let ms = number(value, 0..=MS_MAX).ok_or(
        "it is 'auto', or a number of milliseconds, at most \
                                              600000",
    )?;
    Ok(Some(ms * NS_IN_MS))
}

fn count(value: &str, least: u64) -> Result<Option<u32>, String> {
    if value == "auto" {
        return Ok(None);
    }
    let count = number(value, least..=4096).and_then(|count| u32::try_from(count).ok());
    count.map(Some).ok_or_else(|| format!("it is 'auto', or a number from {least} to 4096"))
}

fn word(elevator: Elevator) -> &'static str {
    match elevator {
        Elevator::Auto => "auto",
        Elevator::Deadline => "deadline",
        Elevator::None => "none",
    }
}

pub(super) fn to_settings(scheduling: &Scheduling) -> Settings {
    let (tuning, turns) = (&scheduling.tuning, &scheduling.turns);
    let or_auto = |value: Option<u64>| value.map_or_else(|| "auto".into(), SettingValue::Number);
    let ms = |value: Option<u64>| or_auto(value.map(|ns| ns / NS_IN_MS));
    let share = format!("{}-{}", turns.share_min_permille / 10, turns.share_max_permille / 10);
    let multiplexer = match scheduling.multiplex {
        Multiplex::Auto => "auto",
        Multiplex::On => "on",
        Multiplex::Off => "off",
    };
    let exceptions = scheduling.exceptions.iter();
    let exceptions =
        exceptions.map(|(slot, elevator)| (format!("elevator:{slot}"), word(*elevator).into()));
    let others = [
        ("elevator", word(scheduling.elevator).into()),
        ("multiplexer", multiplexer.into()),
        ("multiplexer-period", (turns.period_ns / NS_IN_MS).into()),
        ("multiplexer-share", share.into()),
        ("read-expiry", ms(tuning.read_expiry_ns)),
        ("write-expiry", ms(tuning.write_expiry_ns)),
        ("writes-starved", or_auto(tuning.writes_starved.map(u64::from))),
        ("batch", or_auto(tuning.batch.map(u64::from))),
        ("depth", or_auto(tuning.depth.map(u64::from))),
    ];
    exceptions.chain(others.map(|(key, value)| (key.to_owned(), value))).collect()
}

/// The state that `braid elevators` shows.
pub(super) fn state(volume: &Volume, name: &str, uuid: &str) -> Elevators {
    let slice = |slice: &braid_runtime::Slice| SliceRow {
        start_ns: slice.start_ns,
        share_permille: slice.share_permille,
        flusher_ns: slice.flusher_ns,
        busy_reads_ns: slice.busy_reads_ns,
        busy_writes_ns: slice.busy_writes_ns,
        held_reads: slice.held_reads,
        held_writes: slice.held_writes,
    };
    Elevators {
        version: VERSION,
        name: name.to_owned(),
        uuid: uuid.to_owned(),
        settings: to_settings(&volume.scheduling()),
        is_multiplexed: volume.is_multiplexed(),
        elevators: volume.elevators().iter().map(row).collect(),
        slices: volume.slices().iter().map(slice).collect(),
    }
}

fn row(state: &ElevatorState) -> ElevatorRow {
    let (settings, counters) = (&state.settings, &state.counters);
    let elevator = &counters.elevator;
    ElevatorRow {
        slot: state.slot,
        rotational: state.rotational,
        policy: match settings.policy {
            Policy::Deadline => "deadline",
            Policy::None => "none",
        }
        .to_owned(),
        depth: settings.depth.total,
        read_expiry_ms: settings.read_expiry_ns / NS_IN_MS,
        write_expiry_ms: settings.write_expiry_ns / NS_IN_MS,
        waiting_reads: counters.waiting_reads,
        waiting_writes: counters.waiting_writes,
        out: counters.out,
        inserted: elevator.inserted,
        dispatched: elevator.dispatched,
        merged_back: elevator.merged_back,
        merged_front: elevator.merged_front,
        joined: elevator.joined,
        batches: elevator.batches,
        expired: elevator.expired,
        starved: elevator.starved,
        aged: elevator.aged,
        drained: counters.drained,
        drained_batches: counters.drained_batches,
        drained_sizes: counters.drained_sizes.to_vec(),
        dispatched_batches: counters.dispatched_batches,
        owner_misses: counters.owner_misses,
        read_bytes: state.traffic.read_bytes,
        written_bytes: state.traffic.written_bytes,
        errors: state.traffic.errors,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_taken_or_refused_with_a_reason() {
        let mut scheduling = Scheduling::default();
        let taken = [
            ("elevator", "deadline"),
            ("elevator:3", "none"),
            ("multiplexer", "on"),
            ("multiplexer-period", "50"),
            ("multiplexer-share", "20-80"),
            ("read-expiry", "100"),
            ("write-expiry", "auto"),
            ("writes-starved", "0"),
            ("batch", "4"),
            ("depth", "12"),
        ];
        for (key, value) in taken {
            assert!(is_key(key));
            set(&mut scheduling, key, value).unwrap();
            let said = to_settings(&scheduling)[key].to_string();
            assert_eq!(said, value, "{key} comes back as it was set");
        }
        assert_eq!(scheduling.turns.share_max_permille, 800);
        let before = scheduling.clone();
        for (key, value) in [
            ("elevator", "cfq"),
            ("elevator:x", "none"),
            ("elevator:70000", "none"),
            ("elevator:1", "maybe"),
            ("multiplexer", "yes"),
            ("multiplexer-period", "0"),
            ("multiplexer-share", "70-10"),
            ("multiplexer-share", "10-100"),
            ("multiplexer-share", "10"),
            ("read-expiry", "-1"),
            ("batch", "0"),
            ("depth", "4097"),
        ] {
            assert!(!set(&mut scheduling, key, value).unwrap_err().is_empty(), "{key}={value}");
        }
        assert_eq!(scheduling, before, "what is refused changes nothing");
        set(&mut scheduling, "elevator", "auto").unwrap();
        assert!(scheduling.exceptions.is_empty(), "it is for all");
    }
}
