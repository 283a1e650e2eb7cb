//! Standard output, and whether all of it was written.
//!
//! A failed write to standard output does not stop the command: an array is still served, a plan
//! still carried out. But the command has not done its job, so its exit status reports the failure,
//! in one place at the end of `main`. This module keeps the first error. If the reader closed the
//! pipe, no message follows, as with shell tools, but the exit status is the same.
//!
//! Invariant: a command ends with 0 only if all its output was written
//! `[check: output_that_cannot_be_written_is_a_failure]`.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes data to standard output; flushes the output at once if `flushes`.
pub fn write(text: Arguments<'_>, flushes: bool) {
    let mut out = io::stdout();
    let written = out.write_fmt(text).and_then(|()| if flushes { out.flush() } else { Ok(()) });
    note(written);
}

/// Notes the result of another module's write to standard output.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Flushes buffered data to standard output.
pub fn flush() {
    note(io::stdout().flush());
}

/// Whether a write to standard output has failed, so that more output is of no use.
pub fn has_failed() -> bool {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Flushes standard output, and returns the first error since the start.
pub fn end() -> io::Result<()> {
    note(io::stdout().flush());
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
}

/// Whether the error says that the reader has closed the pipe.
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}
