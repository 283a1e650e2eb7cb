//! `braid elevators`: what an array's elevators do, and how reads and write-back took turns.

use serde_json::{Value, json};

use super::Globals;
use super::tune::{ask, path_of, unanswered};
use crate::error::code::Code;
use crate::error::{CliError, Exit};
use crate::output::printable::printable;
use crate::output::table::{Align, Table};

/// Arguments of `braid elevators`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, as `braid serve` said it; or the path given to `serve --control`.
    #[arg(value_name = "ARRAY")]
    array: String,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let path = path_of(&args.array);
    let answer = ask(&path, &json!({ "show": "elevators" }));
    let answer = answer.map_err(|error| unanswered(&path, &error))?;
    if let Some(why) = answer["error"].as_str() {
        let error = CliError::new(Code::Usage, "the array does not show its elevators");
        return Err(error.because(printable(why).to_string()));
    }
    if globals.json {
        outjson!(&answer);
        return Ok(Exit::Done);
    }
    out!("{}", members(&answer).render(""));
    let settings = &answer["settings"];
    let state = if answer["is_multiplexed"] == true { "on" } else { "off" };
    let (period, share) =
        (settings["multiplexer-period"].to_string(), settings["multiplexer-share"].as_str());
    let share = share.unwrap_or_default();
    outln!(
        "\nmultiplexer {state}: period {} ms, write-back's share {} %",
        printable(&period),
        printable(share)
    );
    if answer["slices"].as_array().is_some_and(|slices| !slices.is_empty()) {
        out!("\n{}", slices(&answer).render(""));
    }
    Ok(Exit::Done)
}

/// One row for each member.
fn members(answer: &Value) -> Table {
    let columns = [
        ("SLOT", Align::Right),
        ("ELEVATOR", Align::Left),
        ("ROTATES", Align::Left),
        ("DEPTH", Align::Right),
        ("READS WAIT", Align::Right),
        ("WRITES WAIT", Align::Right),
        ("OUT", Align::Right),
        ("INSERTED", Align::Right),
        ("MERGED", Align::Right),
        ("DISPATCHED", Align::Right),
        ("EXPIRED", Align::Right),
        ("MISSES", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for one in answer["elevators"].as_array().into_iter().flatten() {
        let count = |key: &str| one[key].as_u64().unwrap_or_default();
        let rotates =
            one["rotational"].as_bool().map_or("unknown", |is| if is { "yes" } else { "no" });
        let merged = count("merged_back") + count("merged_front") + count("joined");
        table.row([
            one["slot"].to_string(),
            one["policy"].as_str().unwrap_or_default().to_owned(),
            rotates.to_owned(),
            count("depth").to_string(),
            count("waiting_reads").to_string(),
            count("waiting_writes").to_string(),
            count("out").to_string(),
            count("inserted").to_string(),
            merged.to_string(),
            count("dispatched").to_string(),
            count("expired").to_string(),
            count("owner_misses").to_string(),
        ]);
    }
    table
}

/// One row for each of the last periods, the oldest first.
fn slices(answer: &Value) -> Table {
    let columns = [
        ("AT", Align::Right),
        ("SHARE", Align::Right),
        ("SLICE", Align::Right),
        ("BUSY READING", Align::Right),
        ("BUSY WRITING", Align::Right),
        ("HELD", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for slice in answer["slices"].as_array().into_iter().flatten() {
        let number = |key: &str| slice[key].as_u64().unwrap_or_default();
        let ms = |key: &str| format!("{:.1} ms", number(key) as f64 / 1e6);
        let held = match (slice["held_reads"] == true, slice["held_writes"] == true) {
            (true, true) => "reads, writes",
            (true, false) => "reads",
            (false, true) => "writes",
            (false, false) => "",
        };
        table.row([
            format!("{:.2} s", number("start_ns") as f64 / 1e9),
            format!("{:.1} %", number("share_permille") as f64 / 10.0),
            ms("flusher_ns"),
            ms("busy_reads_ns"),
            ms("busy_writes_ns"),
            held.to_owned(),
        ]);
    }
    table
}
