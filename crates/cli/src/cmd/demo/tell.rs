//! What the demo says: a line per step, a table at the end, three commands to go on with; or the
//! same as JSON, one object per step.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use braid_console::Globals;
use braid_console::output::colour::{Paint, Style};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_console::output::table::{Align, Table};

/// Steps of the demo.
const STEPS: usize = 8;

/// One row of the table at the end: a part of the demo in which data moved.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) requests: u64,
    pub(super) bytes_written: u64,
    pub(super) bytes_read: u64,
    pub(super) time: Duration,
}

impl Row {
    /// Bytes that moved in a second, either way.
    fn bytes_per_second(&self) -> u64 {
        let bytes = u128::from(self.bytes_written + self.bytes_read);
        let micros = self.time.as_micros().max(1);
        u64::try_from(bytes * 1_000_000 / micros).unwrap_or(u64::MAX)
    }
}

/// Tells a person or a program how it goes.
pub(super) struct Teller {
    json: bool,
    /// Whether a line may be drawn over.
    is_terminal: bool,
    paint: Paint,
    step: usize,
    steps_done: usize,
    name: &'static str,
    begun: Instant,
    started: Instant,
}

impl Teller {
    pub(super) fn new(globals: &Globals) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let now = Instant::now();
        Self {
            json: globals.json,
            is_terminal: !globals.json && !is_dumb && std::io::stdout().is_terminal(),
            paint: globals.paint_out,
            step: 0,
            steps_done: 0,
            name: "",
            begun: now,
            started: now,
        }
    }

    /// Steps that have ended well.
    pub(super) const fn steps_done(&self) -> usize {
        self.steps_done
    }

    /// What this is, before anything happens.
    pub(super) fn introduce(&self, folder: &str) {
        if !self.json {
            outln!("A RAID-6 of six files in {}, and what it survives:\n", printable(folder));
        }
    }

    /// A step begins: its name is shown until it ends, where lines can be drawn over.
    pub(super) fn begin(&mut self, name: &'static str) {
        self.step += 1;
        self.name = name;
        self.begun = Instant::now();
        if self.is_terminal {
            out!("{}", self.line("...", ""));
        }
    }

    /// The step has ended well: the command, in short (empty if there is none to type), and what
    /// it showed.
    pub(super) fn end(&mut self, command: &str, shown: &str, facts: &Value) {
        let time = self.begun.elapsed();
        self.steps_done = self.step;
        if self.json {
            let mut object = json!({
                "event": "step",
                "step": self.step,
                "steps": STEPS,
                "name": self.name,
                "command": command,
                "shown": shown,
                "seconds": seconds(time),
            });
            if let (Value::Object(object), Value::Object(facts)) = (&mut object, facts) {
                object.extend(facts.clone());
            }
            outjson!(&object);
            return;
        }
        if self.is_terminal {
            out!("\r\u{1b}[K");
        }
        let text = match (command, shown) {
            ("", shown) => printable(shown).into_owned(),
            (command, shown) => {
                let command = self.paint.paint(Style::Command, &printable(command));
                format!("{command}: {}", printable(shown))
            }
        };
        outln!("{}", self.line(&format!("{:.1} s", time.as_secs_f64()), &text));
    }

    /// Something went wrong in the step: its line stays as it was begun.
    pub(super) fn break_off(&self) {
        if self.is_terminal && self.step > 0 {
            outln!();
        }
    }

    fn line(&self, time: &str, text: &str) -> String {
        let name = self.paint.paint(Style::Strong, &format!("{:<11}", self.name));
        format!("  {}/{STEPS}  {name} {time:>6}  {text}", self.step).trim_end().to_string()
    }

    /// The table, what `braid serve` counted, and where to go from here.
    pub(super) fn summary(&self, rows: &[Row], counted: &str, next: &[(&str, String)]) {
        let time = self.started.elapsed();
        if self.json {
            let rows: Vec<Value> = rows.iter().map(row_json).collect();
            let next: Vec<Value> = next
                .iter()
                .map(|(label, command)| json!({ "label": label, "command": command }))
                .collect();
            outln!(
                "{}",
                json!({
                    "event": "summary",
                    "rows": rows,
                    "client_errors": 0,
                    "counted": counted,
                    "next": next,
                    "seconds": seconds(time),
                })
            );
            return;
        }
        outln!("\n{}", table(rows).render("  "));
        outln!("  braid serve counted {counted}");
        let good = self.paint.paint(Style::Good, "Every byte as it was written, no client error");
        outln!("  {good}, {:.1} s in all.\n", time.as_secs_f64());
        outln!("Try next:");
        for (label, command) in next {
            outln!("  {label:<24} {}", self.paint.paint(Style::Command, &printable(command)));
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let right = |heading| (heading, Align::Right);
    let mut table = Table::new(&[
        ("what", Align::Left),
        right("requests"),
        right("written"),
        right("read"),
        right("time"),
        right("per second"),
        right("errors"),
    ]);
    for row in rows {
        table.row([
            row.what.to_string(),
            row.requests.to_string(),
            format_size(row.bytes_written),
            format_size(row.bytes_read),
            format!("{:.2} s", row.time.as_secs_f64()),
            format_size(row.bytes_per_second()),
            "0".to_string(),
        ]);
    }
    table
}

fn row_json(row: &Row) -> Value {
    json!({
        "what": row.what,
        "requests": row.requests,
        "bytes_written": row.bytes_written,
        "bytes_read": row.bytes_read,
        "seconds": seconds(row.time),
        "bytes_per_second": row.bytes_per_second(),
        "client_errors": 0,
    })
}

/// In milliseconds' precision: more would be noise.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_what_moved_either_way() {
        let time = Duration::from_millis(500);
        let row = Row { what: "x", requests: 1, bytes_written: 1000, bytes_read: 24, time };
        assert_eq!(row.bytes_per_second(), 2048);
        let row = Row { time: Duration::ZERO, ..row };
        assert_eq!(row.bytes_per_second(), 1_024_000_000, "no division by zero");
    }
}
