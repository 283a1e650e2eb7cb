//! SPDK's `bdevperf` as a peer, if installed: SPDK's raid5f under the same load as the engine, in
//! the same run.
//!
//! Place in the flow: next to the tight driver, under the cases of the suites `read` and `write`.
//! The environment variable `BRAID_LAB_BDEVPERF` names the program; nothing of SPDK is kept here.
//! The program gets the members, the chunk, the block and the depth of the case, one core and huge
//! pages. Its own clock measures the time from its first request to its last. If it cannot run a
//! load, its own message is reported, without a figure.
//!
//! Invariants
//! - A program that fails, or prints an unknown format, yields a message and no figure:
//!   `what_is_no_result_is_told`.

mod config;
mod output;

use std::path::{Path, PathBuf};
use std::process::Command;

use braid_engine::request::Operation;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::driver::{Load, Pattern, Plan};
use crate::frame::Usage;

const VARIABLE: &str = "BRAID_LAB_BDEVPERF";
/// Memory that the program needs in addition to its members: the pools of its buffers and requests,
/// at their default sizes.
const OWN_MIB: u64 = 768;
/// The shortest run that the program offers.
const SECONDS: u32 = 1;

#[derive(Debug)]
pub(super) struct Peer {
    program: PathBuf,
    free_mib: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BdevperfResult {
    pub(super) requests_per_second: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) requests_per_second: f64,
    pub(super) processor_ns: f64,
    pub(super) sleeps: f64,
    pub(super) switches: f64,
}

impl Peer {
    /// Finds the program that the environment names.
    pub(super) fn look() -> Result<Self, String> {
        let Some(program) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
            return Err(format!("{VARIABLE} names no program"));
        };
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Ok(Self { program: program.into(), free_mib: free_huge_mib(&memory) })
    }

    /// Runs the load once on an array like that of the plan.
    pub(super) fn run(&self, plan: &Plan, load: &Load) -> Result<BdevperfResult, String> {
        self.run_for(plan, load, (SECONDS, None))
    }

    /// The cost of a request at a fixed rate. A shorter run's cost is subtracted from a longer
    /// run's, so that the start-up does not count.
    pub(super) fn cost(&self, plan: &Plan, load: &Load, rate: u32) -> Result<Cost, String> {
        let run = |seconds: u32| {
            let before = Usage::of_children();
            let reached = self.run_for(plan, load, (seconds, Some(rate)))?;
            let requests = reached.requests_per_second * f64::from(seconds);
            Ok::<_, String>((Usage::of_children() - before, requests, reached))
        };
        let ((short, few, _), (long, many, reached)) = (run(SECONDS)?, run(SECONDS + 2)?);
        let (more, requests) = (long - short, (many - few).max(1.0));
        let each = |count: f64| count.max(0.0) / requests;
        Ok(Cost {
            requests_per_second: reached.requests_per_second,
            processor_ns: each((more.user_s + more.system_s) * 1e9),
            sleeps: each(more.voluntary),
            switches: each(more.involuntary),
        })
    }

    /// Runs the load for this long, with an optional limit of requests a second.
    fn run_for(
        &self,
        plan: &Plan,
        load: &Load,
        (seconds, rate): (u32, Option<u32>),
    ) -> Result<BdevperfResult, String> {
        let wanted_mib = config::members_mib(plan) + OWN_MIB;
        if self.free_mib < wanted_mib {
            let pages = wanted_mib.div_ceil(2);
            return Err(format!(
                "it needs {wanted_mib} MiB of huge pages and {} MiB are free: sysctl \
                 vm.nr_hugepages={pages}",
                self.free_mib
            ));
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let file = folder.path().join("array.json");
        std::fs::write(&file, config::text(plan, rate)).map_err(|error| error.to_string())?;
        let output = self.command(&file, (wanted_mib, seconds), load).output();
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        let (said, told) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(output::why(&said, &told, &output.status.to_string()));
        }
        let requests_per_second = output::rate(&said, load.sectors)?;
        Ok(BdevperfResult { requests_per_second })
    }

    fn command(&self, file: &Path, (memory_mib, seconds): (u64, u32), load: &Load) -> Command {
        let kind = match (load.operation, load.pattern) {
            (Operation::Read, Pattern::Random) => "randread",
            (Operation::Read, Pattern::Sequential) => "read",
            (_, Pattern::Random) => "randwrite",
            (_, Pattern::Sequential) => "write",
        };
        let mut command = Command::new(&self.program);
        command.arg("--json").arg(file).args(["-T", config::ARRAY, "-w", kind]);
        command.arg("-q").arg(load.depth.to_string());
        command.arg("-o").arg((u64::from(load.sectors) * 512).to_string());
        command.arg("-t").arg(seconds.to_string());
        command.arg("-m").arg(format!("[{}]", core()));
        command.arg("-s").arg(memory_mib.to_string()).arg("--no-pci");
        command
    }
}

