//! The output of the demo: a line for each step, and three commands at the end; or JSON with one
//! object for each step and one at the end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use braid_console::Globals;
use braid_console::output::colour::{Paint, Style};
use braid_console::output::printable::printable;

const STEPS: usize = 7;

/// The report of the demo, as far as it has come.
pub(super) struct Report {
    json: bool,
    paint: Paint,
    /// The number of the running step, from 1 on.
    step: usize,
    steps_done: usize,
    name: &'static str,
    step_start: Instant,
    start: Instant,
    /// The counts of stripes and writes that `braid serve` reported, in words.
    pub(super) counted: String,
}

impl Report {
    pub(super) fn new(globals: &Globals) -> Self {
        let now = Instant::now();
        Self {
            json: globals.json,
            paint: globals.paint_out,
            step: 0,
            steps_done: 0,
            name: "",
            step_start: now,
            start: now,
            counted: String::new(),
        }
    }

    pub(super) const fn steps_done(&self) -> usize {
        self.steps_done
    }

    pub(super) fn introduce(&self, folder: &str) {
        if !self.json {
            outln!("A RAID-6 of six files in {}, and what it survives:\n", printable(folder));
        }
    }

    pub(super) fn begin(&mut self, name: &'static str) {
        self.step += 1;
        self.name = name;
        self.step_start = Instant::now();
    }

    /// Ends a step of the demo: `command` is empty if the step has none to type.
    pub(super) fn end(&mut self, command: &str, shown: &str, facts: Value) {
        let time = self.step_start.elapsed();
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
                object.extend(facts);
            }
            outjson!(&object);
            return;
        }
        let name = self.paint.paint(Style::Strong, &format!("{:<11}", self.name));
        let command = match command {
            "" => String::new(),
            typed => format!("{}: ", self.paint.paint(Style::Command, &printable(typed))),
        };
        let time = format!("{:.1} s", time.as_secs_f64());
        outln!("  {}/{STEPS}  {name} {time:>6}  {command}{}", self.step, printable(shown));
    }

    /// Prints the counts of `braid serve`, and commands for the operator to continue with.
    pub(super) fn summary(&self, next: &[(&str, String)]) {
        let time = self.start.elapsed();
        if self.json {
            let next =
                next.iter().map(|(label, command)| json!({ "label": label, "command": command }));
            outjson!(&json!({
                "event": "summary",
                "client_errors": 0,
                "counted": self.counted,
                "next": next.collect::<Vec<_>>(),
                "seconds": seconds(time),
            }));
            return;
        }
        outln!("\n  braid serve counted {}", self.counted);
        let good = self.paint.paint(Style::Good, "Every byte as it was written, no client error");
        outln!("  {good}, {:.1} s in all.\n", time.as_secs_f64());
        outln!("Try next:");
        for (label, command) in next {
            outln!("  {label:<24} {}", self.paint.paint(Style::Command, &printable(command)));
        }
    }
}

/// A duration in seconds, rounded to the millisecond.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
