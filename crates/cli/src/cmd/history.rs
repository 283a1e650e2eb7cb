//! `braid history`: what has happened to arrays, as far as it is kept.

use std::time::SystemTime;

use braid_telling::{Event, Kind, Moment};

use super::Globals;
use super::events::{histories, show};
use crate::error::code::Code;
use crate::error::{CliError, Exit, Risk};

/// Arguments of `braid history`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name or UUID; without it, all that were served here.
    #[arg(value_name = "ARRAY")]
    array: Option<String>,
    /// Only from then on: 2026-11-20T23:36:03Z, or how long ago: 2days, 3h.
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only events of this kind, such as Fail; may be given more than once.
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
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
    let histories = histories(&globals.state_dir, args.array.as_deref())?;
    let mut events: Vec<Event> =
        histories.into_iter().flat_map(|history| history.events).filter(is_wanted).collect();
    // Those of one array stay in their order, whatever the clock did.
    events.sort_by_key(|event| event.change.time);
    if args.array.is_some() {
        events.sort_by_key(|event| event.id);
    }
    events.iter().for_each(|event| show(event, globals));
    Ok(Exit::Done)
}

/// A point in time, or how long ago it is.
fn moment(text: &str) -> Result<Moment, CliError> {
    let at = humantime::parse_rfc3339_weak(text).ok();
    let ago = || SystemTime::now().checked_sub(humantime::parse_duration(text).ok()?);
    let at = at.or_else(ago).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    at.map(Moment::from_unix).ok_or_else(|| {
        let error = CliError::new(Code::Usage, format!("'{text}' is no point in time"));
        error
            .because("a time in UTC is wanted, such as 2026-11-20T23:36:03Z, or how long ago, such as 2days or 3h")
            .remedy(Risk::Look, "Of the last day", "braid history --since 1day")
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
