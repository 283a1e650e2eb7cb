//! `braid check`: has the server read and compare a running array, and waits for the end.
//!
//! The server does the check. This command requests the check, polls its progress, and prints the
//! result. Interrupting the command leaves the check running.

use std::time::Duration;

use braid_control::model::{
    Array, Checked, JobEffect, JobKind, JobRequest, JobResult, JobState, JobsAnswer, LastJob,
    VERSION,
};

use super::poll::{PollResult, PollState, poll};
use super::{Globals, jobs};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_discovery::running::{self, RunningArray};
use braid_discovery::status::words::{
    Manner, down_to_a_tenth, found_words, progress_words, run_words, sectors_words,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Do not wait until the check is over.
    #[arg(long)]
    detach: bool,
    /// Rewrite sectors that are known to be wrong, from the other members, and no others.
    #[arg(long)]
    repair: bool,
    /// Also read sectors in bad-block logs that the other members cannot give; remove those that
    /// are readable and agree from the logs.
    #[arg(long, conflicts_with = "repair")]
    retry_bad: bool,
    /// End the check that runs or waits.
    #[arg(long, conflicts_with_all = ["detach", "repair", "retry_bad"])]
    end: bool,
    /// Say what the command would do, and do nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let request = match args {
        Args { end: true, .. } => JobRequest::EndCheck,
        Args { repair: true, .. } => JobRequest::Repair,
        Args { retry_bad: true, .. } => JobRequest::RetryBad,
        _ => JobRequest::Check,
    };
    let answer = jobs::ask(&running, request, args.dry_run)?;
    if args.end || args.detach || args.dry_run {
        jobs::tell(&answer, globals, || asked_words(&answer, &running));
        return Ok(Exit::Done);
    }
    let before = answer.last_jobs.iter().find(|last| last.kind == JobKind::Check);
    let before = before.map_or(0, |last| last.number);
    let watched = poll(&running, None, |array| Ok(look(array, before)))?;
    match watched {
        PollResult::Over(check) => over(check, &running, globals),
        PollResult::Interrupted | PollResult::TimeUp(_) => {
            let (name, word) = (printable(&answer.name), running.word(&[]));
            errln!(
                "the check of {name} goes on; see it with  braid status {word}  and end it with  braid check {word} --end"
            );
            Ok(Exit::Interrupted)
        }
    }
}

fn look(array: &Array, before: u64) -> PollState<LastJob> {
    match array.last_job(JobKind::Check).filter(|last| last.number > before) {
        Some(last) => PollState::Over(last.clone()),
        None => PollState::GoesOn(line(array)),
    }
}

fn line(array: &Array) -> String {
    let name = &array.name;
    match array.job(JobKind::Check) {
        Some(job) if job.state == JobState::Waiting => match array.jobs.first() {
            Some(first) if first.kind != JobKind::Check => {
                let progress = progress_words(first, Manner::now());
                format!("the check of {name} waits for the {}  {progress}", first.kind.word())
            }
            _ => format!("the check of {name} is about to begin"),
        },
        Some(job) => {
            let found = match job.differing_sectors {
                0 => String::new(),
                found => format!("  {} do not agree", sectors_words(found)),
            };
            format!("checking {name}  {}{found}", progress_words(job, Manner::now()))
        }
        None => format!("checking {name}"),
    }
}

/// The answer to a request about checks in words, if the command does not wait.
fn asked_words(answer: &JobsAnswer, running: &RunningArray) -> String {
    let (name, word) = (printable(&answer.name), running.word(&[]));
    let all = all_words(&running.array);
    let more = match answer.request {
        JobRequest::Repair => ", and known wrong sectors rewritten",
        JobRequest::RetryBad => {
            ", and bad-block log entries dropped if their sectors are readable and agree"
        }
        _ => "",
    };
    match (answer.effect, answer.dry_run) {
        (JobEffect::Begins, true) => {
            format!("would check {name}: {all} would be read and compared{more}")
        }
        (JobEffect::Begins, false) => {
            format!("{name} is being checked; wait for it with  braid wait {word} --for check")
        }
        (JobEffect::Waits, true) => {
            format!(
                "would check {name} when the job before it is over: {all} would be read and compared{more}"
            )
        }
        (JobEffect::Waits, false) => format!(
            "{name} is checked after the job before it; wait for it with  braid wait {word} --for \
             check"
        ),
        (JobEffect::Ends, true) => format!("would end the check of {name}"),
        (JobEffect::Ends, false) => format!("the check of {name} ends"),
        (_, _) if answer.request == JobRequest::EndCheck => format!("{name} is not being checked"),
        (_, _) => format!("{name} is being checked already"),
    }
}

