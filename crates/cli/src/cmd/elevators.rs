//! `braid elevators`: shows an array's elevators, and how reads and write-back took turns.

use braid_control::model::Elevators;

use super::Globals;
use braid_console::error::{CliError, Exit};
use braid_console::output::printable::printable;
use braid_console::output::table::{Align, Table};
use braid_discovery::running::{self, unanswered};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(&args.array)?;
    let answer = running.client().get::<Elevators>("/v1/elevators");
    let answer = answer.map_err(|error| unanswered(&running.control, &error))?;
    if globals.json {
        outjson!(&serde_json::to_value(&answer).expect("it is made of text and numbers"));
        return Ok(Exit::Done);
    }
    out!("{}", members(&answer).render(""));
    let state = if answer.is_multiplexed { "on" } else { "off" };
    let setting = |key: &str| answer.settings.get(key).map(ToString::to_string).unwrap_or_default();
    outln!(
        "\nmultiplexer {state}: period {} ms, write-back's share {} %",
        printable(&setting("multiplexer-period")),
        printable(&setting("multiplexer-share"))
    );
    if !answer.slices.is_empty() {
        out!("\n{}", slices(&answer).render(""));
    }
    Ok(Exit::Done)
}

fn members(answer: &Elevators) -> Table {
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
    for one in &answer.elevators {
        let rotates = one.rotational.map_or("unknown", |is| if is { "yes" } else { "no" });
        let merged = one.merged_back + one.merged_front + one.joined;
        table.row([
            one.slot.map_or_else(|| "spare".to_owned(), |slot| slot.to_string()),
            one.policy.clone(),
            rotates.to_owned(),
            one.depth.to_string(),
            one.waiting_reads.to_string(),
            one.waiting_writes.to_string(),
            one.out.to_string(),
            one.inserted.to_string(),
            merged.to_string(),
            one.dispatched.to_string(),
            one.expired.to_string(),
            one.owner_misses.to_string(),
        ]);
    }
    table
}

/// One row for each recent period of the multiplexer, the oldest first.
fn slices(answer: &Elevators) -> Table {
    let columns = [
        ("AT", Align::Right),
        ("SHARE", Align::Right),
        ("SLICE", Align::Right),
        ("BUSY READING", Align::Right),
        ("BUSY WRITING", Align::Right),
        ("HELD", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for slice in &answer.slices {
        let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
        let held = match (slice.held_reads, slice.held_writes) {
            (true, true) => "reads, writes",
            (true, false) => "reads",
            (false, true) => "writes",
            (false, false) => "",
        };
        table.row([
            format!("{:.2} s", slice.start_ns as f64 / 1e9),
            format!("{:.1} %", f64::from(slice.share_permille) / 10.0),
            ms(slice.flusher_ns),
            ms(slice.busy_reads_ns),
            ms(slice.busy_writes_ns),
            held.to_owned(),
        ]);
    }
    table
}
