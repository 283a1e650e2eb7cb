//! `braid pause`, `resume` and `rebuild`: requests about an array's jobs, and the answers in words.

use braid_control::model::{
    Array, Job, JobEffect, JobKind, JobRequest, JobState, JobsAnswer, JobsWanted, SlotState,
};

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_discovery::running::{self, RunningArray, unanswered};
use braid_discovery::status::words::{Manner, doing_word, is_redundant, progress_words};

#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RebuildArgs {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(super) fn ask(
    running: &RunningArray,
    request: JobRequest,
    dry_run: bool,
) -> Result<JobsAnswer, CliError> {
    let target = if dry_run { "/v1/jobs?dry_run=true" } else { "/v1/jobs" };
    let answer = running.client().post_with::<JobsAnswer>(target, &JobsWanted { request });
    answer.map_err(|error| unanswered(&running.control, &error))
}

pub(crate) fn pause(args: &PauseArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let answer = ask(&running, JobRequest::Pause, args.dry_run)?;
    let (name, word) = (printable(&answer.name).into_owned(), running.word(&[]));
    tell(&answer, globals, || match (answer.effect, there(&answer.jobs), answer.dry_run) {
        (JobEffect::Nothing, ..) => format!("jobs of {name} are paused already"),
        (_, Some(job), true) => format!("would pause {} {name}", doing_word(job.kind)),
        (_, None, true) => format!("would keep jobs of {name} from starting"),
        (_, Some(job), false) => {
            let doing = doing_word(job.kind);
            format!("{doing} {name} is paused; resume it with  braid resume {word}")
        }
        (_, None, false) => format!("no job of {name} begins until  braid resume {word}"),
    });
    Ok(Exit::Done)
}

pub(crate) fn resume(args: &ResumeArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let answer = ask(&running, JobRequest::Resume, args.dry_run)?;
    let name = printable(&answer.name).into_owned();
    tell(&answer, globals, || match answer.effect {
        JobEffect::Nothing => format!("jobs of {name} were not paused"),
        _ => goes_on(&answer, &running.array, &name),
    });
    Ok(Exit::Done)
}

pub(crate) fn rebuild(args: &RebuildArgs, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let array = &running.array;
    if is_redundant(array) && !array.read_only && next(array).is_none() && is_incomplete(array) {
        return Err(no_spare(array, &running.word(&[])));
    }
    let answer = ask(&running, JobRequest::Resume, args.dry_run)?;
    let name = printable(&answer.name).into_owned();
    tell(&answer, globals, || match (answer.effect, there(&answer.jobs)) {
        _ if next(array).is_none() => format!("{name} is whole: there is nothing to rebuild"),
        (JobEffect::Nothing, Some(job)) => {
            let progress = progress_words(job, Manner::now());
            format!("{} {name} goes on already  {progress}", doing_word(job.kind))
        }
        (JobEffect::Nothing, None) => format!("rebuilding {name} begins by itself"),
        _ => goes_on(&answer, array, &name),
    });
    Ok(Exit::Done)
}

pub(super) fn tell(answer: &JobsAnswer, globals: &Globals, words: impl FnOnce() -> String) {
    if globals.json {
        outjson!(&serde_json::to_value(answer).expect("it is made of text and numbers"));
    } else {
        outln!("{}", words());
    }
}

/// The job that runs or is paused, and does not only wait for another job.
fn there(jobs: &[Job]) -> Option<&Job> {
    jobs.iter().find(|job| job.state != JobState::Waiting)
}

fn goes_on(answer: &JobsAnswer, array: &Array, name: &str) -> String {
    let kind = there(&answer.jobs).map(|job| job.kind).or_else(|| next(array));
    let is_again = answer.effect == JobEffect::TriesAgain;
    match (kind.map(doing_word), is_again, answer.dry_run) {
        (Some(doing), false, false) => format!("{doing} {name} goes on"),
        (Some(doing), false, true) => format!("{doing} {name} would go on"),
        (Some(doing), true, false) => format!("{doing} {name} is tried again"),
        (Some(doing), true, true) => format!("{doing} {name} would be tried again"),
        (None, _, false) => {
            format!("jobs of {name} begin by themselves again; none is needed now")
        }
        (None, _, true) => {
            format!("jobs of {name} would begin by themselves again; none is needed now")
        }
    }
}

/// The next job, if the array needs a rebuild and has a device to rebuild onto.
fn next(array: &Array) -> Option<JobKind> {
    if array.dirty {
        return Some(JobKind::Resync);
    }
    let has = |state| array.slots.iter().any(|slot| slot.state == state);
    let has_spare = is_incomplete(array) && array.has_spare();
    match has(SlotState::Recovering) || has_spare {
        true => Some(JobKind::Recovery),
        false => array.has_replacement().then_some(JobKind::Replace),
    }
}

fn is_incomplete(array: &Array) -> bool {
    let is_empty =
        |state| matches!(state, SlotState::Missing | SlotState::Failed | SlotState::Away);
    array.slots.iter().any(|slot| is_empty(slot.state))
}

fn no_spare(array: &Array, word: &str) -> CliError {
    let what = format!("{} is degraded, and has no spare to rebuild onto", array.name);
    let error = CliError::new(Code::NoSpare, what).about(&array.name);
    let error = error.because("no spare waits to replace the missing member");
    let add = format!("braid add {word} DEVICE");
    let error =
        error.remedy(Risk::Look, "See which member is missing", format!("braid status {word}"));
    error.remedy(Risk::Change, "Put a device in its place", add)
}
