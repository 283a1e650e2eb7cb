//! System calls of another process, counted by `perf`, or by `strace` if `perf` fails. The count
//! takes a pass of its own, since a traced process is slower.

use std::process::{Command, Stdio};
use std::time::Duration;

/// The number of system calls that a process begins during `time`.
pub(super) fn system_calls(process: u32, time: Duration) -> Result<u64, String> {
    let pid = process.to_string();
    let seconds = time.as_secs_f64().to_string();
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", &pid, "--"]);
    perf.args(["sleep", &seconds]);
    let by_perf = said(&mut perf).and_then(|text| counted_by_perf(&text));
    by_perf.or_else(|first| {
        let mut strace = Command::new("timeout");
        strace.args(["--signal=INT", &seconds, "strace", "-c", "-f", "-p", &pid]);
        let by_strace = said(&mut strace).and_then(|text| counted_by_strace(&text));
        by_strace.map_err(|second| format!("perf: {first}; strace: {second}"))
    })
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Parses `perf`'s output: a line with the count, its unit, and the event.
fn counted_by_perf(text: &str) -> Result<u64, String> {
    let line = text.lines().find(|line| line.contains("raw_syscalls:sys_enter"));
    let line = line.ok_or_else(|| text.trim().to_owned())?;
    let count = line.split(',').next().and_then(|count| count.parse().ok());
    count.ok_or_else(|| line.to_owned())
}

/// Parses `strace`'s table. Its last line has the sum: share, seconds, microseconds a call, calls,
/// perhaps errors.
fn counted_by_strace(text: &str) -> Result<u64, String> {
    let total = text.lines().rfind(|line| line.trim_end().ends_with("total"));
    let total = total.ok_or_else(|| text.trim().to_owned())?;
    let count = total.split_whitespace().nth(3).and_then(|count| count.parse().ok());
    count.ok_or_else(|| total.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_and_nothing_else_is() {
        let perf = "12345,,raw_syscalls:sys_enter,100000000,100.00,,\n";
        assert_eq!(counted_by_perf(perf), Ok(12345));
        for text in
            ["<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n", "event syntax error", ""]
        {
            assert!(counted_by_perf(text).is_err(), "{text}");
        }
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n \
             99.9    0.010000          10      1000         1 read\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.010000          10      1001         1 total\n";
        assert_eq!(counted_by_strace(strace), Ok(1001));
        assert!(
            counted_by_strace("strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted")
                .is_err()
        );
    }
}
