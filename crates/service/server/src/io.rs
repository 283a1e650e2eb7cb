//! Chooses how bytes move between clients and members: by io_uring workers or blocking threads,
//! through the page cache or bypassing it.

use std::sync::Arc;
use std::time::Duration;

use braid_ring::{RingError, Settings, Workers};
use braid_runtime::Options;

use super::config::{Io, IoConfig};
use super::report::Reporter;
use braid_console::error::CliError;
use braid_console::error::system::system;

/// More shards than this would cost more memory than they are worth.
const SHARDS_MAX: u16 = 64;

/// The array's options for `workers`: four shards for each worker, so that two workers seldom need
/// the same shard.
pub(super) fn options(workers: Option<&Arc<Workers>>) -> Options {
    let options = Options::default();
    let Some(workers) = workers else {
        return Options { io: braid_runtime::Io::Threads, ..options };
    };
    let shards = u16::try_from(4 * workers.count()).unwrap_or(u16::MAX).min(SHARDS_MAX);
    let workers = Some(Arc::clone(workers));
    Options { io: braid_runtime::Io::Ring, shards, workers, ..options }
}

/// Starts io_uring workers, if requested and available.
pub(super) fn workers(
    config: &IoConfig,
    reporter: &Reporter,
) -> Result<Option<Arc<Workers>>, CliError> {
    let io = config.how;
    if io == Io::Threads {
        return Ok(None);
    }
    let mut settings = Settings::default();
    settings.workers = config.workers.map_or(settings.workers, usize::from);
    settings.busy_poll = Duration::from_micros(config.busy_poll_us.into());
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
