//! Polls a running array until a condition holds, with a status line on the terminal.
//!
//! The status line goes to standard error, and only if standard error is a terminal. Each line
//! overwrites the one before.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_control::model::Array;
use rustix::termios::tcgetwinsize;

use braid_console::error::CliError;
use braid_console::error::system::system;
use braid_console::output::printable::printable;
use braid_console::signals::flag_ending;
use braid_discovery::running::{RunningArray, unanswered};

const ASK_EVERY: Duration = Duration::from_millis(200);
/// Interval of checking for a signal or the time limit.
const NAP: Duration = Duration::from_millis(20);

/// The result of one look at the array: whether the awaited condition holds.
pub(super) enum PollState<T> {
    Over(T),
    /// The awaited condition does not hold yet. The field is the text of the status line.
    GoesOn(String),
}

pub(super) enum PollResult<T> {
    Over(T),
    Interrupted,
    /// The time limit is reached. The field is the text of the last status line.
    TimeUp(String),
}

/// Polls until `look` reports the awaited condition, a signal arrives, or the time is up.
///
/// # Errors
/// The array no longer answers, or `look` fails.
pub(super) fn poll<T>(
    running: &RunningArray,
    limit: Option<Duration>,
    mut look: impl FnMut(&Array) -> Result<PollState<T>, CliError>,
) -> Result<PollResult<T>, CliError> {
    let asked_to_end = Arc::new(AtomicBool::new(false));
    flag_ending(&asked_to_end).map_err(|error| system("signals cannot be watched", &error))?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    let is_late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let mut line = Line::new();
    loop {
        let array = running.client().get::<Array>("/v1/array");
        let array = array.map_err(|error| unanswered(&running.control, &error))?;
        let text = match look(&array)? {
            PollState::Over(outcome) => return Ok(PollResult::Over(outcome)),
            PollState::GoesOn(text) => text,
        };
        line.show(&text);
        let next = Instant::now() + ASK_EVERY;
        while Instant::now() < next {
            if asked_to_end.load(Ordering::Relaxed) {
                return Ok(PollResult::Interrupted);
            }
            if is_late() {
                return Ok(PollResult::TimeUp(text));
            }
            std::thread::sleep(NAP);
        }
    }
}

/// The status line on the terminal; a drop removes the line.
struct Line {
    is_shown: bool,
}

impl Line {
    fn new() -> Self {
        Self { is_shown: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, text: &str) {
        if self.is_shown {
            let text = cut(&printable(text), columns());
            err!("\r\u{1b}[K{text}");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_shown {
            err!("\r\u{1b}[K");
        }
    }
}

/// The number of the terminal's columns, if the terminal reports it.
fn columns() -> Option<usize> {
    let columns = tcgetwinsize(std::io::stderr()).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}

/// The text cut to one line of the terminal, since a longer text would wrap and stay on the screen.
fn cut(text: &str, columns: Option<usize>) -> String {
    text.chars().take(columns.map_or(usize::MAX, |columns| columns.saturating_sub(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_line_is_no_longer_than_the_terminal_is_wide() {
        assert_eq!(cut("rebuilding", Some(5)), "rebu");
        assert_eq!(cut("rebuilding", None), "rebuilding");
        assert_eq!(cut("é▏", Some(80)), "é▏");
    }
}
