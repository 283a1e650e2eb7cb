//! `braid wait`: returns when an array reaches the given state.
//!
//! `wait` polls the array ([`super::poll`]), and a pure function judges each answer. It does not
//! wait for a state that needs an operator: a paused job, a recovery that failed, an array without
//! a device to rebuild onto.

use std::time::{Duration, Instant};

use braid_control::model::{Array, Job, JobKind, JobState, SlotState, State};

use super::Globals;
use super::poll::{PollResult, PollState, poll};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_discovery::running::{self, RunningArray};
use braid_discovery::status::words::{
    Manner, doing_word, found_words, progress_words, sectors_words, state_word,
};

/// Interval of checking for a server.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// The state to wait for.
    #[arg(long = "for", value_enum, value_name = "WHAT", default_value_t = For::Idle)]
    what: For,
    /// Seconds after which waiting ends.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=31_536_000))]
    timeout: Option<u64>,
}

/// The states to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum For {
    /// No job runs, and none is due.
    Idle,
    /// Every slot has a fully recovered member, and no resync is due.
    Rebuild,
    /// No check runs or waits.
    Check,
    /// A member is lost, or the array takes no more writes.
    Degraded,
    /// It is served: clients may connect.
    Served,
}

/// Whether one poll of the array found the awaited state.
#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    /// The array has reached the awaited state, and whether the outcome is good.
    So { is_well: bool, text: String },
    /// The array has not reached the awaited state yet.
    NotYet(String),
    /// The array cannot reach the awaited state without an operator.
    Never(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Paused,
    Refused(JobKind),
    ReadOnly,
    NoSpare,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let limit = args.timeout.map(Duration::from_secs);
    let running = match args.what {
        For::Served => served(&args.array, limit)?,
        _ => running::find(&args.array)?,
    };
    let word = running.word(&[]);
    let check = number(&running.array);
    let watched =
        poll(&running, limit, |array| match judge(array, args.what, check, Manner::now()) {
            Judgement::So { is_well, text } => Ok(PollState::Over((array.clone(), is_well, text))),
            Judgement::NotYet(text) => Ok(PollState::GoesOn(text)),
            Judgement::Never(why) => Err(never(why, &array.name, &word)),
        });
    match watched? {
        PollResult::Over((array, is_well, text)) => {
            if globals.json {
                outjson!(&serde_json::to_value(array).expect("it is made of text and numbers"));
            } else {
                outln!("{}", printable(&text));
            }
            Ok(if is_well { Exit::Done } else { Exit::Attention })
        }
        PollResult::Interrupted => Ok(Exit::Interrupted),
        PollResult::TimeUp(text) => {
            let seconds = args.timeout.unwrap_or_default();
            let name = &running.array.name;
            let what = format!("{name} is not {} after {seconds} s", words(args.what));
            let error = CliError::new(Code::WaitedInVain, what).about(name);
            let error = error.because(text);
            Err(error.remedy(Risk::Look, "See its state", format!("braid status {word}")))
        }
    }
}

fn words(what: For) -> &'static str {
    match what {
        For::Idle => "idle",
        For::Rebuild => "rebuilt",
        For::Check => "checked",
        For::Degraded => "degraded",
        For::Served => "served",
    }
}

/// The array, once a server answers; at the time limit, the reason why no server answers.
fn served(word: &str, limit: Option<Duration>) -> Result<RunningArray, CliError> {
    let began = Instant::now();
    let not_yet = [Code::NotServed, Code::ServerGone, Code::ServerSilent];
    loop {
        let error = match running::find(word) {
            Err(error) if not_yet.contains(&error.code()) => error,
            found => return found,
        };
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            let what = format!("{word} is not served after {} s", began.elapsed().as_secs());
            let late = CliError::new(Code::WaitedInVain, what).about(word).caused_by(&error);
            return Err(late.remedy(Risk::Look, "See the served arrays", "braid list"));
        }
        std::thread::sleep(LOOK);
    }
}

fn number(array: &Array) -> u64 {
    array.last_job(JobKind::Check).map_or(0, |last| last.number)
}

/// Judges an array; `check` is the number of the last check when waiting began.
fn judge(array: &Array, what: For, check: u64, manner: Manner) -> Judgement {
    match what {
        For::Idle => idle(array, manner),
        For::Rebuild => rebuilt(array, manner),
        For::Check => checked(array, check, manner),
        For::Degraded => degraded(array),
        For::Served => so(format!("{} is served at {}", array.name, array.uris.join(", "))),
    }
}

