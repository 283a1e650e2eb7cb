//! Another process's use of the machine so far: processor time, sleeps, preemptions.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::suites) struct Switches {
    /// Switches because the thread waited. Each wait but the last ended in a wake-up.
    pub(in crate::suites) voluntary: u64,
    /// Switches because the thread's time slice ended.
    pub(in crate::suites) involuntary: u64,
}

/// A process's use so far.
#[derive(Clone, Debug, Default)]
pub(in crate::suites) struct ProcessUsage {
    /// Processor time of all threads, including threads that have ended.
    pub(in crate::suites) processor_ns: u64,
    /// Switches by name and number of the threads that are alive.
    threads: BTreeMap<(String, u32), Switches>,
}

impl ProcessUsage {
    pub(in crate::suites) fn by(process: u32) -> Result<Self, String> {
        let pid = Pid::from_raw(i32::try_from(process).map_err(|error| error.to_string())?);
        let clock = ClockId::pid_cpu_clock_id(pid).and_then(clock_gettime);
        let time = clock.map_err(|error| format!("process {process}: {error}"))?;
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let processor_ns = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0);
        let folder = format!("/proc/{process}/task");
        let found = read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
        let threads = found.filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = path.file_name()?.to_str()?.parse().ok()?;
            // A thread that ends while it is read is skipped.
            let (name, switches) = thread(&read_to_string(path.join("status")).ok()?)?;
            Some(((name, number), switches))
        });
        Ok(Self { processor_ns, threads: threads.collect() })
    }

    /// Switches of living threads since `before`. The switches of ended threads are lost.
    pub(in crate::suites) fn since(&self, before: &Self) -> Vec<(&str, Switches)> {
        let since = |(key, now): (&'_ (String, u32), &Switches)| {
            let then = before.threads.get(key).copied().unwrap_or_default();
            Switches {
                voluntary: now.voluntary - then.voluntary,
                involuntary: now.involuntary - then.involuntary,
            }
        };
        self.threads.iter().map(|one| (one.0.0.as_str(), since(one))).collect()
    }

    pub(in crate::suites) fn sum_since(&self, before: &Self) -> Switches {
        self.since(before).into_iter().fold(Switches::default(), |sum, (_, one)| Switches {
            voluntary: sum.voluntary + one.voluntary,
            involuntary: sum.involuntary + one.involuntary,
        })
    }
}

/// Parses the kernel's status of one thread.
fn thread(status: &str) -> Option<(String, Switches)> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let switches = Switches {
        voluntary: field("voluntary_ctxt_switches")?.parse().ok()?,
        involuntary: field("nonvoluntary_ctxt_switches")?.parse().ok()?,
    };
    Some((field("Name")?.to_owned(), switches))
}

/// Resident memory of a process in bytes, private and shared together.
pub(in crate::suites) fn resident_bytes(process: u32) -> Result<u64, String> {
    let path = format!("/proc/{process}/status");
    let status = read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| format!("{path} names no memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_and_works_is_seen_to() {
        let this = std::process::id();
        let before = ProcessUsage::by(this).expect("this process runs");
        let (told, tell) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::Builder::new().name("lab-sleeper".into()).spawn(move || {
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            // Keeps the thread alive, so that the test can read its status.
            let _ended = tell.recv();
        });
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 60 {
            std::hint::spin_loop();
        }
        let after = ProcessUsage::by(this).expect("this process runs");
        let slept: u64 = after
            .since(&before)
            .iter()
            .filter(|(name, _)| *name == "lab-sleeper")
            .map(|(_, switches)| switches.voluntary)
            .sum();
        assert!(slept >= 10, "it slept twenty times, {slept} are told");
        assert!(after.processor_ns - before.processor_ns > 5_000_000, "this thread did not sleep");
        assert!(after.sum_since(&before).voluntary >= slept);
        assert!(resident_bytes(this).is_ok_and(|bytes| bytes > 1 << 20));
        drop(told);
        sleeper.expect("a thread").join().expect("it ends");
    }

    #[test]
    fn what_is_no_status_is_none() {
        assert_eq!(thread("Name:\tx\n"), None);
        assert!(ProcessUsage::by(u32::MAX).is_err());
        let status =
            "Name:\tbraid-worker\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        let switches = Switches { voluntary: 7, involuntary: 3 };
        assert_eq!(thread(status), Some(("braid-worker".to_owned(), switches)));
    }
}
