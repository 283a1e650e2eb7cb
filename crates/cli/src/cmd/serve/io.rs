//! Choosing what carries bytes: io_uring workers, or threads that block; through the page cache, or past it.

use std::sync::Arc;
use std::time::Duration;

use braid_ring::{RingError, Settings, Workers};
use braid_runtime::Options;

use super::report::Reporter;
use crate::error::CliError;
use crate::error::system::system;
use crate::output::size::{SizeError, parse_size};

/// More shards than this cost more memory than they give.
const SHARDS_MAX: u16 = 64;

/// What one wait may be spent looking, at most: longer than any member that is worth it takes.
pub(super) const BUSY_POLL_US_MAX: i64 = 10_000;

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

/// What `--direct` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Direct {
    /// Block devices, where they allow it.
    Auto,
    /// All members, or an error.
    On,
    /// None.
    Off,
}

impl From<Direct> for braid_runtime::Direct {
    fn from(direct: Direct) -> Self {
        match direct {
            Direct::Auto => Self::Auto,
            Direct::On => Self::On,
            Direct::Off => Self::Off,
        }
    }
}

/// Reads what `--hand-over` says, in bytes; 0 for never.
pub(super) fn hand_over_bytes(text: &str) -> Result<u64, SizeError> {
    if text == "never" { Ok(0) } else { parse_size(text) }
}

/// How the array is to use `workers`: four shards for each, so that they seldom meet at one.
pub(super) fn options(workers: Option<&Arc<Workers>>) -> Options {
    let options = Options::default();
    let Some(workers) = workers else {
        return Options { io: braid_runtime::Io::Threads, ..options };
    };
    let shards = u16::try_from(4 * workers.count()).unwrap_or(u16::MAX).min(SHARDS_MAX);
    let workers = Some(Arc::clone(workers));
    Options { io: braid_runtime::Io::Ring, shards, workers, ..options }
}

/// Starts workers, if that is what was asked for and can be had; `count` of them, or as many as seem right, which look for so
/// many microseconds before they sleep.
pub(super) fn workers(
    io: Io,
    (count, busy_poll_us): (Option<u16>, u32),
    reporter: &Reporter,
) -> Result<Option<Arc<Workers>>, CliError> {
    if io == Io::Threads {
        return Ok(None);
    }
    let mut settings = Settings::default();
    settings.workers = count.map_or(settings.workers, usize::from);
    settings.busy_poll = Duration::from_micros(busy_poll_us.into());
    match Workers::start(&settings) {
        Ok(workers) => Ok(Some(Arc::new(workers))),
        Err(error) if io == Io::Auto && error.is_lack() => {
            reporter.without_workers(&error);
            Ok(None)
        }
        Err(error) => {
            let what = "io_uring workers could not be started";
            Err(match error {
                RingError::System { call, error } => {
                    system(what, &error).because(format!("{call} failed"))
                }
                error => system(what, &std::io::Error::other(error)),
            })
        }
    }
}