const EMPTY: [SlotState; 3] = [SlotState::Missing, SlotState::Failed, SlotState::Away];

fn idle(array: &Array, manner: Manner) -> Judgement {
    if let Some(job) = array.jobs.first() {
        return under_way(array, job, manner);
    }
    if array.reshape.is_some() {
        return Judgement::NotYet(format!("{} gets its new shape", array.name));
    }
    let is_empty = EMPTY.into_iter().any(|state| has(array, state));
    let can_recover = is_empty && array.has_spare() && array.state != State::Failed;
    let kind = if array.dirty {
        JobKind::Resync
    } else if has(array, SlotState::Recovering) || can_recover {
        JobKind::Recovery
    } else if array.has_replacement() {
        JobKind::Replace
    } else {
        return so(format!("{} is idle", array.name));
    };
    about_to_begin(array, kind)
}

fn rebuilt(array: &Array, manner: Manner) -> Judgement {
    let name = &array.name;
    // A resync comes before a recovery.
    let kinds = [JobKind::Recovery, JobKind::Replace, JobKind::Resync];
    if let Some(job) = kinds.into_iter().find_map(|kind| array.job(kind)) {
        return under_way(array, job, manner);
    }
    let is_empty = EMPTY.into_iter().any(|state| has(array, state));
    if has(array, SlotState::Recovering) {
        let kind = if array.dirty { JobKind::Resync } else { JobKind::Recovery };
        return about_to_begin(array, kind);
    }
    match (is_empty, array.has_spare()) {
        (false, _) if array.has_replacement() => about_to_begin(array, JobKind::Replace),
        (false, _) if array.dirty => about_to_begin(array, JobKind::Resync),
        (false, _) => so(format!("{name} is whole")),
        (true, true) if array.state != State::Failed => {
            match about_to_begin(array, JobKind::Recovery) {
                Judgement::NotYet(_) => {
                    Judgement::NotYet(format!("a spare of {name} is about to take a slot"))
                }
                never => never,
            }
        }
        (true, _) => Judgement::Never(Why::NoSpare),
    }
}

fn checked(array: &Array, before: u64, manner: Manner) -> Judgement {
    let name = &array.name;
    if let Some(job) = array.job(JobKind::Check) {
        let first = array.jobs.first().unwrap_or(job);
        return under_way(array, first, manner);
    }
    match array.last_job(JobKind::Check).filter(|last| last.number > before) {
        Some(last) if last.found.is_repaired() => Judgement::So {
            is_well: false,
            text: format!("{name} was checked: {}", found_words(last)),
        },
        Some(last) if last.differing_sectors > 0 => {
            let found = sectors_words(last.differing_sectors);
            Judgement::So {
                is_well: false,
                text: format!("{name} was checked: {found} do not agree"),
            }
        }
        Some(last) => {
            let is_well = last.done_bytes == last.total_bytes;
            let result = if is_well { "all of it agrees" } else { "it ended early" };
            Judgement::So { is_well, text: format!("{name} was checked: {result}") }
        }
        None => so(format!("{name} is not being checked")),
    }
}

fn degraded(array: &Array) -> Judgement {
    let text = format!("{} is {}", array.name, state_word(array));
    if array.state == State::Ok { Judgement::NotYet(text) } else { so(text) }
}

fn so(text: String) -> Judgement {
    Judgement::So { is_well: true, text }
}

fn has(array: &Array, state: SlotState) -> bool {
    array.slots.iter().any(|slot| slot.state == state)
}

fn under_way(array: &Array, job: &Job, manner: Manner) -> Judgement {
    match job.state {
        JobState::Paused => Judgement::Never(Why::Paused),
        JobState::Waiting => Judgement::NotYet(format!("{} is about to be checked", array.name)),
        JobState::Running => {
            let doing = doing_word(job.kind);
            Judgement::NotYet(format!("{doing} {}  {}", array.name, progress_words(job, manner)))
        }
    }
}

/// The judgement on an array whose job of kind `kind` has not begun yet.
fn about_to_begin(array: &Array, kind: JobKind) -> Judgement {
    if array.read_only {
        Judgement::Never(Why::ReadOnly)
    } else if array.jobs_paused {
        Judgement::Never(Why::Paused)
    } else if array.refused(kind).is_some() || array.state == State::Failed {
        Judgement::Never(Why::Refused(kind))
    } else {
        Judgement::NotYet(format!("{} {} is about to begin", doing_word(kind), array.name))
    }
}

