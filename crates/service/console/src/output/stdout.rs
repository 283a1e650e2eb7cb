//! Standard output, and whether everything got there.
//!
//! Nothing ends in the middle because its output cannot be written: an array is served on, a plan carried out. But the
//! command has then not done what it was for, and its exit status says so: in one place, at the end of `main`. The first error
//! is kept. A pipe that its reader closed is no error to speak of, as for the tools of a shell; the exit status is the same.
//!
//! Invariant: no command ends with 0 whose output is not all written `[check: output_that_cannot_be_written_is_a_failure]`.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

/// The first error.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes data; with `flushes`, at once.
pub fn write(text: Arguments<'_>, flushes: bool) {
    let mut out = io::stdout();
    let written = out.write_fmt(text).and_then(|()| if flushes { out.flush() } else { Ok(()) });
    note(written);
}

/// Notes what another's writing to standard output came to.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written {
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Writes what is left, now.
pub fn flush() {
    note(io::stdout().flush());
}

/// Whether something could not be written, so that there is no use in going on.
pub fn has_failed() -> bool {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Writes what is left. The first error of all, if there was one.
pub fn end() -> io::Result<()> {
    note(io::stdout().flush());
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
}

/// Whether the reader has seen enough.
pub fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}