fn all_words(array: &Array) -> String {
    let members = array.slots.iter().filter(|slot| slot.slot.is_some()).count();
    format!("all {} of it, from {members} members,", format_size(array.size_bytes))
}

fn over(check: LastJob, running: &RunningArray, globals: &Globals) -> Result<Exit, CliError> {
    let (array, word) = (&running.array, running.word(&[]));
    if check.result != JobResult::Completed {
        return Err(ended(&check, &array.name, &word));
    }
    let found = check.differing_sectors;
    let named = check.named_sectors;
    let exit = if found == 0 && named == 0 { Exit::Done } else { Exit::Attention };
    if globals.json {
        let (name, uuid) = (array.name.clone(), array.uuid.clone());
        let checked = Checked { version: VERSION, name, uuid, check };
        outjson!(&serde_json::to_value(checked).expect("it is made of text and numbers"));
        return Ok(exit);
    }
    let took = Duration::from_millis(check.took_ms);
    let result = match found {
        0 if named > 0 => "all readable data agrees".to_owned(),
        0 => "all of it agrees".to_owned(),
        _ if check.found.is_repaired() => found_words(&check),
        found => format!("{} of redundancy do not agree with the data", sectors_words(found)),
    };
    let (name, size) = (printable(&array.name), format_size(array.size_bytes));
    outln!("checked {name}: {size} in {}: {result}", took_words(took));
    for run in &check.found.runs {
        outln!("  {}", printable(&run_words(run)));
    }
    if check.found.more_runs > 0 {
        outln!("  and {} more", check.found.more_runs);
    }
    if found > 0 && !check.found.is_repaired() {
        let known = found_words(&check);
        if !known.is_empty() {
            outln!("{known}");
        }
    }
    if check.found.located_sectors > check.found.repaired_sectors && !check.found.repairs {
        outln!("rewrite the sectors that are known to be wrong with  braid check {word} --repair");
    }
    let unread = check.written_sectors.saturating_sub(check.found.repaired_sectors);
    match (check.written_sectors, unread) {
        (0, _) if found > 0 => {
            outln!("nothing was changed; reads return the members' data unchanged");
        }
        (1.., 1..) if check.found.retries_bad => outln!(
            "{} that were unreadable or in bad-block logs were rewritten: computed from the \
             others, or unchanged where all agree",
            sectors_words(unread)
        ),
        (1.., 1..) if !check.found.repairs => outln!(
            "{} that were unreadable were computed from the others and rewritten",
            sectors_words(unread)
        ),
        _ => {}
    }
    if named > 0 {
        let named = sectors_words(named);
        if check.found.retries_bad {
            outln!(
                "bad-block logs still list {named}: they are unreadable, do not agree with the \
                 others, or their members reject the writes"
            );
            outln!("see its state with  braid status {word}");
        } else {
            outln!(
                "bad-block logs still list {named}: the others cannot supply them, or their \
                 members reject the writes"
            );
            outln!(
                "if the logs may be wrong, try the sectors with  braid check {word} --retry-bad"
            );
        }
    }
    Ok(exit)
}

fn ended(check: &LastJob, name: &str, word: &str) -> CliError {
    let percent = 100.0 * check.done_bytes as f64 / check.total_bytes.max(1) as f64;
    let what = format!("the check of {name} ended at {:.1} %", down_to_a_tenth(percent));
    let found = match check.differing_sectors {
        0 => "all data that it read until then agrees".to_owned(),
        found => {
            format!("{} of the data that it read until then do not agree", sectors_words(found))
        }
    };
    let error = CliError::new(Code::JobEnded, what).about(name);
    let why = "it was ended by another command, a member was lost, or the array was stopped";
    let error = error.because(why).because(found);
    error.remedy(Risk::Look, "See its state", format!("braid status {word}"))
}

/// A duration in words: `0.4 s`, `12 s`, `4 min 3 s`, `11 h 3 min`.
fn took_words(took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds {
        0..10 => format!("{}.{} s", seconds, took.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units_at_most() {
        for (milliseconds, text) in [
            (0, "0.0 s"),
            (9_999, "9.9 s"),
            (59_999, "59 s"),
            (243_000, "4 min 3 s"),
            (39_780_000, "11 h 3 min"),
        ] {
            assert_eq!(took_words(Duration::from_millis(milliseconds)), text);
        }
    }
}
