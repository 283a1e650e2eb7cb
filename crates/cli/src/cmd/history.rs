//! `braid history`: prints events of arrays and bytes saved by commands, in order of time.

use std::time::{Duration, SystemTime};

use braid_events::{Event, Kind, Moment};
use serde_json::json;

use super::Globals;
use super::events::{ArrayNames, histories, show};
use super::undo::unreadable;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::utc::{format_utc, rfc3339_utc};
use braid_discovery::undo::{self, RecordFile};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name or UUID; without it, all that were served here.
    #[arg(value_name = "ARRAY")]
    array: Option<String>,
    /// Only entries since this time: 2026-11-20T23:36:03Z, or since so long ago: 2days, 3h.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only events of this kind, such as Fail; may be given more than once.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only what commands overwrote, which `braid undo` puts back.
    #[arg(long, conflicts_with = "kind")]
    saved: bool,
}

enum Line {
    Event(Box<Event>),
    Saved(RecordFile),
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let since = args.since.as_deref().map(moment).transpose()?;
    let kinds: Vec<Kind> = args.kind.iter().map(|word| Kind::of(word)).collect();
    if let Some(Kind::Other(word)) = kinds.iter().find(|kind| matches!(kind, Kind::Other(_))) {
        let words: Vec<String> = Kind::NAMED.iter().map(ToString::to_string).collect();
        let error = CliError::new(Code::Usage, format!("there are no events called '{word}'"));
        let error =
            error.because(format!("there are {}, Rebuild00 to Rebuild100", words.join(", ")));
        return Err(error.remedy(Risk::Look, "All of them", "braid history"));
    }
    let is_wanted = |event: &Event| {
        since.is_none_or(|since| event.change.time >= since)
            && (kinds.is_empty() || kinds.contains(&event.change.kind))
    };
    let saved = if kinds.is_empty() { saved(args, since, globals)? } else { Vec::new() };
    let mut events: Vec<Event> = match histories(&globals.state_dir, args.array.as_deref()) {
        // An array that was made and never served has saved records but no history.
        Err(error) if error.code() == Code::NoHistory && !saved.is_empty() => Vec::new(),
        histories => histories?.into_iter().flat_map(|history| history.events).collect(),
    };
    events.retain(|event| !args.saved && is_wanted(event));
    // Events of one array are sorted by number, so that they stay in order even if the clock
    // jumped.
    let mut names = ArrayNames::default();
    events.iter().for_each(|event| names.add(event));
    let is_of_one = events.iter().all(|event| event.uuid == events[0].uuid);
    match is_of_one {
        true => events.sort_by_key(|event| event.id),
        false => events.sort_by_key(|event| event.change.time),
    }
    for line in in_order(events, saved) {
        match line {
            Line::Event(event) => show(&event, &names, globals),
            Line::Saved(file) => show_saved(&file, globals),
        }
    }
    Ok(Exit::Done)
}

/// The saved records of the chosen array. An unreadable record is returned for every choice.
fn saved(
    args: &Args,
    since: Option<Moment>,
    globals: &Globals,
) -> Result<Vec<RecordFile>, CliError> {
    let files = undo::list(&globals.state_dir);
    let mut files = files.map_err(|error| unreadable(&globals.state_dir, &error))?;
    files.retain(|file| {
        let Ok(record) = &file.record else { return args.array.is_none() };
        let is_meant = args.array.as_ref().is_none_or(|array| *array == record.array);
        is_meant && since.is_none_or(|since| time_of(file) >= since)
    });
    Ok(files)
}

fn time_of(file: &RecordFile) -> Moment {
    Moment::from_unix(file.record.as_ref().map_or(Duration::ZERO, |record| record.time))
}

/// Puts each saved record before the first later event.
fn in_order(events: Vec<Event>, saved: Vec<RecordFile>) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut saved = saved.into_iter().peekable();
    for event in events {
        while let Some(file) = saved.next_if(|file| time_of(file) < event.change.time) {
            lines.push(Line::Saved(file));
        }
        lines.push(Line::Event(Box::new(event)));
    }
    lines.extend(saved.map(Line::Saved));
    lines
}

fn show_saved(file: &RecordFile, globals: &Globals) {
    let number = file.number;
    let record = match &file.record {
        Ok(record) => record,
        Err(damage) if globals.json => {
            return outjson!(
                &json!({ "kind": "Saved", "undo": number, "damage": damage.to_string() })
            );
        }
        Err(damage) => return outln!("undo {number}  cannot be undone: {damage}"),
    };
    if globals.json {
        let members = record.devices.iter().map(|device| device.path.display().to_string());
        return outjson!(&json!({
            "kind": "Saved",
            "undo": number,
            "time": rfc3339_utc(record.time.as_secs()),
            "array": record.array,
            "command": record.command,
            "members": members.collect::<Vec<_>>(),
        }));
    }
    let (time, array) = (format_utc(record.time.as_secs()), printable(&record.array));
    outln!("{time}  {array}  undo {number}  {}", printable(&record.command));
}

/// A point in time, or an age such as `3h`.
fn moment(text: &str) -> Result<Moment, CliError> {
    let at = humantime::parse_rfc3339_weak(text).ok();
    let ago = || SystemTime::now().checked_sub(humantime::parse_duration(text).ok()?);
    let at = at.or_else(ago).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    at.map(Moment::from_unix).ok_or_else(|| {
        let error = CliError::new(Code::Usage, format!("'{text}' is not a time"));
        error
            .because(
                "give a time in UTC, such as 2026-11-20T23:36:03Z, or an age, such as 2days \
                      or 3h",
            )
            .remedy(Risk::Look, "See the last day", "braid history --since 1day")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_points_or_how_long_ago() {
        let first = moment("2026-11-20T23:36:03Z").expect("a time");
        assert_eq!(moment("2026-11-20 23:36:03").expect("a time"), first);
        assert!(moment("2days").expect("a time") < moment("3h").expect("a time"));
        for text in ["", "yesterday", "12", "-1h", "2026-13-40", "100000years"] {
            assert_eq!(moment(text).expect_err(text).code(), Code::Usage);
        }
    }
}
