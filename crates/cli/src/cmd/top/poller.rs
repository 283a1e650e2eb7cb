//! Polls one array or all arrays that are served here, while the poller exists.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use braid_control::model::Elevators;

use braid_console::error::CliError;
use braid_discovery::running::{self, RunningArray, RunningArrays};

/// The answers of one array.
#[derive(Clone, Debug)]
pub(super) struct ArrayAnswers {
    pub(super) running: RunningArray,
    /// The array's elevators; `None` if the request for them failed.
    pub(super) elevators: Option<Elevators>,
}

/// The answers of all polled arrays at one time.
#[derive(Clone, Debug)]
pub(super) struct ArraysSnapshot {
    /// Time since an arbitrary start.
    pub(super) at: Duration,
    pub(super) arrays: Vec<ArrayAnswers>,
    /// The reasons why other arrays did not answer.
    pub(super) silent: Vec<String>,
}

impl ArraysSnapshot {
    pub(super) fn of(&self, control: &Path) -> Option<&ArrayAnswers> {
        self.arrays.iter().find(|seen| seen.running.control == control)
    }
}

/// Asks the array that `word` names, or all arrays.
///
/// # Errors
/// `word` names no array, the array does not answer, or no array is served.
pub(super) fn look(word: Option<&str>) -> Result<ArraysSnapshot, CliError> {
    let all = match word {
        Some(word) => RunningArrays { running: vec![running::find(word)?], silent: Vec::new() },
        None => running::all(),
    };
    let RunningArrays { running, mut silent } = all;
    if running.is_empty() {
        return Err(silent.pop().map_or_else(running::none_served, |silent| silent.error));
    }
    let seen = |running: RunningArray| {
        let elevators = running.client().get("/v1/elevators").ok();
        ArrayAnswers { running, elevators }
    };
    Ok(ArraysSnapshot {
        at: now(),
        arrays: running.into_iter().map(seen).collect(),
        silent: silent.into_iter().map(|silent| silent.error.to_string()).collect(),
    })
}

fn now() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Polls arrays on a separate thread, which ends before its next poll once the value is dropped.
pub(super) struct Poller {
    answers: Receiver<Result<ArraysSnapshot, CliError>>,
    _wanted: Sender<()>,
}

impl Poller {
    /// Starts the polling thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn start(word: Option<&str>, interval: Duration) -> std::io::Result<Self> {
        let (teller, answers) = channel();
        let (wanted, ends) = channel();
        let word = word.map(str::to_owned);
        let ask = move || {
            while ends.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                if teller.send(look(word.as_deref())).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("braid-looks".into()).spawn(ask)?;
        Ok(Self { answers, _wanted: wanted })
    }

    /// The answers of the next poll of the arrays, if they have arrived.
    pub(super) fn answer(&self) -> Option<Result<ArraysSnapshot, CliError>> {
        self.answers.try_recv().ok()
    }
}