fn never(why: Why, name: &str, word: &str) -> CliError {
    let new = |code: Code, because: String| {
        let what = format!("{name} does not reach the awaited state by itself");
        CliError::new(code, what).about(name).because(because)
    };
    let look =
        |error: CliError| error.remedy(Risk::Look, "See its state", format!("braid status {word}"));
    match why {
        Why::Paused => {
            let error = new(Code::JobsPaused, "its jobs are paused".into());
            error.remedy(Risk::Change, "Resume the jobs", format!("braid resume {word}"))
        }
        Why::Refused(kind) => {
            let because = format!("its {} could not be finished", kind.word());
            let error = new(Code::JobRefused, because);
            error.remedy(Risk::Change, "Try it again", format!("braid rebuild {word}"))
        }
        Why::ReadOnly => {
            let error = new(Code::ServedReadOnly, "it is served read-only".into());
            let stop = format!("braid stop {word}");
            error.remedy(Risk::Change, "Stop it, and serve it without --read-only", stop)
        }
        Why::NoSpare => {
            let because = "a member is missing, and no spare waits to replace it";
            look(new(Code::NoSpare, because.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use SlotState::{Filling, Missing, Ok, Waiting};
    use braid_control::model::{Found, Slot};

    use super::*;
    use braid_discovery::status::sample::{slot, tank};

    /// A RAID-6 with a spare and with slot 3 in state `last`. The spare replaces the member in slot
    /// 1, or waits for any slot.
    fn waited_for(last: SlotState, state: SlotState, replaces: Option<u16>) -> Array {
        let mut array = tank(&[Ok, Ok, Ok, last]);
        array.slots.push(Slot { slot: None, replaces, ..slot(0, state) });
        array
    }

    fn is_waited_for(array: &Array) -> [Option<bool>; 2] {
        let now = Manner { is_unicode: false, utc_seconds: 0 };
        [For::Idle, For::Rebuild].map(|what| match judge(array, what, 0, now) {
            Judgement::So { .. } => Some(false),
            Judgement::NotYet(_) => Some(true),
            Judgement::Never(_) => None,
        })
    }

    #[test]
    fn a_replacement_that_has_not_begun_is_waited_for() {
        for state in [Waiting, Filling] {
            assert_eq!(
                is_waited_for(&waited_for(Ok, state, Some(1))),
                [Some(true); 2],
                "{state:?}"
            );
        }
        assert_eq!(is_waited_for(&waited_for(Ok, Waiting, None)), [Some(false); 2]);
    }

    #[test]
    fn an_array_is_not_whole_while_a_resync_is_left() {
        let mut array = tank(&[Ok, Ok, Ok, Ok]);
        assert_eq!(is_waited_for(&array), [Some(false); 2]);
        array.dirty = true;
        assert_eq!(is_waited_for(&array), [Some(true); 2], "it has not begun");
        array.jobs.push(Job {
            kind: JobKind::Resync,
            state: JobState::Running,
            from_bytes: 0,
            done_bytes: 512,
            total_bytes: 1024,
            percent: 50.0,
            bytes_per_second: None,
            seconds_left: None,
            differing_sectors: 0,
            written_sectors: 0,
            unmade_sectors: 0,
            named_sectors: 0,
            found: Found::default(),
        });
        assert_eq!(is_waited_for(&array), [Some(true); 2], "it runs");
        array.jobs_paused = true;
        array.jobs[0].state = JobState::Paused;
        assert_eq!(is_waited_for(&array), [None; 2]);
    }

    #[test]
    fn a_spare_is_waited_for_where_a_member_is_missing_and_it_has_no_other_use() {
        assert_eq!(is_waited_for(&waited_for(Missing, Waiting, None)), [Some(true); 2]);
        let [_, rebuilt] = is_waited_for(&waited_for(Missing, Waiting, Some(1)));
        assert_eq!(rebuilt, None, "nothing comes to slot 3");
        let mut paused = waited_for(Ok, Waiting, Some(1));
        paused.jobs_paused = true;
        assert_eq!(is_waited_for(&paused), [None; 2]);
    }
}
