//! Options with which an array runs, and the default of each. One is the delay until superblocks
//! turn clean (md's `safe_mode_delay`, 200 ms).

use std::sync::Arc;

use braid_engine::{Patience, ReadErrorLimit, SitOut};
use braid_member::{DirectError, Member, MemberKind};
use braid_pace::GovernorSettings;
use braid_ring::Workers;

use crate::cache::Cache;
use crate::cache_file::CacheFile;
use crate::scheduling::Scheduling;
use crate::updates::Consenter;
use crate::window_copy::WindowCopy;

/// How the runtime reads and writes members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// By io_uring if it is allowed, otherwise by threads.
    #[default]
    Auto,
    /// By io_uring. If it is not available, the array does not start.
    Ring,
    /// By threads that wait for each operation.
    Threads,
}

/// Whether members bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// The block devices that support direct I/O ([`crate::Volume::through_page_cache`] lists the
    /// others), and the files of an array that is written. Files that are only read stay in the
    /// page cache (docs/clients.md has figures).
    #[default]
    Auto,
    /// All members. If one does not support direct I/O, the array does not start. Members in memory
    /// have no page cache.
    On,
    /// No member bypasses the page cache.
    Off,
}

impl Direct {
    /// Switches a member to direct I/O, if this setting demands direct I/O.
    ///
    /// # Errors
    /// The member must switch and cannot. For a file that is an error only if every member must
    /// switch.
    pub fn apply(self, device: &dyn Member, read_only: bool) -> Result<(), DirectError> {
        let is_block = device.identity().kind == MemberKind::BlockDevice;
        match self {
            Self::Off => Ok(()),
            Self::Auto if !is_block => {
                if !read_only {
                    // If refused, the file stays in the page cache.
                    let _refused = device.go_direct();
                }
                Ok(())
            }
            Self::On if device.is_memory() => Ok(()),
            Self::Auto | Self::On => device.go_direct(),
        }
    }
}

/// Settings of a [`crate::Volume`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Writes are refused, and nothing is written to any member, superblocks included.
    pub read_only: bool,
    /// Shards of the array; at least 1. Four for each worker keep workers apart.
    pub shards: u16,
    /// The stripe cache (levels 4, 5, 6).
    pub cache: Cache,
    /// The file that keeps copies of acknowledged writes beyond the process, with a part for each
    /// shard. Without it the copies end with the process.
    pub cache_file: Option<Arc<CacheFile>>,
    /// Copies of a reshape's windows that overwrite their source; `None` without a state folder.
    pub window_copy: Option<Arc<WindowCopy>>,
    /// Receives each update of superblocks before the update begins, and agrees to it; `None` if no
    /// update waits for consent.
    pub consenter: Option<Consenter>,
    /// How members are scheduled.
    pub scheduling: Scheduling,
    /// Threads for each member if io_uring is not used; at least 1.
    pub threads_per_member: usize,
    /// When a slow member sits out.
    pub sit_out: SitOut,
    /// How long the array waits for a member that does not answer.
    pub patience: Patience,
    /// Maximum read errors of a member, and the consequence of more.
    pub read_errors: ReadErrorLimit,
    /// Whether jobs (resync, recovery, check) wait for a request to continue
    /// ([`crate::Volume::request_job`]).
    pub jobs_paused: bool,
    /// How jobs give way to clients.
    pub job_pace: GovernorSettings,
    /// Milliseconds without a write until superblocks turn clean (md's `safe_mode_delay`).
    pub clean_delay_ms: u64,
    /// How members are read and written.
    pub io: Io,
    /// Whether members bypass the page cache.
    pub direct: Direct,
    /// The shortest write, in bytes, that a worker hands to a worker that sleeps; 0: never.
    pub hand_over_bytes: u64,
    /// Shared workers, which outlive the volume. With `None` the volume starts its own workers, if
    /// it uses any.
    pub workers: Option<Arc<Workers>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            shards: 4,
            cache: Cache::default(),
            cache_file: None,
            window_copy: None,
            consenter: None,
            scheduling: Scheduling::default(),
            threads_per_member: 4,
            sit_out: SitOut::default(),
            patience: Patience::default(),
            read_errors: ReadErrorLimit::default(),
            jobs_paused: false,
            job_pace: GovernorSettings::default(),
            // md's own default is 201 ms.
            clean_delay_ms: 200,
            io: Io::Auto,
            direct: Direct::Auto,
            hand_over_bytes: 64 << 10,
            workers: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_member::create_file;

    use super::*;

    /// Regression: small writes through the page cache went to a kernel thread each, unless the
    /// operator knew of `--direct on`.
    #[test]
    fn a_file_that_is_written_goes_past_the_page_cache_by_itself_and_one_that_is_read_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| create_file(&folder.path().join(name), 1 << 20).expect("a file");
        let can = file("a").go_direct().is_ok();
        for (name, read_only, is_direct) in [("b", true, false), ("c", false, can)] {
            let file = file(name);
            Direct::Auto.apply(&file, read_only).expect("either way will do");
            assert_eq!(file.is_direct(), is_direct);
        }
    }
}
