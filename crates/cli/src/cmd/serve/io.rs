//! Choosing what carries bytes: io_uring workers, or threads that block.

use std::sync::Arc;

use braid_ring::{Settings, Workers};

use super::report::Reporter;
use super::system;
use crate::error::CliError;

/// What `--io` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Io {
    /// Workers, or threads where io_uring is not allowed.
    Auto,
    /// Workers, or an error.
    Ring,
    /// Threads.
    Threads,
}

/// Starts workers, if that is what was asked for and can be had.
pub(super) fn workers(io: Io, reporter: &Reporter) -> Result<Option<Arc<Workers>>, CliError> {
    if io == Io::Threads {
        return Ok(None);
    }
    match Workers::start(&Settings::default()) {
        Ok(workers) => Ok(Some(Arc::new(workers))),
        Err(error) if io == Io::Auto && error.is_lack() => {
            reporter.without_workers(&error);
            Ok(None)
        }
        Err(error) => {
            let error = std::io::Error::other(error);
            Err(system("io_uring workers could not be started", &error))
        }
    }
}
