//! How an array is to be run.

use std::sync::Arc;

use braid_engine::{Patience, ReadErrorLimit, SitOut};
use braid_member::{DirectError, Member, MemberKind};
use braid_pace::GovernorSettings;
use braid_ring::Workers;

use crate::cache::Cache;
use crate::cache_file::CacheFile;
use crate::scheduling::Scheduling;

/// How members are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// By io_uring where it is allowed, else by threads.
    #[default]
    Auto,
    /// By io_uring, or not at all.
    Ring,
    /// By threads that wait.
    Threads,
}

/// Whether members are used past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where they allow it: block devices ([`crate::Volume::through_page_cache`] says which do not), and files of an array that is
    /// written. Files that are only read stay in the page cache (docs/clients.md has figures).
    #[default]
    Auto,
    /// All members, or the array does not start. Members in memory have no page cache.
    On,
    /// None.
    Off,
}

impl Direct {
    /// Takes a member past the page cache, if it is to be.
    ///
    /// # Errors
    /// It is to be, and cannot; a file only if every member has to be.
    pub fn apply(self, device: &dyn Member, read_only: bool) -> Result<(), DirectError> {
        let is_block = device.identity().kind == MemberKind::BlockDevice;
        match self {
            Self::Off => Ok(()),
            Self::Auto if !is_block => {
                if !read_only {
                    // Through the page cache, then.
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
    /// Refuse writes; nothing is written to any member, superblocks included.
    pub read_only: bool,
    /// Shards of the array; at least 1. Four for each worker keep workers apart.
    pub shards: u16,
    /// The stripe cache (levels 4, 5, 6).
    pub cache: Cache,
    /// Where copies of answered writes outlive the process, made for as many shards; none: they end with it.
    pub cache_file: Option<Arc<CacheFile>>,
    /// How members are scheduled.
    pub scheduling: Scheduling,
    /// Threads that wait for each member where io_uring does not; at least 1.
    pub threads_per_member: usize,
    /// When a slow member is read around.
    pub sit_out: SitOut,
    /// How long a member that answers nothing is waited for.
    pub patience: Patience,
    /// How many read errors a member may have, and what becomes of one with more.
    pub read_errors: ReadErrorLimit,
    /// Whether jobs (resync, recovery, check) wait until they are told to go on ([`crate::Volume::request_job`]).
    pub jobs_paused: bool,
    /// How jobs give way to clients.
    pub job_pace: GovernorSettings,
    /// Milliseconds without a write after which the superblocks turn clean (md's `safe_mode_delay`).
    pub clean_delay_ms: u64,
    /// How members are read and written.
    pub io: Io,
    /// Whether members are used past the page cache.
    pub direct: Direct,
    /// The shortest write that a worker leaves to one that sleeps while it receives the next one, in bytes; 0 for never.
    pub hand_over_bytes: u64,
    /// Workers to share with others, which outlive the volume; otherwise it has its own, if any.
    pub workers: Option<Arc<Workers>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            shards: 4,
            cache: Cache::default(),
            cache_file: None,
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

    /// Small writes through the page cache went to a thread of the kernel each, unless a person knew of `--direct on`.
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
