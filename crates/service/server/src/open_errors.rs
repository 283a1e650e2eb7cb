//! Errors for an array that assembled but did not start.

use braid_ring::RingError;
use braid_runtime::OpenError;

use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::probe::io_error;

/// Error for an array that assembled but did not start. Lost members are only one of the causes.
pub(super) fn array_open_error(error: &OpenError, labels: &[String]) -> CliError {
    let what = "the array could not be started";
    match error {
        OpenError::NotRecorded { index, source } if source.is_of_the_member() => {
            let what = format!("{} could not be written before the start", labels[*index]);
            CliError::new(Code::ArrayFailed, what).caused_by(error)
        }
        OpenError::NotRecorded { index, source } => {
            io_error(&labels[*index], "writing", source).because(error.to_string())
        }
        OpenError::Thread(source) | OpenError::Memory(source) => {
            system(what, source).because(error.to_string())
        }
        OpenError::WindowCopy { path, source } => {
            let error = CliError::new(Code::StateFolder, what).caused_by(error);
            let look = format!("ls -l {}", shell_word(&path.display().to_string()));
            error.because(source.to_string()).remedy(Risk::Look, "Look at it", look)
        }
        OpenError::Ring(RingError::System { error: source, .. }) => {
            system(what, source).because(error.to_string())
        }
        OpenError::Ring(_) => CliError::new(Code::System, what).caused_by(error),
        OpenError::Direct { index, .. } => {
            let label = &labels[*index];
            let what = format!(
                "{label} cannot bypass the page cache; it can be served without --direct on"
            );
            CliError::new(Code::System, what).about(label).caused_by(error)
        }
        OpenError::ReadOnly { .. } => CliError::new(Code::ReadOnlyOnly, what).caused_by(error),
        OpenError::Members(_) => CliError::new(Code::MembersDisagree, what).caused_by(error),
    }
}
