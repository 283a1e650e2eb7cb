//! `braid rescue --check` reads and compares the whole array, and names the member that is wrong.
//!
//! Two parities or three copies reveal for each sector which member is wrong; one parity or two
//! copies reveal only that members differ. `--check` runs the engine's check
//! ([`braid_runtime::JobRequest::Check`]) over a temporary overlay: members are only read.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use braid_runtime::MemberId;
use braid_runtime::{Finding, Io, JobEnd, JobKind, JobProgress, JobRequest, Notice, Volume};
use serde_json::json;

use super::config::RescueConfig;
use super::disks::Disks;
use super::fill::TemporaryFolder;
use super::rescue_array::RescueArray;
use super::serve::over_overlay;
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_discovery::status::words::{run_words, sectors_words};
use braid_server::found_run as run;

/// If a check has not started after this time, braid assumes that no check starts.
const SILENCE: Duration = Duration::from_secs(1);
/// The most findings that are listed. If there are more, only their number is shown.
const RUNS_MAX: usize = 1000;

#[derive(Default)]
struct CheckResult {
    findings: Vec<Finding>,
    /// The number of findings that were not listed.
    more: u64,
    /// For each wrong member, the number of its wrong sectors.
    by_member: BTreeMap<MemberId, u64>,
    end: Option<(JobProgress, JobEnd)>,
}

pub(super) fn check(
    args: &RescueConfig,
    (disks, mut found): (&Disks, RescueArray),
    globals: &Globals,
) -> Result<Exit, CliError> {
    if let Ok(array) = &found.plan.array {
        let cannot = |code: Code, why: &str| {
            let error = CliError::new(code, format!("{} cannot be compared", found.group.name));
            error.because(why).remedy(Risk::Look, "See the state of the array", args.command(""))
        };
        if array.geometry.lost_max() == 0 {
            let why = "its level has neither copies nor parity to compare";
            return Err(cannot(Code::NoRedundancy, why));
        }
        let is_filled = array.slots.iter().flatten().any(|occupant| !occupant.is_in_sync());
        if array.dirty || is_filled {
            let why = "it stopped during a write or a rebuild: a resync would first make the \
                       compared data equal";
            return Err(cannot(Code::JobRefused, why));
        }
        if array.degraded > 0 {
            let why = "a member is missing: the data of the others has no copy to compare with";
            return Err(cannot(Code::CheckDegraded, why));
        }
    }
    if found.overlays.iter().any(Option::is_some) {
        let what = format!("{} cannot be compared", found.group.name);
        let without = args.command("--check --overlay \"$(mktemp -d)\"");
        return Err(CliError::new(Code::JobRefused, what)
            .because("the members have an overlay with other data than theirs")
            .remedy(Risk::Look, "Look at the members without it", without));
    }
    let folder = found.folder.join("check");
    let temporary = TemporaryFolder(&folder);
    temporary.clear();
    found.folder.clone_from(&folder);
    let ready = over_overlay(args, disks, &mut found, globals)?;
    let (tell, hear) = mpsc::channel();
    let options = braid_runtime::Options {
        jobs_paused: true,
        io: Io::Threads,
        ..braid_runtime::Options::default()
    };
    let volume = Volume::open(&ready.array, ready.members, &options, move |notice| {
        // The receiver of notices no longer exists once the check has ended.
        let _ = tell.send(notice);
    });
    let volume = volume.map_err(|error| CliError::new(Code::MemberIo, error.to_string()))?;
    volume.request_job(JobRequest::Check);
    volume.request_job(JobRequest::Resume);
    let result = check_result(&hear, || volume.job().is_none());
    volume.stop();
    let Some((progress, end)) = result.end.as_ref().copied() else {
        return Err(CliError::new(Code::MemberIo, "too much is unreadable to compare anything"));
    };
    let label = |member: MemberId| found.labels[usize::from(member.0)].clone();
    if globals.json {
        outjson!(&json!({
            "name": found.group.name,
            "differing_sectors": progress.differing,
            "located_sectors": progress.located,
            "ambiguous_sectors": progress.ambiguous,
            "completed": end == JobEnd::Completed,
            "wrong": result.by_member.iter().map(|(member, sectors)| json!({ "member": label(*member), "sectors": sectors })).collect::<Vec<_>>(),
            "found": result.findings.iter().map(|one| run(one, label)).collect::<Vec<_>>(),
        }));
    } else {
        let name = printable(&found.group.name).into_owned();
        match progress.located + progress.ambiguous {
            0 if progress.differing == 0 => {
                outln!("{name}: all was compared, and the members agree");
            }
            0 => {
                outln!("{name}: the members do not agree in {}", sectors_words(progress.differing))
            }
            count => outln!("{name}: the members do not agree in {}", sectors_words(count)),
        }
        if end != JobEnd::Completed {
            outln!("  not all of it could be compared");
        }
        for (member, sectors) in &result.by_member {
            let label = label(*member);
            outln!(
                "  {} disagrees in {} with the others",
                printable(&label),
                sectors_words(*sectors)
            );
            outln!(
                "    without it:  {}",
                printable(&args.command(&format!("--without {}", shell_word(&label))))
            );
        }
        if progress.ambiguous > 0 {
            outln!("  in {} the wrong member is unknown", sectors_words(progress.ambiguous));
        }
        for one in &result.findings {
            outln!("  {}", printable(&run_words(&run(one, label))));
        }
        if result.more > 0 {
            outln!("  and {} places more", result.more);
        }
    }
    let is_well = progress.differing == 0 && end == JobEnd::Completed;
    Ok(if is_well { Exit::Done } else { Exit::Attention })
}

/// Waits until the check has ended. On an array without redundancy no check starts.
fn check_result(hear: &mpsc::Receiver<Notice>, is_idle: impl Fn() -> bool) -> CheckResult {
    let mut result = CheckResult::default();
    loop {
        let notice = match hear.recv_timeout(SILENCE) {
            Ok(notice) => notice,
            Err(mpsc::RecvTimeoutError::Timeout) if !is_idle() => continue,
            Err(_) => break,
        };
        match notice {
            Notice::Found(finding) => {
                if let Finding::Rot { member, sectors, .. } = finding {
                    *result.by_member.entry(member).or_default() += u64::from(sectors);
                }
                match result.findings.len() < RUNS_MAX {
                    true => result.findings.push(finding),
                    false => result.more += 1,
                }
            }
            Notice::JobEnded { progress, end } if progress.kind == JobKind::Check => {
                result.end = Some((progress, end));
                break;
            }
            _ => {}
        }
    }
    result
}
