//! Refusals of the operating system are reported as such, and never as a fault of a member.

use std::path::Path;
use std::time::Duration;

use crate::kit::{Array, FLOCK, Mount, Need, RAID_5, Ran, skip, wait_until};

fn error(ran: &Ran) -> (serde_json::Value, Option<i32>) {
    let last = ran.stdout.lines().last().unwrap_or_default();
    let error = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    (error, ran.status.code())
}

#[test]
fn a_lock_that_cannot_be_had_is_told_with_its_cause_and_is_no_missing_superblock() {
    let array = Array::create(RAID_5);
    // The errors ENOLCK, EPERM, EACCES and EOPNOTSUPP.
    for errno in [37, 1, 13, 95] {
        let Some(ran) = array.braid_denied((FLOCK, errno), &["serve", "--run", "true"]) else {
            return;
        };
        let (error, status) = error(&ran);
        assert_eq!((error["code"].as_str(), status), (Some("B062"), Some(1)), "{error}");
        let cause = error["cause"].as_str().expect("a text");
        assert!(cause.contains("lock"), "{error}");
        let member = array.members[0].display().to_string();
        for remedy in error["remedies"].as_array().expect("remedies") {
            let command = remedy["command"].as_str().expect("a text");
            assert!(command.contains(&member), "it cannot be typed as it stands: {command}");
        }
    }
}

#[test]
fn out_of_descriptors_at_start_is_not_a_member_less() {
    let array = Array::create(RAID_5);
    let mut refused = 0;
    for limit in 5..24 {
        let ran = array.braid_after(
            &format!("ulimit -n {limit}"),
            &["serve", "--run", "true"],
            &array.members,
        );
        let assembled = ran.stdout.lines().find(|line| line.contains("\"assembled\""));
        if let Some(assembled) = assembled {
            assert!(assembled.contains("\"degraded_slots\":0"), "{limit}: {ran:?}");
        }
        // Below some memory limit the dynamic linker fails.
        if !ran.status.success() && !ran.stdout.is_empty() {
            let (error, status) = error(&ran);
            assert_eq!(
                (error["code"].as_str(), status),
                (Some("B076"), Some(1)),
                "{limit}: {ran:?}"
            );
            refused += 1;
        }
    }
    assert!(refused > 3, "no limit was too low");
}

#[test]
fn out_of_memory_at_start_is_not_members_lost() {
    let array = Array::create(RAID_5);
    let ran = array.braid_denied((FLOCK, 12), &["serve", "--run", "true"]);
    let short = array.braid_after("ulimit -v 60000", &["serve", "--run", "true"], &array.members);
    for ran in ran.iter().chain([&short]) {
        let (error, status) = error(ran);
        assert_eq!((error["code"].as_str(), status), (Some("B076"), Some(1)), "{ran:?}");
        assert!(error.to_string().contains("allocate memory"), "{error}");
    }
}

/// The kernel's flags of a task (proc_pid_stat(5)), from the task's `stat`.
fn task_flags(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').expect("a name").1;
    fields.split_whitespace().nth(9 - 3).expect("flags").parse().expect("a number")
}

/// Regression: a worker's allocation waited for a page of the file system on the array's own loop
/// device, so the worker never wrote that page.
#[test]
fn workers_never_wait_for_pages_of_their_own_clients() {
    /// `PF_MEMALLOC_NOIO` of Linux.
    const NO_IO: u64 = 0x0008_0000;
    /// `CAP_SYS_RESOURCE`.
    const RESOURCE: u64 = 1 << 24;
    if !Mount::is_possible() || !rustix::process::geteuid().is_root() {
        return skip(Need::Fuse, "no /dev/fuse for us");
    }
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let own = read(Path::new("/proc/self/status"));
    let own = own.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("a line");
    let is_allowed = u64::from_str_radix(own, 16).expect("a number") & RESOURCE != 0;
    let array = Array::create(RAID_5);
    let (flags, go) = (array.path("flags"), array.path("go"));
    let command = format!(
        "cat /proc/$$/stat > '{}'; while ! [ -e '{}' ]; do sleep 0.05; done",
        flags.display(),
        go.display()
    );
    let disk = array.path("disk").display().to_string();
    let mut served = array.serve_with(&["--fuse", &disk, "--run", &command], &array.members);
    let limit = Duration::from_secs(60);
    wait_until("the command", limit, || read(&flags).ends_with('\n'));
    assert_eq!(task_flags(&read(&flags)) & NO_IO, 0, "a program of its own");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", served.process_id())).expect("it runs");
    let mut workers = 0;
    for task in tasks {
        let folder = task.expect("a task").path();
        if read(&folder.join("comm")).starts_with("braid-worker") {
            workers += 1;
            let has_flag = task_flags(&read(&folder.join("stat"))) & NO_IO != 0;
            let has_huge = !read(&folder.join("status")).contains("THP_enabled:\t0");
            assert_eq!((has_flag, has_huge), (is_allowed, is_allowed), "{folder:?}");
        }
    }
    assert!(workers > 0, "no worker runs");
    std::fs::write(&go, "").expect("a file");
    assert_eq!(served.wait().code(), Some(0));
}
