//! Stops the array: waits for its members, but not for a silent member.
//!
//! A stop writes dirty stripes back, flushes, and marks the superblocks clean. It may take long, as
//! long as members answer any request at all. If members have requests and answer none for a while,
//! the stop is given up: the array is left as after a crash, and the error names the silent
//! members.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use braid_runtime::{StopResult, Volume};

use super::report::Reporter;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;

const LOOK: Duration = Duration::from_millis(200);

pub(super) fn stop(
    volume: &Arc<Volume>,
    reporter: &Reporter,
    patience: Duration,
) -> Result<StopResult, CliError> {
    reporter.stopping(volume);
    let (done, stopped) = channel();
    let stopping = Arc::clone(volume);
    let thread = thread::Builder::new().name("braid-stop".into()).spawn(move || {
        let stopped = stopping.stop();
        drop(stopping);
        // If the stop was given up, no caller receives its result.
        let _ = done.send(stopped);
    });
    if thread.is_err() {
        return Ok(volume.stop());
    }
    let mut last = (volume.ended_at_members(), Instant::now());
    loop {
        match stopped.recv_timeout(LOOK) {
            Ok(stopped) => return Ok(stopped),
            Err(RecvTimeoutError::Disconnected) => panic!("stopping does not panic"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let (ended, silent) = (volume.ended_at_members(), volume.unanswered());
        if ended != last.0 || silent.is_empty() {
            last = (ended, Instant::now());
        } else if last.1.elapsed() >= patience {
            let labels: Vec<String> = silent.iter().map(|member| reporter.label(*member)).collect();
            return Err(given_up(&labels, patience));
        }
    }
}

fn given_up(labels: &[String], patience: Duration) -> CliError {
    let seconds = patience.as_secs();
    let what = format!("{} has answered nothing for {seconds} s", labels.join(", "));
    let error = CliError::new(Code::MemberSilent, what)
        .because("the array was not stopped, and is left as after a crash")
        .because(
            "if the kernel waits for the member too, the process ends when the kernel gives \
                  up",
        );
    let words: Vec<String> = labels.iter().map(|label| shell_word(label).into_owned()).collect();
    let look = format!("braid examine {}", words.join(" "));
    error.about(labels.join(", ")).remedy(Risk::Look, "See whether it answers again", look)
}
