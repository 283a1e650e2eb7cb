//! An idle server: how often its threads wake in a minute without requests. The goal is zero.
//!
//! All servers are observed in the same minute. The note names each thread that wakes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::nbd::fio::{FioTarget, Job, Length};
use super::super::nbd::servers::Server;
use super::float;
use super::process::{ProcessUsage, Switches};
use crate::frame::{Case, Figure, Metric, Report, Series, Settings, Target};

const WAKE_UPS: &str = "wake-ups of an idle server";
const METRIC: Metric = Metric::less(WAKE_UPS, "1/min");
/// If the kernel has ever used a thread for a ring, it keeps one. That thread wakes every five
/// seconds to check whether it is the last; no program can end it.
const HELPERS: Metric = Metric::less("wake-ups of the kernel's helpers in it", "1/min");
const HELPER: &str = "iou-wrk";

pub(super) const CASES: [&str; 3] =
    ["idle, no client has come", "idle after writes, no client", "idle, a client is there"];

/// After this time without a request all follow-up work is over: superblocks are clean, bitmaps are
/// written, and waiting threads have ended (io_uring's take five seconds).
const SETTLE: Duration = Duration::from_secs(15);

pub(super) fn run(settings: &Settings, report: &mut Report, servers: &[(&'static str, Server)]) {
    let [fresh, after_writes, with_client] = CASES;
    if settings.wants(fresh) {
        add(settings, report, fresh, servers);
    }
    if settings.wants(after_writes) {
        let job = Job::full("randwrite", 4, 8);
        for (name, server) in servers {
            if let Err(why) = job.run(&FioTarget::Export(server.uri()), Length::Mebibytes(2)) {
                report.note(format!("{after_writes}: {name} was not written to, {why}"));
            }
        }
        add(settings, report, after_writes, servers);
    }
    if settings.wants(with_client) {
        // The clients are connected and send nothing after the handshake.
        let clients: Vec<_> = servers
            .iter()
            .map(|(_, server)| super::super::growth::connect(server.socket()))
            .collect();
        for client in &clients {
            if let Err(why) = client {
                report.note(format!("{with_client}: not everywhere, {why}"));
            }
        }
        add(settings, report, with_client, servers);
        drop(clients);
    }
}

fn add(
    settings: &Settings,
    report: &mut Report,
    name: &'static str,
    servers: &[(&'static str, Server)],
) {
    match case(settings, report, name, servers) {
        Ok(case) => report.add(Some(case)),
        Err(why) => report.note(format!("{name}: skipped, {why}")),
    }
}

fn case(
    settings: &Settings,
    report: &mut Report,
    name: &'static str,
    servers: &[(&'static str, Server)],
) -> Result<Case, String> {
    let (settle, minute) = if settings.small {
        (Duration::from_millis(300), Duration::from_millis(700))
    } else {
        (SETTLE, Duration::from_secs(60))
    };
    std::thread::sleep(settle);
    let look = || servers.iter().map(|(_, server)| ProcessUsage::by(server.pid())).collect();
    let before: Result<Vec<ProcessUsage>, String> = look();
    std::thread::sleep(minute);
    let after: Result<Vec<ProcessUsage>, String> = look();
    let in_a_minute = 60.0 / minute.as_secs_f64();
    let (mut own, mut helpers) = (Vec::new(), Vec::new());
    for (((variant, _), before), after) in servers.iter().zip(before?).zip(after?) {
        let (of_kernel, of_server): (Vec<_>, Vec<_>) =
            after.since(&before).into_iter().partition(|(name, _)| name.starts_with(HELPER));
        let wake_ups = |threads: &[(&str, Switches)]| {
            let sum: u64 = threads.iter().map(|(_, one)| one.voluntary + one.involuntary).sum();
            vec![float(sum) * in_a_minute]
        };
        own.push(Series { variant, values: wake_ups(&of_server) });
        helpers.push(Series { variant, values: wake_ups(&of_kernel) });
        let wakers = wakers(of_server);
        if !wakers.is_empty() && !settings.small {
            report.note(format!("{name}: of {variant} these woke: {wakers}"));
        }
    }
    let figures =
        vec![Figure { metric: METRIC, series: own }, Figure { metric: HELPERS, series: helpers }];
    let case = Case { name: name.to_owned(), figures, targets: Vec::new() };
    Ok(case.with([Target::value(WAKE_UPS, "braid", 0.0, "nothing happens")]))
}

fn wakers(since: Vec<(&str, Switches)>) -> String {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, switches) in since {
        *sums.entry(name).or_default() += switches.voluntary + switches.involuntary;
    }
    let woke = sums.into_iter().filter(|(_, count)| *count > 0);
    woke.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_woke_are_named_and_others_are_not() {
        let once = Switches { voluntary: 1, involuntary: 0 };
        let since = vec![("b", once), ("a", Switches::default()), ("b", once)];
        assert_eq!(wakers(since), "b 2");
    }
}