fn core() -> usize {
    let allowed = sched_getaffinity(None).ok();
    let is_allowed = |core: &usize| allowed.as_ref().is_some_and(|set| set.is_set(*core));
    (0..CpuSet::MAX_CPU).find(is_allowed).unwrap_or(0)
}

/// Free huge pages of the default size, from the text of `/proc/meminfo`.
fn free_huge_mib(memory: &str) -> u64 {
    let field = |name: &str| -> u64 {
        let line = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    };
    field("HugePages_Free").saturating_mul(field("Hugepagesize")) / 1024
}

#[cfg(test)]
mod tests {
    use braid_engine::Tuning;

    use super::*;
    use crate::driver::Kind;

    /// A script that fakes the program; the name `does` says how it behaves.
    fn fake(folder: &Path, does: &str) -> Peer {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-bdevperf.sh");
        let program = folder.join(does);
        std::os::unix::fs::symlink(script, &program).expect("a link");
        Peer { program, free_mib: 4096 }
    }

    fn plan(kind: Kind, missing: Option<u16>) -> Plan {
        Plan {
            kind,
            slots: 4,
            chunk_sectors: 128,
            member_sectors: 8192,
            missing,
            tuning: Tuning::default(),
            payloads: 1,
            payload_sectors: 8,
        }
    }

    fn load(operation: Operation, pattern: Pattern, sectors: u32) -> Load {
        Load { operation, sectors, pattern, depth: 32, requests: 1 }
    }

    const READ: Operation = Operation::Read;
    const WRITE: Operation = Operation::Write { durable: false };

    #[test]
    fn a_run_is_asked_for_as_the_case_is_and_its_total_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let peer = fake(folder.path(), "works");
        let reached = peer.run(&plan(Kind::Memory, None), &load(READ, Pattern::Random, 8));
        assert_eq!(reached, Ok(BdevperfResult { requests_per_second: 970_123.5 }));
        let reached = peer.run(&plan(Kind::Null, None), &load(WRITE, Pattern::Sequential, 384));
        assert_eq!(reached, Ok(BdevperfResult { requests_per_second: 92_000.25 }));
        let reached = peer.run(&plan(Kind::Memory, Some(1)), &load(READ, Pattern::Random, 8));
        assert_eq!(reached, Ok(BdevperfResult { requests_per_second: 610_000.0 }));
    }

    #[test]
    fn a_request_at_a_fixed_rate_costs_what_the_longer_run_took_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let (plan, load) = (plan(Kind::Memory, None), load(READ, Pattern::Random, 8));
        let cost =
            fake(folder.path(), "works").cost(&plan, &load, 10_000).expect("it is held back");
        assert!((cost.requests_per_second - 10_000.0).abs() < 0.1, "{cost:?}");
        assert!(cost.processor_ns >= 0.0 && cost.processor_ns < 1e6, "{cost:?}");
    }

    #[test]
    fn a_part_of_a_stripe_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let peer = fake(folder.path(), "works");
        let why = peer.run(&plan(Kind::Memory, None), &load(WRITE, Pattern::Random, 8));
        let why = why.expect_err("raid5f writes full stripes");
        assert!(why.starts_with("refused: ") && why.contains("write_unit_size 384"), "{why}");
    }

    #[test]
    fn what_is_no_result_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = |peer: &Peer| {
            let plan = plan(Kind::Memory, None);
            peer.run(&plan, &load(READ, Pattern::Random, 8)).expect_err("no result")
        };
        for (does, word) in [
            ("fails", "Cannot init EAL"),
            ("says-nothing", "its table is not there"),
            ("talks", "its table is not there"),
            ("is-cut", "its table has no total"),
            ("adds-up-wrong", "MiB/s"),
            ("loses-requests", "requests failed"),
            ("is-killed", "signal"),
        ] {
            let why = run(&fake(folder.path(), does));
            assert!(why.contains(word), "{does}: {why}");
        }
        let absent = Peer { program: folder.path().join("absent"), free_mib: 4096 };
        assert!(run(&absent).contains("No such file"), "{}", run(&absent));
        let poor = Peer { free_mib: 10, ..absent };
        assert!(run(&poor).contains("vm.nr_hugepages=392"), "{}", run(&poor));
    }

    #[test]
    fn free_huge_pages_are_counted_in_their_size() {
        let memory =
            "HugePages_Total:     600\nHugePages_Free:      512\nHugepagesize:       2048 kB\n";
        assert_eq!(free_huge_mib(memory), 1024);
        assert_eq!(free_huge_mib(""), 0);
    }
}
