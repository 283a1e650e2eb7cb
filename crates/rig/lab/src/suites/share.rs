//! The shares of memcpy and of the stripe lookup in aligned reads, as `perf` samples them.
//!
//! Starts this program once more to repeat one case, and has `perf` sample that process. The
//! compiler may inline a lookup into its caller, where sampling cannot find it, so lookups are
//! counted as well.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::frame::{Case, Figure, Metric, Report, Series, Settings, Target};

const NAME: &str = "CPU share, 4 KiB random read, null members";
const PROFILED: &str = "4 KiB random read, null members/braid";
/// How long the sampled process takes to start.
const START: Duration = Duration::from_millis(700);

const MEMCPY: &str = "share of memcpy";
const LOOKUP: &str = "share of the lookup";
const LOOKUPS: &str = "lookups";

/// Samples the case; adds a note if that is impossible.
pub(super) fn run(settings: &Settings, report: &mut Report) {
    if settings.profile.is_some() || !settings.wants(NAME) {
        return;
    }
    let mut rounds = Vec::new();
    for _ in 0..settings.runs {
        match sample(settings) {
            Ok(shares) => rounds.push(shares),
            Err(why) => return report.note(format!("{NAME}: skipped, {why}")),
        }
    }
    let lookups = lookups(report);
    let figure = |name, unit, values: Vec<f64>| Figure {
        metric: Metric::less(name, unit),
        series: vec![Series { variant: "braid", values }],
    };
    let figures = vec![
        figure(MEMCPY, "%", rounds.iter().map(|(memcpy, _)| *memcpy).collect()),
        figure(LOOKUP, "%", rounds.iter().map(|(_, lookup)| *lookup).collect()),
        figure(LOOKUPS, "1/request", vec![lookups; rounds.len()]),
    ];
    let case = Case { name: NAME.to_owned(), figures, targets: Vec::new() };
    report.add(Some(
        case.with([
            Target::value(MEMCPY, "braid", 0.0, ""),
            Target::value(LOOKUP, "braid", 1.0, ""),
        ]),
    ));
}

/// Stripe lookups for each request, by the counters of the sampled case.
fn lookups(report: &Report) -> f64 {
    let whose = PROFILED.replace('/', ", ");
    let line = report.counters.iter().find(|(other, _)| *other == whose).map(|(_, line)| line);
    let count = |name: &str| -> f64 {
        let of = |one: &str| one.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
        line.and_then(|line| line.split(", ").find_map(of)).unwrap_or(0.0)
    };
    count("lookups") / count("direct_reads").max(1.0)
}

struct RepeatingProcess(Child);

impl Drop for RepeatingProcess {
    fn drop(&mut self) {
        // `kill` fails if the process has ended already, which needs no signal.
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The shares of memcpy and of the lookup, in percent.
fn sample(settings: &Settings) -> Result<(f64, f64), String> {
    let said = |error: std::io::Error| error.to_string();
    let folder = tempfile::tempdir().map_err(said)?;
    let samples = folder.path().join("samples");
    let mut lab = Command::new(std::env::current_exe().map_err(said)?);
    lab.args(["read", "--profile", PROFILED]);
    let child = lab.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(said)?;
    let repeating = RepeatingProcess(child);
    std::thread::sleep(START);
    let mut record = Command::new("perf");
    record.args(["record", "--event=cpu-clock", "--freq=1999"]);
    record.arg(format!("--pid={}", repeating.0.id())).arg("--output").arg(&samples);
    record.args(["--", "sleep", if settings.small { "0.2" } else { "2" }]);
    let output = record.output().map_err(|error| format!("perf: {error}"))?;
    drop(repeating);
    if !output.status.success() {
        return Err(format!("perf record: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let mut told = Command::new("perf");
    told.args(["report", "--stdio", "--no-children", "--sort=symbol", "--input"]).arg(&samples);
    let output = told.output().map_err(|error| format!("perf: {error}"))?;
    shares(&String::from_utf8_lossy(&output.stdout))
}

fn shares(text: &str) -> Result<(f64, f64), String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let symbols: Vec<(f64, &str)> = lines
        .filter_map(|line| {
            let (share, symbol) = line.trim().split_once('%')?;
            Some((share.parse().ok()?, symbol))
        })
        .collect();
    if symbols.is_empty() {
        return Err("perf saw nothing".to_owned());
    }
    let sum = |words: &[&str]| {
        let named = |symbol: &str| words.iter().any(|word| symbol.contains(word));
        symbols.iter().filter(|(_, symbol)| named(symbol)).map(|(share, _)| share).sum()
    };
    Ok((sum(&["memcpy", "memmove"]), sum(&["::Index::", "stripe::index"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_added_up() {
        let text = "# Overhead\n 60.00%  [.] braid_engine::Shard::begin  -  -\n  \
                    5.50%  [.] __memmove_avx512_unaligned_erms\n  1.25%  [.] memcpy@plt\n  \
                    0.75%  [.] braid_engine::stripe::index::Index::get\n";
        assert_eq!(shares(text), Ok((6.75, 0.75)));
        assert!(shares("# nothing\n").is_err());
    }
}
