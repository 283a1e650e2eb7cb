//! Recordings of served arrays, told to new machines and printed as a trace.
//!
//! The recording may come from anybody: what is wrong with it, and what makes a machine panic, is an
//! error that names the line [check: a_recording_that_asks_for_what_cannot_be_is_an_error].

use std::cell::Cell;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use braid_engine::CacheMode;
use braid_engine::effect::Report;
pub use braid_recording::{Ending, Replayed};
use braid_recording::{Input, Recording, Turn};

/// Replays a recording; `show` is given one line for each thing that a machine was told, if there
/// is someone to show it to.
///
/// # Errors
/// The first line that is wrong, and how.
pub fn replay(text: &str, show: Option<&mut dyn FnMut(&str)>) -> Result<Replayed, String> {
    let recording = Recording::parse(text).map_err(|problem| problem.to_string())?;
    if let Some(show) = show {
        for (_, turn) in &recording.turns {
            lines(turn).iter().for_each(|line| show(line));
        }
    }
    let line = Cell::new(0);
    let replayed = catch_unwind(AssertUnwindSafe(|| braid_recording::replay(&recording, &line)));
    match replayed {
        Ok(replayed) => replayed.map_err(|trouble| trouble.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("a panic without words");
            Err(format!("line {}: a machine that is told this panics: {text}", line.get()))
        }
    }
}

/// What a turn was told, in the words of the trace.
fn lines(turn: &Turn) -> Vec<String> {
    let line = |input: &Input| {
        let (word, [a, b, c]) = event(input);
        let mut line =
            format!("{:>16} {:<4} {word:<12} {a} {b} {c}", turn.now.0, turn.machine.to_string());
        if let Input::Piece(piece) = input {
            write!(line, " {:?}", piece.operation).expect("memory takes it");
        }
        line
    };
    turn.inputs.iter().map(line).collect()
}

fn event(input: &Input) -> (&'static str, [u64; 3]) {
    let one = |number: u64| [number, 0, 0];
    match *input {
        Input::Piece(piece) => {
            ("piece", [piece.request.0, piece.start.0, u64::from(piece.sectors)])
        }
        Input::MemberIo(done) => ("io-done", [done.id.0, u64::from(done.result.is_ok()), 0]),
        Input::JobDone(job) => ("job", one(job.0)),
        Input::WriteBack(round) => ("write-back", one(round)),
        Input::Tuning(tuning) => {
            let is_back = tuning.mode == CacheMode::WriteBack;
            ("tune", [u64::from(tuning.stripes), u64::from(is_back), tuning.age_max_ms])
        }
        Input::View(epoch) => ("view", one(epoch)),
        Input::Attention(number) => ("attend", one(number)),
        Input::SitOut(settings) => {
            ("sit-out", [u64::from(settings.is_on), u64::from(settings.factor), settings.min_ms])
        }
        Input::ActivityQuery => ("query", [0; 3]),
        Input::Report(shard, report) => {
            let shard = u64::from(shard.0);
            match report {
                Report::WantWrite => ("wants", one(shard)),
                Report::MemberFailed { member } => ("failed", [shard, u64::from(member.0), 0]),
                Report::OutOfSpace { member } => ("full", [shard, u64::from(member.0), 0]),
                Report::MemberWritten { member } => ("wrote", [shard, u64::from(member.0), 0]),
                Report::WrittenBack { round } => ("back", [shard, round, 0]),
                Report::WriteLost { .. } => ("missed", one(shard)),
                Report::ViewInForce { epoch } => ("rules", [shard, epoch, 0]),
                Report::Pace { member, pace } => {
                    ("pace", [u64::from(member.0), pace.mean_ns, pace.oldest_ns])
                }
                Report::Activity { last_write, writing } => {
                    ("active", [shard, last_write.0, u64::from(writing)])
                }
            }
        }
        Input::SuperblockWritten(member, written) => {
            ("super-done", [u64::from(member.0), u64::from(written), 0])
        }
        Input::Flushed(member, flushed) => {
            ("flush-done", [u64::from(member.0), u64::from(flushed), 0])
        }
        Input::FlushRequest(request) => ("ask-flush", one(request.0)),
        Input::MemberLost(member) => ("lost", one(u64::from(member.0))),
        Input::Timeout => ("tick", [0; 3]),
        Input::Stop => ("stop", [0; 3]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(turns: &str) -> String {
        format!(
            "braid-recording 2 {}\nlevel 1 layout 0 chunk 0 sectors 64 64\n\
             events 1 resync 0 readonly 0 fastzero 0 delay 0 shards 1 tear 0\n\
             cache unit 8 room 1 tuned 1:through:1:0:1\n\
             slot 0 0 18446744073709551615\nslot 1 1 18446744073709551615\nturns\n{turns}",
            env!("CARGO_PKG_VERSION")
        )
    }

    #[test]
    fn a_recording_that_asks_for_what_cannot_be_is_an_error() {
        for (turns, expected) in [
            ("s0 0 5 io:7:ok = 0 0\nend\n", "line 8: a machine that is told this panics"),
            ("s0 0 5 piece:1:r:99999:1:0 = 0 0\nend\n", "line 8: "),
            ("s0 1 5 query = 0 0\nend\n", "line 8: this turn is not the machine's next"),
            ("s1 0 5 query = 0 0\nend\n", "line 8: this turn is not the machine's next"),
            (
                "s0 0 5 view:9 = 0 0\nend\n",
                "line 8: a view or an attention that the array never gave",
            ),
            ("a 0 5 timeout = 7 0\nend\n", "line 8: turn 0 of a gives"),
            ("a 0 5 query = 7 0\nend\n", "line 8: not a turn"),
        ] {
            let error = replay(&recording(turns), None).expect_err(turns);
            assert!(error.starts_with(expected), "{turns}: {error}");
        }
    }

    #[test]
    fn what_machines_were_told_is_printed_in_the_words_of_the_trace() {
        let mut shown = Vec::new();
        let text = recording("s0 0 5 piece:3:w:8:2:0 query = 0 0\n");
        let _diverges = replay(&text, Some(&mut |line| shown.push(line.to_owned())));
        assert_eq!(shown.len(), 2);
        assert!(shown[0].contains("s0   piece        3 8 2 Write"), "{shown:?}");
    }
}
