//! Parses bdevperf's output: a table with a line for each job and a total, or the reason why there
//! is no result.
//! ```text
//!   Device Information : runtime(s) IOPS MiB/s Fail/s TO/s Average min max
//!   (a line for each job, and one that has its name and its figures)
//!   Total              :            IOPS MiB/s Fail/s TO/s Average min max
//! ```
//! The columns are found by their names. The total is checked: its MiB/s must match its requests of
//! that size, and no request may have failed.

/// Tolerance between two figures, which are printed with two digits.
const SLACK: f64 = 0.01;
const MIB: f64 = (1 << 20) as f64;
/// A part of SPDK's message for a write that is no whole stripe.
const PARTIAL: &str = "does not match the write_unit_size";

/// Requests a second of all jobs together, each of `sectors` sectors.
pub(super) fn rate(said: &str, sectors: u32) -> Result<f64, String> {
    let columns = after(said, "Device Information").ok_or("its table is not there")?;
    let total = after(said, "Total").ok_or("its table has no total")?;
    // The line of the total has no column for the run time.
    let names: Vec<&str> =
        columns.split_whitespace().filter(|name| *name != "runtime(s)").collect();
    let values: Vec<&str> = total.split_whitespace().collect();
    let value = |name: &str| -> Result<f64, String> {
        let column = names.iter().position(|other| *other == name);
        let word = column.filter(|_| names.len() == values.len()).map(|column| values[column]);
        let value: Option<f64> = word.and_then(|word| word.parse().ok());
        let value = value.filter(|value| value.is_finite() && *value >= 0.0);
        value.ok_or_else(|| format!("{name} of its total is not understood: {}", total.trim()))
    };
    let (requests, mebibytes, failed) = (value("IOPS")?, value("MiB/s")?, value("Fail/s")?);
    if failed > 0.0 || said.contains(" seconds with error") {
        return Err(format!("requests failed, {failed} of them a second"));
    }
    let of_requests = requests * f64::from(sectors) * 512.0 / MIB;
    if requests <= 0.0 || (of_requests - mebibytes).abs() > SLACK * of_requests + SLACK {
        return Err(format!("{requests} requests a second are not {mebibytes} MiB/s"));
    }
    Ok(requests)
}

/// The text after a line's name and a colon. If several lines have that name, the last one counts.
fn after<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = said.rsplit(['\n', '\r']);
    lines.find_map(|line| Some(line.trim_start().strip_prefix(name)?.split_once(':')?.1))
}

/// Why there is no result, in the program's own words if possible.
pub(super) fn why(said: &str, told: &str, status: &str) -> String {
    let lines = || told.lines().chain(said.lines()).map(str::trim).filter(|line| !line.is_empty());
    let word = |line: &str| line.rsplit("*ERROR*: ").next().unwrap_or(line).to_owned();
    if let Some(line) = lines().find(|line| line.contains(PARTIAL)) {
        return format!("refused: raid5f writes full stripes only ({})", word(line));
    }
    let line = lines().find(|line| line.contains("*ERROR*"));
    match line.or_else(|| told.lines().map(str::trim).rfind(|line| !line.is_empty())) {
        Some(line) => format!("{status}: {}", word(line)),
        None => format!("{status}, without a word"),
    }
}
